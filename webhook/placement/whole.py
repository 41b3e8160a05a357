"""Which whole gangs have to go so that another fits: the fewest, and of these the fewest pods. Pure.

Nobody more important goes where those of less importance suffice: the priority up to which gangs may go is
found first, by halving. Then sets of one gang are tried, of two, and so on; units.py tells which sets need
not be. So the answer is the smallest set as far as the steps suffice; beyond them gangs go by the room that
they make, the most first, and those that turn out not to be needed are spared.

A gang with more pods than its minimum may lose these without being broken. They go before any gang is broken.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from webhook.placement.budget import Budget
from webhook.placement.check import faults_on
from webhook.placement.model import Assignment, Gang, NoFit, Options, Placed
from webhook.placement.place import place
from webhook.placement.snapshot import Snapshot, key_of
from webhook.placement.units import EmptiedDomain, Unit, UnitGround, pods_of

TRIES: Final = 400
"""Sets of gangs for which the placement core is asked whether they suffice."""


@dataclass(frozen=True)
class GoingUnit:
    """Who goes of one unit: all of it (is_broken), or some of what it can spare. pods: sorted uids."""

    unit: Unit
    pods: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        """Whether the unit does not go on without them."""
        return len(self.pods) > self.unit.spare


@dataclass(frozen=True)
class WholeVictims:
    """Where the gang goes, once these have gone. going: by name, the unit of each once."""

    assignment: Assignment
    going: tuple[GoingUnit, ...]


def choose(
    gang: Gang,
    snapshot: Snapshot,
    options: Options,
    units: Iterable[Unit],
    leaving: Set[str] = frozenset(),
    budget: Budget | None = None,
) -> WholeVictims | None:
    """The gang's place for which the fewest of the least important units are broken; None if there is none.

    leaving: uids of pods that go in any case, and cost nothing. None also if none was found within the budget
    (which is exhausted then), by default four times what one question may take.
    Raises PlacementError as place does.
    """
    ground = UnitGround(gang, snapshot, units, leaving)
    return _UnitSearch(ground, options, budget or Budget(4 * options.bound)).run()


@dataclass
class _BestUnits:
    """The best set that was found so far, of as many units as are tried now."""

    pods: int
    chosen: tuple[Unit, ...]
    spared: frozenset[str]
    answer: Assignment


class _UnitSearch:
    """One question."""

    def __init__(self, ground: UnitGround, options: Options, budget: Budget) -> None:
        self._ground, self._options, self._budget = ground, options, budget
        self._units = ground.units
        self._tries = TRIES

    # --- the answer -----------------------------------------------------------------------------

    def run(self) -> WholeVictims | None:
        """Decide it."""
        allowed = self._allowed()
        if allowed is None:
            return None
        self._units, everything = allowed
        parts = sorted(self._domains(), key=lambda part: (part.fewest, part.key))
        for count in range(len(self._units) + 1):
            best: _BestUnits | None = None
            for part in parts:
                if part.fewest <= count:
                    best = self._of_size(count, part, best)
            if best is not None:
                return self._choice(best.answer, best.chosen, best.spared)
            if self._budget.exhausted or not self._tries or not self._ground.branches:
                break
        return self._by_room(parts) or self._choice(everything, tuple(self._units))

    def _allowed(self) -> tuple[list[Unit], Assignment] | None:
        """The units up to the lowest priority that suffices, and the place once all of them have gone."""
        answer = self._placed(pods_of(self._units))
        if isinstance(answer, NoFit):
            return None
        found, ranks = (self._units, answer), sorted({unit.priority for unit in self._units})
        low, high = 0, len(ranks) - 1
        while low < high:
            middle = (low + high) // 2
            some = [unit for unit in self._units if unit.priority <= ranks[middle]]
            answer = self._placed(pods_of(some))
            if isinstance(answer, NoFit):
                low = middle + 1
            else:
                found, high = (some, answer), middle
        return found

    def _of_size(self, count: int, part: EmptiedDomain, best: _BestUnits | None) -> _BestUnits | None:
        """The best of all sets of so many units that may make room in a domain, `best` if none is better."""
        is_better = True
        while is_better:
            is_better = False
            for chosen in part.sets(count, self._ground, best.pods if best else None):
                if not self._tries or self._budget.exhausted:
                    break
                self._tries -= 1
                answer = self._placed(pods_of(chosen) | part.spared)
                if not isinstance(answer, NoFit):
                    best, is_better = _BestUnits(_count(chosen), tuple(chosen), part.spared, answer), True
                    break
        return best

    def _by_room(self, parts: Sequence[EmptiedDomain]) -> WholeVictims | None:
        """Units by the room that they make in a domain, the shortest beginning that suffices."""
        for part in parts[:4]:
            order = sorted(part.gains, key=lambda unit: (-part.gains[unit], len(unit.pods), unit.name))
            low, high, answer = 0, len(order), None
            while low < high and not self._budget.exhausted:
                middle = (low + high) // 2
                tried = self._placed(pods_of(order[:middle]) | part.spared)
                if isinstance(tried, NoFit):
                    low = middle + 1
                else:
                    high, answer = middle, tried
            if answer is not None:
                return self._choice(answer, tuple(order[:high]), part.spared)
        return None

    # --- snapshots ------------------------------------------------------------------------------

    def _placed(self, gone: Set[str]) -> Assignment | NoFit:
        ground = self._ground
        return place(ground.gang, ground.without(gone), self._options, self._budget, explained=False)

    def _domains(self) -> list[EmptiedDomain]:
        """Those among which the gang has to choose one, or the cluster, if all could be emptied."""
        ground = self._ground
        topology, required = ground.snapshot.topology, ground.gang.required_level
        depth = 0 if required is None else topology.level(required) + 2
        named: dict[tuple[str, ...], list[str]] = {}
        for name, state in ground.snapshot.nodes.items():
            if name not in ground.gang.excluded_nodes:
                named.setdefault(key_of(state, len(topology.level_names))[:depth], []).append(name)
        emptied = ground.without(pods_of(self._units))
        self._budget.take(2 * len(ground.snapshot.nodes))
        parts = (EmptiedDomain(key, names, emptied, self._units, ground) for key, names in named.items())
        return [part for part in parts if part.fewest <= len(self._units)]

    # --- who is needed --------------------------------------------------------------------------

    def _choice(
        self, answer: Assignment, chosen: Sequence[Unit], spared: Set[str] = frozenset()
    ) -> WholeVictims:
        """The answer with those alone without whose going it does not hold."""
        residents: dict[str, list[Placed]] = {}
        for placed in answer.placed:
            residents.setdefault(placed.node, []).append(placed)
        ground, members = self._ground, {member.name: member for member in self._ground.gang.members}

        def holds(gone: Set[str], pods: Iterable[str]) -> bool:
            for name in ground.nodes_of(pods) & residents.keys():
                state = ground.snapshot.nodes[name]
                gone = gone | ground.leaving
                stay = tuple(use for use in state.usages if use.uid not in gone)
                if any(faults_on(state.with_usages(stay), residents[name], members)):
                    return False
            return True

        broken = set(chosen)
        spared = {uid for uid in spared if ground.node_of.get(uid) in residents} - pods_of(broken)
        gone = pods_of(broken) | spared
        for unit in sorted(broken, key=lambda each: (-each.priority, -len(each.pods), each.name)):
            if holds(gone - unit.pods, unit.pods):
                gone, broken = gone - unit.pods, broken - {unit}
        for uid in sorted(spared):
            if holds(gone - {uid}, [uid]):
                gone = gone - {uid}
        going = [GoingUnit(unit, tuple(sorted(own))) for unit in self._units if (own := unit.pods & gone)]
        return WholeVictims(answer, tuple(sorted(going, key=lambda each: each.unit.name)))


def _count(units: Iterable[Unit]) -> int:
    return sum(len(unit.pods) for unit in units)
