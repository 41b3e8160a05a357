"""Screening: the children of a domain that can be in the best solution, by upper bounds of their capacity.

If children share the gang, a solution needs at least as many children as the workers alone. With exactly so
many, each child must take the pods that do not fit into the others (see priced). Anchored children are used
anyway and cost nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate

import numpy as np

from webhook.placement.bounds import (
    anchored_children,
    census,
    fewest_children,
    shape,
    slot_counts_at,
    slot_counts_beside,
)
from webhook.placement.budget import PART, SHIFTED, Budget, added
from webhook.placement.homogeneous.min_plus import Array
from webhook.placement.homogeneous.minority_pods import SpareSlots
from webhook.placement.question import Question
from webhook.placement.vertex import Vertex

Ranges = list[tuple[int, int]]
"""Inclusive ranges of amounts."""

Enough = Callable[[tuple[int, ...]], int | None]
"""A lower bound of the parts of these domains that suffice; None if all of them do not."""


def by_parts(heads: Sequence[Sequence[int]], wanted: int) -> Enough:
    """For domains that hold as much as their parts.

    heads: for each domain its capacity with its 0, 1, 2, ... largest parts.
    """
    slot_counts = [np.diff(np.array(head, dtype=np.int64)) for head in heads]

    @cache
    def enough(numbers: tuple[int, ...]) -> int | None:
        missing = wanted - sum(heads[number][0] for number in numbers)
        sums = np.cumsum(-np.sort(-np.concatenate([[0], *(slot_counts[number] for number in numbers)])))
        if missing <= 0:
            return 0
        return int(np.searchsorted(sums, missing)) + 1 if sums[-1] >= missing else None

    return enough


def by_units(heads: Sequence[Sequence[int]], unit: int, wanted: int, more: int, budget: Budget) -> Enough:
    """For domains that hold whole units of the capacity of their parts. heads: as for by_parts.

    wanted: units. more: additional slots that one of the domains must hold. The returned function raises
    OutOfSteps.
    """
    never = 1 << 40
    plain, loaded = ([_parts_of_units(head, unit, beside) for head in heads] for beside in (0, more))

    @cache
    def enough(numbers: tuple[int, ...]) -> int | None:
        budget.spend(SHIFTED * sum(len(plain[number]) + len(loaded[number]) for number in numbers))
        least = np.full((2, wanted + 1), never, dtype=np.int64)
        least[0, 0] = 0
        for number in numbers:
            grown = least.copy()
            for units, needed in plain[number]:
                window = grown[:, min(units, wanted) :]
                np.minimum(window, least[:, : window.shape[1]] + needed, out=window)
            for units, needed in loaded[number]:
                last = grown[1, min(units, wanted) :]
                np.minimum(last, least[0, : len(last)] + needed, out=last)
            least = np.minimum.accumulate(grown[:, ::-1], axis=1)[:, ::-1]
        return int(least[1, -1]) if least[1, -1] < never else None

    return enough


def _parts_of_units(head: Sequence[int], unit: int, beside: int) -> list[tuple[int, int]]:
    """For each number of units from 0, the parts needed for them and for `beside` slots more."""
    amounts = np.arange(0, head[-1] - beside + 1, unit) + beside
    return list(enumerate(np.searchsorted(head, amounts).tolist()))


_NONE = -(1 << 60)

PRICES = 24
"""The most prices that are tried."""

SHAPED = 8
"""Nodes of a domain that are compared with those of others in one step."""


def heads_beside(free: Sequence[int], others: Sequence[int]) -> list[int]:
    """The largest capacity of a child with 0, 1, 2, ... paid parts."""
    return list(accumulate(sorted(others, reverse=True), initial=sum(free)))


def needed_beside(heads: Mapping[int, Sequence[int]], numbers: Iterable[int], wanted: int) -> int | None:
    """The fewest paid parts with which these children hold so much; None if all parts do not suffice."""
    chosen = list(numbers)
    left = wanted - sum(heads[number][0] for number in chosen)
    slot_counts = sorted(
        (high - low for n in chosen for low, high in zip(heads[n], heads[n][1:], strict=False)), reverse=True
    )
    for count, free_slots in enumerate([0, *slot_counts]):
        left -= free_slots
        if left <= 0:
            return count
    return None


def priced(
    heads: Mapping[int, Sequence[int]],
    anchored: set[int],
    wanted: int,
    fewest: int,
    most: int,
    prices: Iterable[int],
    budget: Budget,
    enough: Enough | None,
) -> tuple[dict[int, Ranges], int]:
    """Amounts that children can hold in solutions with exactly `fewest` paid children and the fewest paid
    parts.

    Children that are in no such solution are left out. heads: see heads_beside, by child. most: a number of
    paid parts that suffices; `enough` improves it, and takes positions in `heads`. prices: candidates, some
    of which are tried. Returns the ranges of amounts, and `most`. Raises OutOfSteps.

    It uses pricing (Lagrangian relaxation). At a price of p pods per part, the worth of a child is its
    capacity minus the price of its parts. So `fewest` children hold at most the largest worths plus p pods
    per part. An upper bound of the capacity of the others is a lower bound of the amount in one child with r
    parts.
    """
    anchors = np.array([number in anchored for number in heads], dtype=np.bool_)
    others, most = _most_in_others(heads, anchors, fewest, most, prices, budget, enough)
    least: Array = wanted - others
    ranges_of: dict[int, Ranges] = {}
    for number, lows in zip(heads, least.tolist(), strict=True):
        steps = range(most + 1) if number in anchored else range(1, most + 1 if fewest else 1)
        if ranges := _ranges(heads[number], lows, steps):
            ranges_of[number] = ranges
    return ranges_of, most


def _most_in_others(
    heads: Mapping[int, Sequence[int]],
    anchors: Array,
    fewest: int,
    most: int,
    prices: Iterable[int],
    budget: Budget,
    enough: Enough | None,
) -> tuple[Array, int]:
    """[child, parts]: the largest capacity of the others if the child uses so many parts; and a better
    `most`.

    anchors: whether each child costs nothing. All else is as for `priced`.
    """
    width = max(map(len, heads.values()), default=1)
    most_of = np.array([[*head, *[_NONE] * (width - len(head))] for head in heads.values()], dtype=np.int64)
    paid = ~anchors
    most_of[paid, 0] = _NONE  # the child is not used
    parts = np.arange(width)
    tried = sorted(each for each in set(prices) if each > 0)
    budget.spend(
        most_of.size // 8 + min(len(tried), 2 * PRICES) * (6 * PART + added(12 * most_of.size, True))
    )
    others = np.full(most_of.shape, -_NONE, dtype=np.int64)
    given, payable = np.flatnonzero(~paid).tolist(), np.flatnonzero(paid)
    tables = []
    for price in tried[:: max(1, len(tried) // PRICES)]:
        worth = (most_of - price * parts).max(axis=1)
        largest = payable[np.argsort(-worth[payable], kind="stable")[:fewest]]
        tables.append((price, worth, largest))
        found = enough(tuple(sorted([*given, *largest.tolist()]))) if enough is not None else None
        most = most if found is None else min(most, found)
    for price, worth, largest in tables:
        best = int(worth[given].sum() + worth[largest].sum())
        last = int(worth[largest[-1]]) if fewest else 0
        beside = best - np.where(paid, np.maximum(worth, last), worth)
        np.minimum(others, beside[:, None] + price * (most - parts), out=others)
    return others, most


def _ranges(head: Sequence[int], least: Sequence[int], parts: range) -> Ranges:
    """The amounts that need one of these numbers of parts, and are not below the least amount for it."""
    amounts = [-1, *head]
    steps = parts[: max(0, len(head) - parts.start)]
    return [(low, head[n]) for n in steps if (low := max(amounts[n] + 1, least[n])) <= head[n]]


class _Children:
    """The children of a domain with the capacities of their subdomains in units, `ratio` per outer unit."""

    def __init__(
        self, slot_counts: Sequence[tuple[list[int], list[int]]], anchored: set[int], ratio: int
    ) -> None:
        """slot_counts: for each child, see bounds.slot_counts_beside. anchored: children that anchors use."""
        self.anchored = anchored
        self.ratio = ratio
        self.slot_counts = [paid for _, paid in slot_counts]
        self.unrounded = [heads_beside(*of_child) for of_child in slot_counts]
        self.heads = [[head - head % ratio for head in of_child] for of_child in self.unrounded]

    def fewest_children(self, wanted: int) -> tuple[dict[int, int], int]:
        """See bounds.fewest_children."""
        return fewest_children([head[-1] // self.ratio for head in self.heads], self.anchored, wanted)

    def sufficing(self, numbers: Iterable[int], fewest: int, wanted: int) -> int | None:
        """The number of subdomains that suffices in the fewest of these children; None: all do not."""
        paid = sorted(set(numbers) - self.anchored, key=lambda number: (-self.heads[number][-1], number))
        used = [*self.anchored, *paid[:fewest]]
        needed = needed_beside(dict(enumerate(self.heads)), used, wanted * self.ratio)
        wasted = len(used) if self.ratio > 1 else 0  # each child may waste a part of a slice
        return None if needed is None else needed + 1 + wasted


class Screening:
    """The screening for one question, with spare slots beside the workers."""

    def __init__(self, question: Question, spare: SpareSlots, budget: Budget) -> None:
        self.question = question
        self.costs = question.costs()
        self.spare = spare
        self.budget = budget

    def matter(
        self, vertex: Vertex, levels: Sequence[int], unit: int, wanted: int
    ) -> tuple[dict[int, int], int, int] | None:
        """The children that can be in a solution with the fewest children, with the fewest units of each.

        It also returns that number of children, and the number of subdomains for which the result holds.
        None: no child is excluded. It uses upper bounds of the capacity of a child and its subdomains; slices
        at the child's own level may reduce it.
        """
        first, second = vertex.bottom + 1, vertex.bottom + 2
        machine = self.costs.depth if self.costs.machine is None else self.costs.machine
        if not vertex.parts or not {first, second} <= set(levels) or first >= machine:
            return None  # more machines may cost less
        finer_level, finer = next((part for part in self.question.slices if part[0] > first), (second, 1))
        children = self._children(vertex, finer, unit // finer)
        least, fewest = children.fewest_children(wanted)
        if second >= machine:
            return least, fewest, sum(found[0] for found in census(vertex))
        most = children.sufficing(least, fewest, wanted)
        if most is None:
            return None
        enough = self._enough(children, least, finer, wanted) if finer_level <= second else None
        least, most = self._priced(children, least, wanted, fewest, most + self.spare.most, enough)
        return self._distinct(vertex, least, fewest), fewest, most

    def _children(self, vertex: Vertex, unit: int, ratio: int) -> _Children:
        """The children of a domain with their subdomains. unit: in pods; ratio: units per outer unit."""
        level, anchored = vertex.bottom + 2, set[int]()
        if self.question.anchored:
            anchored = anchored_children(vertex, self.costs)
            slot_counts = [slot_counts_beside(part, level, self.costs) for part in vertex.parts]
        else:
            slot_counts = [([], slot_counts_at(part, level)) for part in vertex.parts]
        units = [
            ([free_slots // unit for free_slots in free], [free_slots // unit for free_slots in paid])
            for free, paid in slot_counts
        ]
        return _Children(units, anchored, ratio)

    def _priced(
        self,
        children: _Children,
        numbers: Iterable[int],
        wanted: int,
        fewest: int,
        most: int,
        enough: Enough | None,
    ) -> tuple[dict[int, int], int]:
        """The fewest units of each of these children, by the bounds of `priced`."""
        heads = {number: children.heads[number] for number in numbers}
        prices = {free_slots for number in heads for free_slots in children.slot_counts[number]}
        ratio = children.ratio
        ranges, most = priced(
            heads, children.anchored, wanted * ratio, fewest, most, prices, self.budget, enough
        )
        return {number: -(-min(of)[0] // ratio) for number, of in ranges.items()}, most

    def _distinct(self, vertex: Vertex, least: Mapping[int, int], fewest: int) -> dict[int, int]:
        """The children without surplus equal ones: of those that differ only in names, the first few stay."""
        if self.question.anchored or len(least) <= 2 * fewest:
            return dict(least)
        seen = Counter[object]()
        distinct = {}
        for number, units in least.items():
            part = vertex.parts[number]
            self.budget.spend(1 + (census(part)[-1][0] // SHAPED if part.state is None else 0))
            form = shape(part)
            seen[form] += 1
            if seen[form] <= fewest:
                distinct[number] = units
        return distinct

    def _enough(self, children: _Children, numbers: Iterable[int], finer: int, wanted: int) -> Enough:
        """The number of subdomains that suffices, by capacities. finer: pods per unit of the subdomains."""
        more = -(-self.spare.losses[-1] // finer)  # for the child that also has the spare slots
        heads = [children.unrounded[number] for number in numbers]
        if children.ratio == 1:
            return by_parts(heads, wanted + more)
        return by_units(heads, children.ratio, wanted, more, self.budget)
