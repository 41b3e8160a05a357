"""Gangs that others have preempted below their minimum: what is left of them goes, to come again as a whole.

kube-scheduler preempts pod by pod. What is left of a gang holds GPUs and does nothing. That it was others
shows in what is there: on the node that the gang's plan names for a pod that is gone stands a more important
one. A gang whose new pods fit, or has enough without them, is left alone; so is one whose pods
end by themselves or that its controller is updating: a pod that is gone is no sign of anything there. And a
Ray cluster goes on with the workers that it has left, while its operator makes the lost one again. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, Protocol

from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.kube.planned import PlannedPod
from webhook.sweeper.decide.orders import Cause, Eviction, Orders, Warn
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View, is_usable
from webhook.sweeper.settings import Settings
from webhook.text import counted
from webhook.workloads.marks import REVISION_LABEL, SURVIVES_LOST_PODS
from webhook.workloads.shape import asks_for_devices

_NO_PLACE: Final = frozenset({Cause.NO_CAPACITY, Cause.RESERVED, Cause.UNDECIDED})
"""Why its new pods wait: there is no place for them beside the others."""
_SCALED_TIMES: Final = 20
"""For so many times as long a gang is left where an autoscaler may bring the node that it lacks."""


class WhyNot(Protocol):
    """Why pods of one gang are not to go, "" if they may; ordered: those that go already."""

    def __call__(self, pods: Sequence[Pod], ordered: Iterable[Pod] = ()) -> str: ...


BrokenSince = Mapping[GangKey, float]
"""Since when gangs have been broken, in seconds of Moment; losing it only delays."""


def evict_broken(
    view: View,
    gangs: Sequence[PodGang],
    causes: Mapping[GangKey, Cause],
    unasked: Set[GangKey],
    since: BrokenSince,
    why_not: WhyNot,
    settings: Settings,
) -> tuple[Orders, BrokenSince]:
    """Evict what is left of gangs that have been broken for long enough.

    causes: why gangs wait, as was said last. unasked: gangs of which that may not hold any more.
    """
    if not settings.evict_broken:
        return Orders(), {}
    now = view.now.seconds
    known: dict[GangKey, float] = {}
    evictions: list[Eviction] = []
    warnings: list[Warn] = []
    due = float("inf")
    for gang in gangs:
        left, began = _left_since(gang, view, causes.get(gang.key), gang.key in unasked, since)
        if began is not None:
            known[gang.key] = began
        if not left or began is None:
            continue
        if (remaining := began + _patience(settings) - now) > 0:
            due = min(due, remaining)
        elif why := why_not(left, (each.pod for each in evictions)):
            note = f"pods of higher priority use the nodes of others of its gang; {why}"
            warnings.append(Warn(left[0], EventReason.NOT_EVICTED, note))
        else:
            name = f"{gang.key.kind}/{gang.key.name}"
            reason = (
                f"evicted with the rest of its gang {name}, {counted(len(left), 'pod')}: others were "
                "preempted, and there is no capacity for them near these"
            )
            evictions += [Eviction(pod, "broken", reason, may_run=True, for_others=True) for pod in left]
    return Orders(evictions=tuple(evictions), warnings=tuple(warnings), due_seconds=due), known


def _left_since(
    gang: PodGang, view: View, cause: Cause | None, is_unasked: bool, since: BrokenSince
) -> tuple[list[Pod], float | None]:
    """What is left of a gang that is broken, and since when it is so; None if it is not.

    Nothing is left to go where it is not known in this pass whether it is broken: its time goes on then.
    """
    if is_unasked:
        return [], since.get(gang.key)
    left = _left(gang, view)
    if not left or cause not in _NO_PLACE:
        return [], None
    if _have_ended(gang, view):  # or are yet to be recreated
        return [], since.get(gang.key)
    # Who took the place may be gone again.
    if gang.key not in since and not _is_lost_to_others(gang, left, view):
        return [], None
    return left, since.get(gang.key, view.now.seconds)


def _patience(settings: Settings) -> float:
    """For how long a gang is left broken, in seconds."""
    return settings.broken_seconds * (_SCALED_TIMES if settings.scale_up.is_on else 1)


def _left(gang: PodGang, view: View) -> list[Pod]:
    """The pods of ours that a gang has left which ran as a whole, if they are too few; else []."""
    if gang.key.kind in SURVIVES_LOST_PODS:
        return []
    placement = view.placements.get(gang.key.placement_key)
    if placement is None or not placement.is_complete or _are_planned(gang.gated, view):
        return []
    left = [pod for pod in gang.released if view.is_ours(pod)]
    enough = gang.minimum or gang.size or placement.spec.size
    return left if len(left) < enough and not _is_updated(gang, left) else []


def _are_planned(pods: Iterable[Pod], view: View) -> bool:
    return all(pod.metadata.uid in view.planned for pod in pods)


def _is_updated(gang: PodGang, left: Sequence[Pod]) -> bool:
    """Whether its new pods are of another revision: their controller itself has ended others for them."""
    stand = {(owner.kind, owner.uid): pod for pod in left if (owner := pod.metadata.controller) is not None}
    return any(_is_of_another_revision(pod, stand) for pod in gang.gated)


def _is_of_another_revision(pod: Pod, stand: Mapping[tuple[str, str], Pod]) -> bool:
    """Whether a pod is of another revision than those that are left. stand: by owner's kind and uid."""
    owner = pod.metadata.controller
    if owner is None:
        return False
    other = stand.get((owner.kind, owner.uid))
    if other is not None:
        return pod.metadata.labels.get(REVISION_LABEL) != other.metadata.labels.get(REVISION_LABEL)
    # A Deployment has a ReplicaSet for each revision.
    return owner.kind == "ReplicaSet" and any(kind == owner.kind for kind, _ in stand)


