"""Checks of the programs on each node: labeler and allocator."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from webhook.inquiry.findings import REAPPLY, Finding, State, found
from webhook.kube.client import Api, ApiError

LABELER: Final = "topogate-labeler"
ALLOCATOR: Final = "topogate-allocator"
_DAEMON_SETS: Final = "/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}"


def labeler(api: Api, now: datetime) -> Iterator[Finding]:
    """The labeler runs on each node that it is meant for."""
    yield from _daemon_set(api, LABELER, "labeler")


def allocator(api: Api, now: datetime) -> Iterator[Finding]:
    """So does the allocator, if it is installed."""
    try:
        yield from _daemon_set(api, ALLOCATOR, "allocator")
    except ApiError as error:
        if error.status != 404:
            raise
        yield found(State.WELL, "not installed: the device plugin of each node assigns its cards")


def _daemon_set(api: Api, namespace: str, name: str) -> Iterator[Finding]:
    status = api.json("GET", _DAEMON_SETS.format(namespace=namespace, name=name)).get("status") or {}
    ready, wanted = status.get("numberReady", 0), status.get("desiredNumberScheduled", 0)
    if ready < wanted:
        remedy = f"kubectl get pods -n {namespace} -o wide; kubectl describe daemonset/{name} -n {namespace}"
        yield found(State.ODD if ready else State.ILL, f"{name}: ready on {ready} of {wanted} nodes", remedy)
    elif not wanted:
        yield found(State.ODD, f"{name}: no node is selected for it", f"Compare its nodeSelector. {REAPPLY}")
    else:
        yield found(State.WELL, f"{name}: ready on all {wanted} nodes")
