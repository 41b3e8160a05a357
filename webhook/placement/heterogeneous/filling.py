"""Fills a set of nodes with pods, class by class."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.cards.first_cards import FirstCards
from webhook.placement.heterogeneous.arrays import Array, GangArrays, Ints, Taken
from webhook.placement.question import pods_of

CLASS: Final = 40
"""The fewest steps per class in a set of nodes."""

NODES: Final = 25
"""One more step per so many nodes with capacity for the class."""

LOOKED: Final = 300
"""Nodes whose capacity is checked in one step."""

LOOKS: Final = 60
"""The looks of one exact card search; see packing.STEPS."""

EXACT: Final = 2
"""Exact card searches have one part in so many of the steps."""


class SlotsBeside:
    """Free slots of a node for pods with cards beside other pods, cached by node and other pods.

    First-fit of cards gives a lower bound. Exact searches for more end with their share of the steps, since a
    single one may take as many steps as thousands of others.
    """

    def __init__(self, arrays: GangArrays, budget: Budget) -> None:
        self._arrays = arrays
        self._budget = budget
        self._exact = budget.part(budget.left // EXACT)
        self._known: dict[tuple[int, int, tuple[tuple[int, int], ...]], int] = {}

    def of(self, number: int, node: int, others: Mapping[int, int]) -> int:
        """How many pods of a class find cards beside so many other pods of each class."""
        key = number, node, tuple(others.items())
        if key not in self._known:
            most = int(self._arrays.slot_counts[number][node])
            low = self.by_first_cards(number, node, others, most)
            self._known[key] = self._exactly(number, node, others, low, most)
        return self._known[key]

    def by_first_cards(self, number: int, node: int, others: Mapping[int, int], most: int) -> int:
        """For how many pods of a class the first cards that serve each suffice, `most` at most."""
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
    """Nodes by number in the order of filling; the nodes of a domain are consecutive.

    takes_first_cards: pods with cards get the first ones that serve them, so that a node takes fewer of a
    class than it could, and more of the next ones. left: pods of the class placed last that have no node yet.
    """

    def __init__(
        self,
        arrays: GangArrays,
        beside: SlotsBeside,
        numbers: Ints,
        budget: Budget,
        *,
        takes_first_cards: bool = False,
    ) -> None:
        self.left = 0
        self._takes_first_cards = takes_first_cards
        self._arrays, self._beside, self._budget = arrays, beside, budget
        self._numbers, self._free = numbers, arrays.free[numbers]
        self._used = np.zeros(len(numbers), dtype=np.bool_)
        self._placed: dict[int, dict[int, int]] = {}

    def place(self, number: int) -> None:
        """Place pods of a class on each node up to its capacity, whether it is in use or not."""
        alone = self._arrays.slot_counts[number][self._numbers]
        at = np.flatnonzero(alone)
        self._budget.take(CLASS + len(alone) // LOOKED + len(at) // NODES)
        free_slots: Ints = alone[at].astype(np.int64)
        for resource, amount in self._arrays.request_rows[number]:
            np.minimum(free_slots, self._free[at, resource] // amount, out=free_slots)
        fits = np.flatnonzero(free_slots > 0)
        at, free_slots = at[fits], free_slots[fits]
        self.left = self._arrays.question.counts[number]
        if self._arrays.is_in_slices(number) and len(at):
            amounts = self._in_slices(number, at, free_slots)
        elif self._arrays.carded[number]:
            by_cards = self._with_first_cards if self._takes_first_cards else self._with_cards
            amounts = by_cards(number, at, free_slots)
        else:
            amounts = self._in_order(free_slots)
        self._use(number, at, amounts)

    def taken(self) -> Taken:
        """The pods of each class on each node in use."""
        names = self._numbers.tolist()
        return {
            names[position]: tuple([pods.get(number, 0) for number in range(self._arrays.classes)])
            for position, pods in self._placed.items()
        }

    def _use(self, number: int, at: Array, amounts: Ints) -> None:
        """Put pods of a class on the nodes at these positions."""
        taken = np.flatnonzero(amounts)
        at, amounts = at[taken], amounts[taken]
        self._free[at] -= amounts[:, None] * self._arrays.requests[number]
        self._used[at] = True
        for position, amount in zip(at.tolist(), amounts.tolist(), strict=True):
            self._placed.setdefault(position, {})[number] = amount

    def _in_order(self, free_slots: Ints) -> Ints:
        """The pods of each node, filled in order."""
        given: Ints = np.diff(np.minimum(np.cumsum(free_slots), self.left), prepend=0)
        self.left -= int(given.sum())
        return given

    def _with_cards(self, number: int, at: Array, free_slots: Ints) -> Ints:
        """The same for pods with cards: beside others only as many as find cards."""
        given = np.zeros_like(free_slots)
        begun = 0
        for each in np.flatnonzero(self._used[at]).tolist():
            given[begun:each] = self._in_order(free_slots[begun:each])
            if not self.left or self._budget.exhausted:
                return given
            position = int(at[each])
            beside = self._beside.of(number, int(self._numbers[position]), self._placed[position])
            given[each] = min(self.left, int(free_slots[each]), beside)
            self.left -= int(given[each])
            begun = each + 1
        given[begun:] = self._in_order(free_slots[begun:])
        return given

    def _with_first_cards(self, number: int, at: Array, free_slots: Ints) -> Ints:
        """The same, each pod with the first cards that serve it."""
        given = np.zeros_like(free_slots)
        for each, position in enumerate(at.tolist()):
            if not self.left or self._budget.exhausted:
                break
            others, most = self._placed.get(position, {}), min(self.left, int(free_slots[each]))
            given[each] = self._beside.by_first_cards(number, int(self._numbers[position]), others, most)
            self.left -= int(given[each])
        return given

    def _in_slices(self, number: int, at: Array, free_slots: Ints) -> Ints:
        """The same for pods in complete slices, domain by domain; cards of nodes in use count as taken."""
        arrays, question = self._arrays, self._arrays.question
        if arrays.carded[number]:
            free_slots = np.where(self._used[at], 0, free_slots)
        nodes = self._numbers[at]
        slot_counts, begins = [free_slots], [np.arange(len(nodes))]
        for level, size in reversed(question.slices[question.unbound_slices[number] :]):
            around = np.searchsorted(arrays.starts[level], nodes, side="right")
            firsts = np.flatnonzero(np.diff(around, prepend=-1))
            sums = (
                np.add.reduceat(slot_counts[-1], np.searchsorted(begins[-1], firsts))
                if len(nodes)
                else firsts
            )
            slot_counts.append(sums // size * size)
            begins.append(firsts)
        given = self._in_order(slot_counts[-1])
        for below in range(len(slot_counts) - 2, -1, -1):
            around = np.searchsorted(begins[below + 1], begins[below], side="right") - 1
            before = np.cumsum(slot_counts[below]) - slot_counts[below]
            inside = before - before[np.searchsorted(around, around)]  # parts of a domain are adjacent
            given = np.clip(given[around] - inside, 0, slot_counts[below])
        return given
