"""Lower bounds on what missing pods will cost, for the knapsack's several-domain search."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from webhook.placement.tree import Vertex

if TYPE_CHECKING:
    from webhook.placement.knapsack import Knapsack

Ahead = tuple[int, ...]
"""For each level the room that is left to try in the domain that is paid for already, 0 for none."""


class Suffixes:
    """Lower bounds for what is still missing when only the children from some number on are left."""

    def __init__(self, knapsack: "Knapsack", children: Sequence[Vertex]) -> None:
        self.knapsack = knapsack
        self.children = children
        self.sums = [0, *accumulate(child.room for child in children)]
        self.top = children[0].top if children else 0
        self.pools: list[list[list[int]]] = []
        self.prices: list[_Price] = []
        self.number = 0
        self.known: dict[tuple[int, Ahead], int] = {}
        if children and not knapsack.question.anchored:
            below = [_rooms_below(knapsack, child) for child in children]
            self.pools = self._pools(below)
            if self.top < min(knapsack.question.levels, knapsack.lowest - 1) and len(children) > 1:
                self.prices = self._prices([rooms[self.top + 1] for rooms in below])

    def _pools(self, below: Sequence[list[list[int]]]) -> list[list[list[int]]]:
        """For each number the prefix sums of rooms by level, of that child and all later ones.

        Largest first, and no more than hold the gang.
        """
        gathered: list[list[int]] = [[] for _ in range(self.knapsack.question.levels + 1)]
        pools: list[list[list[int]]] = [[[] for _ in gathered]]
        for rooms in reversed(below):
            sums = []
            for level, at_level in enumerate(rooms):
                merged = sorted(gathered[level] + at_level, reverse=True)
                prefix = list(accumulate(merged))
                enough = bisect_left(prefix, self.knapsack.wanted) + 1
                gathered[level] = merged[:enough]
                sums.append(prefix[:enough])
            pools.append(sums)
        pools.reverse()
        return pools

    def _prices(self, rooms: Sequence[list[int]]) -> list["_Price"]:
        """The prices of one domain below the top that bound their number best, as seen from the start."""
        distinct = sorted({room for at_child in rooms for room in at_child})
        step = max(1, len(distinct) // _PRICES_TRIED)
        fewest = bisect_left(self.sums, self.knapsack.wanted)
        bounds = []
        for price in distinct[::step]:
            gains = sorted((_gain(at_child, price) for at_child in rooms), reverse=True)
            bounds.append(((self.knapsack.wanted - sum(gains[:fewest])) / price, price))
        best = sorted(bounds, reverse=True)[:_PRICES_KEPT]
        return [_Price(price, rooms, fewest) for _, price in best]

    def at(self, number: int) -> None:
        """From now on the child of this number is the one being tried."""
        self.number = number
        self.known.clear()

    def least(self, missing: int, ahead: Ahead) -> int:
        """Least cost of the missing pods, where domains paid for already have some room ahead."""
        if missing <= 0 or self.knapsack.question.anchored:
            return 0
        key = (missing, ahead)
        if key not in self.known:
            self.known[key] = self._compute(missing, ahead)
        return self.known[key]

    def _compute(self, missing: int, ahead: Ahead) -> int:
        in_current = ahead[self.top]
        first = min(self.number + (1 if in_current else 0), len(self.children))
        beyond = max(0, missing - in_current)
        start = self.sums[first]
        if beyond > self.sums[-1] - start:
            return 1 << 4096
        fewest = bisect_left(self.sums, start + beyond) - first if beyond else 0
        total = self.knapsack.unit(self.top, fewest, beyond)
        for level, sums in enumerate(self.pools[self.number]):
            outside = missing - ahead[level]
            if level > self.top and sums and outside > 0:
                domains = bisect_left(sums, outside) + 1
                if level == self.top + 1:
                    for price in self.prices:
                        domains = max(domains, price.least(outside, self.number, first, fewest, in_current))
                total += self.knapsack.unit(level, domains, outside)
        return total


class _Price:
    """A bound by pricing (Lagrangian relaxation): each domain below the top is worth `price` pods.

    n domains in b children hold at most n * price plus the b largest gains of children, where a child's gain
    is the sum of what its domains hold beyond the price. So n is at least what is missing beyond the gains,
    divided by the price; this sees that few children may be used, which the pool of all domains does not.
    """

    def __init__(self, price: int, rooms: Sequence[list[int]], most: int) -> None:
        """rooms: of the domains below each child, descending; most: children used at most."""
        self.price = price
        self.ahead = [list(accumulate(reversed(at_child), initial=0)) for at_child in rooms]
        self.gain_ahead = [
            list(accumulate((max(0, room - price) for room in reversed(at_child)), initial=0))
            for at_child in rooms
        ]
        self.best: list[list[int]] = [[0]]
        largest: list[int] = []
        for gains in reversed(self.gain_ahead):
            largest = sorted([*largest, gains[-1]], reverse=True)[:most]
            self.best.append(list(accumulate(largest, initial=0)))
        self.best.reverse()

    def least(self, missing: int, number: int, first: int, children: int, in_current: int) -> int:
        """Fewest further domains, in the rest of the current child and so many children from `first` on."""
        best = self.best[first]
        gain = best[min(children, len(best) - 1)]
        if in_current:
            gain += self.gain_ahead[number][bisect_left(self.ahead[number], in_current)]
        return max(0, -((gain - missing) // self.price))


_PRICES_TRIED = 32
_PRICES_KEPT = 2


def _gain(rooms: Sequence[int], price: int) -> int:
    return sum(room - price for room in rooms if room > price)


def _rooms_below(knapsack: "Knapsack", child: Vertex) -> list[list[int]]:
    """Rooms of the domains of each level in the child, it included where it stands for several levels."""
    rooms = knapsack.rooms(child)
    for level in range(child.top + 1, child.bottom + 1):
        rooms[level].append(child.room)
    if knapsack.even:  # the number of nodes is given, so bounds on it say nothing
        rooms[knapsack.lowest :] = [[] for _ in rooms[knapsack.lowest :]]
    return rooms
