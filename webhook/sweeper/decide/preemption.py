"""Preemption: which pods are evicted for a more important gang. Pure.

Gangs are evicted as a whole, other pods one by one. A gang that topogate placed may be a victim only if all
of its pods are bound, are of lower priority, and none of them would stay or be recreated at once. It can lose
the pods above its minimum by themselves. When they are evicted: see waiting_plans.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count, islice
from typing import Final, Generic, TypeVar

from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, VictimGroup
from webhook.placement import Assignment, Budget, Snapshot
from webhook.placement.victims import Unit, Victims, choose
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.gang_question import GangQuestion, in_order
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import PodTrait, name_of
from webhook.sweeper.observe.view import View

MOST_PODS: Final = 5_000
"""The pods that are evicted for one gang: they are in its plan, which is one object."""


Keeps = Callable[[Sequence[Pod]], str]
"""Why a gang with these pods on nodes should be no victim, "" if it may be one."""

MOST_SEARCHES: Final = 8
"""The most searches for victims, where each chosen gang may be evicted but not all of them together."""


@dataclass(frozen=True)
class Protection:
    """What protects running gangs. why_jobs_end: which Job would fail for good by an eviction, "" if none."""

    budgets: Budgets = field(default_factory=Budgets)
    why_jobs_end: Keeps = lambda pods: ""

    def __call__(self, pods: Sequence[Pod]) -> str:
        """Why a gang with these pods on nodes should be no victim, "" if it may be one."""
        return self.budgets.why_not(pods) or self.why_jobs_end(pods)

    def after(self, promised: Iterable[Sequence[Pod]]) -> "Protection":
        """Once these gangs are evicted."""
        budgets = self.budgets
        for pods in promised:
            budgets = budgets.without(pods)
        return replace(self, budgets=budgets)

    def excess(self, gangs: Sequence[Sequence[Pod]]) -> list[Sequence[Pod]]:
        """The gangs of which one has to stay by a budget of theirs; [] if all may be evicted."""
        left = self.budgets
        for number, pods in enumerate(gangs):
            if left.why_not(pods):
                own = left.selecting(pods)
                others = (each for each in gangs[:number] if own & left.selecting(each))
                return [pods, *others]
            left = left.without(pods)
        return []


NONE_PROTECTED: Final = Protection()
"""Every gang may be a victim."""


A = TypeVar("A")


@dataclass(frozen=True)
class TogetherFound(Generic[A]):
    """The cheapest answer whose gangs may be evicted together, and the cheapest one regardless of that."""

    allowed: A | None
    cheapest: A | None


def search_together(
    search: Callable[[Set[str]], Iterable[A]],
    gangs_of: Callable[[A], Sequence[Sequence[Pod]]],
    cost: Callable[[A], tuple[float, ...]],
    keeps: Protection,
) -> TogetherFound[A]:
    """Search again without one of the gangs, as often as needed, where not all of them may be evicted.

    search: given the uids of pods that stay, its first answer counts; without these pods none is cheaper.
    gangs_of: the gangs that are evicted for an answer.
    """
    found, numbers = list[tuple[tuple[float, ...], int, frozenset[str], A]](), count()

    def add(staying: frozenset[str]) -> None:
        number = next(numbers)
        for answer in islice(search(staying), 1) if number < MOST_SEARCHES else ():
            heappush(found, (cost(answer), number, staying, answer))

    add(frozenset())
    cheapest = found[0][-1] if found else None
    while found:
        _, _, staying, answer = heappop(found)
        gangs = keeps.excess(gangs_of(answer))
        if not gangs:
            return TogetherFound(answer, cheapest)
        for pods in gangs:
            add(staying.union(pod.metadata.uid for pod in pods))
    return TogetherFound(None, cheapest)


@dataclass(frozen=True)
class PossibleVictims:
    """units: possible victims. leaving: uids of pods that end in any case. promised: victims of others."""

    units: tuple[Unit, ...]
    leaving: frozenset[str]
    promised: tuple[VictimGroup, ...] = ()


@dataclass(frozen=True)
class Preemption:
    """The place of a gang after its victims' end. names: of victims, for the log. highest: their priority."""

    assignment: Assignment
    victims: tuple[VictimGroup, ...]
    names: tuple[str, ...]
    highest: int

    @property
    def is_too_large(self) -> bool:
        """Whether its plan cannot name all victims."""
        return self._pods > MOST_PODS

    @property
    def harm(self) -> tuple[int, int, int]:
        """Of two ways to make place, the one with the smaller value is chosen."""
        return self.highest, len(self.victims), self._pods

    @property
    def _pods(self) -> int:
        return sum(len(group.pods) for group in self.victims)


