"""What shares the pods in a domain, nodes that are alike and domains below, as parts for layers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from webhook.placement.costs import SCORE_BITS
from webhook.placement.snapshot import NodeState
from webhook.placement.tree import Leaves, Vertex

if TYPE_CHECKING:
    from webhook.placement.alike.covering import Home
    from webhook.placement.alike.layers import Part

Pick = tuple[NodeState, int, int]
"""A node that is used, the pods that it may take, and its cost."""

Ranges = list[tuple[int, int]]
"""Amounts from the first to the second, both included."""


class Inside:
    """The children of a domain: nodes that are alike and domains, as parts of one knapsack."""

    def __init__(self, home: "Home", vertex: Vertex, numbers: Sequence[int] | None = None) -> None:
        """numbers: of the children that matter; None for all."""
        from webhook.placement.alike.layers import Layers  # see there why it is not imported with this module

        self.things: list[Alike | Inner] = _things(home, vertex, numbers)
        parts = [thing.part() for thing in self.things]
        self.layers: Layers = Layers(parts, home.wanted, home.slack, home.counts.fits)

    def picks(self, target: int) -> tuple[int, list[Pick]]:
        """The best solution of an amount that was solved for: the cost of the domains, and the nodes."""
        total = 0
        found: list[tuple[int, list[Pick]]] = []
        for thing, amount in zip(self.things, self.layers.taken(target), strict=True):
            if amount:
                cost, nodes = thing.picks(amount)
                total += cost
                found += nodes
        found.sort(key=lambda pair: pair[0])
        return total, [pick for _, picks in found for pick in picks]


@dataclass(slots=True, eq=False)
class Alike:
    """Nodes of one domain with the same room and the same cost but for the discord; a layers.Source.

    room: of each, in the home's units. cost: of using one, without its discord. top: the highest level that
    each stands for. source: the children of the domain.
    """

    home: "Home"
    room: int
    cost: int
    top: int
    source: Leaves | tuple[Vertex, ...]
    numbers: list[int] = field(default_factory=list)
    """Among the children of the domain; once values are asked for, the least discord first."""
    discords: list[int] = field(default_factory=list)
    """The sums of the least 0, 1, ... discords."""

    def part(self) -> "Part":
        """What the layers see of it."""
        from webhook.placement.alike.layers import of_domain, of_nodes, sorted_nodes

        home = self.home
        if home.balanced:
            total = min(home.wanted, self.room * len(self.numbers))
            each = home.counts.pack(self.cost)
            counts = sorted_nodes([self.room] * len(self.numbers), 0, each, total, home.counts.fits)
            return of_domain(counts, [(1, total)], self)
        most = min(len(self.numbers), -(-(home.wanted + home.slack) // self.room))
        return of_nodes(self.room, home.counts.pack(self.cost), most, self, home.counts.fits)

    def first(self) -> tuple[int, int]:
        """See layers.Source."""
        return self.home.values.pack(self.cost) >> self.home.below_first(self.top), self.room

    def values(self, amounts: list[int]) -> list[int | None]:
        """See layers.Source."""
        self._order()
        each = self.home.values.pack(self.cost)
        numbers = [self._nodes(amount) for amount in amounts]
        values = [each * number + (0 if self.home.whole else self.discords[number]) for number in numbers]
        if not self.home.balanced:
            return list(values)
        squares = [self._squares(amount) for amount in amounts]
        offset = self.home.values.offset(self.home.costs.square)
        return [value + (square << offset) for value, square in zip(values, squares, strict=True)]

    def _nodes(self, amount: int) -> int:
        """How many nodes are used for an amount: as few as can be, or as many where they cost nothing."""
        if self.home.balanced and not self.cost:
            return min(len(self.numbers), amount)
        return -(-amount // self.room)

    def _shares(self, amount: int) -> list[int]:
        """What each of the nodes used holds."""
        number = self._nodes(amount)
        if not self.home.balanced:
            return [self.room] * number
        share, more = divmod(amount, number)
        return [share + 1] * more + [share] * (number - more)

    def _squares(self, amount: int) -> int:
        return sum(share * share for share in self._shares(amount))

    def _order(self) -> None:
        if self.discords:
            return
        if isinstance(self.source, Leaves):
            discord = self.source.discords
        else:
            discord = [vertex.own & (1 << SCORE_BITS) - 1 for vertex in self.source]
        self.numbers.sort(key=lambda number: (discord[number], number))
        self.discords = [0, *accumulate(discord[number] for number in self.numbers)]

    def picks(self, amount: int) -> tuple[int, list[tuple[int, list[Pick]]]]:
        """Cost of the domains used for an amount, and the nodes with their numbers among the children."""
        self._order()
        found: list[tuple[int, list[Pick]]] = []
        for number, share in zip(self.numbers, self._shares(amount), strict=False):
            state, room, own = node(self.source, number)
            if self.home.balanced:
                room, own = share, own + (share * share << self.home.costs.square)
            found.append((number, [(state, room, own)]))
        return 0, found


@dataclass(slots=True, eq=False)
class Inner:
    """A domain below; a layers.Source. number: among the children."""

    home: "Home"
    number: int
    vertex: Vertex
    ranges: Ranges
    """Of what it can hold in an optimal solution, in pods; [] where nothing is known about that."""

    def part(self) -> "Part":
        """What the layers see of it."""
        from webhook.placement.alike.layers import of_domain, of_nodes

        home, vertex = self.home, self.vertex
        room = vertex.room // home.unit
        if home.is_whole(vertex):
            return of_nodes(room, home.counts.pack(vertex.own), 1, self, home.counts.fits)
        most = min(room, home.wanted + home.slack)
        ranges = [(-(-low // home.unit), high // home.unit) for low, high in self.ranges]
        return of_domain(home.curve(vertex), ranges or [(1, most)], self)

    def first(self) -> tuple[int, int]:
        """See layers.Source."""
        return self.home.values.pack(self.vertex.own) >> self.home.below_first(self.vertex.top), 0

    def values(self, amounts: list[int]) -> list[int | None]:
        """See layers.Source."""
        own = self.home.values.pack(self.vertex.own)
        if self.home.is_whole(self.vertex):
            return [own] * len(amounts)
        found = self.home.inside(self.vertex).layers.solve(amounts, self.home.values.fits)
        return [None if value is None else value + own for value in found]

    def picks(self, amount: int) -> tuple[int, list[tuple[int, list[Pick]]]]:
        """Cost of the domains used for an amount, and the nodes with their numbers among the children."""
        own = self.vertex.own
        if self.home.is_whole(self.vertex):
            assert self.vertex.leaves is not None
            leaves = self.vertex.leaves
            return own, [(self.number, [node(leaves, number) for number in range(len(leaves.rooms))])]
        inside = self.home.inside(self.vertex)
        if amount not in inside.layers.solved:
            inside.layers.solve([amount], self.home.values.fits)
        cost, picks = inside.picks(amount)
        return own + cost, [(self.number, picks)]


def _things(home: "Home", vertex: Vertex, numbers: Sequence[int] | None) -> list[Alike | Inner]:
    alike: dict[tuple[int, int], Alike] = {}
    things: list[Alike | Inner] = []
    leaves, parts = vertex.leaves, vertex.parts
    most = home.wanted + home.slack

    def add(number: int, room: int, cost: int, top: int) -> None:
        if (room, cost) not in alike:
            known = Alike(home, min(room // home.unit, most), cost, top, leaves or parts)
            alike[room, cost] = known
            things.append(known)
        alike[room, cost].numbers.append(number)

    if leaves is not None:
        for number in range(len(leaves.rooms)) if numbers is None else numbers:
            add(number, leaves.rooms[number], leaves.cost_without_discord(leaves.rooms[number]), leaves.top)
        return things
    for number in range(len(parts)) if numbers is None else numbers:
        part = parts[number]
        if part.state is None:
            ranges = home.ranges.get(number, []) if vertex is home.vertex else []
            things.append(Inner(home, number, part, ranges))
        else:
            add(number, part.room, part.own >> SCORE_BITS << SCORE_BITS, part.top)
    return things


def node(source: Leaves | tuple[Vertex, ...], number: int) -> Pick:
    """A node among the children of a domain."""
    if isinstance(source, Leaves):
        return source.states[number], source.rooms[number], source.own(number)
    vertex = source[number]
    assert vertex.state is not None
    return vertex.state, vertex.room, vertex.own


def child_rooms(vertex: Vertex) -> list[int]:
    """Rooms of the children of a domain."""
    return vertex.leaves.rooms if vertex.leaves is not None else [part.room for part in vertex.parts]