def _gone(gang: PodGang, view: View) -> list[PlannedPod]:
    """What its plan says of pods that are not there any more."""
    entries = view.placements[gang.key.placement_key].spec.pods
    return [entry for entry in entries if entry.uid not in view.by_uid]


def _have_ended(gang: PodGang, view: View) -> bool:
    """Whether more of its pods are gone than come again: they have finished, or were given up.

    Nobody knows of a staged gang, which comes again one by one.
    """
    return not gang.staged and len(_gone(gang, view)) > len(gang.gated) + len(gang.later)


def _is_lost_to_others(gang: PodGang, left: Sequence[Pod], view: View) -> bool:
    """Whether a pod of its plan is gone from a node where a more important one stands, or is about to.

    Not one that stands on every such node, as of a DaemonSet, nor one that asks for nothing that is scarce;
    and a node that is closed, as for a drain, has lost its pods by that.
    """
    names = {entry.node for entry in _gone(gang, view)} & view.nodes.keys()
    nodes = {name for name in names if is_usable(view.nodes[name])}
    pods = [pod for pod in _pods_on(nodes, view) if not view.is_lasting(pod)]
    if any(asks_for_devices(pod.spec) for pod in (*left, *gang.gated)):
        pods = [pod for pod in pods if asks_for_devices(pod.spec)]
    return _highest(pods) > _highest(left)


def _highest(pods: Iterable[Pod]) -> float:
    """The highest priority of these pods, below all others if there are none."""
    return max((pod.spec.priority or 0 for pod in pods), default=float("-inf"))


def _pods_on(nodes: Set[str], view: View) -> Iterator[Pod]:
    """Pods that stand on these nodes, or are about to."""
    if not nodes:
        return
    for node in nodes:
        yield from view.index.bound.get(node, ())
    for pod in view.index.of[Sort.UNBOUND].values():
        if pod.status.nominated_node_name in nodes or view.occupied(pod) in nodes:
            yield pod
