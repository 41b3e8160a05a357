"""The knapsack items in a domain: groups of equal nodes, and domains, with or without slices.

Between two slice levels (a zone), capacities are counted in units of the next finer slice. Inside the finest
slice, and without slices, they are counted in pods. So a domain with slices of s pods offers whole units of s
to the domain around it, and is itself a knapsack in the finer unit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Final

from webhook.placement.bounds import child_slot_counts
from webhook.placement.budget import PART, Budget
from webhook.placement.costs import SCORE_BITS, Costs, PackedCost
from webhook.placement.homogeneous.lattice import Lattice, OneItem
from webhook.placement.homogeneous.min_plus import (
    Array,
    Choices,
    Offer,
    State,
    choices,
    counts_of_nodes,
    offered,
    shifted_back,
)
from webhook.placement.homogeneous.minority_pods import SpareSlots
from webhook.placement.question import Counts
from webhook.placement.snapshot import NodeState
from webhook.placement.vertex import Leaves, Vertex

SEARCHED: Final = 60
"""Capacities for which the nodes are counted in one step."""


@dataclass(slots=True, eq=False)  # not frozen: that takes three times as long, and there is one per node
class Filled:
    """A chosen node or domain. number: its position among the siblings. own: the cost of using it.

    holds: its workers, in units of the zone around it. unit: pods per unit.
    """

    number: int
    holds: int
    unit: int
    own: int
    node: NodeState | None = None
    parts: tuple["Filled", ...] = ()

    @property
    def cost(self) -> int:
        """The cost of using it and everything chosen inside it."""
        return self.own + sum(part.cost for part in self.parts)

    def deliver(self, units: int, found: dict[str, int]) -> None:
        """Distribute workers over the nodes in order: node name -> workers, 0 included."""
        pods = units * self.unit
        if self.node is not None:
            found[self.node.name] = pods
            return
        for part in self.parts:
            given = min(pods // part.unit, part.holds)
            part.deliver(given, found)
            pods -= given * part.unit

    def nodes(self) -> Iterator[NodeState]:
        """The nodes chosen, in topology order."""
        return (node for node, _ in self.slot_counts())

    def slot_counts(self) -> Iterator[tuple[NodeState, int]]:
        """The chosen nodes, each with its free slots for workers."""
        if self.node is not None:
            yield self.node, self.holds * self.unit
        for part in self.parts:
            yield from part.slot_counts()


Slices = tuple[tuple[int, int], ...]
"""(level, size), coarsest first."""


@dataclass(slots=True, eq=False)
class KnapsackTerms:
    """The terms shared by all items of one covering domain.

    counts, values: the cost fields that are minimized first (counts), and then (values).
    """

    counts: PackedCost
    values: PackedCost
    budget: Budget
    costs: Costs
    spare: SpareSlots
    slices: Slices

    def unit(self, level: int) -> int:
        """Pods per unit of the capacities just below a level."""
        return next((size for at, size in self.slices if at > level), 1)


@dataclass(slots=True, eq=False)
class NodesItem:
    """Nodes of a domain with equal capacities and equal costs except the headroom penalty.

    The capacities are in units, for each state of spare slots.
    """

    terms: KnapsackTerms
    spare: SpareSlots
    unit: int
    wanted: int
    """The demand of the whole knapsack, in units."""
    slot_counts: tuple[int, ...]
    cost: int
    penalty: Callable[[int], int]
    """The penalty of a node, by its number among the children."""
    nodes: list[tuple[int, NodeState]] = field(default_factory=list)
    """Pairs of number and node; sorted by penalty once values are computed."""
    choices: "NodeChoices" = field(init=False)
    """Set by `offer`."""
    penalties: list[int] = field(default_factory=list)

    def offer(self) -> Offer:
        """See min_plus.Offer."""
        spare, wanted, counts = self.spare, self.wanted, self.terms.counts
        free_slots = max(self.slot_counts)
        enough = (-(-wanted // free_slots) if free_slots > 0 else 0) + spare.most
        number = min(len(self.nodes), enough)
        self.terms.budget.spend(1 + number * (len(spare.losses) + sum(map(len, spare.sums))) // 4 + PART)
        self.choices = NodeChoices(spare, self.slot_counts, number, counts.pack(self.cost), counts.fits)
        return Offer(self.choices.offered, self)

    def values(self, states: Sequence[State]) -> list[int | None]:
        """See min_plus.OfferSource."""
        self._order()
        each = self.terms.values.pack(self.cost)
        return [
            each * self.choices.used[state] + self.penalties[self.choices.used[state]] for state in states
        ]

    def _order(self) -> None:
        if not self.penalties:
            self.nodes.sort(key=lambda each: self.penalty(each[0]))
            self.penalties = [0, *accumulate(self.penalty(number) for number, _ in self.nodes)]

    def filled(self, target: State) -> list[Filled]:
        """The nodes."""
        self._order()
        free_slots, count = self.slot_counts[0], self.choices.used[target]
        return [
            Filled(number, free_slots, self.unit, self.cost + self.penalty(number), node)
            for number, node in self.nodes[:count]
        ]


class NodeChoices:
    """The capacities that several nodes with these capacities have together, and how."""

    def __init__(
        self, spare: SpareSlots, slot_counts: Sequence[int], number: int, cost: int, narrow: bool
    ) -> None:
        """cost: the count cost of a node. narrow: whether count costs fit a machine word."""
        self.used: dict[State, int] = {(0, 0): 0}
        """The number of nodes for each offered state, and 0 for none."""
        self.spare = spare
        self.offered = self._offered(self._most(spare, slot_counts, number), cost, narrow)

    def _most(self, spare: SpareSlots, slot_counts: Sequence[int], number: int) -> list[list[int]]:
        """The most units for each number of nodes and each state of spare slots; -1: impossible."""
        states = range(len(spare.losses))
        if len(states) == 1:
            return [[count * slot_counts[0]] for count in range(number + 1)]
        most = [[0, *(-1 for _ in states[1:])]]
        for _ in range(number):
            before, row = most[-1], [-1] * len(states)
            for more in states:
                if slot_counts[more] < 0:
                    continue
                for one, other in spare.sums[more]:
                    if before[one] >= 0 and before[one] + slot_counts[more] > row[other]:
                        row[other] = before[one] + slot_counts[more]
            most.append(row)
        return most

    def _offered(self, most: Sequence[Sequence[int]], cost: int, narrow: bool) -> Choices:
        spares: list[int] = []
        slot_counts: list[int] = []
        counts: list[int] = []
        for state, first in enumerate(most[0]):
            best = first
            for count, row in enumerate(most[1:], start=1):
                if row[state] > best:
                    best = row[state]
                    spares.append(state)
                    slot_counts.append(best)
                    counts.append(cost * count)
                    self.used[state, best] = count
        return choices(spares, slot_counts, counts, narrow)


_Penalty = Callable[[int], int]
"""The penalty of a node, by its number among the children."""


class DomainKnapsack:
    """The children of a domain as one knapsack."""

    def __init__(
        self, terms: KnapsackTerms, vertex: Vertex, wanted: int, least: Mapping[int, int] | None = None
    ) -> None:
        """wanted: units. least: the children that can be in an optimal solution, with the fewest units of
        each; None for all children.
        """
        self.terms = terms
        self.vertex = vertex
        self.unit = terms.unit(vertex.bottom)
        self.spare = terms.spare.below(self.unit)
        self.wanted = wanted
        self.least = least

    @cached_property
    def counts(self) -> Array:
        """See lattice.Lattice. Raises OutOfSteps."""
        leaves, terms = self.vertex.leaves, self.terms
        if leaves is None or len(self.spare.losses) > 1:
            return self.lattice.counts
        narrow, each = terms.counts.fits, terms.counts.pack(leaves.cost_without_penalty(0))
        terms.budget.spend(3 * PART + self.wanted // SEARCHED)
        return counts_of_nodes(leaves.every[0], self.unit, each, self.wanted, narrow)

    @cached_property
    def items(self) -> list["NodesItem | DomainItem"]:
        """The children with capacity."""
        self.terms.budget.spend(2 * len(child_slot_counts(self.vertex)))
        return list(_items(self, self.vertex, self.least))

    @cached_property
    def lattice(self) -> Lattice | OneItem:
        """The lattice of all items. Raises OutOfSteps."""
        offers, terms = [item.offer() for item in self.items], self.terms
        if len(offers) == 1 and len(self.spare.losses) == 1 and offers[0].choices.counts.all():
            return OneItem(offers[0], self.wanted, terms.counts.fits, terms.budget)
        return Lattice(offers, self.spare, self.wanted, terms.counts.fits, terms.budget)

    def solve(self, states: Sequence[State]) -> list[int | None]:
        """The least value for each state."""
        return self.lattice.least(states, self.terms.values.fits)

    def filled(self, state: State) -> tuple[Filled, ...]:
        """The best solution for a state, in topology order."""
        found: list[Filled] = []
        best = self.lattice.best_for(state)
        for item, target in zip(self.items, best, strict=True):
            if target != (0, 0):
                found += item.filled(target)
        return tuple(sorted(found, key=lambda each: each.number))


class DomainItem:
    """A child domain as an item."""

    def __init__(self, around: DomainKnapsack, number: int, vertex: Vertex, least: int) -> None:
        """number: its position among the children. least: the fewest units in an optimal solution."""
        self.around = around
        self.number = number
        self.vertex = vertex
        self.least = least
        unit = around.terms.unit(vertex.bottom)
        self.ratio = around.unit // unit
        """Inner units per outer unit."""
        self.is_uniform = around.spare.below(unit) is not around.spare
        """Whether it does not distinguish states of spare slots."""
        wanted = around.wanted * self.ratio + (around.spare.losses[-1] if self.is_uniform else 0)
        self.most = min(wanted, vertex.free_slots // unit)
        """The most inner units that matter."""

    @cached_property
    def inside(self) -> DomainKnapsack:
        """Its own knapsack."""
        return DomainKnapsack(self.around.terms, self.vertex, self.most)

    def offer(self) -> Offer:
        """See min_plus.Offer."""
        terms, inside = self.around.terms, self.inside
        terms.budget.spend(PART // 2 * len(self.around.spare.losses))
        narrow, own = terms.counts.fits, terms.counts.pack(self.vertex.own)
        rows = inside.counts[:, :: self.ratio]
        if self.is_uniform:
            rows = shifted_back(inside.counts[0], self.around.spare.losses, self.ratio, narrow)
        return Offer(offered(rows, self.least, own, narrow), self)

    def _row(self, inside: DomainKnapsack, spare: int) -> tuple[Array, int]:
        """The inner counts for an outer state, and the capacity that is lost there."""
        if self.is_uniform:
            return inside.counts[0], self.around.spare.losses[spare]
        return inside.counts[spare], 0

    def _inner(self, states: Sequence[State]) -> list[list[State]]:
        """For each outer state the inner states with the same result and the same count cost."""
        inside = self.inside
        if self.ratio == 1:  # nothing is rounded, so there is exactly one
            self.around.terms.budget.spend(1 + len(states))
            losses = self.around.spare.losses
            return [
                [(0, units + losses[spare]) if self.is_uniform else (spare, units)] for spare, units in states
            ]
        found = []
        self.around.terms.budget.spend(4 * len(states) * (1 + self.ratio // 4))
        for spare, units in states:
            row, loss = self._row(inside, spare)
            first = units * self.ratio + loss
            last = min(first + self.ratio, int(row.searchsorted(row[first], side="right")))
            found.append([(0 if self.is_uniform else spare, free_slots) for free_slots in range(first, last)])
        return found

    def values(self, states: Sequence[State]) -> list[int | None]:
        """See min_plus.OfferSource."""
        own = self.around.terms.values.pack(self.vertex.own)
        inner = self._inner(states)
        asked = sorted({each for group in inner for each in group})
        found = dict(zip(asked, self.inside.solve(asked), strict=True))
        best = [min((v for each in group if (v := found[each]) is not None), default=None) for group in inner]
        return [None if value is None else value + own for value in best]

    def filled(self, state: State) -> list[Filled]:
        """The domain."""
        (group,) = self._inner([state])
        inside = self.inside
        values = zip(inside.solve(group), group, strict=True)
        _, best = min((value, state) for value, state in values if value is not None)
        return [Filled(self.number, state[1], self.around.unit, self.vertex.own, parts=inside.filled(best))]


def _items(
    around: DomainKnapsack, vertex: Vertex, least: Mapping[int, int] | None
) -> Sequence[NodesItem | DomainItem]:
    """The items for a domain's children; children without capacity for any unit or spare slot have none."""
    groups = _EqualNodes(around, vertex)
    if vertex.leaves is not None:
        groups.add_leaves(vertex.leaves)
        return sorted(groups.items.values(), key=lambda item: (item.slot_counts, item.cost))
    items: dict[int, NodesItem | DomainItem] = {}
    for number, part in enumerate(vertex.parts):
        if least is not None and number not in least:
            continue
        if part.state is None:
            items[number] = DomainItem(around, number, part, least[number] if least else 0)
            continue
        (slot_counts,) = around.spare.slot_counts(part.slot_counts[:1])
        penalty = _penalty_of(vertex)
        item = groups.add([(number, part.state)], part.own >> SCORE_BITS << SCORE_BITS, slot_counts, penalty)
        if item is not None:
            items.setdefault(item.nodes[0][0], item)
    return list(items.values())


