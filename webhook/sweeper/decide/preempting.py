"""Plans that wait for their victims: whom to evict now, and until when their pods are not released.

All of it follows from the plan and from what is there, so that whoever leads goes on with what was begun. Who
was chosen goes only as long as that helps: while the plan's pods wait, and its nodes are too full for them.
A gang that goes whole goes with all that it has by then, also with pods that came after it was chosen. Those
that the plan names on such nodes go last, so that one that was begun is seen to be. A plan is a Placement,
which others may have written: nobody goes by it who is not of lower priority than the pods that wait, or is
of another gang than the rest of its group.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, VictimGroup
from webhook.placement import Snapshot, Usage
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.orders import NO_HURRY, Cause, Eviction, GangOutcome, Orders
from webhook.sweeper.decide.preemption import preempting, spare
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings
from webhook.text import counted

AGAIN_SECONDS: Final = 5.0
"""How soon it is looked at again whether a budget lets a gang go."""

_NAMED: Final = 3
"""Victims that a sentence names."""


@dataclass(frozen=True)
class RunningVictims:
    """Victims that are there still, of one gang.

    late: those among the pods that the plan does not name. blocked: why it is not begun,
    as all of it cannot go.
    """

    gang: GangKey
    pods: tuple[Pod, ...]
    whole: bool
    late: frozenset[str] = frozenset()
    blocked: str = ""

    @property
    def going(self) -> tuple[Pod, ...]:
        """Those that are yet to be evicted."""
        return tuple(pod for pod in self.pods if not pod.metadata.deletion_timestamp)

    @property
    def is_begun(self) -> bool:
        """Whether some have gone of a gang that goes whole, and is of no use without them."""
        return self.whole and len(self.going) < len(self.pods)

    def in_order(self, nodes: Set[str]) -> list[Pod]:
        """The same, late ones first: as long as one is left that is in the plan's way, they all are found."""

        def position(pod: Pod) -> int:
            return 0 if pod.metadata.uid in self.late else 1 + (pod.spec.node_name in nodes)

        return sorted(self.going, key=position)


@dataclass(frozen=True)
class Preempting:
    """What plans that wait for victims come to in one pass.

    waiting_uids: uids of pods that are not released yet. sentences: by Placement, what its gang waits for.
    going: gangs that go whole in this pass: of them no pod is placed in it, which would stand alone
    afterwards.
    """

    waiting_uids: frozenset[str] = frozenset()
    going: frozenset[GangKey] = frozenset()
    evictions: Mapping[str, Eviction] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)

    def evicting(self, group: RunningVictims, pods: Sequence[Pod], reason: str) -> "Preempting":
        """These pods of a group go."""
        going = {group.gang} if group.whole and pods else set[GangKey]()
        cause = "preempted" if group.whole else "spared"
        orders = {
            pod.metadata.uid: Eviction(pod, cause, reason, may_run=True, for_others=True) for pod in pods
        }
        return replace(self, going=self.going | going, evictions={**self.evictions, **orders})

    def holding(self, placement: Placement, waiting: Iterable[Pod], sentence: str) -> "Preempting":
        """A plan's pods are not released yet."""
        waiting_uids = self.waiting_uids.union(pod.metadata.uid for pod in waiting)
        return replace(self, waiting_uids=waiting_uids, sentences={**self.sentences, placement.key: sentence})


VictimsSince = Mapping[str, float]
"""By Placement, since when its plan waits for victims, in seconds of Moment; losing it only delays."""


def look_for_victims(
    view: View, snapshot: Snapshot, budgets: Budgets, since: VictimsSince, settings: Settings
) -> tuple[Preempting, VictimsSince]:
    """Whom to evict now for which plans, and which of their pods wait."""
    found, known = Preempting(), dict[str, float]()
    if not settings.preempt:
        return found, known
    now = view.now.seconds
    plans = list(preempting(view))
    promised = [pod for pod in view.gated if plans and pod.metadata.uid in view.planned]
    promised_gangs = frozenset(map(view.gang_of, promised))
    for placement, waiting in plans:
        nodes = {view.planned[pod.metadata.uid].node for pod in waiting} & snapshot.nodes.keys()
        there = _groups(placement, waiting, nodes, view, promised_gangs)
        groups = _needed(there, _going(placement, view), nodes, _wanted(waiting, view), snapshot)
        if not groups:
            continue
        found, budgets, blocked = _evicting(groups, placement, waiting, nodes, view, found, budgets)
        began = known[placement.key] = since.get(placement.key, now)
        if now - began < (settings.bind_seconds if blocked else ENDING_SECONDS):
            # After that it is left to kube-scheduler, which heeds no budget where nothing else helps.
            found = found.holding(placement, waiting, _waits(groups, placement.metadata.namespace, blocked))
    return found, known


