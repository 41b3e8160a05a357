"""First-fit decreasing: class after class, the largest first, nodes in use before others.

Source: Johnson, Near-optimal bin packing algorithms (1973); for several resources Panigrahy et al.,
Heuristics for vector bin packing (2011). Parts of a domain are taken one after the other, those first that
hold most of what is scarce there; so few of them are used, at every level.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.heterogeneous.arrays import Array, DomainRange, GangArrays, Ints, Taken
from webhook.placement.heterogeneous.joint_bounds import Candidate, JointBounds
from webhook.placement.question import pods_of

ORDERS: Final = 4
"""Orders of the classes that are tried in each set of nodes."""

CLASS: Final = 40
"""Steps that a class takes in a set of nodes however few these are."""

NODES: Final = 25
"""Nodes with room for a class for which it takes one more step."""

LOOKED: Final = 300
"""Nodes that are looked at for room in one step."""

MANY: Final = 64
"""Classes beyond which a candidate is filled as a whole, classes with few nodes to choose from first."""

SIZES: Final = 1_000_000
"""Nodes are compared by the shares of what is scarce that they have free, in parts of so many."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """is_ranked: nodes go by the ranks of their domains. roomiest_first: then the roomiest first, else the
    tightest. part: a node that is not in use yet takes only this part of what it has room for, at least one
    pod, of each class but the last, so that something of each resource stays for these.
    """

    is_ranked: bool
    roomiest_first: bool
    part: int = 1


_VARIANTS: Final = (
    _Variant(True, True),
    _Variant(True, True, 2),
    _Variant(False, True),
    _Variant(False, False),
    _Variant(False, True, 2),
)

Filled = tuple[int, Taken]
"""The cost, and the nodes used."""


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Nodes to fill; ranks: the number of each one's domain in the order in which these are used."""

    numbers: Ints
    ranks: Ints


