"""Nodes of one domain that are alike, as one item: what so many of them hold together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from webhook.placement.alike.packed_cost import PackedCost
from webhook.placement.budget import Budget
from webhook.placement.costs import Costs
from webhook.placement.mixed.filled import Filled
from webhook.placement.mixed.odd import Stepwise
from webhook.placement.mixed.offers import Offer, RoomsAtCounts, State, rooms_at_counts
from webhook.placement.prices import PART
from webhook.placement.snapshot import NodeState


@dataclass(slots=True, eq=False)
class CostTerms:
    """In which fields items tell their costs: first the counts, then the values (see alike.items)."""

    counts: PackedCost
    values: PackedCost
    budget: Budget
    costs: Costs

    def first(self, level: int, cost: int) -> int:
        """Of a cost's values that field, the leftover of a level, which compares first below that level."""
        return self.values.pack(cost) >> self.values.offset(self.costs.leftover[level])


@dataclass(slots=True, eq=False)
class MixedNodesItem:
    """Nodes of one domain with the same rooms (of each state of odd pods, in units) and the same cost but for
    the headroom penalty.
    """

    terms: CostTerms
    odd: Stepwise
    unit: int
    wanted: int
    """Of units, by all items together."""
    level: int
    """The highest that each of them stands for."""
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
    used: dict[State, int] = field(default_factory=lambda: {(0, 0): 0})
    """For nothing, and for what is offered, the nodes it takes."""
    penalties: list[int] = field(default_factory=list)

    def offer(self) -> Offer:
        """See offers.Offer."""
        odd, wanted = self.odd, self.wanted
        room = max(self.rooms)
        enough = (-(-wanted // room) if room > 0 else 0) + odd.most
        number = min(len(self.nodes), enough)
        self._fill(number)
        self.terms.budget.spend(PART)
        each = self.terms.counts.pack(self.cost)
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
                held[state] = rooms_at_counts(rooms, counts, self.terms.counts.fits)
        return Offer(held, self)

    def _fill(self, number: int) -> None:
        odd = self.odd
        self.terms.budget.spend(1 + number * (len(odd.states) + sum(map(len, odd.sums))) // 4)
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

    def firsts(self, states: Sequence[State]) -> list[int]:
        """See offers.OfferSource."""
        each = self.terms.first(self.level, self.cost)
        return [each * self.used[state] for state in states]

    def values(self, states: Sequence[State]) -> list[int | None]:
        """See offers.OfferSource."""
        self._order()
        each = self.terms.values.pack(self.cost)
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
            state = next(one for one, other in self.odd.sums[more] if other == state)
        return [
            Filled(number, self.rooms[odd], self.unit, self.cost + self.penalty(number), odd, node)
            for (number, node), odd in zip(self.nodes, odds, strict=False)
        ]


class MixedEqualNodes:
    """What nodes with the same room hold by themselves, workers alone: a lattice of one item."""

    def __init__(self, item: MixedNodesItem) -> None:
        self.item = item
        item.offer()

    def least(self, targets: Sequence[State], narrow: bool) -> list[int | None]:
        """See lattice.Lattice."""
        held = [self._held(target) for target in targets]
        found = iter(self.item.values([each for each in held if each is not None]))
        return [None if each is None else next(found) for each in held]

    def best_for(self, target: State, narrow: bool) -> list[State]:
        """See lattice.Lattice."""
        held = self._held(target)
        assert held is not None
        return [held]

    def _held(self, target: State) -> State | None:
        """What is held for just such a state, (0, 0) for nothing; None where nothing is just that."""
        room, (_, wanted) = self.item.rooms[0], target
        held = -(-wanted // room) * room
        return (0, held) if held == wanted or wanted == self.item.wanted else None
