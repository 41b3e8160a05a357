"""Failures of pods that their node may have caused: when, after how long, and why. Pure.

Failures that a broken GPU often causes count:

    the kubelet cannot allocate the pod's devices      UnexpectedAdmissionError
    the container cannot be created or started         CreateContainerError, RunContainerError, StartError
    the container fails by itself, soon                its exit status

Others do not count: a pod that was deleted or evicted or ran out of memory or time, an image that cannot be
pulled, a node that was shut down, a pod that had run before its kubelet refused it, as after a reboot. One
failure never proves that the node caused it; see failing_nodes.

A kubelet's refusal for any other reason is no failure of the node; see decide.kubelet_refusals.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from webhook.kube.containers import ContainerEnd, PodContainerStatus
from webhook.kube.objects import Pod
from webhook.kube.times import since_1970
from webhook.scheduling.gpu_counts import gpus_of
from webhook.scheduling.gpus import Counting
from webhook.sweeper.decide.kubelet_refusals import NOT_ADMITTED
from webhook.sweeper.observe.membership import GangKey

NOT_STARTED: Final = frozenset({"CreateContainerError", "RunContainerError"})
_END_OF_START: Final = frozenset({"StartError", "ContainerCannotRun"})
_NOT_OURS: Final = frozenset({"OOMKilled", "Completed"})
_KILLED: Final = frozenset({137, 143})
"""Exit statuses by SIGKILL and SIGTERM: another process ended it."""


@dataclass(frozen=True)
class NodeFailure:
    """A pod of `gang` (see gang_id) that failed on a node. Times are in seconds since 1970.

    ran: for how many seconds. gpus: how many it requested. asks: a hash of all its requests.
    """

    namespace: str
    gang: str
    uid: str
    node: str
    created: int
    at: int
    ran: int
    cause: str
    gpus: int
    asks: str


@dataclass(frozen=True)
class _End:
    at: int
    ran: int
    cause: str


def failure_of(
    pod: Pod, counting: Counting, soon_seconds: float, now: float, controller_of: Callable[[Pod], GangKey]
) -> NodeFailure | None:
    """The failure of a pod with GPUs, None if it has not failed, or its node is not a likely cause.

    now: seconds since 1970, for failures without a time. controller_of: see View.controller_of.
    """
    if not pod.spec.node_name or pod.metadata.deletion_timestamp or not (gpus := gpus_of(pod, counting)):
        return None
    end = _end_of(pod, now)
    if end is None or end.ran > soon_seconds:
        return None
    created = seconds_of(pod.metadata.creation_timestamp)
    if created is None:
        return None
    at = min(end.at, int(now))
    return NodeFailure(
        pod.metadata.namespace, gang_id(controller_of(pod)), pod.metadata.uid, pod.spec.node_name,
        min(created, at), at, end.ran, end.cause, gpus, asks_of(pod),
    )  # fmt: skip


@lru_cache(maxsize=4096)
def gang_id(gang: GangKey) -> str:
    """A hash of a gang, or of the controller of one-pod gangs: short, however long its name is."""
    return _digest(f"{gang.kind}\0{gang.id}")


def asks_of(pod: Pod) -> str:
    """A hash of the requests of the pod's containers, equal for pods of one template."""
    amounts = [
        (
            container.name,
            sorted(container.resources.requests.items()),
            sorted(container.resources.limits.items()),
        )
        for container in (*pod.spec.init_containers, *pod.spec.containers)
    ]
    return _digest(repr(amounts))


def seconds_of(time: str | None) -> int | None:
    """A time of the API server in seconds since 1970; None without a time, or if the text is not one."""
    found = since_1970(time)
    return None if found is None else int(found)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _end_of(pod: Pod, now: float) -> _End | None:
    status = pod.status
    if status.phase == "Failed" and status.reason:
        # A reason means that the kubelet or a controller failed the pod, not a container.
        at = seconds_of(status.start_time)
        # Without a start, it had run (see ClusterCache.take_failed): its kubelet or node was restarted.
        return None if at is None or status.reason != NOT_ADMITTED else _End(at, 0, NOT_ADMITTED)
    ends = [
        end
        for each in (*status.init_container_statuses, *status.container_statuses)
        if (end := _of(each, now))
    ]
    return min(ends, key=lambda end: end.at, default=None)


def _of(container: PodContainerStatus, now: float) -> _End | None:
    """How one container failed, None if it did not."""
    waiting = container.state.waiting
    if waiting is not None and waiting.reason in NOT_STARTED:
        return _End(int(now), 0, waiting.reason)
    ended = container.state.terminated or container.last_state.terminated
    return _ended(ended) if ended is not None else None


def _ended(ended: ContainerEnd) -> _End | None:
    at, started = seconds_of(ended.finished_at), seconds_of(ended.started_at)
    if ended.exit_code == 0 or ended.reason in _NOT_OURS or at is None:
        return None
    if ended.reason in _END_OF_START:
        return _End(at, 0, "StartError")
    if ended.exit_code in _KILLED:
        return None
    return _End(at, max(0, at - started) if started else 0, f"exit status {ended.exit_code}")