@dataclass(frozen=True)
class VictimSearch:
    """Finds nodes where only gangs and pods of lower priority are in the way, and which of these to evict.

    promised: victims of gangs that have a plan already. keeps: why a gang should be no victim.

    Protected gangs (by a PodDisruptionBudget, or as their Job would fail for good) are victims where the
    others do not suffice, since kube-scheduler would not spare them then either. Among victims of the same
    priority those are taken that end in time; none of higher priority, as otherwise a long grace period would
    make others a victim instead. Victims are chosen once.
    """

    gang: PodGang
    view: View
    snapshot: Snapshot
    promised: tuple[VictimGroup, ...]
    keeps: Protection
    settings: Settings
    budget: Budget

    def find(self, asked: GangQuestion, avoided: Sequence[frozenset[str]]) -> Preemption | None:
        """The place of the gang with such victims. avoided: see GangNodes.last_resort."""
        if self.below(asked) is None:
            return None
        tried = (self._among_all(asked.without(step)) for step in avoided)
        found = next((each for each in tried if each is not None and not each.is_too_large), None)
        return found or self._among_all(asked)

    def below(self, asked: GangQuestion) -> int | None:
        """The priority below which there are victims; None if nothing is evicted for such a question."""
        if not self.settings.preempt or not may_preempt(self.gang) or asked.parts:
            return None
        if any(member.pod_class.wants_cards for member in asked.gang.members):
            return None  # kube-scheduler counts a node's sum: it would bind beside the pod that has the card
        return lowest_priority(self.gang)

    def _among_all(self, asked: GangQuestion) -> Preemption | None:
        staying = not_victims(self.view)
        heeded, found = self.keeps, self._together(asked, staying, self.keeps)
        if (found is None or found.is_too_large) and self.keeps is not NONE_PROTECTED:
            heeded, found = NONE_PROTECTED, self._without(asked, staying, NONE_PROTECTED)
        if found is None or found.is_too_large or not self._are_slow(found):
            return found
        sooner = self._together(asked, staying | self.view.uids(PodTrait.SLOW), heeded)
        if sooner is None or sooner.is_too_large or sooner.highest > found.highest:
            return found
        return sooner

    def _together(self, asked: GangQuestion, staying: Set[str], keeps: Protection) -> Preemption | None:
        """The same where these pods are no victims, nor more gangs than their budgets allow, if possible."""

        def search(more: Set[str]) -> Iterable[Preemption]:
            answer = self._without(asked, staying | more, keeps)
            return [answer] if answer is not None else []

        def gangs_of(found: Preemption) -> list[list[Pod]]:
            return [yet_to_evict(each, self.view) for each in found.victims if each not in self.promised]

        after = keeps.after(yet_to_evict(each, self.view) for each in self.promised)
        found = search_together(search, gangs_of, lambda each: each.harm, after)
        return found.allowed or found.cheapest

    def _without(self, asked: GangQuestion, staying: Set[str], keeps: Keeps) -> Preemption | None:
        """The same where these pods, and protected gangs, are no victims."""
        possible = candidates(self.view, lowest_priority(self.gang), staying, keeps, self.promised)
        options = self.settings.options
        found = choose(asked.gang, self.snapshot, options, possible.units, possible.leaving, self.budget)
        if found is None or asked.rules is None:
            return self._of(found, found.assignment, possible) if found is not None else None
        # Beside the victims: until these are gone they count.
        checked = in_order(found.assignment, asked.rules)
        return None if checked is None else self._of(found, checked, possible)

    def _of(self, found: Victims, assignment: Assignment, possible: PossibleVictims) -> Preemption:
        """The chosen victims, and those of other gangs on the nodes of the plan."""
        chosen = (VictimGroup(pods=list(each.pods), whole=each.is_broken) for each in found.going)
        nodes, pods = frozenset(assignment.nodes.values()), self.view.by_uid
        victims = (
            *chosen,
            *(
                group
                for group in possible.promised
                if any(uid in pods and pods[uid].spec.node_name in nodes for uid in group.pods)
            ),
        )
        units = [each.unit for each in found.going]
        highest = max((unit.priority for unit in units), default=0)
        return Preemption(assignment, victims, tuple(unit.name for unit in units), highest)

    def _are_slow(self, found: Preemption) -> bool:
        """Whether some of the victims may take longer to end than the gang waits for that."""
        slow = self.view.uids(PodTrait.SLOW)
        return any(uid in slow for group in found.victims for uid in group.pods)


