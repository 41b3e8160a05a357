"""Screening: the children of a domain that can be in the best solution, by upper bounds of their capacity.

If children share the gang, a solution needs at least as many children as the workers alone. With exactly so
many, each child must take the pods that do not fit into the others (see priced). Anchored children are used
anyway and cost nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain

import numpy as np

from webhook.placement.bounds import (
    anchored_children,
    census,
    fewest_children,
    first_of_equals,
    slot_counts_at,
    slot_counts_beside,
)
from webhook.placement.budget import PART, Budget, added
from webhook.placement.homogeneous.min_plus import Array
from webhook.placement.homogeneous.minority_pods import SpareSlots
from webhook.placement.question import Question
from webhook.placement.vertex import Vertex

_NONE = -(1 << 60)

PRICES = 24
"""The most prices that are tried."""

SHAPED = 8
"""Nodes of a domain that are compared with those of others in one step."""


def heads_beside(free: Sequence[int], others: Sequence[int]) -> list[int]:
    """The largest capacity of a child with 0, 1, 2, ... paid parts."""
    return list(accumulate(sorted(others, reverse=True), initial=sum(free)))


def fewest_parts(slot_counts: Sequence[Array], wanted: int) -> int | None:
    """The fewest parts that hold so much; None if all of them do not. slot_counts: of each domain's parts."""
    if wanted <= 0:
        return 0
    sums = np.cumsum(-np.sort(-np.concatenate([[0], *slot_counts])))
    return int(np.searchsorted(sums, wanted)) + 1 if sums[-1] >= wanted else None


def priced(
    heads: Mapping[int, Sequence[int]],
    of_parts: Mapping[int, Sequence[int]],
    anchored: set[int],
    wanted: int,
    fewest: int,
    most: int,
    enough: int | None,
    budget: Budget,
) -> tuple[dict[int, int], int]:
    """The least amount that each child holds in solutions with exactly `fewest` paid children and the fewest
    paid parts.

    Children that are in no such solution are left out. heads: see heads_beside, by child. of_parts: the
    capacities of each child's paid parts, which are the prices to try. most: a number of paid parts that
    suffices. enough: a sum of such capacities that suffices in any `fewest` children, which improves `most`;
    None if there is none. It also returns `most`. Raises OutOfSteps.

    It uses pricing (Lagrangian relaxation). At a price of p pods per part, the worth of a child is its
    capacity minus the price of its parts. So `fewest` children hold at most the largest worths plus p pods
    per part. An upper bound of the capacity of the others is a lower bound of the amount in one child with r
    parts.
    """
    anchors = np.array([number in anchored for number in heads], dtype=np.bool_)
    others, most = _most_in_others(heads, of_parts, anchors, fewest, most, enough, budget)
    least: Array = wanted - others
    amounts: dict[int, int] = {}
    for number, lows in zip(heads, least.tolist(), strict=True):
        steps = range(most + 1) if number in anchored else range(1, most + 1 if fewest else 1)
        if (amount := _least_amount(heads[number], lows, steps)) is not None:
            amounts[number] = amount
    return amounts, most


