"""What shares the pods in a domain: nodes that are alike, domains below, and domains that hold whole slices.

Between two levels of slices all rooms are counted in units of the next finer slice (a zone); inside the
finest, and without slices, in pods. A domain that holds slices of s pods thus offers whole units of s to what
is around it, and is itself a knapsack in the finer unit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

from webhook.placement.alike.packed_cost import PackedCost
from webhook.placement.budget import Budget
from webhook.placement.costs import SCORE_BITS, Costs
from webhook.placement.mixed.filled import Filled
from webhook.placement.mixed.lattice import (
    OPERATION,
    Array,
    Lattice,
    Offer,
    RoomsAtCounts,
    State,
    counts_of_equals,
    offered,
    rooms_at_counts,
)
from webhook.placement.mixed.odd import Odd
from webhook.placement.question import Counts
from webhook.placement.snapshot import NodeState
from webhook.placement.tree import Vertex

Slices = tuple[tuple[int, int], ...]
"""(level, size), coarsest first."""


@dataclass(slots=True, eq=False)
class MixedTerms:
    """What all items of one covering domain have in common; counts, values: packed costs, see alike.items."""

    costs: Costs
    odd: Odd
    slices: Slices
    counts: PackedCost
    values: PackedCost
    budget: Budget
    insides: dict[int, "MixedInside"] = field(default_factory=dict)
    alike: dict[object, "MixedInside"] = field(default_factory=dict)
    """Of domains that differ in names alone, one; see MixedInside."""

    @property
    def nodes_are_equal(self) -> bool:
        """Whether all nodes of a domain of nodes cost the same, and there are no odd pods."""
        return len(self.odd.states) == 1 and self.costs.machine is None

    def unit(self, level: int) -> int:
        """Pods in a unit of the rooms just below a level."""
        return next((size for at, size in self.slices if at > level), 1)

    def inside(self, vertex: Vertex, wanted: int) -> "MixedInside":
        """What shares the pods in a domain, up to `wanted` of its units; the same for every call."""
        if id(vertex) not in self.insides:
            found = MixedInside(self, vertex, wanted)
            self.insides[id(vertex)] = found
        return self.insides[id(vertex)]


class MixedInside:
    """The children of a domain as one knapsack; domains whose nodes differ in names alone share it."""

    def __init__(
        self, terms: MixedTerms, vertex: Vertex, wanted: int, least: Mapping[int, int] | None = None
    ) -> None:
        """wanted: units. least: numbers of the children that matter, with the least units that each holds in
        an optimal solution; None for all. Raises OutOfSteps.
        """
        self.terms = terms
        self.vertex = vertex
        self.unit = terms.unit(vertex.bottom)
        self.wanted = wanted
        self.least = least
        alone = vertex.leaves is not None and terms.nodes_are_equal
        self.counts: Array = self._of_sorted_nodes() if alone else self.lattice.counts

    def _of_sorted_nodes(self) -> Array:
        """The counts where each node costs the same: those of the roomiest nodes first."""
        vertex, terms = self.vertex, self.terms
        key = ("mixed", tuple(terms.counts.parts), self.unit, self.wanted)
        if key not in vertex.notes:
            assert vertex.leaves is not None
            (rooms,) = vertex.leaves.every
            each = terms.counts.pack(vertex.leaves.cost_without_penalty(0))
            vertex.notes[key] = counts_of_equals(rooms, self.unit, each, self.wanted, terms.counts.fits)
        terms.budget.spend(OPERATION)
        known: Array = vertex.notes[key]
        return known

    @cached_property
    def items(self) -> list["MixedNodesItem | MixedDomainItem"]:
        """The children that can hold something."""
        return list(_items(self, self.vertex, self.least))

    @cached_property
    def lattice(self) -> Lattice:
        """What they hold together."""
        like = self._like() if self.vertex.leaves is not None else self
        if like is not self:
            for mine, known in zip(self.items, like.items, strict=True):
                if isinstance(mine, MixedNodesItem) and isinstance(known, MixedNodesItem):
                    mine.most, mine.ways, mine.used = known.most, known.ways, known.used
            return like.lattice
        terms = self.terms
        offers = [item.offer() for item in self.items]
        return Lattice(offers, terms.odd, self.wanted, terms.counts.fits, terms.budget)

    def _like(self) -> "MixedInside":
        """One whose nodes are the same but for their names; itself if it is the first."""
        nodes = [item for item in self.items if isinstance(item, MixedNodesItem)]
        kinds = [(i.rooms, i.cost, tuple(sorted(i.penalty(number) for number, _ in i.nodes))) for i in nodes]
        self.terms.budget.spend(1 + sum(len(item.nodes) for item in nodes) // 8)
        return self.terms.alike.setdefault((self.wanted, self.unit, tuple(kinds)), self)

    def solve(self, states: Sequence[State]) -> list[int | None]:
        """The least value of each state."""
        return self.lattice.least(states, self.terms.values.fits)

    def filled(self, state: State) -> tuple[Filled, ...]:
        """The best solution of a state, in topology order."""
        if state not in self.lattice.solved:
            self.lattice.solve([state], self.terms.values.fits)
        found: list[Filled] = []
        for item, held in zip(self.items, self.lattice.taken(state), strict=True):
            if held != (0, 0):
                found += item.filled(held)
        return tuple(sorted(found, key=lambda each: each.number))


@dataclass(slots=True, eq=False)
class MixedNodesItem:
    """Nodes of one domain with the same rooms (of each state of odd pods, in units) and the same cost but for
    the headroom penalty.
    """

    around: MixedInside
    rooms: tuple[int, ...]
    cost: int
    penalty: Callable[[int], int]
    """Of a node, by its number among the children."""
    nodes: list[tuple[int, NodeState]] = field(default_factory=list)
    """By number; once values are asked for, the least penalty first."""
    most: list[list[int]] = field(default_factory=list)
    """For each number of nodes from 0 and each state of odd pods the most units that they hold; -1: none."""
    ways: dict[tuple[int, int], int] = field(default_factory=dict)
    """For a number of nodes and a state of odd pods: the state of odd pods on the last of them."""
    used: dict[State, int] = field(default_factory=dict)
    """For what is offered, the nodes it takes."""
    penalties: list[int] = field(default_factory=list)

    def offer(self) -> Offer:
        """See lattice.Offer."""
        odd, wanted = self.around.terms.odd, self.around.wanted
        room = max(self.rooms)
        enough = (-(-wanted // room) if room > 0 else 0) + sum(odd.counts)
        number = min(len(self.nodes), enough)
        self._fill(number)
        each = self.around.terms.counts.pack(self.cost)
        held: dict[int, RoomsAtCounts] = {}
        for state in range(len(odd.states)):
            rooms, counts, best = [], [], 0 if not state else -1
            for count in range(1, number + 1):
                most = self.most[count][state]
                if most > best:
                    best = most
                    rooms.append(most)
                    counts.append(each * count)
                    self.used[state, most] = count
            if rooms:
                held[state] = rooms_at_counts(rooms, counts, self.around.terms.counts.fits)
        return Offer(held, self)

    def _fill(self, number: int) -> None:
        odd = self.around.terms.odd
        self.around.terms.budget.spend(1 + number * sum(map(len, odd.sums)) // 4)
        states = range(len(odd.states))
        self.most = [[0, *(-1 for _ in states[1:])]]
        for count in range(1, number + 1):
            before, row = self.most[-1], [-1] * len(states)
            for more in states:
                if self.rooms[more] < 0:
                    continue
                for one, other in odd.sums[more]:
                    if before[one] >= 0 and before[one] + self.rooms[more] > row[other]:
                        row[other] = before[one] + self.rooms[more]
                        self.ways[count, other] = more
            self.most.append(row)

    def values(self, states: Sequence[State]) -> list[int | None]:
        """See lattice.Source."""
        self._order()
        each = self.around.terms.values.pack(self.cost)
        return [each * self.used[state] + self.penalties[self.used[state]] for state in states]

    def _order(self) -> None:
        if not self.penalties:
            ordered = sorted(
                ((self.penalty(number), number, node) for number, node in self.nodes),
                key=lambda each: each[:2],
            )
            self.nodes = [(number, node) for _, number, node in ordered]
            self.penalties = [0, *accumulate(penalty for penalty, _, _ in ordered)]

    def filled(self, held: State) -> list[Filled]:
        """The nodes."""
        self._order()
        state, count = held[0], self.used[held]
        odds = []
        for left in range(count, 0, -1):
            more = self.ways[left, state]
            odds.append(more)
            state = next(one for one, other in self.around.terms.odd.sums[more] if other == state)
        unit = self.around.unit
        return [
            Filled(number, self.rooms[odd], unit, self.cost + self.penalty(number), odd, node)
            for (number, node), odd in zip(self.nodes, odds, strict=False)
        ]


@dataclass(slots=True, eq=False)
class MixedDomainItem:
    """A domain below. least: units that it holds in an optimal solution. ratio: of the inner units to one."""

    around: MixedInside
    number: int
    vertex: Vertex
    least: int

    @property
    def ratio(self) -> int:
        """How many units inside make one around it."""
        return self.around.unit // self.around.terms.unit(self.vertex.bottom)

    @property
    def inside(self) -> MixedInside:
        """Its own knapsack."""
        terms = self.around.terms
        room = self.vertex.room // terms.unit(self.vertex.bottom)
        return terms.inside(self.vertex, min(self.around.wanted * self.ratio, room))

    def offer(self) -> Offer:
        """See lattice.Offer."""
        terms, inside = self.around.terms, self.inside
        own = terms.counts.pack(self.vertex.own)
        held: dict[int, RoomsAtCounts] = {}
        for odd in range(len(terms.odd.states)):
            first = max(self.least, 0 if odd else 1)
            found = offered(inside.counts[odd], self.ratio, first, own, terms.counts.fits)
            if found is not None:
                held[odd] = found
        return Offer(held, self)

    def _inner(self, state: State) -> list[State]:
        """The states inside that are just this state outside, at the same count cost."""
        odd, units = state
        inside = self.inside
        first = units * self.ratio
        row = inside.counts[odd]
        last = min(first + self.ratio, inside.wanted + 1)
        return [(odd, room) for room in range(first, last) if row[room] == row[first]]

    def values(self, states: Sequence[State]) -> list[int | None]:
        """See lattice.Source."""
        own = self.around.terms.values.pack(self.vertex.own)
        inner = [self._inner(state) for state in states]
        asked = sorted({each for group in inner for each in group})
        found = dict(zip(asked, self.inside.solve(asked), strict=True))
        best = [min((v for each in group if (v := found[each]) is not None), default=None) for group in inner]
        return [None if value is None else value + own for value in best]

    def filled(self, held: State) -> list[Filled]:
        """The domain."""
        group = self._inner(held)
        inside = self.inside
        values = zip(inside.solve(group), group, strict=True)
        _, best = min((value, state) for value, state in values if value is not None)
        return [Filled(self.number, held[1], self.around.unit, self.vertex.own, parts=inside.filled(best))]


def _items(
    around: MixedInside, vertex: Vertex, least: Mapping[int, int] | None
) -> Sequence[MixedNodesItem | MixedDomainItem]:
    """The children of a domain; domains that have no room for any unit and no odd pod offer nothing."""
    terms, alike = around.terms, dict[object, MixedNodesItem]()
    items: list[MixedNodesItem | MixedDomainItem] = []

    def add(number: int, state: NodeState, cost: int, rooms: Counts, penalty: Callable[[int], int]) -> None:
        if around.unit > 1:
            rooms = tuple(room // around.unit if room >= 0 else -1 for room in rooms)
        if max(rooms) <= 0 and not any(room >= 0 for room in rooms[1:]):
            return
        if (rooms, cost) not in alike:
            alike[rooms, cost] = MixedNodesItem(around, rooms, cost, penalty)
            items.append(alike[rooms, cost])
        alike[rooms, cost].nodes.append((number, state))

    leaves = vertex.leaves
    if leaves is not None:
        every = terms.odd.rooms(leaves.states, list(zip(*leaves.every, strict=True)))
        for number, (state, rooms) in enumerate(zip(leaves.states, every, strict=True)):
            cost = leaves.cost_without_penalty(leaves.rooms[number])
            add(number, state, cost, rooms, lambda number: leaves.penalties[number])
        return sorted(alike.values(), key=lambda item: (item.rooms, item.cost))
    for number, part in enumerate(vertex.parts):
        if least is not None and number not in least:
            continue
        if part.state is not None:
            (rooms,) = terms.odd.rooms([part.state], [part.rooms])
            add(number, part.state, part.own >> SCORE_BITS << SCORE_BITS, rooms, _penalty_of(vertex))
        else:
            items.append(MixedDomainItem(around, number, part, least[number] if least else 0))
    return items


def _penalty_of(vertex: Vertex) -> Callable[[int], int]:
    return lambda number: vertex.parts[number].own & (1 << SCORE_BITS) - 1
