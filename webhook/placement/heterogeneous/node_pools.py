"""Fills sets of nodes with pods, class by class, all sets in the same vector operations."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.cards.first_cards import FirstCards
from webhook.placement.heterogeneous.arrays import Array, GangArrays, Ints, Taken
from webhook.placement.question import pods_of

CLASS: Final = 75
"""The fewest steps per class in a set of nodes."""

NODES: Final = 25
"""One more step per so many nodes with capacity for the class."""

LOOKED: Final = 150
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
            most = int(self._arrays.slots_of(number)[node])
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
    """Pools: sets of nodes that are filled independently of each other.

    A pool has its nodes by number in the order of filling; the nodes of a domain are consecutive.
    takes_first_cards: pods with cards get the first ones that serve them, so that a node takes fewer of a
    class than it could, and more of the next ones. left: for each pool the pods of the class placed last that
    have no node yet.
    """

    def __init__(
        self,
        arrays: GangArrays,
        beside: SlotsBeside,
        pools: Sequence[Ints],
        budget: Budget,
        *,
        takes_first_cards: bool = False,
    ) -> None:
        self.left = np.zeros(len(pools), dtype=np.int64)
        self._takes_first_cards = takes_first_cards
        self._arrays, self._beside, self._budget = arrays, beside, budget
        self._numbers = np.concatenate(pools)
        self._pools = np.repeat(np.arange(len(pools)), [len(numbers) for numbers in pools])
        """The pool of each node."""
        self._firsts = np.flatnonzero(np.diff(self._pools, prepend=-1))
        """The position of the first node of each pool."""
        self._free = arrays.free.T[:, self._numbers]
        self._used = np.zeros(len(self._numbers), dtype=np.bool_)
        self._placed: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
        """The pods of each class by pool and node, if there are pods with cards."""
        self._log: list[tuple[int, Array, Array, Ints]] = []
        """The classes in the order of placement, with the pools, nodes and amounts of each."""

    def place(self, number: int) -> None:
        """Place pods of a class on each node up to its capacity, whether it is in use or not."""
        arrays, count = self._arrays, self._arrays.question.counts[number]
        fits = arrays.may_run(number)[self._numbers]
        for resource, amount in arrays.request_rows[number]:
            fits &= self._free[resource] >= amount
        at = np.flatnonzero(fits)
        self.left[:] = count
        is_plain = not (arrays.carded[number] or arrays.is_in_slices(number))
        if is_plain and count == 1:
            at = at[self._begins(at)]
        self._budget.take(CLASS + len(fits) // LOOKED + len(at) // NODES)
        free_slots = np.full(len(at), count, dtype=np.int64)
        if arrays.carded[number]:
            np.minimum(free_slots, arrays.slots_of(number)[self._numbers[at]], out=free_slots)
        for resource, amount in arrays.request_rows[number]:
            np.minimum(free_slots, self._free[resource, at] // amount, out=free_slots)
        self._use(number, at, self._shared(number, at, free_slots))

    def _shared(self, number: int, at: Array, free_slots: Ints) -> Ints:
        """The pods of a class on the nodes at these positions."""
        if self._arrays.is_in_slices(number):
            share = self._in_slices
        elif not self._arrays.carded[number]:
            return self._in_order(at, free_slots)
        else:
            share = self._with_first_cards if self._takes_first_cards else self._with_cards
        given = np.zeros_like(free_slots)
        for first, end in self._ranges(at):
            given[first:end] = share(number, at[first:end], free_slots[first:end])
        return given

    def _begins(self, at: Array) -> Array:
        """For each pool with nodes in `at`, the position of the first one there."""
        begins = np.searchsorted(at, self._firsts)
        found: Array = begins[begins < np.append(begins[1:], len(at))]
        return found

    def _ranges(self, at: Array) -> Iterator[tuple[int, int]]:
        """For each pool with nodes in `at`, their range there."""
        firsts = self._begins(at).tolist()
        return zip(firsts, [*firsts[1:], len(at)], strict=False)  # none in no nodes

    def drop_short(self) -> bool:
        """Drop the pools in which the class placed last does not fit completely; whether any is left."""
        complete = (self.left == 0)[self._pools]
        if not complete.all():
            self._numbers, self._pools = self._numbers[complete], self._pools[complete]
            self._free, self._used = self._free[:, complete], self._used[complete]
            self._firsts = np.flatnonzero(np.diff(self._pools, prepend=-1))
        return len(self._numbers) > 0

    def used(self) -> Iterator[tuple[int, list[int]]]:
        """The pools that are not dropped, each with its nodes in use."""
        at = np.flatnonzero(self._used)
        for first, end in self._ranges(at):
            yield int(self._pools[at[first]]), self._numbers[at[first:end]].tolist()

    def taken(self, pool: int) -> Taken:
        """The pods of each class on each node in use of a pool."""
        found: dict[int, list[int]] = defaultdict(lambda: [0] * self._arrays.classes)
        for number, pools, nodes, amounts in self._log:
            mine = pools == pool
            for node, amount in zip(nodes[mine].tolist(), amounts[mine].tolist(), strict=True):
                found[node][number] = amount
        return {node: tuple(counts) for node, counts in found.items()}

    def _use(self, number: int, at: Array, amounts: Ints) -> None:
        """Put pods of a class on the nodes at these positions."""
        taken = np.flatnonzero(amounts)
        at, amounts = at[taken], amounts[taken]
        self._free[:, at] -= self._arrays.requests[number][:, None] * amounts
        self._used[at] = True
        pools, nodes = self._pools[at], self._numbers[at]
        self._log.append((number, pools, nodes, amounts))
        if any(self._arrays.carded):
            for pool, node, amount in zip(pools.tolist(), nodes.tolist(), amounts.tolist(), strict=True):
                self._placed[pool, node][number] = amount

    def _in_order(self, at: Array, free_slots: Ints) -> Ints:
        """The pods of each node, filled in order, pool by pool."""
        if not len(at):
            return free_slots
        pools = self._pools[at]
        firsts = self._begins(at)
        before = np.cumsum(free_slots) - free_slots
        before -= np.repeat(before[firsts], np.diff(firsts, append=len(at)))
        given: Ints = np.clip(self.left[pools] - before, 0, free_slots)
        self.left[pools[firsts]] -= np.add.reduceat(given, firsts)
        return given

    def _with_cards(self, number: int, at: Array, free_slots: Ints) -> Ints:
        """The same for pods with cards in one pool: beside others only as many as find cards."""
        given = np.zeros_like(free_slots)
        begun, pool = 0, int(self._pools[at[0]])
        for each in np.flatnonzero(self._used[at]).tolist():
            given[begun:each] = self._in_order(at[begun:each], free_slots[begun:each])
            if not self.left[pool] or self._budget.exhausted:
                return given
            node = int(self._numbers[at[each]])
            beside = self._beside.of(number, node, self._placed[pool, node])
            given[each] = min(int(self.left[pool]), int(free_slots[each]), beside)
            self.left[pool] -= given[each]
            begun = each + 1
        given[begun:] = self._in_order(at[begun:], free_slots[begun:])
        return given

    def _with_first_cards(self, number: int, at: Array, free_slots: Ints) -> Ints:
        """The same, each pod with the first cards that serve it."""
        given = np.zeros_like(free_slots)
        pool = int(self._pools[at[0]])
        for each, node in enumerate(self._numbers[at].tolist()):
            if not self.left[pool] or self._budget.exhausted:
                break
            others, most = self._placed[pool, node], min(int(self.left[pool]), int(free_slots[each]))
            given[each] = self._beside.by_first_cards(number, node, others, most)
            self.left[pool] -= given[each]
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
            sums = np.add.reduceat(slot_counts[-1], np.searchsorted(begins[-1], firsts))
            slot_counts.append(sums // size * size)
            begins.append(firsts)
        given = self._in_order(at[begins[-1]], slot_counts[-1])
        for below in range(len(slot_counts) - 2, -1, -1):
            around = np.searchsorted(begins[below + 1], begins[below], side="right") - 1
            before = np.cumsum(slot_counts[below]) - slot_counts[below]
            inside = before - before[np.searchsorted(around, around)]  # parts of a domain are adjacent
            given = np.clip(given[around] - inside, 0, slot_counts[below])
        return given