def _most_in_others(
    heads: Mapping[int, Sequence[int]],
    of_parts: Mapping[int, Sequence[int]],
    anchors: Array,
    fewest: int,
    most: int,
    enough: int | None,
    budget: Budget,
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
    slot_counts = [np.array(of_parts[number], dtype=np.int64) for number in heads]
    tried = sorted({*chain.from_iterable(map(of_parts.__getitem__, heads))} - {0})
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
        if enough is not None:
            found = fewest_parts([slot_counts[n] for n in (*given, *largest.tolist())], enough)
            most = most if found is None else min(most, found)
    for price, worth, largest in tables:
        best = int(worth[given].sum() + worth[largest].sum())
        last = int(worth[largest[-1]]) if fewest else 0
        beside = best - np.where(paid, np.maximum(worth, last), worth)
        np.minimum(others, beside[:, None] + price * (most - parts), out=others)
    return others, most


def _least_amount(head: Sequence[int], least: Sequence[int], parts: range) -> int | None:
    """The least amount that needs one of these numbers of parts, and is not below the least one for it."""
    below = [-1, *head]
    amounts = ((max(below[n] + 1, least[n]), head[n]) for n in parts[: max(0, len(head) - parts.start)])
    return min((low for low, high in amounts if low <= high), default=None)


class _Children:
    """The children of a domain with the capacities of their subdomains in units, `ratio` per outer unit."""

    def __init__(
        self, slot_counts: Sequence[tuple[list[int], list[int]]], anchored: set[int], ratio: int
    ) -> None:
        """slot_counts: for each child, see bounds.slot_counts_beside. anchored: children that anchors use."""
        self.anchored = anchored
        self.ratio = ratio
        self.slot_counts = [paid for _, paid in slot_counts]
        heads = (heads_beside(*of_child) for of_child in slot_counts)
        self.heads = [[head - head % ratio for head in of_child] for of_child in heads]

    def fewest_children(self, wanted: int) -> tuple[dict[int, int], int]:
        """See bounds.fewest_children."""
        return fewest_children([head[-1] // self.ratio for head in self.heads], self.anchored, wanted)

    def sufficing(self, numbers: Iterable[int], fewest: int, wanted: int) -> int | None:
        """The number of subdomains that suffices in the fewest of these children; None: all do not."""
        paid = sorted(set(numbers) - self.anchored, key=lambda number: (-self.heads[number][-1], number))
        used = [*self.anchored, *paid[:fewest]]
        free = sum(self.heads[number][0] for number in used)
        needed = fewest_parts([np.diff(self.heads[number]) for number in used], wanted * self.ratio - free)
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
        first = vertex.bottom + 1
        if not vertex.parts or len(levels) < 2:
            return None
        second = levels[1]
        finer_level, finer = next((part for part in self.question.slices if part[0] > first), (second, 1))
        children = self._children(vertex, second, finer, unit // finer)
        least, fewest = children.fewest_children(wanted)
        most = children.sufficing(least, fewest, wanted)
        if most is None:
            return None
        enough = self._enough(children, fewest, finer, wanted) if finer_level <= second else None
        least, most = self._priced(children, least, wanted, fewest, most + self.spare.most, enough)
        return self._distinct(vertex, least, fewest, children.anchored), fewest, most

    def _children(self, vertex: Vertex, level: int, unit: int, ratio: int) -> _Children:
        """The children of a domain with their subdomains of a level.

        unit: in pods. ratio: units per outer unit.
        """
        anchored = set[int]()
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
        enough: int | None,
    ) -> tuple[dict[int, int], int]:
        """The fewest units of each of these children, by the bounds of `priced`."""
        heads = {number: children.heads[number] for number in numbers}
        of_parts = {number: children.slot_counts[number] for number in heads}
        ratio, anchored = children.ratio, children.anchored
        amounts, most = priced(heads, of_parts, anchored, wanted * ratio, fewest, most, enough, self.budget)
        return {number: -(-amount // ratio) for number, amount in amounts.items()}, most

    def _distinct(
        self, vertex: Vertex, least: Mapping[int, int], fewest: int, anchored: set[int]
    ) -> dict[int, int]:
        """The children without surplus equal ones: of those that differ only in names, the first few stay."""
        if len(least) <= 2 * fewest:
            return dict(least)
        self.budget.spend(1 + census(vertex)[-1][0] // SHAPED)
        chosen = first_of_equals(vertex.parts, (each for each in least if each not in anchored), fewest)
        return {number: least[number] for number in sorted([*anchored.intersection(least), *chosen])}

    def all_that_differ(self, vertex: Vertex, unit: int, wanted: int) -> dict[int, int]:
        """The children that the best solution can use, of equal ones as many as it can use at most.

        unit: pods per unit. wanted: units.
        """
        everything = dict.fromkeys(range(len(vertex.parts)), 0)
        most = wanted + self.spare.most
        anchored = anchored_children(vertex, self.costs) if self.question.anchored else set[int]()
        if unit == 1:  # its children then have the fewest domains
            most = fewest_children([part.free_slots for part in vertex.parts], anchored, wanted)[1]
        return self._distinct(vertex, everything, most, anchored)

    def _enough(self, children: _Children, fewest: int, finer: int, wanted: int) -> int:
        """The capacity of subdomains that suffices in any so many children. finer: pods per unit of them."""
        free = sum(children.heads[number][0] for number in children.anchored)
        spare = -(-self.spare.losses[-1] // finer)  # one child also has the spare slots
        used = fewest + len(children.anchored)
        wasted = (children.ratio - 1) * used  # each child may waste a part of a unit
        return wanted * children.ratio + spare + wasted - free