def yet_to_evict(group: VictimGroup, view: View) -> list[Pod]:
    """The existing victims of a gang that topogate has placed; kube-scheduler preempts the others."""
    pods = (view.by_uid[uid] for uid in group.pods if uid in view.by_uid)
    return [pod for pod in pods if not pod.metadata.deletion_timestamp and view.is_ours(pod)]


def lowest_priority(gang: PodGang) -> int:
    """The priority that a victim must be below, for each member that waits may have to preempt it."""
    return min((pod.spec.priority or 0 for pod in _waiting(gang)), default=0)


def may_preempt(gang: PodGang) -> bool:
    """Whether the classes of all that wait allow it."""
    return all(pod.spec.preemption_policy != "Never" for pod in _waiting(gang))


def _waiting(gang: PodGang) -> list[Pod]:
    """The waiting pods without CPU-only pods: nothing is evicted for those."""
    return [pod for pod in gang.gated if pod.metadata.uid not in gang.cpu_pods]


def not_victims(view: View) -> Set[str]:
    """The uids of pods that are never evicted for a gang.

    A DaemonSet recreates its pod at once. A pod that is not bound yet is not evicted, and would stay behind,
    pinned to a node that is full. What ends late already has been chosen, or deleted, before.
    """
    return view.uids(PodTrait.LASTING, PodTrait.UNBOUND, PodTrait.LATE)


def candidates(
    view: View,
    below: int,
    staying: Set[str],
    keeps: Keeps,
    promised: Iterable[VictimGroup] = (),
) -> PossibleVictims:
    """The possible victims for a gang of that priority.

    staying: uids of pods that are no victims. keeps: why a gang should be no victim. promised: victims of
    others.
    """

    def may_evict(pod: Pod) -> bool:
        return (pod.spec.priority or 0) < below and pod.metadata.uid not in staying

    def all_may_be_evicted(uids: Iterable[str]) -> bool:
        return all(may_evict(pod) for uid in uids if (pod := view.by_uid.get(uid)) is not None)

    going = tuple(group for group in _distinct(promised) if all_may_be_evicted(group.pods))
    leaving = {pod.metadata.uid for pod in view.leaving if may_evict(pod)}.union(
        *(each.pods for each in going)
    )
    if all(priority >= below for priority in view.index.priorities):
        return PossibleVictims((), frozenset(leaving), going)
    alone = (_unit(name_of(pod), [pod]) for pod in view.bound_foreign_pods if may_evict(pod))
    units = (*_gang_units(view, leaving, may_evict, keeps), *alone)
    return PossibleVictims(units, frozenset(leaving), going)


def _distinct(groups: Iterable[VictimGroup]) -> Iterable[VictimGroup]:
    """Each group once: a plan also names the victims of earlier plans for its nodes."""
    return {(each.whole, each.moved_gang, *each.pods): each for each in groups}.values()


def _gang_units(
    view: View, leaving: Set[str], may_evict: Callable[[Pod], bool], keeps: Keeps
) -> Iterator[Unit]:
    """The gangs of which all pods may be victims. leaving: uids of pods that end in any case."""
    for key, pods_of_gang in view.bound_gangs.items():
        pods = [pod for pod in pods_of_gang if pod.metadata.uid not in leaving]
        if pods and all(map(may_evict, pods)) and not keeps(pods):
            yield _unit(f"{key}/{key.id}", pods, spare(key, len(pods), view.placements))


def _unit(name: str, pods: Sequence[Pod], spare: int = 0) -> Unit:
    """Pods that are evicted together, without those that the gang can lose by themselves."""
    priority = max(pod.spec.priority or 0 for pod in pods)
    return Unit(name, priority, frozenset(pod.metadata.uid for pod in pods), spare)


def spare(key: GangKey, count: int, placements: Mapping[str, Placement]) -> int:
    """How many of so many pods an elastic gang can lose without being broken; 0 for others."""
    placement = placements.get(key.placement_key)
    least = placement.spec.minimum if placement is not None else 0
    return max(0, count - least) if least else 0
