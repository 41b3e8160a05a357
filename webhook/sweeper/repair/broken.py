"""Gangs that others have preempted below their minimum: the rest is evicted, to return as a whole.

kube-scheduler preempts pod by pod. The rest of a gang holds GPUs and does nothing. Preemption by others is
recognized by the existing pods: on the node that the gang's plan names for a missing pod is a pod of higher
priority. A gang whose new pods fit, or that has enough pods without them, is left alone. So is one whose pods
end by themselves or that its controller updates: a missing pod is no sign of preemption there. And a Ray
cluster continues with the workers that it has left, while its operator recreates the lost one. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, Protocol

from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.kube.times import since_1970
from webhook.scheduling.gpu_counts import started_at
from webhook.sweeper.decide.missing_pods import RECREATED_SECONDS
from webhook.sweeper.decide.orders import NO_PLACE_FOUND, Cause, Eviction, EvictionCause, Orders, Warn
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View, is_usable
from webhook.text import counted
from webhook.workloads.marks import REVISION_LABEL, SURVIVES_LOST_PODS
from webhook.workloads.pod_sets import asks_for_devices

_SCALED_TIMES: Final = 20
"""For so many times as long a gang is left where an autoscaler may bring the node that it lacks."""


class WhyNot(Protocol):
    """Why pods of one gang may not be evicted, "" if they may; ordered: evictions ordered already."""

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
    """Evict the rest of gangs that were broken for long enough.

    causes: why gangs wait, as last reported. unasked: gangs whose cause may no longer be valid.
    """
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
            evictions += [
                Eviction(pod, EvictionCause.INCOMPLETE_GANG, reason, may_run=True, for_others=True)
                for pod in left
            ]
    return Orders(evictions=tuple(evictions), warnings=tuple(warnings), due_seconds=due), known


def _left_since(
    gang: PodGang, view: View, cause: Cause | None, is_unasked: bool, since: BrokenSince
) -> tuple[list[Pod], float | None]:
    """The rest of a broken gang, and since when it is broken; None if it is not.

    No pod is returned where it is unknown in this pass whether it is broken: its time then continues.
    """
    if is_unasked:
        return [], since.get(gang.key)
    left = _left(gang, view)
    if not left or cause not in NO_PLACE_FOUND:
        return [], None
    if _have_ended(gang, view):  # or are yet to be recreated
        return [], since.get(gang.key)
    # The pods that took the place may be gone again.
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
    """Whether a pod is of another revision than the rest. stand: by owner's kind and uid."""
    owner = pod.metadata.controller
    if owner is None:
        return False
    other = stand.get((owner.kind, owner.uid))
    if other is not None:
        return pod.metadata.labels.get(REVISION_LABEL) != other.metadata.labels.get(REVISION_LABEL)
    # A Deployment has a ReplicaSet for each revision.
    return owner.kind == "ReplicaSet" and any(kind == owner.kind for kind, _ in stand)


def _gone(gang: PodGang, view: View) -> list[PlannedPod]:
    """The entries of its plan for pods that do not exist any more."""
    entries = view.placements[gang.key.placement_key].spec.pods
    return [entry for entry in entries if entry.uid not in view.by_uid]


def _recreated(gang: PodGang, view: View) -> list[PlannedPod]:
    """Those of them whose successors wait: the others have ended by themselves.

    Without ranks that is unknown. Then all count, unless some pods are created once others have completed.
    """
    gone = _gone(gang, view)
    if not gang.ranks or not gang.described:
        return [] if any(each.phase for each in gang.described) else gone
    waiting = {gang.ranks.get(pod.metadata.uid) for pod in gang.gated} - {None}
    return [entry for entry in gone if entry.rank in waiting]


def _have_ended(gang: PodGang, view: View) -> bool:
    """Whether more of its pods are gone than are recreated: they have finished, or were given up.

    This is unknown for a staged gang, whose pods return one by one.
    """
    return not gang.staged and len(_gone(gang, view)) > len(gang.gated) + len(gang.later)


def _is_lost_to_others(gang: PodGang, left: Sequence[Pod], view: View) -> bool:
    """Whether a pod of its plan is gone from a node that has, or will have, a pod of higher priority since.

    When it was lost is unknown, but its successor is created soon after that; what has run for longer was its
    neighbour. Pods that are on every such node do not count, as of a DaemonSet, nor those that ask for no
    scarce resource; and a cordoned node, as for a drain, has lost its pods by that.
    """
    names = {entry.node for entry in _recreated(gang, view)} & view.nodes.keys()
    nodes = {name for name in names if is_usable(view.nodes[name])}
    pods = [pod for pod in _pods_on(nodes, view) if not view.is_lasting(pod)]
    if any(asks_for_devices(pod.spec) for pod in (*left, *gang.gated)):
        pods = [pod for pod in pods if asks_for_devices(pod.spec)]
    lost_at = max(map(_created_at, gang.gated)) - RECREATED_SECONDS
    return _highest(pod for pod in pods if not _has_run_since(pod, lost_at)) > _highest(left)


def _created_at(pod: Pod) -> float:
    return since_1970(pod.metadata.creation_timestamp) or 0.0


def _has_run_since(pod: Pod, at: float) -> bool:
    """Whether it was running already then. at: in seconds since 1970."""
    return pod.status.phase == "Running" and started_at(pod) < at


def _highest(pods: Iterable[Pod]) -> float:
    """The highest priority of these pods, below all others if there are none."""
    return max((pod.spec.priority or 0 for pod in pods), default=float("-inf"))


def _pods_on(nodes: Set[str], view: View) -> Iterator[Pod]:
    """Pods that are, or will be, on these nodes."""
    if not nodes:
        return
    for node in nodes:
        yield from view.index.bound.get(node, ())
    for pod in view.index.of[PodTrait.UNBOUND].values():
        if pod.status.nominated_node_name in nodes or view.occupied(pod) in nodes:
            yield pod
