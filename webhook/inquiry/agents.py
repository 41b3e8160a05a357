"""Checks of the nodes, and of what runs on each: labeler and allocator."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from labeler.contract import keys
from webhook.inquiry.findings import REAPPLY, Finding, State, found, some
from webhook.kube.client import Api, ApiError

LABELER: Final = "topogate-labeler"
ALLOCATOR: Final = "topogate-allocator"
_DAEMON_SETS: Final = "/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}"


def places(api: Api, now: datetime) -> Iterator[Finding]:
    """GPU nodes without a place are used last, and never for a gang that requires a level."""
    items = api.json("GET", "/api/v1/nodes", timeout_seconds=60)["items"]
    with_gpus = [item for item in items if _has_gpus(item)]
    unplaced = [item["metadata"]["name"] for item in with_gpus if not _has_place(item)]
    if not with_gpus:
        yield found(
            State.ODD, "no node has a GPU in its allocatable resources", "Is a device plugin installed?"
        )
    elif unplaced:
        yield found(
            State.ODD,
            f"{len(unplaced)} of {len(with_gpus)} GPU nodes have no topology labels: {some(unplaced)}",
            "docs/operators/topology.md, Where the topology comes from.",
        )
    else:
        yield found(State.WELL, f"all {len(with_gpus)} GPU nodes have topology labels")


def _has_gpus(node: dict[str, Any]) -> bool:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return any("gpu" in name and "/" in name and amount != "0" for name, amount in amounts.items())


def _has_place(node: dict[str, Any]) -> bool:
    labels = node["metadata"].get("labels") or {}
    return any(all(labels.get(key) for key in family) for family in keys.TOPOLOGY_FAMILIES)


def labeler(api: Api, now: datetime) -> Iterator[Finding]:
    """It runs on each node that it is meant for."""
    yield from _daemon_set(api, LABELER, "labeler")


def allocator(api: Api, now: datetime) -> Iterator[Finding]:
    """Likewise, where it is installed."""
    try:
        yield from _daemon_set(api, ALLOCATOR, "allocator")
    except ApiError as error:
        if error.status != 404:
            raise
        yield found(State.WELL, "not installed: cards are handed out by the nodes' own device plugins")


def _daemon_set(api: Api, namespace: str, name: str) -> Iterator[Finding]:
    status = api.json("GET", _DAEMON_SETS.format(namespace=namespace, name=name)).get("status") or {}
    ready, wanted = status.get("numberReady", 0), status.get("desiredNumberScheduled", 0)
    if ready < wanted:
        remedy = f"kubectl get pods -n {namespace} -o wide; kubectl describe daemonset/{name} -n {namespace}"
        yield found(
            State.ODD if ready else State.ILL, f"{name}: {ready} of {wanted} nodes have it ready", remedy
        )
    elif not wanted:
        yield found(State.ODD, f"{name}: no node is meant to have it", f"Compare its nodeSelector. {REAPPLY}")
    else:
        yield found(State.WELL, f"{name}: all {wanted} nodes have it ready")
