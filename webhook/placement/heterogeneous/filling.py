"""A set of nodes while pods go onto them, class after class."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.cards.first_cards import FirstCards
from webhook.placement.heterogeneous.arrays import Array, GangArrays, Ints, Taken
from webhook.placement.question import pods_of

CLASS: Final = 40
"""Steps that a class takes in a set of nodes however few these are."""

NODES: Final = 25
"""Nodes with capacity for a class for which it takes one more step."""

LOOKED: Final = 300
"""Nodes that are looked at for capacity in one step."""

LOOKS: Final = 60
"""Looks of one exact question about cards; see packing.STEPS."""

EXACT: Final = 2
"""The part of the steps for such questions."""


class SlotsBeside:
    """How many pods with cards a node takes beside others, worked out once for each node and these.

    The first cards that serve each pod are a lower bound. Exact questions for more end with their share of
    the steps, since a single one may take as many as thousands of others.
    """

    def __init__(self, arrays: GangArrays, budget: Budget) -> None:
        self._arrays = arrays
        self._budget = budget
        self._exact = budget.part(budget.left // EXACT)
        self._known: dict[tuple[int, int, tuple[tuple[int, int], ...]], int] = {}

    def of(self, number: int, node: int, others: Mapping[int, int]) -> int:
        """For how many pods of a class there are cards beside so many pods of each class that are there."""
        key = number, node, tuple(others.items())
        if key not in self._known:
            most = int(self._arrays.slot_counts[number][node])
            low = self._by_first_cards(number, node, others, most)
            self._known[key] = self._exactly(number, node, others, low, most)
        return self._known[key]

    def _by_first_cards(self, number: int, node: int, others: Mapping[int, int], most: int) -> int:
        classes = self._arrays.question.classes
        cards = FirstCards(self._arrays.states[node].cards)
        pods = pods_of([classes[each] for each in others], others.values())
        self._budget.take(5 + len(cards.cards) * (len(pods) + 1))
        if any(cards.take(pod) is None for pod in pods if pod.wants_cards):
            return 0
        count = 0
        while count < most and cards.take(classes[number]) is not None:
            count += 1
        self._budget.take(len(cards.cards) * count)
        return count

    def _exactly(self, number: int, node: int, others: Mapping[int, int], low: int, high: int) -> int:
        classes, state = self._arrays.question.classes, self._arrays.states[node]
        pods = pods_of([classes[each] for each in others], others.values())
        while low < high and not self._exact.exhausted:
            middle = low + 1 if low else (high + 1) // 2
            together = [*pods, *[classes[number]] * middle]
            self._exact.take(5 + len(together))
            if capacity.fits_together(together, state, self._exact, LOOKS):
                low = middle
            else:
                high = middle - 1
        return low


class Filling:
    """Nodes by their numbers, in the order in which they are filled. free: what they have; pods take of it.

    One class at a time is chosen, taken and placed. left: its pods that have no node yet.
    """

    def __init__(
        self, arrays: GangArrays, beside: SlotsBeside, numbers: Ints, free: Ints, budget: Budget
    ) -> None:
        self.left = 0
        self._arrays, self._beside, self._budget = arrays, beside, budget
        self._numbers, self._free = numbers, free
        self._used = np.zeros(len(numbers), dtype=np.bool_)
        self._placed: dict[int, dict[int, int]] = {}
        self._number = 0

    def choose(self, number: int) -> None:
        """Begin with a class: the positions of the nodes with capacity for its pods, and for how many."""
        alone = self._arrays.slot_counts[number][self._numbers]
        at = np.flatnonzero(alone)
        self._budget.take(CLASS + len(alone) // LOOKED + len(at) // NODES)
        free_slots: Ints = alone[at].astype(np.int64)
        for resource, amount in self._arrays.request_rows[number]:
            np.minimum(free_slots, self._free[at, resource] // amount, out=free_slots)
        fits = np.flatnonzero(free_slots > 0)
        self._number = number
        self._at, self._free_slots = at[fits], free_slots[fits]
        self._amounts: Ints = np.zeros(len(fits), dtype=np.int64)
        self.left = self._arrays.question.counts[number]

    def take_in_order(self) -> None:
        """As many pods as each node has capacity for, whether it is in use or not."""
        if not self._arrays.carded[self._number]:
            self._take(np.arange(len(self._at)))
            return
        begun = 0
        for each in np.flatnonzero(self._used[self._at]).tolist():
            self._take(np.arange(begun, each))
            self._take_beside(each)
            begun = each + 1
            if not self.left or self._budget.exhausted:
                return
        self._take(np.arange(begun, len(self._at)))

    def take_used_first(self, ranks: Ints, sizes: Ints, part: int, *, roomiest_first: bool) -> None:
        """Nodes in use, the tightest first, then others by rank, by capacity and by size, the largest first.

        part: another node takes only this part of what it has capacity for, at least one pod.
        """
        beside = np.flatnonzero(self._used[self._at])
        beside = beside[np.lexsort((self._free_slots[beside], ranks[self._at[beside]]))]
        if self._arrays.carded[self._number]:
            for each in beside.tolist():
                if not self.left or self._budget.exhausted:
                    break
                self._take_beside(each)
        else:
            self._take(beside)
        if not self.left:
            return
        new = np.flatnonzero(~self._used[self._at])
        if part > 1:
            self._free_slots = np.maximum(1, self._free_slots // part)
        slot_counts = -self._free_slots[new] if roomiest_first else self._free_slots[new]
        new = new[np.lexsort((-sizes[self._at[new]], slot_counts, ranks[self._at[new]]))]
        self._take_tightest_last(new, ranks)

    def place(self) -> None:
        """End with the class: what was taken of the nodes is no longer free."""
        taken = np.flatnonzero(self._amounts)
        at, amounts = self._at[taken], self._amounts[taken]
        self._free[at] -= amounts[:, None] * self._arrays.requests[self._number]
        self._used[at] = True
        for position, amount in zip(at.tolist(), amounts.tolist(), strict=True):
            self._placed.setdefault(position, {})[self._number] = amount

    def taken(self) -> Taken:
        """The pods of each class on each node in use."""
        names = self._numbers.tolist()
        return {
            names[position]: tuple([pods.get(number, 0) for number in range(self._arrays.classes)])
            for position, pods in self._placed.items()
        }

    def _take_beside(self, each: int) -> None:
        """Pods that want cards onto a node that holds others: as many as cards are found for."""
        position = int(self._at[each])
        free_slots = self._beside.of(self._number, int(self._numbers[position]), self._placed[position])
        given = min(self.left, int(self._free_slots[each]), free_slots)
        self._amounts[each] += given
        self.left -= given

    def _take(self, positions: Array) -> None:
        """As many pods as there is capacity for at these positions, one after the other."""
        most = np.cumsum(self._free_slots[positions])
        given = np.diff(np.minimum(most, self.left), prepend=0)
        self._amounts[positions] += given
        self.left -= int(given.sum())

    def _take_tightest_last(self, positions: Array, ranks: Ints) -> None:
        """The same, but of the nodes for the last pods, in one domain, the one with the least capacity."""
        most = np.cumsum(self._free_slots[positions])
        last = int(np.searchsorted(most, self.left))
        if last >= len(positions):
            self._take(positions)
            return
        self._take(positions[:last])
        others = positions[last:]
        around = ranks[self._at]
        enough = others[(self._free_slots[others] >= self.left) & (around[others] == around[positions[last]])]
        tightest = enough[np.argmin(self._free_slots[enough])]
        self._amounts[tightest] += self.left
        self.left = 0