class FirstFitDecreasing:
    """Fills domains for one gang. budget: is taken from, and looked at by who asks, before each domain."""

    def __init__(self, arrays: GangArrays, bounds: JointBounds, budget: Budget) -> None:
        self.arrays = arrays
        self.bounds = bounds
        self.budget = budget
        self._orders = self._orders_of_classes()[:ORDERS]
        supply = np.maximum(1, arrays.free.sum(axis=0))
        most = np.maximum(1, arrays.free.max(axis=0, initial=1))
        scarcity = arrays.totals / supply / most
        self._sizes: Ints = (arrays.free @ scarcity * SIZES).astype(np.int64)

    def _orders_of_classes(self) -> list[tuple[int, ...]]:
        """By the share of a node that a pod takes, by the fewest nodes to choose from, by each resource."""
        arrays = self.arrays
        most = np.maximum(1, arrays.free.max(axis=0, initial=1))
        share = (arrays.requests / most).max(axis=1, initial=0.0)
        choice = np.count_nonzero(arrays.rooms, axis=1)
        keys = [-share, choice, *(-arrays.requests).T]
        numbers = np.arange(arrays.classes)
        self._by_choice = tuple(np.lexsort((numbers, -share, choice)).tolist())
        orders = [tuple(np.lexsort((numbers, -share, key)).tolist()) for key in keys]
        return list(dict.fromkeys(orders))

    def fill(self, candidate: Candidate, limit: int | None = None) -> Filled | None:
        """The best of some fillings of a candidate, by as few of its parts as hold the gang, or None.

        limit: a cost at which nothing better is looked for.
        """
        best: Filled | None = None
        if self.arrays.classes > MANY:
            numbers = np.concatenate([np.arange(first, end) for first, end in candidate.ranges])
            taken = self._fill(_Nodes(numbers, np.zeros_like(numbers)), self._by_choice, _VARIANTS[2])
            best = None if taken is None else (self.arrays.cost(taken), taken)
            if self.budget.exhausted:
                return best
        for nodes in self._choices(candidate):
            for order, variant in product(self._orders, _VARIANTS):
                found = self._fill(nodes, order, variant)
                if found is not None:
                    cost = self.arrays.cost(found)
                    if best is None or cost < best[0]:
                        best = cost, found
                if self.budget.exhausted or (best is not None and limit is not None and best[0] <= limit):
                    return best
            if best is not None:
                return best
        return None

    def partial_fills(
        self, domain: DomainRange, classes: Collection[int], before: Ints
    ) -> Iterator[tuple[Taken, Ints]]:
        """Some ways to put as many pods of these classes into a domain as there is room for, and what each
        node has free beside them. before: what each has free without them.
        """
        numbers = np.arange(domain.first, domain.end)
        nodes = _Nodes(numbers, np.zeros(len(numbers), dtype=np.int64))
        for order, variant in product([*self._orders, self._orders[0][::-1]], _VARIANTS[2:]):
            free = before.copy()
            taken = self._fill_partly(nodes, free, [each for each in order if each in classes], variant)
            yield taken, free
            if self.budget.exhausted:
                return

    # --- which nodes ---------------------------------------------------------------------------------

    def _choices(self, candidate: Candidate) -> Iterator[_Nodes]:
        """Sets of a candidate's nodes: of the fewest parts that may hold the gang, then of more and more."""
        if not candidate.parts:
            numbers = np.concatenate([np.arange(first, end) for first, end in candidate.ranges])
            yield _Nodes(numbers, np.zeros(len(numbers), dtype=np.int64))
            return
        parts, contributions = self._ordered(candidate.parts)
        if candidate.uses_all:
            yield self._nodes(parts)
            return
        enough = (np.cumsum(contributions, axis=0) >= self.bounds.needs).all(axis=1)
        fewest = int(np.argmax(enough)) + 1 if enough.any() else len(parts)
        before = contributions[: fewest - 1].sum(axis=0)
        fitting = (before + contributions[fewest - 1 :] >= self.bounds.needs).all(axis=1)
        tightest = fewest - 1 + int(np.flatnonzero(fitting)[-1]) if fitting.any() else fewest - 1
        if tightest != fewest - 1:
            yield self._nodes([*parts[: fewest - 1], parts[tightest]])
        count = fewest
        while count < len(parts):
            yield self._nodes(parts[:count])
            count += max(1, (count - fewest + 1) // 2)
        yield self._nodes(parts)

    def _ordered(self, parts: Sequence[DomainRange]) -> tuple[list[DomainRange], Ints]:
        """Some parts, those first that anchors pay for, then those that hold most of the gang, and what each
        contributes to each measure.
        """
        held = self.bounds.contributions(parts)
        shares = np.minimum(held / self.bounds.needs, 1.0)
        scarce = int(np.argmin(held.sum(axis=0) / self.bounds.needs))
        value = shares.min(axis=1) + shares[:, scarce] / 1000
        paid = np.array([self.arrays.is_paid(part) for part in parts], dtype=np.bool_)
        order = np.lexsort((np.arange(len(parts)), -value, ~paid)).tolist()
        return [parts[number] for number in order], held[order]

    def _nodes(self, parts: Sequence[DomainRange]) -> _Nodes:
        """The nodes of some parts, ranked by the parts and in these by theirs."""
        runs: list[tuple[int, int]] = []
        for part in parts:
            self._add_runs(part, runs)
        numbers = np.concatenate([np.arange(first, end) for first, end in runs])
        lengths = [end - first for first, end in runs]
        return _Nodes(numbers, np.repeat(np.arange(len(runs)), lengths))

    def _add_runs(self, domain: DomainRange, runs: list[tuple[int, int]]) -> None:
        if not domain.parts or all(part.is_node for part in domain.parts):
            runs.append((domain.first, domain.end))
            return
        for part in self._ordered(domain.parts)[0]:
            self._add_runs(part, runs)

    # --- filling them --------------------------------------------------------------------------------

    def _fill(self, nodes: _Nodes, order: Sequence[int], variant: _Variant) -> Taken | None:
        """Class after class in this order; None where one finds too little room."""
        free = self.arrays.free[nodes.numbers]
        taken = self._fill_partly(nodes, free, order, variant, is_whole=True)
        held = tuple(map(sum, zip(*taken.values(), strict=True))) if taken else ()
        return taken if held == self.arrays.question.counts else None

    def _fill_partly(
        self, nodes: _Nodes, free: Ints, order: Sequence[int], variant: _Variant, *, is_whole: bool = False
    ) -> Taken:
        """The same with as many pods as there is room for, which are taken off what the nodes have free.

        is_whole: it ends at a class that is short.
        """
        arrays = self.arrays
        sizes = self._sizes[nodes.numbers]
        ranks = nodes.ranks if variant.is_ranked else np.zeros_like(nodes.ranks)
        used = np.zeros(len(nodes.numbers), dtype=np.bool_)
        held: dict[int, dict[int, int]] = {}
        for number in order:
            at, room = self._room(number, nodes, free)
            left = arrays.question.counts[number]
            amounts = np.zeros(len(at), dtype=np.int64)
            beside = np.flatnonzero(used[at])
            beside = beside[np.lexsort((room[beside], ranks[at[beside]]))]
            if arrays.carded[number]:
                left -= self._take_beside(number, nodes, held, at, beside, room, left, amounts)
            else:
                left -= _take(beside, room, left, amounts)
            if left:
                new = np.flatnonzero(~used[at])
                sign = -1 if variant.roomiest_first else 1
                if variant.part > 1 and number != order[-1]:
                    room = np.maximum(1, room // variant.part)
                new = new[np.lexsort((sign * sizes[at[new]], sign * room[new], ranks[at[new]]))]
                left -= _take_tightest_last(new, room, ranks[at], left, amounts)
            if left and is_whole:
                return {}
            taken = np.flatnonzero(amounts)
            free[at[taken]] -= amounts[taken, None] * arrays.requests[number]
            used[at[taken]] = True
            for position, amount in zip(at[taken].tolist(), amounts[taken].tolist(), strict=True):
                held.setdefault(position, {})[number] = amount
        names = nodes.numbers.tolist()
        return {
            names[position]: tuple([pods.get(number, 0) for number in range(arrays.classes)])
            for position, pods in held.items()
        }

    def _room(self, number: int, nodes: _Nodes, free: Ints) -> tuple[Ints, Ints]:
        """The positions of the nodes with room for more pods of a class, and for how many."""
        alone = self.arrays.rooms[number][nodes.numbers]
        at = np.flatnonzero(alone)
        self.budget.take(CLASS + len(alone) // LOOKED + len(at) // NODES)
        room: Ints = alone[at].astype(np.int64)
        for resource, amount in self.arrays.request_rows[number]:
            np.minimum(room, free[at, resource] // amount, out=room)
        fits = np.flatnonzero(room > 0)
        return at[fits], room[fits]

    def _take_beside(
        self,
        number: int,
        nodes: _Nodes,
        held: dict[int, dict[int, int]],
        at: Ints,
        beside: Ints,
        room: Ints,
        wanted: int,
        amounts: Ints,
    ) -> int:
        """Pods that want cards onto nodes that hold others: as many as cards are found for; how many."""
        left = wanted
        for each in beside.tolist():
            if not left or self.budget.exhausted:
                break
            position = int(at[each])
            node = int(nodes.numbers[position])
            most = self._most_beside(number, node, held[position], min(left, int(room[each])))
            amounts[each] = most
            left -= most
        return wanted - left

    def _most_beside(self, number: int, node: int, held: dict[int, int], most: int) -> int:
        """How many pods of a class fit on a node beside those it holds, at most so many."""
        question, state = self.arrays.question, self.arrays.states[node]
        classes = [question.classes[each] for each in held]
        pods = pods_of(classes, held.values())
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            together = [*pods, *[question.classes[number]] * middle]
            self.budget.take(5 + len(together))
            if capacity.fits_together(together, state, self.budget):
                low = middle
            else:
                high = middle - 1
        return low


def _take(positions: Array, room: Ints, wanted: int, amounts: Ints) -> int:
    """As many pods as there is room for at these positions, one after the other; how many."""
    most = np.cumsum(room[positions])
    given = np.diff(np.minimum(most, wanted), prepend=0)
    amounts[positions] += given
    return int(given.sum())


def _take_tightest_last(positions: Array, room: Ints, ranks: Ints, wanted: int, amounts: Ints) -> int:
    """The same, but of the nodes that take the last pods, in one domain, the one with the least room."""
    most = np.cumsum(room[positions])
    last = int(np.searchsorted(most, wanted))
    if last >= len(positions):
        return _take(positions, room, wanted, amounts)
    before = int(most[last - 1]) if last else 0
    others = positions[last:]
    enough = others[(room[others] >= wanted - before) & (ranks[others] == ranks[positions[last]])]
    tightest = enough[np.argmin(room[enough])]
    _take(positions[:last], room, before, amounts)
    amounts[tightest] += wanted - before
    return wanted
