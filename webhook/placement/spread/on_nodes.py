"""Few identical pods on the nodes of one domain, each of which stands alone: the least cost of every amount.

Nodes of one room differ in their headroom penalty alone, so of these the cheapest come first, and a knapsack
over the rooms that there are gives all amounts at once, in every field of the cost.
"""

from itertools import accumulate
from typing import Final

from webhook.placement.budget import Budget
from webhook.placement.spread.sharing import UNKNOWN
from webhook.placement.vertex import Leaves

ENTRIES: Final = 4
"""Entries of the knapsack's rows that a step of the budget stands for."""


class NodesUpTo:
    """Up to `most` pods on some nodes that have room for them together."""

    def __init__(self, leaves: Leaves, most: int, budget: Budget) -> None:
        """Raises OutOfSteps."""
        self.leaves = leaves
        by_room: dict[int, list[int]] = {}
        for number in sorted(range(len(leaves.rooms)), key=leaves.penalties.__getitem__):
            by_room.setdefault(leaves.rooms[number], []).append(number)
        self.groups = [(room, numbers) for room, numbers in by_room.items() if room]
        self.rows = [[0, *[UNKNOWN] * most]]
        for room, numbers in self.groups:
            before = self.rows[-1]
            row = before
            for used, cost in enumerate(accumulate(map(leaves.own, numbers[: -(-most // room)])), start=1):
                budget.spend(2 + most // ENTRIES)
                shift = min(used * room, most)
                reached = [before[0]] * shift + before[: most + 1 - shift]
                row = list(map(min, row, [known + cost for known in reached]))
            self.rows.append([0, *row[1:]])

    def cost(self, amount: int) -> int:
        """The least for so many pods."""
        return self.rows[-1][amount]

    def nodes(self, amount: int) -> list[int]:
        """The numbers of the nodes for so many pods, in topology order."""
        found: list[int] = []
        for position in range(len(self.groups) - 1, -1, -1):
            room, numbers = self.groups[position]
            wanted, cost, used = self.rows[position + 1][amount], 0, 0
            while self.rows[position][max(0, amount - used * room)] + cost != wanted:
                cost += self.leaves.own(numbers[used])
                used += 1
            found += numbers[:used]
            amount = max(0, amount - used * room)
        return sorted(found)