class _EqualNodes:
    """The nodes among a domain's children, grouped by capacities and cost."""

    def __init__(self, around: DomainKnapsack, vertex: Vertex) -> None:
        self.around = around
        self.items: dict[object, NodesItem] = {}

    def add_leaves(self, leaves: Leaves) -> None:
        """Add all nodes of a domain of leaves."""
        every = self.around.spare.slot_counts(leaves.every[0])
        groups: dict[tuple[Counts, int], list[tuple[int, NodeState]]] = {}
        for number, key in enumerate(zip(every, leaves.slot_counts, strict=True)):
            groups.setdefault(key, []).append((number, leaves.states[number]))
        for (slot_counts, free_slots), nodes in groups.items():
            self.add(
                nodes, leaves.cost_without_penalty(free_slots), slot_counts, leaves.penalties.__getitem__
            )

    def add(
        self, nodes: list[tuple[int, NodeState]], cost: int, slot_counts: Counts, penalty: _Penalty
    ) -> NodesItem | None:
        """Add nodes to their item; None if they have no capacity. cost: without the penalties."""
        around = self.around
        if around.unit > 1:
            slot_counts = tuple(
                free_slots // around.unit if free_slots >= 0 else -1 for free_slots in slot_counts
            )
        if max(slot_counts) <= 0 and not any(free_slots >= 0 for free_slots in slot_counts[1:]):
            return None
        if (slot_counts, cost) not in self.items:
            self.items[slot_counts, cost] = NodesItem(
                around.terms,
                around.spare,
                around.unit,
                around.wanted,
                slot_counts,
                cost,
                penalty,
            )
        item = self.items[slot_counts, cost]
        item.nodes += nodes
        return item


def _penalty_of(vertex: Vertex) -> _Penalty:
    return lambda number: vertex.parts[number].own & (1 << SCORE_BITS) - 1
