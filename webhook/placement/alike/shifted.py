"""The least of rows of costs, shifted by amounts, each at its own cost: a step of a min-plus product.

One vector operation takes some microseconds however short its rows are. So short rows are shifted by all
amounts at once, in a table of the windows that they see; long ones, whose table would leave the processor's
cache, one amount after the other.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from webhook.placement.prices import PART, SHIFTED, added, summed

Array = NDArray[Any]

FEW: Final = 6
"""Shifts that are done one by one: to lay a table out takes as long."""

SHORT: Final = 1 << 15
"""Elements of all rows together up to which they are laid out."""

LAID_OUT: Final = 1 << 20
"""Elements of a whole table, at most."""

SHIFT: Final = 3
"""As many elements of rows one by one as one of a row of many states takes, when it is shifted."""


@dataclass(frozen=True, slots=True)
class Shifts:
    """How far rows are shifted, by as many rows down and elements along, and the cost of each shift."""

    down: Array
    along: Array
    costs: Array

    def __len__(self) -> int:
        return len(self.along)


def into_shifted(found: Array, rows: Array, shifts: Shifts, never: int) -> None:
    """Lower `found` to the least of the rows, shifted by each amount at its cost.

    found, rows: [row, amount held], of equal shape or rows shorter; not overlapping. shifts: below the shape
    of `found`. never: more than any cost.
    """
    number, width = found.shape
    if _at_once(number * width, len(shifts), not rows.dtype.hasobject):
        np.minimum(found, _table(rows, width, shifts, never).min(axis=0), out=found)
        return
    scratch = np.empty_like(rows)
    ways = zip(shifts.down.tolist(), shifts.along.tolist(), shifts.costs.tolist(), strict=True)
    for down, amount, cost in ways:
        length = min(rows.shape[1], width - amount)
        window, shifted = found[down:, amount : amount + length], scratch[: number - down, :length]
        # Into memory that is there: to make some each time takes longer than to add.
        np.add(rows[: number - down, :length], cost, out=shifted)
        np.minimum(window, shifted, out=window)


def steps_of(rows: int, width: int, shifts: int, narrow: bool) -> int:
    """The steps of the budget that `into_shifted` takes. narrow: whether costs fit a machine word."""
    elements = rows * width
    if _at_once(elements, shifts, narrow):
        return PART + summed(elements * shifts, narrow)
    return PART // 2 + SHIFTED * shifts + added((SHIFT if rows > 1 else 1) * elements * shifts, narrow)


def _at_once(elements: int, shifts: int, narrow: bool) -> bool:
    return narrow and shifts > FEW and elements <= SHORT and elements * shifts <= LAID_OUT


def _table(rows: Array, width: int, shifts: Shifts, never: int) -> Array:
    """[shift, row, amount held]: each row as it is shifted, with its cost."""
    lowest, most = int(shifts.down.max()), int(shifts.along.max())
    padded = np.full((lowest + len(rows), most + width), never, dtype=rows.dtype)
    padded[lowest:, most : most + rows.shape[1]] = rows[:, :width]
    down, along = padded.strides
    shape, strides = (lowest + 1, most + 1, len(rows), width), (down, along, down, along)
    windows: Array = np.ndarray(shape, rows.dtype, padded, 0, strides)  # as_strided takes ten times as long
    table: Array = windows[lowest - shifts.down, most - shifts.along]
    table += shifts.costs[:, None, None]
    return table
