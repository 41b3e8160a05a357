"""Plans that wait for their victims: when these are evicted, and how long a plan waits. Pure.

A plan names its victims, and its pods are not released until these are gone. Victims are evicted only when
the plan's pods can be released, since a gang that is bound by its PodGroup needs the PodGroup first. All of
this follows from the plan and the existing pods, so a new leader continues what was begun. A victim is
evicted only as long as that helps: while the plan's pods wait, and its nodes are too full for them. A gang
that is evicted as a whole loses all pods that it has by then, also those added after it was chosen. Those
that the plan names on such nodes are evicted last, so that a begun eviction is recognized. A plan is a
Placement, which others may have written: no pod is evicted for it unless it is of lower priority than the
waiting pods, and of the same gang as the rest of its group.

Gangs that are moved are victims with a new place. They may be of the same priority, but all of their pods
must say that they may be moved. None is evicted while another one of the plan cannot be. The plan's pods are
never released before they are gone: a plan that has waited too long is dropped. So is one whose victims have
got pods that must stay, as kube-scheduler would preempt the others one by one.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from labeler.contract import keys
from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, VictimGroup
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Snapshot
from webhook.scheduling.budgets import Budgets
from webhook.scheduling.gpu_counts import gpu_hours
from webhook.scheduling.gpus import Counting
from webhook.sweeper.decide.gang_question import is_enough_free
from webhook.sweeper.decide.orders import Eviction, EvictionCause
from webhook.sweeper.decide.preemption import spare
from webhook.sweeper.observe.gangs import urgency
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import ENDING_SECONDS
from webhook.sweeper.observe.view import View, is_usable
from webhook.text import counted, few

AGAIN_SECONDS: Final = 5.0
"""How soon a budget is checked again for a gang."""

_NONE_TO_SPARE: Final = "their gang would fall below its minimum"
_NOT_ALL: Final = "their gang has pods that must not be evicted for it"
_NOT_YET: Final = "pods of their gang are planned and not yet released"
_NOT_READY: Final = "its own pods cannot be released yet"
_NO_PLACE: Final = "their new place is lost"
_UNWILLING: Final = f"their gang has pods without {keys.MOVABLE_ANNOTATION}"
_ITS_BUDGET: Final = "a PodDisruptionBudget protects them"


def plans_with_victims(view: View) -> Iterator[tuple[Placement, list[Pod]]]:
    """The plans that wait for victims and still hold, each with its pods that wait."""
    gated: dict[str, Pod] = {}
    plans = (each for each in view.placements.values() if each.spec.preempts and each.spec.victims)
    for placement in sorted(plans, key=lambda each: each.key):
        gated = gated or {pod.metadata.uid: pod for pod in view.gated}
        entries = [entry for entry in placement.spec.pods if entry.uid in gated]
        pods = [gated[entry.uid] for entry in entries if _holds(placement, entry, gated[entry.uid], view)]
        if pods:
            yield placement, pods


def promised_victims(view: View) -> Set[str]:
    """The uids of victims of valid plans: those of lower priority than all waiting pods of the plan."""
    found = set[str]()
    for placement, waiting in plans_with_victims(view):
        below = urgency(waiting)
        for group in placement.spec.victims:
            there = (view.by_uid[uid] for uid in group.pods if uid in view.by_uid)
            limit = _limit_of(group, below)
            found |= {pod.metadata.uid for pod in there if _is_lower(pod, limit, view)}
    return found


def _holds(placement: Placement, entry: PlannedPod, pod: Pod, view: View) -> bool:
    """Whether an entry of a plan is the one that still holds for its pod."""
    planned = view.planned.get(entry.uid)
    is_of_the_plan = pod.metadata.namespace == placement.metadata.namespace
    return is_of_the_plan and planned is not None and planned.node == entry.node


@dataclass(frozen=True)
class RunningVictims:
    """Existing victims of one gang.

    late: those among the pods that the plan does not name. blocked: why no eviction begins, as not all of it
    can be evicted. is_moved: whether it has a new place. is_partial: whether it is moved, and some of its
    pods are gone.
    """

    gang: GangKey
    pods: tuple[Pod, ...]
    whole: bool
    is_moved: bool = False
    is_partial: bool = False
    late: frozenset[str] = frozenset()
    blocked: str = ""

    @property
    def going(self) -> tuple[Pod, ...]:
        """Those that are yet to be evicted."""
        return tuple(pod for pod in self.pods if not pod.metadata.deletion_timestamp)

    @property
    def is_begun(self) -> bool:
        """Whether some pods are gone of a gang that is evicted as a whole, and is of no use without them."""
        return self.whole and (self.is_partial or len(self.going) < len(self.pods))

    @property
    def priority(self) -> int:
        """That of the most important of its pods."""
        return max((pod.spec.priority or 0 for pod in self.pods), default=0)

    def in_order(self, nodes: Set[str]) -> list[Pod]:
        """The same, late ones first: as long as one is left that is in the plan's way, they all are found."""

        def position(pod: Pod) -> int:
            return 0 if pod.metadata.uid in self.late else 1 + (pod.spec.node_name in nodes)

        return sorted(self.going, key=position)


