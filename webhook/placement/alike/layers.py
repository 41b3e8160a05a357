"""The vector operations of the knapsack: what the parts of a domain hold together, at which cost.

This module, shifted, pricing, beside and paid are the ones that use numpy here. The knapsack loads it at the
first gang that needs it, so that programs which only share types with placement do not.

Theory. A part offers amounts x at a count cost each (domains and nodes used) and, among its solutions of just
that amount and count cost, a least value (leftover and headroom penalty). With the parts in a row, let P_i(j)
be the least count cost of holding at least j with the first i parts: a min-plus product, all j at once.

Any optimal solution holds, with the first i parts, some exact amount j at a count cost of exactly P_i(j): a
cheaper way to hold as much could replace it (exchange argument). So for each amount there is one count cost
to keep, and from the targets backwards only steps with P_(i-1)(j - x) + c_i(x) = P_i(j) are part of optimal
solutions. Few of these remain, since whatever a step wastes must be within what the optimum wastes in all;
on them the least value is found by a forward pass. Values compare by the room of the parts used first, so
steps that are not least in that are dropped before the parts themselves are asked for their values.

Complexity: O(K * sum of offers) vector elements for the counts, and at most as many for a round of values. A
round either answers or finds amounts that a part cannot hold at just their count cost; those are left out
then, so rounds are no more than offers, and few where there are many ways to hold an amount.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from webhook.placement.alike.paid import PaidParts
from webhook.placement.alike.shifted import Shifts, into_shifted, steps_of
from webhook.placement.budget import Budget
from webhook.placement.prices import PART, added, followed, searched

Array = NDArray[Any]
"""Of int64, or of Python integers where costs need more than a machine word."""

Ranges = list[tuple[int, int]]
"""Amounts from the first to the second, both included."""

CHUNK = 1 << 20
"""Elements that are compared at once."""


class PartSource(Protocol):
    """What is behind a part: it knows the values of the amounts that the part can hold."""

    def first(self) -> tuple[int, int]:
        """That part of the value that compares before all that depends on the inside: so much for each so
        many pods, or (number of pods 0) at once for any number.
        """

    def values(self, amounts: list[int]) -> list[int | None]:
        """The least value of each amount; None for one that cannot be held at just its count cost."""


@dataclass(slots=True, eq=False)
class KnapsackPart:
    """One of the items that hold pods together.

    amounts: ascending, above 0. counts: the least count cost of each.
    """

    amounts: Array
    counts: Array
    source: PartSource


def of_nodes(amount: int, count: int, most: int, source: PartSource, narrow: bool) -> KnapsackPart:
    """Up to `most` nodes that hold and cost the same each."""
    numbers = np.arange(1, most + 1, dtype=np.int64)
    counts = numbers * count if narrow else np.array([count * n for n in range(1, most + 1)], dtype=object)
    return KnapsackPart(numbers * amount, counts, source)


def of_domain(counts: Array, ranges: Ranges, source: PartSource) -> KnapsackPart:
    """A domain that can hold amounts in these ranges.

    counts: cost of 1, 2, ... pods; the last one also of all more.
    """
    if len(ranges) == 1 and ranges[0][0] == 1:
        return KnapsackPart(
            np.arange(1, ranges[0][1] + 1, dtype=np.int64), _padded(counts, ranges[0][1]), source
        )
    amounts = np.concatenate([np.arange(low, high + 1, dtype=np.int64) for low, high in ranges])
    return KnapsackPart(amounts, _padded(counts, ranges[-1][1])[amounts - 1], source)


def sorted_nodes(rooms: Sequence[int], own: int, each: int, most: int, narrow: bool) -> Array:
    """Count cost of 1, 2, ... pods, at most `most`, on nodes of one domain, the roomiest first."""
    dtype: Any = np.int64 if narrow else object
    counts = np.array([own + each * n for n in range(1, len(rooms) + 1)], dtype=dtype)
    return np.repeat(counts, rooms)[:most]


def _padded(row: Array, size: int) -> Array:
    missing = size - len(row)
    return np.concatenate([row, np.full(missing, row[-1], dtype=row.dtype)]) if missing > 0 else row[:size]


@dataclass(slots=True, eq=False)
class _Steps:
    """Ways from amounts held before a part to amounts held with it; taken 0 leaves the part out."""

    before: Array
    after: Array
    taken: Array

    def only(self, keep: Array) -> "_Steps":
        return _Steps(self.before[keep], self.after[keep], self.taken[keep])


class Layers:
    """Parts in a row."""

    def __init__(
        self, parts: Sequence[KnapsackPart], wanted: int, slack: int, narrow: bool, budget: Budget
    ) -> None:
        """wanted: no more than this need be held, though up to `slack` more may turn out to be.

        narrow: whether count costs fit a machine word. Raises OutOfSteps.
        """
        self.parts = parts
        self.budget = budget
        self.wanted = wanted
        self.most = wanted + slack
        self._kind(narrow)
        self.rows = [np.zeros(1, dtype=self.dtype)]
        for part in parts:
            self.rows.append(self._merged(self.rows[-1], part))
        self.reach = [0]
        for part in parts:
            self.reach.append(min(self.most, self.reach[-1] + int(part.amounts[-1])))
        self.solved: frozenset[int] = frozenset()
        self.steps: list[_Steps] = []
        self.best: list[Array] = []
        self.values: list[dict[int, int]] = []
        self.paid: PaidParts | None = None

    def _kind(self, narrow: bool) -> None:
        self.narrow = narrow
        self.dtype: Any = np.int64 if narrow else object
        self.never: int = 1 << 62 if narrow else 1 << 4096

    def _merged(self, row: Array, part: KnapsackPart) -> Array:
        """Least count cost per amount once the part may be used too."""
        size = min(self.wanted, len(row) - 1 + int(part.amounts[-1])) + 1
        merged = np.full(size, self.never, dtype=self.dtype)
        merged[: len(row)] = row
        amounts, counts = part.amounts, part.counts
        ends = np.append(np.flatnonzero(counts[1:] != counts[:-1]), len(counts) - 1)
        self.budget.spend(PART + steps_of(1, size, len(ends), self.narrow))
        held = np.minimum(amounts[ends], size - 1)  # what is wanted stands for all beyond
        shifts = Shifts(np.zeros_like(ends), held, counts[ends])
        into_shifted(merged[None, :], row[None, :], shifts, self.never)
        return np.minimum.accumulate(merged[::-1])[::-1]

    @property
    def counts(self) -> Array:
        """Least count cost of holding at least 0, 1, 2, ... with all parts."""
        return self.rows[-1]

    def _row(self, number: int) -> Array:
        """Least count cost of just this much: more than is wanted costs what is wanted costs."""
        return _padded(self.rows[number], self.reach[number] + 1)

    # --- values -----------------------------------------------------------------------------------

    def solve(self, targets: Sequence[int], narrow: bool) -> list[int | None]:
        """The least value of holding just each of these amounts at its least count cost, None for never.

        narrow: whether values fit a machine word. Raises OutOfSteps.
        """
        self._kind(narrow)
        self.solved = frozenset(targets)
        counts = self._row(len(self.parts))
        self.paid = None
        if not any(int(counts[target]) for target in targets):  # all is paid for
            self.paid = PaidParts(self.reach[-1], self.dtype, self.never, self.budget)
            for part in self.parts:
                self.paid.add(part.amounts[part.counts == 0].tolist(), part.source.values)
            return [self.paid.value(target) for target in targets]
        wanted = np.zeros(self.reach[-1] + 1, dtype=np.bool_)
        wanted[list(targets)] = True
        self.values = [{0: 0} for _ in self.parts]
        steps = self._optimal(wanted)
        while True:
            self.steps = self._tight(steps, wanted)
            if self._ask():
                break
            for number, known in enumerate(self.values):
                dead = [x for x, value in known.items() if value >= self.never]
                if dead:
                    steps[number] = steps[number].only(~np.isin(steps[number].taken, dead))
        self.best = self._forward(self.steps, [self._known(n) for n in range(len(self.parts))])
        found = [int(self.best[-1][target]) for target in targets]
        return [None if value >= self.never else value for value in found]

    def _known(self, number: int) -> Array:
        """The values of the steps at a part."""
        known = self.values[number]
        return np.array([known[x] for x in self.steps[number].taken.tolist()], dtype=self.dtype)

    def _optimal(self, wanted: Array) -> list[_Steps]:
        """For each part the steps of least count cost that lead to a wanted amount."""
        steps: list[_Steps] = []
        for number in range(len(self.parts), 0, -1):
            before, after = self._row(number - 1), self._row(number)
            targets, part = np.flatnonzero(wanted), self.parts[number - 1]
            found = self._steps_into(targets, before, after, part)
            steps.append(found)
            wanted = np.zeros(len(before), dtype=np.bool_)
            wanted[found.before] = True
        steps.reverse()
        return steps

    def _steps_into(self, targets: Array, before: Array, after: Array, part: KnapsackPart) -> _Steps:
        """The steps of least count cost to these amounts. Raises OutOfSteps."""
        same = targets[targets < len(before)]
        same = same[before[same] == after[same]]
        found = [(same, same, np.zeros_like(same))]
        rows = max(1, CHUNK // len(part.amounts))
        for start in range(0, len(targets), rows):
            to = targets[start : start + rows]
            self.budget.spend(3 * PART + searched(len(to) * len(part.amounts), self.narrow))
            come = to[:, None] - part.amounts
            inside = (come >= 0) & (come < len(before))
            equal = before[np.where(inside, come, 0)] + part.counts == after[to][:, None]
            row, column = np.nonzero(inside & equal)
            self.budget.spend(followed(len(row)))  # where all is paid for, every step is one of these
            if len(row):
                found.append((come[row, column], to[row], part.amounts[column]))
        if len(found) == 1:
            return _Steps(*found[0])
        return _Steps(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))

    def _forward(self, steps: Sequence[_Steps], values: Sequence[Array]) -> list[Array]:
        """The least value of each amount after each part; values: of the steps."""
        best = [np.zeros(1, dtype=self.dtype)]
        for reach, each, value in zip(self.reach[1:], steps, values, strict=True):
            self.budget.spend(2 * PART + added(reach, True) + followed(len(each.after)))
            row = np.full(reach + 1, self.never, dtype=self.dtype)
            if len(each.after) == 1:
                row[each.after] = np.minimum(best[-1][each.before] + value, self.never)
            elif len(each.after):
                np.minimum.at(row, each.after, best[-1][each.before] + value)
            best.append(row)
        return best

    def _tight(self, steps: Sequence[_Steps], wanted: Array) -> list[_Steps]:
        """The steps to the wanted amounts on which the room of the parts used is least."""
        firsts = [_firsts(part, each, self.dtype) for part, each in zip(self.parts, steps, strict=True)]
        best = self._forward(steps, firsts)
        kept: list[_Steps] = []
        for number in range(len(steps) - 1, -1, -1):
            each = steps[number]
            self.budget.spend(2 * PART + added(self.reach[number], True) + followed(len(each.after)))
            cost = best[number][each.before] + firsts[number]
            keep = (cost == best[number + 1][each.after]) & (cost < self.never) & wanted[each.after]
            kept.append(each.only(keep))
            wanted = np.zeros(self.reach[number] + 1, dtype=np.bool_)
            wanted[kept[-1].before] = True
        kept.reverse()
        return kept

    def _ask(self) -> bool:
        """Ask the parts for the values of the amounts that steps take; whether all of them can be held."""
        possible = True
        for part, each, known in zip(self.parts, self.steps, self.values, strict=True):
            missing = sorted(set(each.taken.tolist()) - known.keys())
            self.budget.spend(1 + followed(len(each.taken) + len(missing)))
            for x, value in zip(missing, part.source.values(missing) if missing else (), strict=True):
                known[x] = self.never if value is None else value
                possible = possible and value is not None
        return possible

    def taken(self, target: int) -> list[int]:
        """How much each part holds in the best solution of a target; of equals the first parts hold most."""
        if self.paid is not None:
            return self.paid.taken(target)
        amounts: list[int] = []
        for number in range(len(self.parts) - 1, -1, -1):
            each, known = self.steps[number], self.values[number]
            self.budget.spend(PART // 2 + added(len(each.after), True))
            for at in np.flatnonzero(each.after == target).tolist():
                before, taken = int(each.before[at]), int(each.taken[at])
                if self.best[number][before] + known[taken] == self.best[number + 1][target]:
                    amounts.append(taken)
                    target = before
                    break
        amounts.reverse()
        return amounts


def _firsts(part: KnapsackPart, steps: _Steps, dtype: Any) -> Array:
    """What each step adds to the room of the parts used."""
    first, pods = part.source.first()
    times = steps.taken // pods if pods else steps.taken > 0
    firsts: Array = times.astype(dtype) * first
    return firsts
