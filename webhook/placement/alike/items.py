"""What shares the pods of a covering domain, nodes that are alike and domains below, as parts for layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from webhook.placement.alike.layers import (
    Array,
    KnapsackPart,
    Layers,
    Ranges,
    of_domain,
    of_nodes,
    sorted_nodes,
)
from webhook.placement.alike.packed_cost import PackedCost
from webhook.placement.alike.rooms import Pick, child_rooms, node
from webhook.placement.budget import Budget
from webhook.placement.costs import SCORE_BITS, Costs
from webhook.placement.vertex import Leaves, Vertex


@dataclass(slots=True, eq=False)
class Terms:
    """What all items of one covering domain have in common.

    unit: pods in one unit of amounts. wanted: units that must be held; slack: by how much an optimal solution
    can hold more. lowest: the level from which on numbers of domains follow from the amount. whole: it does
    not matter which nodes of a domain are taken. counts: the cost of the numbers of domains, packed; values:
    that of the other fields, known once the numbers are.
    """

    costs: Costs
    unit: int
    wanted: int
    slack: int
    lowest: int
    whole: bool
    counts: PackedCost
    values: PackedCost
    budget: Budget
    insides: dict[int, "Inside | EqualInside"] = field(default_factory=dict)
    asked: list["_Curve"] = field(default_factory=list)
    """Curves that were asked for in working out the one that is worked out now."""
    paid: set["_Curve"] = field(default_factory=set)
    """Curves for which the steps were taken."""
    paid_steps: int = 0
    """These steps."""

    def below_first(self, level: int) -> int:
        """Bits of the fields that compare after the leftover of a level."""
        return self.values.offset(self.costs.leftover[level])

    def is_whole(self, vertex: Vertex) -> bool:
        """Whether it does not matter which nodes of a domain are taken, so that it is taken whole."""
        return self.whole and vertex.leaves is not None and vertex.leaves.top >= self.lowest

    def inside(self, vertex: Vertex) -> "Inside | EqualInside":
        """What shares the pods in a domain below."""
        if id(vertex) not in self.insides:
            equal = vertex.leaves is not None and vertex.even is not None
            self.insides[id(vertex)] = EqualInside(self, vertex) if equal else Inside(self, vertex)
        return self.insides[id(vertex)]

    def curve(self, vertex: Vertex) -> Array:
        """Count cost of holding 1, 2, ... pods in a domain below, that of using it included.

        It depends on the domain and the class alone, so it stays with the vertex.
        """
        room = vertex.room // self.unit
        most = min(room, self.wanted)
        slack = self.slack if most < room else 0
        key = ("curve", tuple(self.counts.parts), most, slack, self.unit, self.lowest, self.whole)
        known: _Curve | None = vertex.notes.get(key)
        if known is None:
            around, self.asked = self.asked, []
            before = self.budget.spent - self.paid_steps
            counts = self._curve(vertex, most)
            steps = self.budget.spent - self.paid_steps - before
            known = vertex.notes[key] = _Curve(counts, steps, self.asked)
            self.asked = around
            self.paid.add(known)
            self.paid_steps += steps
        else:
            self._pay(known)
        self.asked.append(known)
        return known.counts

    def _pay(self, curve: "_Curve") -> None:
        """Take the steps of what is remembered, as often as if it were worked out now: once."""
        if curve not in self.paid:
            self.paid.add(curve)
            self.paid_steps += curve.steps
            self.budget.spend(curve.steps)
            for each in curve.asked:
                self._pay(each)

    def _curve(self, vertex: Vertex, most: int) -> Array:
        own = self.counts.pack(vertex.own)
        if vertex.leaves is not None:
            leaves = vertex.leaves
            each = self.counts.pack(leaves.cost_without_penalty(0))
            rooms = sorted([room // self.unit for room in leaves.rooms], reverse=True)
            return sorted_nodes(rooms, own, each, most, self.counts.fits)
        return Inside(self, vertex).layers.counts[1:] + own


@dataclass(frozen=True, slots=True, eq=False)
class _Curve:
    """What Terms.curve remembers. steps: without those of the curves of domains inside that it asked for."""

    counts: Array
    steps: int
    asked: Sequence["_Curve"]


class Inside:
    """The children of a domain: nodes that are alike and domains, as parts of one knapsack."""

    def __init__(
        self,
        terms: Terms,
        vertex: Vertex,
        numbers: Sequence[int] | None = None,
        ranges: Mapping[int, Ranges] | None = None,
    ) -> None:
        """numbers: of the children that matter; None for all. ranges: of these, where known, the amounts in
        pods that a domain can hold in an optimal solution. Raises OutOfSteps.
        """
        self.terms = terms
        terms.budget.spend(len(child_rooms(vertex) if numbers is None else numbers))
        self.items = _items(terms, vertex, numbers, ranges or {})
        parts = [item.part() for item in self.items]
        self.layers = Layers(parts, terms.wanted, terms.slack, terms.counts.fits, terms.budget)

    def values(self, amounts: list[int]) -> list[int | None]:
        """The least value of just each of these amounts at its least count cost; None for never."""
        return self.layers.solve(amounts, self.terms.values.fits)

    def picks(self, target: int) -> tuple[int, list[Pick]]:
        """The best solution of an amount: the cost of the domains, and the nodes."""
        if target not in self.layers.solved:
            self.values([target])
        total = 0
        found: list[tuple[int, list[Pick]]] = []
        for item, amount in zip(self.items, self.layers.taken(target), strict=True):
            if amount:
                cost, nodes = item.picks(amount)
                total += cost
                found += nodes
        found.sort(key=lambda pair: pair[0])
        return total, [pick for _, picks in found for pick in picks]


@dataclass(slots=True, eq=False)
class NodesItem:
    """Nodes of one domain with the same room and the same cost but for the headroom penalty; a layers.Source.

    room: of each, in units. cost: of using one, without its headroom penalty. top: the highest level that
    each stands for. source: the children of the domain.
    """

    terms: Terms
    room: int
    cost: int
    top: int
    source: Leaves | tuple[Vertex, ...]
    numbers: list[int] = field(default_factory=list)
    """Among the children of the domain; once values are asked for, the least headroom penalty first."""
    penalties: list[int] = field(default_factory=list)
    """The sums of the least 0, 1, ... headroom penalties."""

    def part(self) -> "KnapsackPart":
        """What the layers see of it."""
        terms = self.terms
        most = min(len(self.numbers), -(-(terms.wanted + terms.slack) // self.room))
        return of_nodes(self.room, terms.counts.pack(self.cost), most, self, terms.counts.fits)

    def first(self) -> tuple[int, int]:
        """See layers.Source."""
        return self.terms.values.pack(self.cost) >> self.terms.below_first(self.top), self.room

    def values(self, amounts: list[int]) -> list[int | None]:
        """See layers.Source."""
        self._order()
        each = self.terms.values.pack(self.cost)
        numbers = [self._nodes(amount) for amount in amounts]
        return [each * number + (0 if self.terms.whole else self.penalties[number]) for number in numbers]

    def _nodes(self, amount: int) -> int:
        """How many nodes are used for an amount: as few as can be."""
        return -(-amount // self.room)

    def _order(self) -> None:
        if self.penalties:
            return
        if isinstance(self.source, Leaves):
            penalty = self.source.penalties
        else:
            penalty = [vertex.own & (1 << SCORE_BITS) - 1 for vertex in self.source]
        self.numbers.sort(key=lambda number: (penalty[number], number))
        self.penalties = [0, *accumulate(penalty[number] for number in self.numbers)]

    def picks(self, amount: int) -> tuple[int, list[tuple[int, list[Pick]]]]:
        """Cost of the domains used for an amount, and the nodes with their numbers among the children."""
        self._order()
        used = self.numbers[: self._nodes(amount)]
        return 0, [(number, [node(self.source, number)]) for number in used]


class EqualInside:
    """A domain of nodes with the same room, one item: what `Inside` finds, without a search."""

    def __init__(self, terms: Terms, vertex: Vertex) -> None:
        """Raises OutOfSteps."""
        terms.budget.spend(len(child_rooms(vertex)))
        (item,) = _items(terms, vertex, None, {})
        assert isinstance(item, NodesItem)
        self.item, self.wanted = item, terms.wanted

    def values(self, amounts: list[int]) -> list[int | None]:
        """See Inside."""
        found = iter(self.item.values([amount for amount in amounts if self._is_held(amount)]))
        return [next(found) if self._is_held(amount) else None for amount in amounts]

    def _is_held(self, amount: int) -> bool:
        """Whether so much is held just so, by no more nodes than what is wanted takes."""
        number, more = divmod(amount, self.item.room)
        return not more and number <= min(len(self.item.numbers), -(-self.wanted // self.item.room))

    def picks(self, target: int) -> tuple[int, list[Pick]]:
        """See Inside."""
        _, found = self.item.picks(target)
        return 0, [pick for _, picks in sorted(found, key=lambda pair: pair[0]) for pick in picks]


@dataclass(slots=True, eq=False)
class DomainItem:
    """A domain below; a layers.Source. number: among the children."""

    terms: Terms
    number: int
    vertex: Vertex
    ranges: Ranges
    """Of what it can hold in an optimal solution, in pods; [] where nothing is known about that."""

    def part(self) -> "KnapsackPart":
        """What the layers see of it."""
        terms, vertex = self.terms, self.vertex
        room = vertex.room // terms.unit
        if terms.is_whole(vertex):
            return of_nodes(room, terms.counts.pack(vertex.own), 1, self, terms.counts.fits)
        most = min(room, terms.wanted + terms.slack)
        ranges = [(-(-low // terms.unit), high // terms.unit) for low, high in self.ranges]
        return of_domain(terms.curve(vertex), ranges or [(1, most)], self)

    def first(self) -> tuple[int, int]:
        """See layers.Source."""
        return self.terms.values.pack(self.vertex.own) >> self.terms.below_first(self.vertex.top), 0

    def values(self, amounts: list[int]) -> list[int | None]:
        """See layers.Source."""
        own = self.terms.values.pack(self.vertex.own)
        if self.terms.is_whole(self.vertex):
            return [own] * len(amounts)
        found = self.terms.inside(self.vertex).values(amounts)
        return [None if value is None else value + own for value in found]

    def picks(self, amount: int) -> tuple[int, list[tuple[int, list[Pick]]]]:
        """Cost of the domains used for an amount, and the nodes with their numbers among the children."""
        own = self.vertex.own
        if self.terms.is_whole(self.vertex):
            assert self.vertex.leaves is not None
            leaves = self.vertex.leaves
            return own, [(self.number, [node(leaves, number) for number in range(len(leaves.rooms))])]
        cost, picks = self.terms.inside(self.vertex).picks(amount)
        return own + cost, [(self.number, picks)]


def _items(
    terms: Terms, vertex: Vertex, numbers: Sequence[int] | None, ranges: Mapping[int, Ranges]
) -> list[NodesItem | DomainItem]:
    alike: dict[tuple[int, int], NodesItem] = {}
    items: list[NodesItem | DomainItem] = []
    leaves, parts = vertex.leaves, vertex.parts
    most = terms.wanted + terms.slack

    def add(number: int, room: int, cost: int, top: int) -> None:
        if not room:  # of use to other pods of the gang alone
            return
        if (room, cost) not in alike:
            known = NodesItem(terms, min(room // terms.unit, most), cost, top, leaves or parts)
            alike[room, cost] = known
            items.append(known)
        alike[room, cost].numbers.append(number)

    if leaves is not None:
        for number in range(len(leaves.rooms)) if numbers is None else numbers:
            add(number, leaves.rooms[number], leaves.cost_without_penalty(leaves.rooms[number]), leaves.top)
        return items
    for number in range(len(parts)) if numbers is None else numbers:
        part = parts[number]
        if part.state is None and part.room:
            items.append(DomainItem(terms, number, part, ranges.get(number, [])))
        elif part.state is not None:
            add(number, part.room, part.own >> SCORE_BITS << SCORE_BITS, part.top)
    return items
