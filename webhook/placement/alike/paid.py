"""The least values of what parts hold together where all domains and nodes are paid for: no counts to go by.

Where to hold an amount costs nothing in domains and nodes (beside anchors), each way to it that costs nothing
is as good in counts, and there are as many as products of what the parts offer: too many to follow. So values
are added up at once, a min-plus product of what is held so far with what the next part holds.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from webhook.placement.budget import Budget
from webhook.placement.prices import PART, added, summed

Array = NDArray[Any]

CHUNK: Final = 1 << 17
"""Sums that are compared at once."""


def with_part(row: Array, amounts: Sequence[int], values: Sequence[int], never: int) -> Array:
    """The least value of each amount once a part holds one of these too.

    row: the values so far of 0, 1, 2, ...; the last of them stands for all amounts beyond. Amounts may be 0.
    """
    wanted = len(row) - 1
    most = max(amounts)
    reached = np.flatnonzero(row < never)
    if not len(reached):
        return row
    end = int(reached[-1]) + most + 1
    padding = np.full(most, never, dtype=row.dtype)
    windows = sliding_window_view(np.concatenate([padding, row, padding])[: end + most], most + 1)
    columns, added = _columns(most, amounts), np.array(values, dtype=row.dtype)
    rows = max(1, CHUNK // len(amounts))
    sums = [
        (windows[at : at + rows, columns] + added).min(axis=1)
        for at in range(0, min(end, len(windows)), rows)
    ]
    found = np.concatenate(sums)
    least = np.full(len(row), never, dtype=row.dtype)
    within = found[:wanted]
    least[: len(within)] = within
    if len(found) > wanted:
        least[wanted] = found[wanted:].min()
    return np.minimum(least, never)


def _columns(most: int, amounts: Sequence[int]) -> Array | slice:
    """Where each amount is in a window; as a slice, which is not copied, where each is as much as the next
    more than the one before.
    """
    columns = most - np.array(amounts, dtype=np.int64)
    step = int(columns[1] - columns[0]) if len(columns) > 1 else -1
    if step < 0 and (np.diff(columns) == step).all():
        end = int(columns[-1]) + step
        return slice(int(columns[0]), end if end >= 0 else None, step)
    return columns


def steps_of(row: Array, amounts: Sequence[int], reach: int) -> int:
    """The steps of the budget that `with_part` takes at most. reach: of the row, no amount beyond is held."""
    narrow = row.dtype != object
    sums = (min(len(row), reach + 1) + max(amounts, default=0)) * len(amounts)
    return 4 * PART + added(3 * len(row), narrow) + summed(sums, narrow)


class PaidParts:
    """Parts in a row, of which only amounts are taken that cost nothing; an amount is held just so."""

    def __init__(self, most: int, dtype: Any, never: int, budget: Budget) -> None:
        """most: the largest amount that matters. never: more than any value."""
        self.never = never
        self.budget = budget
        first = np.full(most + 2, never, dtype=dtype)  # the last for what is too much
        first[0] = 0
        self.rows = [first]
        self.reach = 0
        """No amount beyond is held so far."""
        self.held: list[dict[int, int]] = []
        """For each part the value of each amount that it may hold."""

    def add(self, amounts: Sequence[int], values: Callable[[list[int]], list[int | None]]) -> None:
        """One more part. amounts: those that cost nothing; values: their least values. Raises OutOfSteps."""
        asked = [amount for amount in amounts if amount < len(self.rows[0]) - 1]
        self.budget.spend(len(asked) + steps_of(self.rows[-1], asked, self.reach))
        found = values(asked) if asked else []
        known = {x: value for x, value in zip(asked, found, strict=True) if value is not None}
        row = self.rows[-1]
        if known:
            row = np.minimum(row, with_part(row, list(known), list(known.values()), self.never))
        self.reach += max(known, default=0)
        self.held.append(known)
        self.rows.append(row)

    def value(self, target: int) -> int | None:
        """The least value of an amount, None for never."""
        found = int(self.rows[-1][target])
        return None if found >= self.never else found

    def taken(self, target: int) -> list[int]:
        """How much each part holds in the best solution of an amount; of equals the first parts hold most."""
        taken = []
        for number in range(len(self.held) - 1, -1, -1):
            row, best = self.rows[number], self.rows[number + 1][target]
            self.budget.spend(PART + len(self.held[number]) // 4)
            ways = self.held[number].items() if row[target] != best else ()
            amount = next((x for x, value in ways if x <= target and row[target - x] + value == best), 0)
            taken.append(amount)
            target -= amount
        taken.reverse()
        return taken