@dataclass(frozen=True)
class Preempting:
    """The results for plans that wait for victims in one pass.

    waiting_uids: uids of pods that are not released yet. sentences: by Placement, what its gang waits for.
    going: gangs that are evicted as a whole in this pass, or moved, perhaps later: no pod of them is placed
    in it, as it would be left alone afterwards. dropped: uids of pods whose plan is given up, as gangs could
    not be moved for it, or are no victims any more. counting: what counts as a GPU.
    """

    waiting_uids: frozenset[str] = frozenset()
    going: frozenset[GangKey] = frozenset()
    evictions: Mapping[str, Eviction] = field(default_factory=dict)
    sentences: Mapping[str, str] = field(default_factory=dict)
    dropped: frozenset[str] = frozenset()
    counting: Counting = field(default_factory=lambda: Counting(()))

    def evicting(
        self, group: RunningVictims, pods: Sequence[Pod], plan: "_WaitingPlan", at: float
    ) -> "Preempting":
        """These pods of a group are evicted for a plan. at: now, in seconds since 1970."""
        reason, for_waiting = _why_evicted(group, plan), ""
        if group.is_moved:
            lost = f"loses the {gpu_hours(group.pods, self.counting, at):.1f} GPU hours since its start"
            reason = f"{reason}; it {lost}"
            for_waiting = "" if group.is_begun else f"{_named(group, plan)} is moved for it, and {lost}"
        going = {group.gang} if group.whole and pods else set[GangKey]()
        cause = EvictionCause.PREEMPTED if group.whole else EvictionCause.ABOVE_MINIMUM
        cause = EvictionCause.MOVED if group.is_moved else cause
        waiting = tuple(plan.waiting)
        orders = {
            pod.metadata.uid: Eviction(
                pod,
                cause,
                reason,
                may_run=True,
                for_others=True,
                waiting=waiting,
                for_waiting="" if number else for_waiting,
            )
            for number, pod in enumerate(pods)
        }
        return replace(self, going=self.going | going, evictions={**self.evictions, **orders})

    def dropping(self, plan: "_WaitingPlan") -> "Preempting":
        """A plan is given up: its pods are not released, and are placed again by the next pass."""
        uids = frozenset(plan.uids)
        return replace(self, waiting_uids=self.waiting_uids | uids, dropped=self.dropped | uids)

    def holding(self, plan: "_WaitingPlan", sentence: str, groups: Sequence[RunningVictims]) -> "Preempting":
        """A plan's pods are not released yet, and gangs that are moved for it return as a whole."""
        going = self.going.union(group.gang for group in groups if group.is_moved)
        waiting_uids = self.waiting_uids.union(pod.metadata.uid for pod in plan.waiting)
        sentences = {**self.sentences, plan.placement.key: sentence}
        return replace(self, waiting_uids=waiting_uids, going=going, sentences=sentences)


VictimsSince = Mapping[str, float]
"""By Placement, since when its plan waits for victims, in seconds of Moment; losing it only delays."""


class _WaitingPlan(NamedTuple):
    """A plan that waits for victims.

    waiting: its pods; nodes: theirs, of those that exist. priority: the lowest of those that ask for GPUs,
    below which its victims are, as each of these may have to preempt them.
    """

    placement: Placement
    waiting: Sequence[Pod]
    nodes: Set[str]
    priority: int

    @classmethod
    def of(
        cls, placement: Placement, waiting: Sequence[Pod], view: View, snapshot: Snapshot
    ) -> "_WaitingPlan":
        nodes = {view.planned[pod.metadata.uid].node for pod in waiting} & snapshot.nodes.keys()
        return cls(placement, waiting, nodes, urgency(waiting))

    @property
    def uids(self) -> Set[str]:
        """Those of its pods."""
        return {pod.metadata.uid for pod in self.waiting}

    def wanted(self, view: View) -> Mapping[str, Set[str]]:
        """By node, the resources that its pods ask for there."""
        found: dict[str, frozenset[str]] = {}
        for pod in self.waiting:
            node = view.planned[pod.metadata.uid].node
            found[node] = found.get(node, frozenset()) | wanted_resources(pod, view)
        return found

    def is_of(self, namespace: str) -> bool:
        """Whether it may read the names of gangs there."""
        return namespace == self.placement.metadata.namespace


