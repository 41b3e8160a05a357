"""Checks of the programs on each node: labeler and allocator."""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from webhook.configuration.cluster import labeler_levels, level_faults, read_configuration
from webhook.configuration.document import ConfigurationError
from webhook.inquiry.findings import REAPPLY, Finding, State, found
from webhook.kube.client import Api, ApiError

LABELER: Final = "topogate-labeler"
ALLOCATOR: Final = "topogate-allocator"
_LABELER_FILE: Final = f"/api/v1/namespaces/{LABELER}/configmaps/labeler"
_DAEMON_SETS: Final = "/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}"


def labeler(api: Api, now: datetime) -> Iterator[Finding]:
    """The labeler runs on each node that it is meant for."""
    yield from _daemon_set(api, LABELER, "labeler")


def levels(api: Api, now: datetime) -> Iterator[Finding]:
    """The labeler writes the labels of the configuration's levels."""
    try:
        file = api.json("GET", _LABELER_FILE)
    except ApiError as error:
        if error.status != 404:
            raise
        yield found(State.WELL, "the labeler is not installed: others write the labels of the levels")
        return
    try:
        faults = level_faults(read_configuration(api).settings.topology, labeler_levels(file))
    except ConfigurationError as error:
        yield found(State.UNKNOWN, str(error))
        return
    for fault in faults:
        yield found(State.ODD, fault, "Make the labeler's levels and topology.levels agree.")
    if not faults:
        yield found(State.WELL, "the labeler writes the labels of the configuration's levels")


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
