"""Which willing gangs are moved, so that a gang fits that waits for place and not for quantity. Pure.

A gang is willing if all of its pods say so. It is moved only as a whole, while all of it runs, and only if
its controller recreates its pods, no PodDisruptionBudget protects them, and it has another place at once
(placement.moves). That place is no worse: it keeps the gang's own requirements, on no more domains of any
level than now, or one more at the finest. Gangs are left alone whose new place cannot be promised: those with
chosen cards, rules on other pods, domains of their own, or several pod sets.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import Final

from labeler.contract import keys
from webhook.durations import DAY, HOUR, duration_text
from webhook.kube.objects import Pod
from webhook.kube.placements import VictimGroup
from webhook.placement import Assignment, Budget, Gang, PlacementError, Snapshot
from webhook.placement.moves import Moves, MoveSearch
from webhook.placement.victims import Unit
from webhook.scheduling.gpu_counts import gpu_hours, gpus_of, started_at
from webhook.scheduling.podrules import has_rules
from webhook.sweeper.decide.attempt import PassState
from webhook.sweeper.decide.gang_question import GangQuestion, domains_of, is_enough_free, question
from webhook.sweeper.decide.moved_gangs import moves_of, moves_within
from webhook.sweeper.decide.node_rules import nodes_of
from webhook.sweeper.decide.preemption import (
    MOST_PODS,
    Preemption,
    lowest_priority,
    may_preempt,
    search_together,
    yet_to_evict,
)
from webhook.sweeper.decide.retries import Write
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, PodGang, gang_of
from webhook.sweeper.observe.plans import unpinned
from webhook.sweeper.observe.pods import PodTrait
from webhook.text import counted
from webhook.workloads.pod_sets import asks_for_devices

TOO_MANY_AT_ONCE: Final = "PodDisruptionBudgets do not allow to evict all of them at once"
_NOT_WILLING: Final = f"not movable ({keys.MOVABLE_ANNOTATION})"


@dataclass(frozen=True)
class RunningGang:
    """A gang on nodes that might be moved. pods: all of it. avoid: nodes that it may not use.

    why_not: why it is not moved, "" if it may be.
    """

    key: GangKey
    pods: tuple[Pod, ...]
    now: PassState
    avoid: frozenset[str]
    why_not: str = ""

    @cached_property
    def unit(self) -> Unit:
        """Its GPU pods."""
        uids = [pod.metadata.uid for pod in self.pods if asks_for_devices(pod.spec)]
        priority = max(pod.spec.priority or 0 for pod in self.pods)
        return Unit(f"{self.key}/{self.key.id}", priority, frozenset(uids))

    @cached_property
    def lost(self) -> float:
        """GPU hours since the start of its pods."""
        return gpu_hours(self.pods, self.now.settings.counting, self.now.view.now.at.timestamp())

    @property
    def gpus(self) -> int:
        """The GPUs of its pods."""
        return sum(gpus_of(pod, self.now.settings.counting) for pod in self.pods)

    @cached_property
    def gang(self) -> Gang | None:
        """See MovableGang."""
        view = self.now.view
        pods = [unpinned(pod, pod.spec.node_name) for pod in self.pods]
        recreated = gang_of(self.key, pods, (), OwnerFacts(size=len(pods)))
        try:
            asked = question(recreated, pods, {}, self.avoid, self.now.class_of, view.is_ours)
        except PlacementError:
            return None
        has_cards = any(member.pod_class.wants_cards for member in asked.gang.members)
        return None if has_cards or asked.parts else asked.gang

    @property
    def most_domains(self) -> tuple[int, ...]:
        """See MovableGang."""
        own = self.unit.pods
        nodes = {pod.spec.node_name for pod in self.pods if pod.metadata.uid in own}
        return most_domains(nodes, self.now.snapshot)


def most_domains(nodes: Set[str], snapshot: Snapshot) -> tuple[int, ...]:
    """The domains of a gang on these nodes, and one more at the finest level, and one more node."""
    *coarse, finest, count = domains_of(snapshot, nodes)
    return (*coarse, finest + 1, count + 1)


# --- which gangs may be moved -------------------------------------------------------------------------


def running_gangs(asking: PodGang, now: PassState) -> Iterator[RunningGang]:
    """The gangs that might be moved for one that waits, with why some of them are not."""
    view = now.view
    waiting, staying = {view.gang_of(pod) for pod in view.gated}, _staying(now)
    most, own = lowest_priority(asking), now.ledger.of(asking.key.placement_key)
    avoid = nodes_of(now.given.rules.of(asking)) | (now.ledger.taken - own)
    for key, pods in view.bound_gangs.items():
        if key in waiting or not _is_whole(key, pods, now):
            continue
        if not any(_must_stay(pod, most, staying) for pod in pods):
            found = RunningGang(key, tuple(pods), now, avoid, _why_not(key, pods, now))
            if found.unit.pods:
                yield found


def _staying(now: PassState) -> Set[str]:
    """The uids of pods that are not moved: they would come back at once, or late, or are evicted already."""
    staying = now.view.uids(
        PodTrait.LASTING, PodTrait.UNBOUND, PodTrait.LATE, PodTrait.SLOW, PodTrait.OWN_DOMAIN
    )
    return staying | {uid for group in _promised(now) for uid in group.pods}


def _promised(now: PassState) -> Sequence[VictimGroup]:
    """The victims of plans, also of this pass."""
    return (*now.promised, *(group for plan in now.plans for group in plan.victims))


def _must_stay(pod: Pod, most: int, staying: Set[str]) -> bool:
    """Whether a pod is too important, or its new place cannot be promised."""
    is_important = (pod.spec.priority or 0) > most
    return is_important or pod.metadata.uid in staying or has_rules(pod.spec)


def _is_whole(key: GangKey, pods: Sequence[Pod], now: PassState) -> bool:
    """Whether all pods of a gang run, and topogate has placed all of them."""
    placement = now.view.placements.get(key.placement_key)
    if placement is None or not placement.is_complete or len(pods) < placement.spec.size:
        return False
    mates = now.view.index.mates.get(key, ())
    has_volumes = any(pod.spec.volumes for pod in pods) and now.view.storage is None
    is_running = all(pod.status.phase == "Running" for pod in pods)
    return is_running and len(mates) in (0, len(pods)) and not has_volumes


def _why_not(key: GangKey, pods: Sequence[Pod], now: PassState) -> str:
    """Why a gang is not moved, "" if it may be."""
    limits, at = now.settings.moves, now.view.now.at.timestamp()
    for pod in pods:
        after = now.view.movable_after(pod)
        if after is None:
            return _NOT_WILLING
        if at - started_at(pod) < after:
            return f"movable once it has run for {duration_text(after)} ({keys.MOVABLE_AFTER_ANNOTATION})"
    if len(moves_within(DAY, _moves_of(key, now), at)) >= limits.per_gang_and_day:
        return "moved as often today as makeRoom.movesPerGangAndDay allows"
    if _was_refused(pods, now):
        return "not evicted: the API server refused that a moment ago"
    if now.given.why_not_recreated(pods):
        return "not recreated by its controller, or its Job would fail"
    return "protected by a PodDisruptionBudget" if now.given.keeps(pods) else ""


def _was_refused(pods: Sequence[Pod], now: PassState) -> bool:
    """Whether an eviction was refused lately: the same plan would reserve nodes in vain."""
    return any((Write.EVICTION, pod.metadata.uid) in now.given.retries.by_key for pod in pods)


def _moves_of(key: GangKey, now: PassState) -> Sequence[str]:
    placement = now.view.placements.get(key.placement_key)
    return placement.spec.moves if placement is not None else ()


def _left(now: PassState) -> int:
    """How many more gangs may be moved within the hour."""
    at = now.view.now.at.timestamp()
    made = {each for plan in now.view.placements.values() for each in plan.spec.moves}
    made |= {group.moves[-1] for _, group in moves_of(now.view)}
    made |= {group.moves[-1] for plan in now.plans for group in plan.victims if group.is_moved}
    return now.settings.moves.per_hour - len(moves_within(HOUR, sorted(made), at))


# --- the search ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MoveAnswer:
    """What moving gangs would do for one that waits. moves: None if it does not help.

    asked: the question that these answer. gangs: those of the nearest miss, some of which are not moved; ()
    if moving any gangs does not help. limit: gangs that may be moved within the hour. are_protected: whether
    their budgets do not allow to evict all of them.
    """

    moves: Moves[RunningGang] | None = None
    asked: GangQuestion | None = None
    gangs: tuple[RunningGang, ...] = ()
    limit: int = 0
    are_protected: bool = False

    @property
    def sentence(self) -> str:
        """What came closest, "" if nothing did."""
        if not self.gangs:
            return ""
        gpus = counted(sum(each.gpus for each in self.gangs), "GPU")
        them = f"moving {counted(len(self.gangs), 'gang')} of {gpus}"
        reasons = Counter(each.why_not for each in self.gangs if each.why_not)
        is_one = len(self.gangs) == 1
        listed = [
            f"{'it is' if is_one else counted(count, 'of them is', 'of them are')} {why}"
            for why, count in reasons.items()
        ]
        if self.are_protected:
            listed.append(TOO_MANY_AT_ONCE)
        if len(self.gangs) > self.limit:
            listed.append(f"{max(0, self.limit)} more may be moved within the hour (makeRoom.movesPerHour)")
        return f"{them} would do, but {'; '.join(listed)}" if listed else f"{them} would do"


def _may_ask(gang: PodGang, asked: GangQuestion, now: PassState) -> bool:
    """Whether a gang waits for place and not for quantity, and its question is one that moves can answer.

    Nothing is evicted for pods with preemptionPolicy Never.
    """
    if not may_preempt(gang) or asked.parts or asked.rules is not None or not asked.gang.members:
        return False
    classes = [member.pod_class for member in asked.gang.members]
    if any(each.wants_cards for each in classes):
        return False
    excluded, nodes = asked.gang.excluded_nodes, now.snapshot.nodes
    return is_enough_free(classes, (state for name, state in nodes.items() if name not in excluded))


def look_for_moves(
    gang: PodGang, questions: Iterable[GangQuestion], now: PassState, budget: Budget
) -> MoveAnswer:
    """The gangs to move for one that waits, or else what came closest.

    questions: of the gang's variants; of several answers the one counts that costs the least.
    """
    questions = [each for each in questions if _may_ask(gang, each, now)]
    if not questions:
        return MoveAnswer()
    gangs, left = list(running_gangs(gang, now)), _left(now)
    willing = [each for each in gangs if not each.why_not]

    def search(staying: Set[str]) -> Iterable[_Answered]:
        among = [each for each in willing if staying.isdisjoint(each.unit.pods)]
        return filter(_is_nameable, _searched(questions, now, among, left, budget))

    after = now.given.keeps.after(yet_to_evict(group, now.view) for group in _promised(now))
    found = search_together(search, _pods_of, lambda each: each[0].cost, after)
    if found.allowed is not None:
        return MoveAnswer(*found.allowed)
    if found.cheapest is not None:
        return MoveAnswer(gangs=_gangs_of(found.cheapest[0]), limit=left, are_protected=True)
    for nearest, _ in _searched(questions, now, gangs, len(gangs), budget):
        return MoveAnswer(gangs=_gangs_of(nearest), limit=left)
    return MoveAnswer()


_Answered = tuple[Moves[RunningGang], GangQuestion]


def _gangs_of(moves: Moves[RunningGang]) -> tuple[RunningGang, ...]:
    return tuple(gang for gang, _ in moves.places)


def _pods_of(answered: _Answered) -> list[Sequence[Pod]]:
    return [gang.pods for gang in _gangs_of(answered[0])]


def _is_nameable(answered: _Answered) -> bool:
    """Whether a plan can name all pods."""
    return sum(map(len, _pods_of(answered))) <= MOST_PODS


def _searched(
    questions: Iterable[GangQuestion],
    now: PassState,
    gangs: Sequence[RunningGang],
    most: int,
    budget: Budget,
) -> list[_Answered]:
    """The moves that answer each question, the cheapest first. most: gangs that may be moved."""
    found = []
    for asked in questions:
        part = budget.part(budget.left // 2)
        moves = MoveSearch(asked.gang, now.snapshot, gangs, now.settings.options, part).run(most)
        found += [(moves, asked)] if moves is not None else []
    return sorted(found, key=lambda each: each[0].cost)


def as_preemption(moves: Moves[RunningGang], now: PassState) -> Preemption:
    """The moved gangs as victims that have a new place."""
    # A move is recognized by its time, so no two have the same.
    before, at = sum(len(plan.victims) for plan in now.plans), now.view.now.at
    groups = tuple(
        _group(gang, answer, now, (at + timedelta(microseconds=number)).isoformat())
        for number, (gang, answer) in enumerate(moves.places, before)
    )
    gangs = [gang for gang, _ in moves.places]
    highest = max(gang.unit.priority for gang in gangs)
    return Preemption(moves.assignment, groups, tuple(str(gang.key) for gang in gangs), highest)


def _group(gang: RunningGang, answer: Assignment, now: PassState, made: str) -> VictimGroup:
    before = moves_within(DAY, _moves_of(gang.key, now), now.view.now.at.timestamp())
    maker, owner = now.view.controller_of(gang.pods[0]), gang.pods[0].metadata.controller
    return VictimGroup(
        pods=sorted(pod.metadata.uid for pod in gang.pods),
        whole=True,
        nodes=sorted(set(answer.nodes.values())),
        moved_gang=maker.placement_key,
        moves=[*before, made],
        owner=owner if owner is not None and owner.kind == maker.kind else None,
    )
