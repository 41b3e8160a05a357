"""Min-plus products: the least cost of what items hold together, by the room that they have for workers.

The least of rows of costs, shifted by amounts, each at its own cost, is a step of such a product.

For the counts of domains and nodes see StateRows and lattice. Where a state costs nothing in domains and
nodes (beside anchors), each way to it that costs nothing is as good in counts, and there are as many as
products of what the items offer: too many to follow. So there values are added up in the same way, see
PaidItems.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from webhook.placement.budget import PART, SHIFTED, Budget, added
from webhook.placement.homogeneous.minority_pods import Stepwise
from webhook.placement.homogeneous.offers import Array, Offer, State, choices, never

ASKED: Final = 2
"""Values that are asked for in a step of the budget."""

SHIFT: Final = 3
"""As many elements of rows one by one as one of a row of many states takes, when it is shifted."""


def into_shifted(found: Array, rows: Array, amounts: Array, costs: Array) -> None:
    """Lower `found` to the least of the rows, shifted along by each amount at its cost.

    found, rows: [row, amount held], as many rows, those of `rows` no longer; not overlapping. amounts: below
    the length of the rows of `found`.
    """
    width = found.shape[1]
    scratch = np.empty_like(rows)
    for amount, cost in zip(amounts.tolist(), costs.tolist(), strict=True):
        length = min(rows.shape[1], width - amount)
        window, shifted = found[:, amount : amount + length], scratch[:, :length]
        # Into memory that is there: to make some each time takes longer than to add.
        np.add(rows[:, :length], cost, out=shifted)
        np.minimum(window, shifted, out=window)


def _shift_steps(rows: int, width: int, shifts: int, narrow: bool) -> int:
    """The steps of the budget that `into_shifted` takes. narrow: whether costs fit a machine word."""
    elements = (SHIFT if rows > 1 else 1) * rows * width * shifts
    return PART // 2 + SHIFTED * shifts + added(elements, narrow)


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
        pairs = {each: np.array(odd.sums[each]).T for offer in offers for each in offer.held.states}
        self.parts = {each: (_rows(before), _rows(after)) for each, (before, after) in pairs.items()}
        """For each state that an item may hold those before, and those after."""
        self.origins = np.full((number, number), -1)
        """For each state that an item may hold: of each state after it the one before, -1 for none."""
        for odd_state, (before, after) in pairs.items():
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
        for odd in offer.held.states:
            before, after = self.parts[odd]
            found, mine = merged[after], (odds == odd).nonzero()[0]
            number, width = found.shape
            self.budget.spend(PART + _shift_steps(number, width, len(mine), self.narrow))
            into_shifted(found, row[before], rooms[mine], counts[mine])
            if not isinstance(after, slice):
                merged[after] = found


def _rows(numbers: Array) -> slice | Array:
    """These rows, as a slice where they follow each other."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers


class PaidItems(StateRows):
    """The same by values in place of counts, of only what costs nothing in domains and nodes."""

    def __init__(
        self, offers: Sequence[Offer], odd: Stepwise, wanted: int, narrow: bool, budget: Budget
    ) -> None:
        """narrow: whether values fit a machine word. Raises OutOfSteps."""
        self.valued = [_valued(offer, narrow, budget) for offer in offers]
        super().__init__(self.valued, odd, wanted, narrow, budget)

    def value(self, target: State) -> int | None:
        """The least value of a state, None for never."""
        found = int(self.rows[-1][target])
        return None if found >= self.unreachable else found

    def taken(self, target: State) -> list[State]:
        """What each item holds in the best solution of a state; of equals the first items hold most."""
        taken: list[State] = []
        for number in range(len(self.valued) - 1, -1, -1):
            row, best = self.rows[number], self.rows[number + 1][target]
            if row[target] == best:
                taken.append((0, 0))
                continue
            held = self.valued[number].held
            self.budget.spend(PART + added(4 * len(held), self.narrow))
            before = self.origins[held.odds, target[0]], np.maximum(target[1] - held.rooms, 0)
            way = ((before[0] >= 0) & (row[before] + held.counts == best)).nonzero()[0][0]
            taken.append((int(held.odds[way]), int(held.rooms[way])))
            target = int(before[0][way]), int(before[1][way])
        taken.reverse()
        return taken


def _valued(offer: Offer, narrow: bool, budget: Budget) -> Offer:
    """Of an offer what costs nothing, with its values in place of its counts. Raises OutOfSteps."""
    held = offer.held
    free = (held.counts == 0).nonzero()[0]
    states = list(zip(held.odds[free].tolist(), held.rooms[free].tolist(), strict=True))
    budget.spend(1 + len(states) // ASKED)
    values = offer.source.values(states) if states else []
    known = [(*state, value) for state, value in zip(states, values, strict=True) if value is not None]
    odds, rooms, counts = zip(*known, strict=True) if known else ((), (), ())
    return Offer(choices(odds, rooms, counts, narrow), offer.source)
