"""The least count cost of each state of odd pods with room for so many workers, with 0, 1, 2, ... items.

See lattice for the theory: rows P_i(e, j), each a min-plus product of the one before with what an item
offers.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from webhook.placement.alike.shifted import Shifts, into_shifted, steps_of
from webhook.placement.budget import Budget
from webhook.placement.mixed.odd import Stepwise
from webhook.placement.mixed.offers import Array, Offer, never
from webhook.placement.prices import PART

TOGETHER: Final = 1 << 16
"""Elements up to which a row is shifted for all states of odd pods at once: half of them are for nothing."""


class StateRows:
    """Items in a row, and room for `wanted` workers. rows: of each number of items [state, room]."""

    def __init__(
        self, offers: Sequence[Offer], odd: Stepwise, wanted: int, narrow: bool, budget: Budget
    ) -> None:
        """narrow: whether count costs fit a machine word. Raises OutOfSteps."""
        self.narrow = narrow
        self.budget = budget
        self.unreachable: int = never(narrow)
        """As a count cost."""
        number = len(odd.states)
        dtype: Any = np.int64 if narrow else object
        first = np.full((number, wanted + 1), self.unreachable, dtype=dtype)
        first[0, 0] = 0
        self.pairs = {each: np.array(odd.sums[each]).T for offer in offers for each in offer.held.states}
        """For each state that an item may hold those before, and those after."""
        self.parts = {each: (_rows(before), _rows(after)) for each, (before, after) in self.pairs.items()}
        """The same, as slices where they follow each other."""
        self.is_linear = all(
            len(before) == number - each and (after - before == each).all()
            for each, (before, after) in self.pairs.items()
        )
        """Whether a state's number is as many rows further as that of the state added."""
        self.origins = np.full((number, number), -1)
        """For each state that an item may hold: of each state after it the one before, -1 for none."""
        for odd_state, (before, after) in self.pairs.items():
            self.origins[odd_state, after] = before
        self.rows = [first]
        reach = 0
        for offer in offers:
            reach = min(wanted, reach + offer.held.furthest)
            self.rows.append(self._merged(self.rows[-1], offer, reach))

    def _merged(self, row: Array, offer: Offer, reach: int) -> Array:
        """The row once the item may hold something too: each amount shifts it. reach: room for so many then
        at most.
        """
        merged = row.copy()
        self.budget.spend(3 * PART)
        if len(offer.held):
            self._shift(merged[:, : reach + 1], row[:, : reach + 1], offer)
        inside = merged[:, : reach + 1]
        inside[:] = np.minimum.accumulate(inside[:, ::-1], axis=1)[:, ::-1]  # room for more is enough
        return merged

    def _shift(self, merged: Array, row: Array, offer: Offer) -> None:
        odds, rooms, counts = offer.held.most
        rooms = np.minimum(rooms, row.shape[1] - 1)  # what is wanted stands for all beyond
        if self.is_linear and len(odds) * row.size <= TOGETHER:
            self._into(merged, row, Shifts(odds, rooms, counts))
            return
        for odd in offer.held.states:
            before, after = self.parts[odd]
            found, mine = merged[after], (odds == odd).nonzero()[0]
            self._into(found, row[before], Shifts(np.zeros_like(mine), rooms[mine], counts[mine]))
            if not isinstance(after, slice):
                merged[after] = found

    def _into(self, found: Array, rows: Array, shifts: Shifts) -> None:
        number, width = found.shape
        self.budget.spend(PART + steps_of(number, width, len(shifts), self.narrow))
        into_shifted(found, rows, shifts, self.unreachable)


def _rows(numbers: Array) -> slice | Array:
    """These rows, as a slice where they follow each other."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers
