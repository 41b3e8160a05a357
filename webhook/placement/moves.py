"""The gangs that are moved so that another one fits: those with the fewest GPU pods. Pure.

Among sets of as many pods those count that lose the least, and then those of the fewest gangs. A gang is
moved only if it has another place at once: on capacity that is free before anything is moved, beside the
place of the asking gang. So nobody waits for the end of another's pods, apart from the asking gang itself.

The sets are those of victims: EmptiedDomain excludes sets that cannot suffice. For a set, the best place of
the asking gang is tried, then that of each moved gang, the largest first. Where one has none, those before it
are asked for other places: without a domain that they have used, or with a pod fewer on one of its nodes, as
far as others could use what that leaves. All of that is bounded in questions, so the answer does not depend
on the machine.

If the bound is reached before a set is found, gangs leave one domain after the other, those first that free
the most capacity with each pod. That finds sets of many gangs, and not always the cheapest.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import le
from typing import Final, Generic, Protocol, TypeVar

from webhook.placement.budget import Budget
from webhook.placement.model import Assignment, Gang, NoFit, Options, Usage
from webhook.placement.place import place
from webhook.placement.snapshot import Snapshot, key_of
from webhook.placement.victims import EmptiedDomain, EvictionInput, Unit, emptied_domains, pods_of

MOST_QUESTIONS: Final = 300
"""The most questions about places for the cheapest set, and as many for gangs that leave a domain."""
MOST_OF_SET: Final = 100
"""The most of them for one set of gangs."""


class MovableGang(Protocol):
    """A gang that may be moved. unit: its GPU pods. lost: GPU hours since their start, lost by a move.

    gang: as it is recreated, None if no place can be promised to it. most_domains: how many domains of each
    level its new place may have, coarsest first, and how many nodes.
    """

    @property
    def unit(self) -> Unit: ...
    @property
    def lost(self) -> float: ...
    @property
    def gang(self) -> Gang | None: ...
    @property
    def most_domains(self) -> tuple[int, ...]: ...


M = TypeVar("M", bound=MovableGang)

PodLimits = frozenset[tuple[str, int]]
"""Nodes, each with how many more pods it may get."""

Cost = tuple[int, float, int]
"""GPU pods, lost GPU hours, and gangs; smaller is better, compared from the left."""


@dataclass(frozen=True)
class Moves(Generic[M]):
    """The place of the asking gang, and the new place of each gang that is moved for it."""

    assignment: Assignment
    places: tuple[tuple[M, Assignment], ...]

    @property
    def cost(self) -> Cost:
        """What the moves cost."""
        return cost_of([moved for moved, _ in self.places])


def cost_of(moved: Sequence[MovableGang]) -> Cost:
    """What it costs to move these gangs."""
    return sum(len(each.unit.pods) for each in moved), sum(each.lost for each in moved), len(moved)


class MoveSearch(Generic[M]):
    """The search for one gang."""

    def __init__(
        self, gang: Gang, snapshot: Snapshot, movable: Sequence[M], options: Options, budget: Budget
    ) -> None:
        """gang: the asking gang. budget: the work of all questions."""
        self._movable = {each.unit: each for each in movable}
        self._given = EvictionInput(gang, snapshot, self._movable, frozenset())
        self._options, self._budget = options, budget
        self._questions, self._of_set = MOST_QUESTIONS, MOST_OF_SET
        self._tried: set[frozenset[Unit]] = set()
        self._has_place: dict[Unit, bool] = {}
        self._is_cut = False
        """Whether a cheaper set may exist, as the search for it ended at its bound."""

    def run(self, most: int) -> Moves[M] | None:
        """The cheapest set of at most so many gangs that is found, None if none is."""
        if not self._movable or self._budget.exhausted:
            return None
        parts = emptied_domains(self._given, self._given.units, self._budget)
        everything, self._budget = self._budget, self._budget.part(self._budget.left // 2)
        best = self._cheapest(parts, most)
        if best is not None or not self._is_cut:
            return best
        self._budget, self._questions, self._of_set = everything, MOST_QUESTIONS, MOST_QUESTIONS
        found = filter(None, (self._leaving(part, most) for part in parts))
        return min(found, key=lambda moves: moves.cost, default=None)

    @property
    def _is_spent(self) -> bool:
        return self._questions <= 0 or self._budget.exhausted

    def _cheapest(self, parts: Sequence[EmptiedDomain], most: int) -> Moves[M] | None:
        """The cheapest set of so many gangs, as far as the bound allows."""
        best: Moves[M] | None = None
        for count in range(1, min(most, len(self._movable)) + 1):
            if self._is_spent or (best is not None and count > best.cost[0]):
                break
            for part in parts:
                if part.fewest <= count:
                    best = self._of_size(count, part, best)
        self._is_cut |= self._is_spent or not self._given.branches
        return best

    def _of_size(self, count: int, part: EmptiedDomain, best: Moves[M] | None) -> Moves[M] | None:
        """The cheapest set of so many gangs that may free capacity in a domain, else `best`."""
        is_better = True
        while is_better:
            is_better = False
            for chosen in part.sets(count, self._given, best.cost[0] + 1 if best else None):
                moved = [self._movable[unit] for unit in chosen]
                names = frozenset(chosen)
                if names in self._tried or (best is not None and cost_of(moved) >= best.cost):
                    continue
                if self._is_spent:
                    break
                self._tried.add(names)
                if (found := self._moves(moved)) is not None:
                    best, is_better = found, True
                    break
        return best

    def _moves(self, moved: Sequence[M]) -> Moves[M] | None:
        """The places of the asking gang and of these, None if none are found."""
        given, self._of_set = self._given, MOST_OF_SET
        if not all(map(self._fits_elsewhere, moved)):
            return None
        in_order = sorted(moved, key=lambda each: (-len(each.unit.pods), each.unit.name))
        for answer in self._answers(given.gang, given.without(pods_of(each.unit for each in moved))):
            places = self._places(in_order, given.snapshot.assume(answer, given.gang))
            if places is not None:
                return Moves(answer, tuple(places))
        self._is_cut |= self._of_set <= 0
        return None

    def _fits_elsewhere(self, moved: M) -> bool:
        """Whether a gang has another place even if no other gang takes any."""
        if moved.unit not in self._has_place:
            self._has_place[moved.unit] = self._places([moved], self._given.snapshot) is not None
        return self._has_place[moved.unit]

    def _places(
        self, moved: Sequence[M], snapshot: Snapshot, avoided: frozenset[str] = frozenset()
    ) -> list[tuple[M, Assignment]] | None:
        """A place for each of these gangs, beside one another; the first avoids these nodes."""
        if not moved:
            return []
        first, *rest = moved
        if (gang := first.gang) is None:
            return None
        for answer in self._answers(gang, snapshot, first.most_domains, avoided):
            others = self._places(rest, snapshot.assume(answer, gang))
            if others is not None:
                return [(first, answer), *others]
        return None

    def _leaving(self, part: EmptiedDomain, most: int) -> Moves[M] | None:
        """The gangs that leave a domain one by one until the asking gang fits, without those not needed."""
        snapshot, found = self._given.snapshot, dict[Unit, tuple[M, Assignment]]()
        for unit in sorted(part.gains, key=lambda unit: (-part.gains[unit] / len(unit.pods), unit.name)):
            if len(found) >= most:
                break
            moved = self._movable[unit]
            places = self._places([moved], snapshot, self._needed_nodes(part, [*found, unit]))
            if not places or moved.gang is None:
                continue
            found[unit] = places[0]
            snapshot = snapshot.assume(places[0][1], moved.gang)
            if part.suffices(found) and (answer := self._beside(found.values())) is not None:
                return self._needed(found, answer)
        return None

    def _needed_nodes(self, part: EmptiedDomain, units: Iterable[Unit]) -> frozenset[str]:
        """The nodes of a domain that units leave to the asking gang; of the cluster, those of use to it."""
        return part.names if part.key else part.free.union(*(self._given.where[unit] for unit in units))

    def _needed(self, found: Mapping[Unit, tuple[M, Assignment]], best: Assignment) -> Moves[M]:
        """The moves without which the asking gang does not fit, the largest gangs tried first.

        best: the place of the asking gang beside all of them.
        """
        left = dict(found)
        for unit in sorted(found, key=lambda unit: (-len(unit.pods), unit.name)):
            fewer = {each: move for each, move in left.items() if each != unit}
            answer = self._beside(fewer.values())
            if answer is not None:
                left, best = fewer, answer
        return Moves(best, tuple(left.values()))

    def _beside(self, moves: Iterable[tuple[M, Assignment]]) -> Assignment | None:
        """The best place of the asking gang once these gangs are moved."""
        places = [(moved.unit, moved.gang, answer) for moved, answer in moves]
        snapshot = self._given.without(pods_of(unit for unit, _, _ in places))
        for _, gang, answer in places:
            snapshot = snapshot.assume(answer, gang) if gang is not None else snapshot
        return next(self._answers(self._given.gang, snapshot), None)

    def _answers(
        self,
        gang: Gang,
        snapshot: Snapshot,
        most: tuple[int, ...] | None = None,
        avoided: frozenset[str] = frozenset(),
    ) -> Iterator[Assignment]:
        """The best place of a gang, then others, each with fewer pods on a domain or a node of one before.

        most: how many domains a place may have, see most_domains. avoided: nodes that none of them uses.
        """
        waiting = deque([PodLimits((name, 0) for name in avoided)])
        known, yielded = set(waiting), set[frozenset[tuple[str, str]]]()
        while waiting:
            limits = waiting.popleft()
            answer = self._answer(gang, snapshot, limits)
            if answer is None:
                continue
            domains = answer.objective.domains
            if most is None or all(map(le, domains, most)):
                if (items := frozenset(answer.nodes.items())) not in yielded:
                    yielded.add(items)
                    yield answer
            elif domains > most:
                continue  # with further limits it has no fewer
            for fewer in self._fewer(answer):
                if (more := limits | fewer) not in known:
                    known.add(more)
                    waiting.append(more)

    def _answer(self, gang: Gang, snapshot: Snapshot, limits: PodLimits) -> Assignment | None:
        """The best place of a gang within these limits, None if there is none, or at the bound."""
        if self._of_set <= 0 or self._is_spent:
            return None
        self._questions, self._of_set = self._questions - 1, self._of_set - 1
        excluded = gang.excluded_nodes.union(name for name, most in limits if not most)
        usages: dict[str, tuple[Usage, ...]] = {}
        for name, most in sorted(limits, reverse=True):  # the lowest limit of a node is the last
            state = snapshot.nodes[name]
            if most and name not in excluded:
                usages[name] = (*state.usages, Usage({"pods": state.free["pods"] - most}))
        asked, limited = replace(gang, excluded_nodes=excluded), snapshot.with_usages(usages)
        answer = place(asked, limited, self._options, self._budget, explained=False)
        return None if isinstance(answer, NoFit) else answer

    def _fewer(self, answer: Assignment) -> Iterator[PodLimits]:
        """Limits that a place exceeds where capacity is free: by domain, the coarsest first, then by node."""
        counts = Counter(name for name in answer.nodes.values() if self._has_free(name))
        keys = [self._keys[name] for name in sorted(counts)]
        for depth in range(2, max(map(len, keys), default=0)):
            for domain in dict.fromkeys(key[:depth] for key in keys):
                yield PodLimits((name, 0) for name in self._domains[domain])
        for name in sorted(counts):
            yield PodLimits([(name, counts[name] - 1)])

    def _has_free(self, name: str) -> bool:
        """Whether a node has any of each resource of the asking gang before a gang is moved."""
        free = self._given.snapshot.nodes[name].free
        return all(free.get(resource, 0) > 0 for resource in self._resources)

    @cached_property
    def _resources(self) -> frozenset[str]:
        """What all pods of the asking gang ask for."""
        return frozenset.intersection(
            *(frozenset(dict(member.pod_class.requests)) for member in self._given.gang.members)
        )

    @cached_property
    def _keys(self) -> dict[str, tuple[str, ...]]:
        """The path of each node."""
        snapshot = self._given.snapshot
        levels = len(snapshot.topology.level_names)
        return {name: key_of(state, levels) for name, state in snapshot.nodes.items()}

    @cached_property
    def _domains(self) -> dict[tuple[str, ...], frozenset[str]]:
        """The nodes of each domain."""
        found: dict[tuple[str, ...], set[str]] = {}
        for name, key in self._keys.items():
            for depth in range(2, len(key) + 1):
                found.setdefault(key[:depth], set()).add(name)
        return {key: frozenset(names) for key, names in found.items()}