def look_for_victims(
    view: View, snapshot: Snapshot, budgets: Budgets, since: VictimsSince, settings: Settings
) -> tuple[Preempting, VictimsSince]:
    """The evictions to make now for each plan, and which of its pods wait."""
    found, known = Preempting(counting=settings.counting), dict[str, float]()
    now = view.now.seconds
    for plan, victims in _running_victims_of_plans(view, snapshot):
        groups = _needed(victims, plan, view, snapshot)
        moves = _are_moved(groups)
        if not groups or not (settings.moves.is_on if moves else settings.preempt):
            found = found.dropping(plan) if moves else found
            continue
        if not plan.uids.isdisjoint(view.not_released):
            found = found.holding(plan, _waits(groups, plan, _NOT_READY), groups)
            continue
        after, left, blocked = _evicting(groups, plan, view, found, budgets)
        began = since.get(plan.placement.key, now)
        is_over = now - began >= _patience(blocked, settings)
        if is_over and _is_never_released(groups):
            found = found.dropping(plan)
            continue
        found, budgets, known[plan.placement.key] = after, left, began
        # After that it is left to kube-scheduler, which respects no budget where nothing else helps.
        if not is_over:
            found = found.holding(plan, _waits(groups, plan, blocked), groups)
    return found, known


def _are_moved(groups: Sequence[RunningVictims]) -> bool:
    """Whether some of these gangs are moved; a plan may also name gangs that it no longer needs."""
    return any(group.is_moved for group in groups)


def _is_never_released(groups: Sequence[RunningVictims]) -> bool:
    """Whether a plan with these victims is dropped where others are left to kube-scheduler."""
    return any(group.is_moved or group.blocked == _NOT_ALL for group in groups)


def _patience(blocked: str, settings: Settings) -> float:
    """For how many seconds a plan waits for its victims. blocked: why some are not evicted."""
    return settings.bind_seconds if blocked else ENDING_SECONDS


def evicted_by_plans(view: View, snapshot: Snapshot) -> Set[str]:
    """The uids of pods that valid plans evict: their victims, and later pods of the victims' gangs."""
    plans = _running_victims_of_plans(view, snapshot)
    return {pod.metadata.uid for _, groups in plans for group in groups for pod in group.pods}


def _running_victims_of_plans(
    view: View, snapshot: Snapshot
) -> Iterator[tuple[_WaitingPlan, list[RunningVictims]]]:
    """The plans that wait for victims, each with its existing victims; in most passes there are none."""
    promised: Set[GangKey] | None = None
    for placement, waiting in plans_with_victims(view):
        promised = _promised_gangs(view) if promised is None else promised
        plan = _WaitingPlan.of(placement, waiting, view, snapshot)
        yield plan, _groups(plan, view, snapshot, promised)


def _promised_gangs(view: View) -> Set[GangKey]:
    """The gangs that have a gated pod with a place in a plan."""
    return {view.gang_of(pod) for pod in view.gated if pod.metadata.uid in view.planned}


def _evicting(
    groups: Sequence[RunningVictims], plan: _WaitingPlan, view: View, found: Preempting, budgets: Budgets
) -> tuple[Preempting, Budgets, str]:
    """With the victims of a plan to evict now, and the rest of the budgets; and why some are protected."""
    after, left, blocked = _evicting_each(groups, plan, view, found, budgets)
    if _are_moved(groups) and blocked:  # then no further gang is moved
        begun = [group for group in groups if group.is_begun]
        after, left, _ = _evicting_each(begun, plan, view, found, budgets)
    return after, left, blocked


