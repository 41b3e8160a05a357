"""Failures of pods for tests, as short as they can be written."""

from typing import Any

import msgspec

from tests.sweeper.pods import decode, pod_json
from webhook.extensions.node_health.failing_nodes import FailureState, GangFailure
from webhook.extensions.node_health.pod_failures import NodeFailure
from webhook.kube.objects import Node, Pod

GPU = "nvidia.com/gpu"
DAY = "2026-01-01"


def clock_time(at: int) -> str:
    """A time of the first hour of a day, `at` seconds into it."""
    return f"{DAY}T00:{at // 60:02}:{at % 60:02}Z"


def reported(
    node: str,
    at: int,
    *,
    gang: str = "g",
    namespace: str = "a",
    created: int = 0,
    uid: str = "",
    ran: int = 5,
) -> NodeFailure:
    """A pod of a gang that failed on a node."""
    uid = uid or f"{namespace}-{gang}-{node}-{at}"
    return NodeFailure(namespace, gang, uid, node, created, at, ran, "exit status 1", 8, "asks")


def proven(
    node: str, *, gang: str, namespace: str, at: int = 100, state: FailureState = FailureState.PROVEN
) -> GangFailure:
    """A failure of a gang that is kept."""
    return GangFailure(
        namespace, gang, 0, at, 5, "exit status 1", 8, "asks", ((f"{gang}-{node}", node),), state
    )


def ended(
    name: str, node: str, *, status: dict[str, Any], gpus: int = 8, created: int = 0, **metadata: Any
) -> Pod:
    """A pod on a node, with the status that a kubelet has written."""
    amounts = {GPU: str(gpus)} if gpus else {}
    container = {"name": "c", "resources": {"limits": amounts, "requests": amounts}}
    metadata = {"creationTimestamp": clock_time(created), **metadata}
    body = pod_json(name, nodeName=node, schedulingGates=[], containers=[container], metadata=metadata)
    return decode({**body, "status": status})


def exited(
    code: int, at: int, *, started: int = 0, reason: str = "Error", key: str = "state"
) -> dict[str, Any]:
    """How a container is that has ended."""
    end = {"exitCode": code, "reason": reason, "startedAt": clock_time(started), "finishedAt": clock_time(at)}
    return {"name": "c", key: {"terminated": end}}


def node(
    name: str,
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    gpus: int = 8,
) -> Node:
    """A node of one model."""
    metadata = {
        "name": name,
        "uid": name,
        "annotations": annotations or {},
        "labels": {"nvidia.com/gpu.product": "H100", **(labels or {})},
    }
    allocatable = {GPU: str(gpus), "pods": "110"}
    return msgspec.convert({"metadata": metadata, "status": {"allocatable": allocatable}}, Node)
