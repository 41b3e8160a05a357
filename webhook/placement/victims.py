"""The pods whose end makes a gang fit: the fewest whole gangs, and among these the fewest pods. Pure.

For preemption, for reserving nodes, and to say what would help. A unit is a gang, whose pods end together, or
a single pod.

First, a binary search finds the lowest priority limit that suffices, so that no unit above it is a victim.
Then the search tries sets of one unit, of two, and so on. EmptiedDomain excludes sets that cannot suffice. So
the answer is the smallest set as far as the steps suffice. When they are spent, two orders of the units are
tried: by the capacity that they free, and by node, nodes with the fewest units first. Of each order the
shortest sufficient prefix is found by binary search, and units that are not needed are dropped from it. A
gang with more pods than its minimum can lose these pods without being broken; they are evicted before any
gang is broken.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set, Sized
from dataclasses import dataclass
from functools import partial
from operator import sub
from typing import Final

from webhook.placement.budget import Budget
from webhook.placement.capacity import count_slots_by_node
from webhook.placement.check import faults_on
from webhook.placement.model import Assignment, Gang, Member, NoFit, Options, Placed, PodClass, Usage
from webhook.placement.place import place
from webhook.placement.snapshot import Snapshot, key_of

BRANCHES: Final = 200_000
"""Steps of the search for victim sets."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Pods that may be victims. A unit that loses more than `spare` pods is broken: then all are evicted.

    name: the tie-breaker. priority: the highest of its pods. pods: their uids (Usage.uid).
    """

    name: str
    priority: int
    pods: frozenset[str]
    spare: int = 0


class EvictionInput:
    """The cluster with all units. leaving: uids of pods that are leaving anyway. branches: steps that are
    left.
    """

    def __init__(self, gang: Gang, snapshot: Snapshot, units: Iterable[Unit], leaving: Set[str]) -> None:
        self.gang, self.snapshot, self.leaving = gang, snapshot, leaving
        self.units = sorted(units, key=lambda unit: (len(unit.pods), unit.name))
        self.branches = BRANCHES
        wanted = pods_of(self.units) | leaving
        self.node_of = {
            use.uid: name
            for name, state in snapshot.nodes.items()
            for use in state.usages
            if use.uid in wanted
        }
        self.where = {unit: self.nodes_of(unit.pods) for unit in self.units}

    def without(self, gone: Set[str]) -> Snapshot:
        """The cluster without these pods and those that are leaving."""
        gone = gone | self.leaving
        nodes = {self.node_of[uid] for uid in gone if uid in self.node_of}
        return self.snapshot.without(nodes, lambda use: use.uid in gone)

    def nodes_of(self, pods: Iterable[str]) -> set[str]:
        """The nodes of these pods."""
        return {self.node_of[uid] for uid in pods if uid in self.node_of}


def units_on(snapshot: Snapshot, may_end: Callable[[Usage], bool]) -> list[Unit]:
    """The units of a cluster: gangs (Usage.gang) all of whose pods may end, and such pods without a gang."""
    units: dict[str, list[Usage]] = {}
    for use in (use for state in snapshot.nodes.values() for use in state.usages if use.uid):
        units.setdefault(use.gang or use.uid, []).append(use)
    return [
        Unit(name, max(use.priority for use in own), frozenset(use.uid for use in own))
        for name, own in units.items()
        if all(map(may_end, own))
    ]


def pods_of(units: Iterable[Unit]) -> frozenset[str]:
    """The uids of all pods of these units."""
    return frozenset().union(*(unit.pods for unit in units))


_NEVER: Final = 10**9


class EmptiedDomain:
    """A domain that sets of units could free. fewest: a lower bound of the number of evicted units.

    names: its nodes. free: those that have capacity for a pod of the gang now.
    """

    def __init__(
        self,
        key: tuple[str, ...],
        names: Sequence[str],
        emptied: Snapshot,
        units: Sequence[Unit],
        given: EvictionInput,
    ) -> None:
        """names: its nodes. emptied: the cluster without all units. units: those with a pod in it."""
        self.key, self.names, self.free = key, frozenset(names), frozenset[str]()
        self.spare_pods: frozenset[str] = frozenset()
        self.gains: dict[Unit, int] = {}
        classes = Counter(member.pod_class for member in given.gang.members)
        self._wanted = tuple(classes.values())
        self._base = (0,) * len(classes)
        most = _all_count_slots_by_node(classes, emptied, names)
        if not self._suffices(_sums(most.values(), classes)):
            self.fewest = _NEVER
            return
        self.spare_pods = _spare_pods(units, most, given)
        least = _all_count_slots_by_node(classes, given.without(self.spare_pods), names)
        self.free = frozenset(filter(lambda name: any(least[name]), least))
        more = {name: tuple(map(sub, most[name], slot_counts)) for name, slot_counts in least.items()}
        self._base = _sums(least.values(), classes)
        gained = {
            unit: _sums([more[node] for node in given.where[unit] & more.keys()], classes) for unit in units
        }
        self.gains = {unit: gain for unit, own in gained.items() if (gain := sum(own))}
        self._units = [*self.gains]
        self._by_kind = [[gained[unit][kind] for unit in self._units] for kind in range(len(classes))]
        self.fewest = max((self._least(kind) for kind in range(len(classes))), default=0)

    def _least(self, kind: int) -> int:
        """A lower bound of the evicted units for the pods of one class; above their number if none helps."""
        missing, count = self._wanted[kind] - self._base[kind], 0
        for gain in sorted(self._by_kind[kind], reverse=True):
            if missing <= 0:
                return count
            missing, count = missing - gain, count + 1
        return count if missing <= 0 else _NEVER

    def suffices(self, units: Container[Unit]) -> bool:
        """Whether the capacity is enough once these units are gone, as far as it can be counted."""
        chosen = [number for number, unit in enumerate(self._units) if unit in units]
        return self._suffices(sum(own[number] for number in chosen) for own in self._by_kind)

    def _suffices(self, gained: Iterable[int]) -> bool:
        """Whether so many more free slots for each class are enough."""
        reached = zip(self._base, gained, self._wanted, strict=True)
        return all(base + more >= wanted for base, more, wanted in reached)

    def _may_suffice(
        self,
        number: int,
        left: int,
        gained: Iterable[int],
        best: Iterable[Sequence[int]],
        most_pods: int | None,
    ) -> bool:
        """Whether `left` units from this one on may suffice, with less than most_pods pods.

        If not, later units do not suffice either: they have as many pods or more, and add no more capacity.
        """
        if most_pods is not None and left * len(self._units[number].pods) >= most_pods:
            return False
        return self._suffices(g + left * rest[number] for g, rest in zip(gained, best, strict=True))

    def sets(self, count: int, given: EvictionInput, most_pods: int | None) -> Iterator[Sequence[Unit]]:
        """The sets of so many units that may suffice, below most_pods pods, the fewest pods first."""
        units, best = self._units, list(map(_best_of_rest, self._by_kind))
        chosen: list[Unit] = []
        # For each length of chosen the next numbers, pods and gain; calls cannot be nested a thousand times.
        stack = [(iter(range(len(units) - count + 1)), 0, (0,) * len(self._wanted))]
        while stack:
            numbers, pods, gained = stack[-1]
            left = count - len(chosen)
            if not left and self._suffices(gained):
                yield list(chosen)
            number = next(numbers, None) if left and given.branches else None
            given.branches -= number is not None
            more_pods = None if most_pods is None else most_pods - pods
            if number is None or not self._may_suffice(number, left, gained, best, more_pods):
                stack.pop()
                del chosen[-1:]
                continue
            chosen.append(units[number])
            more = tuple(g + own[number] for g, own in zip(gained, self._by_kind, strict=True))
            following = iter(range(number + 1, len(units) - left + 2))
            stack.append((following, pods + len(units[number].pods), more))


def emptied_domains(given: EvictionInput, units: Sequence[Unit], budget: Budget) -> list[EmptiedDomain]:
    """The domains of the required level, or the cluster, that suffice if all units are evicted.

    Those come first of which the fewest units may have to be evicted.
    """
    topology, required = given.snapshot.topology, given.gang.required_level
    depth = 0 if required is None else topology.level(required) + 2
    domain_of = {
        name: key_of(state, len(topology.level_names))[:depth]
        for name, state in given.snapshot.nodes.items()
        if name not in given.gang.excluded_nodes
    }
    here: dict[tuple[str, ...], list[Unit]] = {}
    for unit in units:
        for key in {domain_of[node] for node in given.where[unit] & domain_of.keys()}:
            here.setdefault(key, []).append(unit)
    emptied = given.without(pods_of(units))
    budget.take(2 * len(given.snapshot.nodes))
    named: dict[tuple[str, ...], list[str]] = {}
    for name, key in domain_of.items():
        named.setdefault(key, []).append(name)
    parts = (EmptiedDomain(key, own, emptied, here.get(key, ()), given) for key, own in named.items())
    return sorted(
        (part for part in parts if part.fewest <= len(units)), key=lambda part: (part.fewest, part.key)
    )


def _all_count_slots_by_node(
    classes: Mapping[PodClass, int], snapshot: Snapshot, names: Sequence[str]
) -> dict[str, tuple[int, ...]]:
    """Free slots of each node for each class, at most the number of its pods."""
    states = [snapshot.nodes[name] for name in names]
    found = [(count_slots_by_node(kind, states), count) for kind, count in classes.items()]
    return {
        name: tuple(count if n in each.undecided else min(count, each.counts[n]) for each, count in found)
        for n, name in enumerate(names)
    }


def _sums(rows: Iterable[tuple[int, ...]], columns: Sized) -> tuple[int, ...]:
    table = list(rows)
    return tuple(sum(row[number] for row in table) for number in range(len(columns)))


def _spare_pods(
    units: Iterable[Unit], slot_counts_of: Mapping[str, tuple[int, ...]], given: EvictionInput
) -> frozenset[str]:
    """The spare pods of each unit on these nodes: those whose eviction frees the most capacity."""
    found: set[str] = set()
    for unit in units:
        if unit.spare:
            here = [uid for uid in unit.pods if given.node_of.get(uid, "") in slot_counts_of]
            here.sort(key=lambda uid: (-sum(slot_counts_of[given.node_of[uid]]), given.node_of[uid], uid))
            found.update(here[: unit.spare])
    return frozenset(found)


def _best_of_rest(gains: Sequence[int]) -> list[int]:
    """For each position the largest gain from there on."""
    found, most = [0] * len(gains), 0
    for number in range(len(gains) - 1, -1, -1):
        most = found[number] = max(most, gains[number])
    return found


MOST_ATTEMPTS: Final = 400
"""The most sets of gangs that are checked with the placement core."""


@dataclass(frozen=True)
class GoingUnit:
    """The evicted pods of one unit: all of them (is_broken), or some of its spare pods. pods: sorted uids."""

    unit: Unit
    pods: tuple[str, ...]

    @property
    def is_broken(self) -> bool:
        """Whether the unit cannot continue without them."""
        return len(self.pods) > self.unit.spare


@dataclass(frozen=True)
class Victims:
    """The gang's placement once these units are evicted. going: sorted by name, one entry per unit."""

    assignment: Assignment
    going: tuple[GoingUnit, ...]

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of the placement."""
        return frozenset(self.assignment.nodes.values())

    @property
    def pods(self) -> frozenset[str]:
        """The uids of all victims."""
        return frozenset(uid for each in self.going for uid in each.pods)

    @property
    def size(self) -> tuple[int, int]:
        """How many units are broken, and how many pods are victims."""
        return sum(each.is_broken for each in self.going), len(self.pods)

    @property
    def harm(self) -> tuple[int, int, int]:
        """Of two answers the one with the smaller value is better: that of the less important victims."""
        return max((each.unit.priority for each in self.going), default=0), *self.size


def choose(
    gang: Gang,
    snapshot: Snapshot,
    options: Options,
    units: Iterable[Unit],
    leaving: Set[str] = frozenset(),
    budget: Budget | None = None,
) -> Victims | None:
    """The gang's placement that breaks the fewest units of the lowest priorities; None if none exists.

    leaving: uids of pods that are leaving anyway, and cost nothing. It also returns None if the budget is
    exhausted first. The default budget is four times that of one question.
    Raises PlacementError as `place` does.
    """
    budget = budget or Budget(4 * options.bound)
    if budget.exhausted:
        return None
    return _UnitSearch(EvictionInput(gang, snapshot, units, leaving), options, budget).run()


def choose_among(
    gangs: Iterable[Gang],
    snapshot: Snapshot,
    options: Options,
    units: Sequence[Unit],
    budget: Budget | None = None,
) -> Victims | None:
    """The placement of one of these gangs that does the least harm, see choose; None if none exists."""
    searched = (choose(each, snapshot, options, units, budget=budget) for each in gangs)
    return min(filter(None, searched), key=lambda each: each.harm, default=None)


@dataclass
class _BestUnits:
    """The best set so far with the number of units that is tried now."""

    pods: int
    chosen: tuple[Unit, ...]
    spare_pods: frozenset[str]
    answer: Assignment


class _UnitSearch:
    """The search for one gang. Half of the work budget is for sets, the rest for the orders."""

    def __init__(self, given: EvictionInput, options: Options, budget: Budget) -> None:
        self._input, self._options, self._budget = given, options, budget
        self._units = given.units
        self._of_sets = budget
        self._attempts = MOST_ATTEMPTS

    # --- the answer -----------------------------------------------------------------------------

    def run(self) -> Victims | None:
        """Search for the answer."""
        as_it_is = self._placed(frozenset())
        if not isinstance(as_it_is, NoFit):
            return self._choice(as_it_is, ())
        allowed = None if self._budget.exhausted else self._allowed()
        if allowed is None:
            return None
        self._units, everything = allowed
        self._of_sets = self._budget.part(self._budget.left // 2)
        parts = emptied_domains(self._input, self._units, self._budget)
        if (smallest := self._smallest(parts)) is not None:
            return smallest
        found = filter(None, (self._by_slots(parts), self._by_nodes(everything)))
        return min(found, key=lambda each: each.size)

    def _smallest(self, parts: Sequence[EmptiedDomain]) -> Victims | None:
        """The smallest set that suffices; None if the steps are spent before it is found."""
        for count in range(len(self._units) + 1):
            best: _BestUnits | None = None
            for part in parts:
                if part.fewest <= count:
                    best = self._of_size(count, part, best)
            if best is not None:
                return self._choice(best.answer, best.chosen, best.spare_pods)
            if self._of_sets.exhausted or not self._attempts or not self._input.branches:
                break
        return None

    def _allowed(self) -> tuple[list[Unit], Assignment] | None:
        """The units up to the lowest sufficient priority, and the placement without all of them."""
        answer = self._placed(pods_of(self._units))
        if isinstance(answer, NoFit):
            return None
        found, ranks = (self._units, answer), sorted({unit.priority for unit in self._units})
        low, high = 0, len(ranks) - 1
        while low < high and not self._budget.exhausted:
            middle = (low + high) // 2
            some = [unit for unit in self._units if unit.priority <= ranks[middle]]
            answer = self._placed(pods_of(some))
            if isinstance(answer, NoFit):
                low = middle + 1
            else:
                found, high = (some, answer), middle
        return found

    def _of_size(self, count: int, part: EmptiedDomain, best: _BestUnits | None) -> _BestUnits | None:
        """The best set of so many units that may free capacity in a domain, else `best`."""
        is_better = True
        while is_better:
            is_better = False
            for chosen in part.sets(count, self._input, best.pods if best else None):
                if not self._attempts or self._of_sets.exhausted:
                    break
                self._attempts -= 1
                answer = self._placed(pods_of(chosen) | part.spare_pods, self._of_sets)
                if not isinstance(answer, NoFit):
                    best, is_better = _BestUnits(_count(chosen), tuple(chosen), part.spare_pods, answer), True
                    break
        return best

    def _by_slots(self, parts: Sequence[EmptiedDomain]) -> Victims | None:
        """The units that free the most capacity in a domain, of the first domain where some suffice."""
        for part in parts[:4]:
            order = sorted(part.gains, key=lambda unit: (-part.gains[unit], len(unit.pods), unit.name))
            found = self._shortest([[unit] for unit in order], None, part.spare_pods)
            if found is not None:
                return found
        return None

    def _by_nodes(self, answer: Assignment) -> Victims | None:
        """All units of nodes, those of the lowest priorities first, then those with the fewest units.

        answer: the placement without all units.
        """
        on_nodes: dict[str, list[Unit]] = {}
        for unit in self._units:
            for node in self._input.where[unit]:
                on_nodes.setdefault(node, []).append(unit)

        def cost(node: str) -> tuple[int, int, str]:
            return max(unit.priority for unit in on_nodes[node]), len(on_nodes[node]), node

        return self._shortest([on_nodes[node] for node in sorted(on_nodes, key=cost)], answer)

    def _shortest(
        self,
        order: Sequence[Sequence[Unit]],
        answer: Assignment | None,
        spare_pods: Set[str] = frozenset(),
    ) -> Victims | None:
        """The shortest sufficient prefix, by binary search within the budget; None if none is found.

        answer: the placement without all of the order, if it is known.
        """
        low, high = 0, len(order)
        while low < high and not self._budget.exhausted:
            middle = (low + high) // 2
            tried = self._placed(pods_of(unit for units in order[:middle] for unit in units) | spare_pods)
            if isinstance(tried, NoFit):
                low = middle + 1
            else:
                high, answer = middle, tried
        if answer is None:
            return None
        chosen = dict.fromkeys(unit for units in order[:high] for unit in units)
        return self._choice(answer, tuple(chosen), spare_pods)

    # --- snapshots ------------------------------------------------------------------------------

    def _placed(self, gone: Set[str], budget: Budget | None = None) -> Assignment | NoFit:
        given, budget = self._input, budget or self._budget
        return place(given.gang, given.without(gone), self._options, budget, explained=False)

    # --- needed victims -------------------------------------------------------------------------

    def _choice(
        self, answer: Assignment, chosen: Sequence[Unit], spare_pods: Set[str] = frozenset()
    ) -> Victims:
        """The answer with only those units whose eviction it needs."""
        given, residents = self._input, answer.residents
        holds = partial(self._holds, residents, {member.name: member for member in given.gang.members})
        broken = pods_of(chosen)
        spare_pods = {uid for uid in spare_pods if given.node_of.get(uid) in residents} - broken
        gone = {*broken, *spare_pods}
        in_order = sorted(set(chosen), key=lambda each: (-each.priority, -len(each.pods), each.name))
        # One set, as there may be thousands of pods.
        for own in (*(unit.pods for unit in in_order), *({uid} for uid in sorted(spare_pods))):
            gone -= own
            if not holds(gone, own):
                gone |= own
        going = [GoingUnit(unit, tuple(sorted(own))) for unit in self._units if (own := unit.pods & gone)]
        return Victims(answer, tuple(sorted(going, key=lambda each: each.unit.name)))

    def _holds(
        self,
        residents: Mapping[str, list[Placed]],
        members: dict[str, Member],
        gone: Set[str],
        pods: Iterable[str],
    ) -> bool:
        """Whether the members on the nodes of these pods fit there without the pods of `gone`."""
        given = self._input
        for name in given.nodes_of(pods) & residents.keys():
            state = given.snapshot.nodes[name]
            stay = tuple(use for use in state.usages if use.uid not in gone and use.uid not in given.leaving)
            if any(faults_on(state.with_usages(stay), residents[name], members)):
                return False
        return True


def _count(units: Iterable[Unit]) -> int:
    return sum(len(unit.pods) for unit in units)