def _evicting_each(
    groups: Sequence[RunningVictims], plan: _WaitingPlan, view: View, found: Preempting, budgets: Budgets
) -> tuple[Preempting, Budgets, str]:
    blocked = ""
    for group in groups:
        # Victims that are evicted for another plan already are not evicted twice.
        going = [pod for pod in group.in_order(plan.nodes) if pod.metadata.uid not in found.evictions]
        if why := _why_not_evicted(group, going, plan, view, found, budgets):
            blocked = why
            continue
        budgets = budgets.without(going)
        found = found.evicting(group, going, plan, view.now.at.timestamp())
    return found, budgets, blocked


def _why_not_evicted(
    group: RunningVictims,
    going: Sequence[Pod],
    plan: _WaitingPlan,
    view: View,
    found: Preempting,
    budgets: Budgets,
) -> str:
    """Why these pods of a group are not evicted for a plan now, "" if they are."""
    if not group.whole and len(going) > _to_spare(group.gang, view, found):
        return _NONE_TO_SPARE
    if group.blocked:
        return group.blocked
    # This includes gangs that have lost pods: those that a budget protects would be left alone.
    why = budgets.why_not(going)
    return why if not why or plan.is_of(group.gang.namespace) else _ITS_BUDGET


def _groups(
    plan: _WaitingPlan, view: View, snapshot: Snapshot, promised: Set[GangKey]
) -> list[RunningVictims]:
    """The existing victims of a plan, without those that may not be evicted for its pods.

    promised: gangs that have a gated pod with a place in a plan.
    """
    if any(pod.spec.preemption_policy == "Never" for pod in plan.waiting):
        return []
    found: dict[GangKey, RunningVictims] = {}
    for group in plan.placement.spec.victims:
        if (victims := _victims_of(group, plan, view, snapshot, promised)) is not None:
            found.setdefault(victims.gang, victims)
    return list(found.values())


def _victims_of(
    group: VictimGroup, plan: _WaitingPlan, view: View, snapshot: Snapshot, promised: Set[GangKey]
) -> RunningVictims | None:
    """The existing victims of a group, with those that its gang has got since; None if there are none."""
    if group.is_moved:
        victims = _moved_gang(group, plan, view, snapshot)
    else:
        victims = _running_victims(group, plan, view)
    if victims is None:
        return None
    if group.whole and victims.going:  # else the others of its gang there have been placed again
        victims = _with_late(victims, _limit_of(group, plan.priority), view, promised)
    if group.is_moved and any(view.movable_after(pod) is None for pod in victims.pods):
        victims = replace(victims, blocked=_UNWILLING)
    return victims


def _running_victims(group: VictimGroup, plan: _WaitingPlan, view: View) -> RunningVictims | None:
    """The existing victims of a group, None if those in the way are not of one gang."""
    there = [pod for pod in _existing(group, view) if _may_evict(pod, plan.priority, view)]
    gangs = {view.gang_of(pod) for pod in there if pod.spec.node_name in plan.nodes}
    if len(gangs) != 1:
        return None
    gang = gangs.pop()
    return RunningVictims(gang, tuple(pod for pod in there if view.gang_of(pod) == gang), group.whole)


def _moved_gang(
    group: VictimGroup, plan: _WaitingPlan, view: View, snapshot: Snapshot
) -> RunningVictims | None:
    """The existing pods of a gang that is moved, whether they are in the way or not; None if none is left.

    Once one of them is evicted, the others are, too, also if the new place is lost by then.
    """
    there = _existing(group, view)
    if not there:
        return None
    gangs = {view.gang_of(pod) for pod in there}
    is_partial = len(there) < len(group.pods)
    found = RunningVictims(min(gangs), tuple(there), group.whole, is_moved=True, is_partial=is_partial)
    limit = _limit_of(group, plan.priority)
    if len(gangs) > 1 or not all(_may_evict(pod, limit, view) for pod in there):
        return replace(found, blocked=_NOT_ALL)
    has_place = found.is_begun or _has_place(group, there, view, snapshot)
    return found if has_place else replace(found, blocked=_NO_PLACE)


def _has_place(group: VictimGroup, pods: Iterable[Pod], view: View, snapshot: Snapshot) -> bool:
    """Whether the new place of a gang exists, with as many free GPUs as its pods ask for."""
    if not all(name in snapshot.nodes and is_usable(view.nodes[name]) for name in group.nodes):
        return False
    return is_enough_free(map(view.class_of, pods), (snapshot.nodes[name] for name in group.nodes))


def _limit_of(group: VictimGroup, priority: int) -> int:
    """Victims of a group are of lower priority than this: moved ones may be as important as the gang."""
    return priority + 1 if group.is_moved else priority