def _evicting(
    groups: Sequence[RunningVictims],
    placement: Placement,
    waiting: Sequence[Pod],
    nodes: Set[str],
    view: View,
    found: Preempting,
    budgets: Budgets,
) -> tuple[Preempting, Budgets, str]:
    """With those of a plan's victims that go now, and what they leave of budgets; and why some are kept."""
    blocked = ""
    for group in groups:
        # Those that go for another plan already are not asked for twice.
        going = [pod for pod in group.in_order(nodes) if pod.metadata.uid not in found.evictions]
        if why := _why_not_evicted(group, going, placement, view, found, budgets):
            blocked = why
            continue
        budgets = budgets.without(going)
        found = found.evicting(group, going, _why_evicted(group, placement, waiting))
    return found, budgets, blocked


def waiting_for(preempting: Preempting, gangs: Iterable[PodGang]) -> Orders:
    """The evictions as orders, and what the gangs are told that wait for them."""
    sentences = [
        (gang, sentence) for gang in gangs if (sentence := preempting.sentences.get(gang.key.placement_key))
    ]
    return Orders(
        evictions=tuple(preempting.evictions.values()),
        outcomes=tuple(GangOutcome(gang, sentence, Cause.VICTIMS) for gang, sentence in sentences),
        due_seconds=AGAIN_SECONDS if preempting.waiting_uids else NO_HURRY,
    )


_NONE_TO_SPARE: Final = "their gang cannot spare them now"
_NOT_ALL: Final = "their gang has pods that may not go for it"
_NOT_YET: Final = "pods of their gang are on their way to nodes"
_ITS_BUDGET: Final = "a PodDisruptionBudget keeps them"


def _why_not_evicted(
    group: RunningVictims,
    going: Sequence[Pod],
    placement: Placement,
    view: View,
    found: Preempting,
    budgets: Budgets,
) -> str:
    """Why these pods of a group are not evicted for a plan now, "" if they are."""
    if not group.whole and len(going) > _to_spare(group.gang, view, found):
        return _NONE_TO_SPARE
    if group.blocked:
        return group.blocked
    # Also of one that has lost some, by us or by itself: what a budget refuses would stand alone.
    why = budgets.why_not(going)
    return why if not why or group.gang.namespace == placement.metadata.namespace else _ITS_BUDGET


def _groups(
    placement: Placement, waiting: Sequence[Pod], nodes: Set[str], view: View, promised: Set[GangKey]
) -> list[RunningVictims]:
    """The victims of a plan that are there still; not those that may not go for its pods.

    promised: gangs of which a pod has its place in a plan, and is gated still.
    """
    if any(pod.spec.preemption_policy == "Never" for pod in waiting):
        return []
    below = min(pod.spec.priority or 0 for pod in waiting)
    found: dict[GangKey, RunningVictims] = {}
    for group in placement.spec.victims:
        victims = _running_victims(group, nodes, below, view)
        if victims is None:
            continue
        if group.whole and victims.going:  # else what is there beside them has been placed anew
            victims = _with_late(victims, below, view, promised)
        found.setdefault(victims.gang, victims)
    return list(found.values())


def _running_victims(group: VictimGroup, nodes: Set[str], below: int, view: View) -> RunningVictims | None:
    """The victims of a group that are there still, None if those in the way are not of one gang."""
    listed = (view.by_uid.get(uid) for uid in group.pods)
    there = [pod for pod in listed if pod is not None and _may_evict(pod, below, view)]
    gangs = {view.gang_of(pod) for pod in there if pod.spec.node_name in nodes}
    if len(gangs) != 1:
        return None
    gang = gangs.pop()
    own = tuple(pod for pod in there if view.gang_of(pod) == gang)
    return RunningVictims(gang, own, group.whole)


def _with_late(victims: RunningVictims, below: int, view: View, promised: Set[GangKey]) -> RunningVictims:
    """With what its gang has beside: pods that were bound, or sent to a node, since it was chosen.

    What is about to be sent to one would stand there alone, so that is waited for.
    """
    if victims.gang in promised:
        return replace(victims, blocked=_NOT_YET)
    named = {pod.metadata.uid for pod in victims.pods}
    late = [pod for pod in view.bound_gangs.get(victims.gang, ()) if pod.metadata.uid not in named]
    if not all(_is_lower(pod, below, view) for pod in late):
        return replace(victims, blocked=_NOT_ALL)
    uids = frozenset(pod.metadata.uid for pod in late)
    return replace(victims, pods=(*victims.pods, *late), late=uids)


def _may_evict(pod: Pod, below: int, view: View) -> bool:
    return bool(pod.spec.node_name) and view.is_ours(pod) and _is_lower(pod, below, view)


