"""Nodes of one domain that are alike, as one item: what so many of them hold together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from webhook.placement.alike.packed_cost import PackedCost
from webhook.placement.budget import Budget
from webhook.placement.costs import Costs
from webhook.placement.mixed.filled import Filled
from webhook.placement.mixed.odd import Stepwise
from webhook.placement.mixed.offers import Choices, Offer, State, choices
from webhook.placement.prices import PART
from webhook.placement.snapshot import NodeState


@dataclass(slots=True, eq=False)
class CostTerms:
    """In which fields items tell their costs: first the counts, then the values (see alike.items)."""

    counts: PackedCost
    values: PackedCost
    budget: Budget
    costs: Costs
    nodes: dict[object, "NodesHeld"] = field(init=False, default_factory=dict)
    """What nodes hold together, by all that it follows from: items have nodes and penalties of their own."""

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
    held: "NodesHeld" = field(init=False)
    """Once it has made its offer."""
    penalties: list[int] = field(default_factory=list)

    def offer(self) -> Offer:
        """See offers.Offer."""
        odd, wanted, known = self.odd, self.wanted, self.terms.nodes
        room = max(self.rooms)
        enough = (-(-wanted // room) if room > 0 else 0) + odd.most
        number = min(len(self.nodes), enough)
        self.terms.budget.spend(1 + number * (len(odd.states) + sum(map(len, odd.sums))) // 4 + PART)
        key = (self.rooms, self.cost, number, id(odd))
        if key not in known:
            each = self.terms.counts.pack(self.cost)
            known[key] = NodesHeld(odd, self.rooms, number, each, self.terms.counts.fits)
        self.held = known[key]
        return Offer(self.held.offered, self)

    def firsts(self, states: Sequence[State]) -> list[int]:
        """See offers.OfferSource."""
        each = self.terms.first(self.level, self.cost)
        return [each * self.held.used[state] for state in states]

    def values(self, states: Sequence[State]) -> list[int | None]:
        """See offers.OfferSource."""
        self._order()
        each = self.terms.values.pack(self.cost)
        return [each * self.held.used[state] + self.penalties[self.held.used[state]] for state in states]

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
        state, count = held[0], self.held.used[held]
        odds = []
        for left in range(count, 0, -1):
            more = self.held.ways[left, state]
            odds.append(more)
            state = next(one for one, other in self.odd.sums[more] if other == state)
        return [
            Filled(number, self.rooms[odd], self.unit, self.cost + self.penalty(number), odd, node)
            for (number, node), odd in zip(self.nodes, odds, strict=False)
        ]


class NodesHeld:
    """What so many nodes with these rooms hold together, and how."""

    def __init__(self, odd: Stepwise, rooms: Sequence[int], number: int, cost: int, narrow: bool) -> None:
        """cost: of a node, counted. narrow: whether count costs fit a machine word."""
        self.used: dict[State, int] = {(0, 0): 0}
        """For nothing, and for what is offered, the nodes it takes."""
        self.ways: dict[tuple[int, int], int] = {}
        """For a number of nodes and a state of odd pods: the state of odd pods on the last of them."""
        self.odd = odd  # CostTerms.nodes knows it by its id, which must stay its own
        self.offered = self._offered(self._most(odd, rooms, number), cost, narrow)

    def _most(self, odd: Stepwise, rooms: Sequence[int], number: int) -> list[list[int]]:
        """The most units for each number of nodes from 0 and each state of odd pods; -1: none."""
        states = range(len(odd.states))
        most = [[0, *(-1 for _ in states[1:])]]
        for count in range(1, number + 1):
            before, row = most[-1], [-1] * len(states)
            for more in states:
                if rooms[more] < 0:
                    continue
                for one, other in odd.sums[more]:
                    if before[one] >= 0 and before[one] + rooms[more] > row[other]:
                        row[other] = before[one] + rooms[more]
                        self.ways[count, other] = more
            most.append(row)
        return most

    def _offered(self, most: Sequence[Sequence[int]], cost: int, narrow: bool) -> Choices:
        odds: list[int] = []
        rooms: list[int] = []
        counts: list[int] = []
        for state, first in enumerate(most[0]):
            best = first
            for count, row in enumerate(most[1:], start=1):
                if row[state] > best:
                    best = row[state]
                    odds.append(state)
                    rooms.append(best)
                    counts.append(cost * count)
                    self.used[state, best] = count
        return choices(odds, rooms, counts, narrow)


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