def _existing(group: VictimGroup, view: View) -> list[Pod]:
    return [pod for uid in group.pods if (pod := view.by_uid.get(uid)) is not None]


def _with_late(victims: RunningVictims, below: int, view: View, promised: Set[GangKey]) -> RunningVictims:
    """With the other pods of its gang: those that were bound, or released, since it was chosen.

    A pod that is about to be released would be left alone there, so the eviction waits for it.
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
    """How many pods a gang that keeps running can lose: it may have lost some since it was chosen."""
    there = [pod for pod in view.bound_gangs.get(gang, ()) if pod.metadata.uid not in found.evictions]
    return spare(gang, sum(bool(pod.spec.node_name) for pod in there), view.placements)


def wanted_resources(pod: Pod, view: View) -> frozenset[str]:
    """The resources that a pod asks for; none if they cannot be read, which placing reports."""
    try:
        return frozenset(name for name, _ in view.class_of(pod).requests)
    except ValueError:
        return frozenset()


def _needed(
    groups: Sequence[RunningVictims], plan: _WaitingPlan, view: View, snapshot: Snapshot
) -> list[RunningVictims]:
    """The groups whose eviction helps: those without which the plan's nodes would still be too full."""
    gone = _gone(plan, view).union(pod.metadata.uid for group in groups for pod in group.pods)
    wanted, found = plan.wanted(view), []
    for group in sorted(groups, key=lambda each: (-each.priority, -len(each.pods), each.gang)):
        own = {pod.metadata.uid for pod in group.going}
        here = {pod.spec.node_name for pod in group.going} & plan.nodes
        if not group.is_begun and not _are_short(here, gone - own, wanted, snapshot):
            gone -= own
            # Those that end already are waited for all the same.
            group = replace(group, pods=tuple(pod for pod in group.pods if pod.metadata.deletion_timestamp))
        found.append(group)
    return [group for group in found if group.pods]


def _gone(plan: _WaitingPlan, view: View) -> set[str]:
    """Pods that end in any case: those being deleted, and victims that are left to kube-scheduler."""
    listed = (view.by_uid.get(uid) for group in plan.placement.spec.victims for uid in group.pods)
    foreign = (pod for pod in listed if pod is not None and not view.is_ours(pod))
    return {pod.metadata.uid for pod in (*foreign, *view.leaving)}


def _are_short(nodes: Set[str], gone: Set[str], wanted: Mapping[str, Set[str]], snapshot: Snapshot) -> bool:
    """Whether any of these nodes would still be too full for the plan after the end of these pods."""
    for node in nodes:
        state = snapshot.nodes[node]
        freed = [use.requests for use in state.usages if use.uid in gone]
        for name in wanted.get(node, ()):
            if state.free.get(name, 0) + sum(requests.get(name, 0) for requests in freed) < 0:
                return True
    return False


def _why_evicted(group: RunningVictims, plan: _WaitingPlan) -> str:
    """The message for the victim; of another namespace's gang only how important it is."""
    is_same = plan.is_of(group.gang.namespace)
    whom = f"gang {plan.placement.spec.gang}" if is_same else "a gang of another namespace"
    name = f"{group.gang.kind}/{group.gang.name}"
    if group.is_moved:
        pods = counted(len(group.pods), "pod")
        return f"evicted with its gang {name}, {pods}, to be placed elsewhere for {whom}"
    whom = f"{whom} of priority {plan.priority}"
    if not group.whole:
        return f"evicted for {whom}; its gang {name} continues without it"
    count = sum(bool(pod.spec.node_name) for pod in group.pods)
    return f"evicted with its gang {name}, {counted(count, 'pod')} on nodes, for {whom}"


def _named(group: RunningVictims, plan: _WaitingPlan) -> str:
    """The gang of a group for the one that waits, which may not know those of other namespaces."""
    gang = group.gang
    name = f"{gang.kind}/{gang.name}" if plan.is_of(gang.namespace) else "a gang of another namespace"
    return f"{name} ({counted(len(group.pods), 'pod')})"


def _waits(groups: Sequence[RunningVictims], plan: _WaitingPlan, blocked: str) -> str:
    """The message for the gang that waits; gangs of other namespaces are not named."""
    shown = [_named(group, plan) for group in groups]
    what = "gangs are moved for it" if _are_moved(groups) else "pods of lower priority are evicted for it"
    sentence = f"{what}: {few(shown, unit='gang')}"
    return f"{sentence}; not yet: {blocked}" if blocked else sentence