def _is_lower(pod: Pod, below: int, view: View) -> bool:
    return (pod.spec.priority or 0) < below and not view.is_lasting(pod)


def _to_spare(gang: GangKey, view: View, found: Preempting) -> int:
    """How many pods a gang that goes on can lose: it may have lost some since it was chosen."""
    there = [pod for pod in view.bound_gangs.get(gang, ()) if pod.metadata.uid not in found.evictions]
    return spare(gang, sum(bool(pod.spec.node_name) for pod in there), view.placements)


def _wanted(waiting: Iterable[Pod], view: View) -> dict[str, frozenset[str]]:
    """By node, the resources that the plan's pods ask for there."""
    found: dict[str, frozenset[str]] = {}
    for pod in waiting:
        try:
            names = frozenset(name for name, _ in view.class_of(pod).requests)
        except ValueError:
            continue  # it is told where it is placed
        node = view.planned[pod.metadata.uid].node
        found[node] = found.get(node, frozenset()) | names
    return found


def _needed(
    groups: Sequence[RunningVictims],
    going: Set[str],
    nodes: Set[str],
    wanted: Mapping[str, frozenset[str]],
    snapshot: Snapshot,
) -> list[RunningVictims]:
    """The groups whose going helps: those without whom the nodes would still be too full.

    going: uids of others that go, or do so already.
    """
    gone = going | {pod.metadata.uid for group in groups for pod in group.pods}
    found = []
    for group in sorted(groups, key=lambda each: (-_priority(each), -len(each.pods), each.gang)):
        own = {pod.metadata.uid for pod in group.going}
        rest = gone - own
        here = {pod.spec.node_name for pod in group.going} & nodes
        if not group.is_begun and not _are_short(here, rest, wanted, snapshot):
            gone = rest
            # Those that end already are waited for all the same.
            group = replace(group, pods=tuple(pod for pod in group.pods if pod.metadata.uid not in own))
            if not group.pods:
                continue
        found.append(group)
    return found


def _are_short(
    nodes: Set[str], gone: Set[str], wanted: Mapping[str, frozenset[str]], snapshot: Snapshot
) -> bool:
    """Whether any of these nodes is too full for what is wanted there also once these pods have gone."""
    states = {node: snapshot.nodes[node] for node in nodes}
    return any(
        state.free.get(name, 0) + _freed(state.usages, gone, name) < 0
        for node, state in states.items()
        for name in wanted.get(node, ())
    )


def _going(placement: Placement, view: View) -> set[str]:
    """Pods that are being deleted, and victims that are left to kube-scheduler."""
    listed = (view.by_uid.get(uid) for group in placement.spec.victims for uid in group.pods)
    foreign = {pod.metadata.uid for pod in listed if pod is not None and not view.is_ours(pod)}
    return foreign | {pod.metadata.uid for pod in view.leaving}


def _freed(usages: Iterable[Usage], gone: Set[str], resource: str) -> int:
    return sum(use.requests.get(resource, 0) for use in usages if use.uid in gone)


def _priority(group: RunningVictims) -> int:
    return max((pod.spec.priority or 0 for pod in group.pods), default=0)


def _why_evicted(group: RunningVictims, placement: Placement, waiting: Sequence[Pod]) -> str:
    """What the victim is told; of another namespace's gang only how important it is."""
    same = group.gang.namespace == placement.metadata.namespace
    whom = f"gang {placement.spec.gang}" if same else "a gang of another namespace"
    below = min(pod.spec.priority or 0 for pod in waiting)
    name = f"{group.gang.kind}/{group.gang.name}"
    if not group.whole:
        return f"evicted for {whom} of priority {below}; its gang {name} goes on without it"
    count = sum(bool(pod.spec.node_name) for pod in group.pods)
    return f"evicted with its gang {name}, {counted(count, 'pod')} on nodes, for {whom} of priority {below}"


def _waits(groups: Sequence[RunningVictims], namespace: str, blocked: str) -> str:
    """What the gang that waits is told; gangs of other namespaces are not named."""
    shown = [f"{_name(group, namespace)} ({counted(len(group.pods), 'pod')})" for group in groups[:_NAMED]]
    more = f" and {counted(len(groups) - _NAMED, 'more gang')}" if len(groups) > _NAMED else ""
    sentence = f"pods of lower priority are evicted for it: {', '.join(shown)}{more}"
    return f"{sentence}; not yet: {blocked}" if blocked else sentence


def _name(group: RunningVictims, namespace: str) -> str:
    gang = group.gang
    return f"{gang.kind}/{gang.name}" if gang.namespace == namespace else "a gang of another namespace"
