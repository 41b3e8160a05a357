"""Released pods that will not run where they were sent.

A pin is for good: a released pod whose node is gone, or that kube-scheduler will not bind, can only be
made again, by the controller that made it. Its successor comes gated and joins its gang where it is.
A pod that nobody would make again is never deleted; the user is told. Pure.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Final

from webhook.kube.objects import Node, Pod
from webhook.sweeper.observe.pins import occupied_node, scheduler_of
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.sweeper.observe.view import is_ready, is_usable
from webhook.sweeper.settings import Settings
from webhook.workloads.native_gangs import group_name

NODE_GONE_SECONDS: Final = 10.0
UNTRIED: Final = "no-scheduler"
"""The cause of a pod that waits for the scheduler alone: said, but not acted upon."""

_NO_NODE: Final = " nodes are available"
"""In what kube-scheduler says of a pod for which it finds no node."""

NOT_BOUND: Final = "not-bound"
"""The cause of a pod that kube-scheduler has tried to bind, in vain."""


@dataclass(frozen=True)
class NeededRepair:
    """A released pod that needs another place. cause is a word for metrics, reason a sentence.

    seconds: for how long it has been so. message: kube-scheduler's own words, "" without any.
    """

    pod: Pod
    node: str
    cause: str
    reason: str
    seconds: float = 0.0
    message: str = ""


Troubles = Mapping[tuple[str, str], float]
"""By uid and kind of trouble, since when; after a restart all times begin anew, which only delays."""


@dataclass(frozen=True)
class _Trouble:
    """What is wrong with a pod now. patience: for how many seconds it may be. counted_as: the kind of it."""

    patience: float
    node: str
    cause: str
    reason: str
    counted_as: str = ""


def needed_repairs(
    troubles: Troubles,
    released: Iterable[Pod],
    nodes: Mapping[str, Node],
    emptying: Set[str],
    settings: Settings,
    now: float,
) -> tuple[list[NeededRepair], Troubles]:
    """Which of these released pods have been in trouble for too long; a short trouble is not acted upon.

    emptying: nodes on which pods are terminating.
    """
    known: dict[tuple[str, str], float] = {}
    found = []
    for pod in released:
        trouble = _trouble(pod, nodes, emptying, settings)
        if trouble is None:
            continue
        key = pod.metadata.uid, trouble.counted_as or trouble.cause
        since = known[key] = troubles.get(key, now)
        lasts = now - since
        if lasts >= trouble.patience:
            repair = NeededRepair(
                pod, trouble.node, trouble.cause, trouble.reason, lasts, _scheduler_message(pod)
            )
            found.append(repair)
    return found, known


def _trouble(pod: Pod, nodes: Mapping[str, Node], emptying: Set[str], settings: Settings) -> _Trouble | None:
    name = occupied_node(pod, settings.gate_prefix)
    if name is None or pod.metadata.deletion_timestamp or pod.status.phase not in ("", "Pending"):
        return None
    is_bound = bool(pod.spec.node_name)
    node = nodes.get(name)
    if node is None:
        # Pods and nodes are watched apart: the one may be behind the other for a moment.
        return _Trouble(NODE_GONE_SECONDS, name, "node-gone", f"its node {name} is gone")
    if what := _why_unusable(node, is_bound):
        return _Trouble(settings.not_ready_seconds, name, "node-unusable", f"its node {name} is {what}")
    if is_bound or pod.spec.scheduling_gates:  # others may hold it as long as they like
        return None
    return _not_bound(pod, name, emptying, settings)


def _why_unusable(node: Node, is_bound: bool) -> str:
    """Why a pod cannot run there, "" if it can. is_bound: whether it is bound there already."""
    if not is_ready(node):
        return "not ready"
    return "" if is_bound or is_usable(node) else "closed to new pods"


def _not_bound(pod: Pod, node: str, emptying: Set[str], settings: Settings) -> _Trouble:
    """It waits for its scheduler, and nothing is wrong with its node."""
    if not _was_tried(pod):
        # The scheduler is away or behind; no other node would help, and deleting all would hurt.
        reason = f"no scheduler has looked at it for {settings.bind_seconds:.0f} s: is it running?"
        return _Trouble(settings.bind_seconds, node, UNTRIED, reason)
    if pod.status.nominated_node_name and node in emptying:
        # Its victims take their grace period, which is not counted below, and may be without end.
        reason = f"what is to free capacity for it on {node} has not ended in {ENDING_SECONDS:.0f} s"
        return _Trouble(ENDING_SECONDS, node, NOT_BOUND, reason, "emptying")
    waits_longer = pod.status.nominated_node_name or waits_for_group(pod)
    patience = settings.bind_seconds * (3 if waits_longer else 1)
    reason = f"kube-scheduler has not bound it to {node} within {patience:.0f} s{_scheduler_note(pod)}"
    return _Trouble(patience, node, NOT_BOUND, reason)


def away_schedulers(released: Iterable[Pod]) -> frozenset[str]:
    """The schedulers that have tried none of the released pods that wait for them: they are not running.

    One that has tried others will not come to those that it has passed over.
    """
    waiting = [pod for pod in released if not pod.spec.node_name and not pod.spec.scheduling_gates]
    names = {scheduler_of(pod) for pod in waiting}
    return frozenset(names - {scheduler_of(pod) for pod in waiting if _was_tried(pod)})


def _was_tried(pod: Pod) -> bool:
    """Whether a scheduler has tried to bind the pod since it was released, and has said so."""
    return bool(pod.status.nominated_node_name) or any(
        each.type == "PodScheduled" and each.reason not in ("", "SchedulingGated")
        for each in pod.status.conditions
    )


def waits_for_group(pod: Pod) -> bool:
    """Whether kube-scheduler would bind the pod, and only waits for others of its PodGroup.

    Of a group that it cannot bind it says of each pod either how many nodes are available to it, or that it
    waits for the group (schedule_one_podgroup.go). Only the first kind needs another node.
    """
    message = _scheduler_message(pod)
    return bool(group_name(pod.spec)) and bool(message) and _NO_NODE not in message


def _scheduler_note(pod: Pod) -> str:
    """kube-scheduler's own words, which tell of rules that topogate does not model."""
    message = _scheduler_message(pod)
    return f", saying: {message}" if message else ""


def _scheduler_message(pod: Pod) -> str:
    message = (each.message for each in pod.status.conditions if each.type == "PodScheduled" and each.message)
    return next(message, "")
