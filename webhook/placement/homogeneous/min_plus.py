"""Min-plus products: the least cost of several items together, by their capacity for workers.

One step of a product takes the minimum of cost rows that are shifted by amounts, each at its own cost.

StateRows and lattice compute the counts of domains and nodes. If a state costs nothing in domains and nodes
(beside anchors), all transitions to it that cost nothing are equal in counts. There are as many as products
of the offers, too many to follow. For these, PaidItems adds up values in the same way. An item's offer is the
set of states that it can take.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from webhook.placement.budget import PART, SHIFTED, Budget, added
from webhook.placement.homogeneous.minority_pods import SpareSlots

ASKED: Final = 2
"""Values that are computed in one step of the budget."""

SHIFT: Final = 3
"""An element of a shifted row of many states costs as much as this many elements of single rows."""


Array = NDArray[Any]
State = tuple[int, int]
"""A state of the spare slots, and a capacity for workers."""


class OfferSource(Protocol):
    """The source of an offer, which computes the values of its states."""

    def values(self, states: Sequence[State]) -> list[int | None]:
        """The least value of each state; None if it cannot be taken at exactly its count cost."""


@dataclass(eq=False)
class Choices:
    """All states that an item can take: spare slots, capacity for workers, and the least count cost of each.

    They are sorted by spare slots, then by capacity.
    """

    spares: Array
    slot_counts: Array
    counts: Array

    def __len__(self) -> int:
        return len(self.spares)

    @cached_property
    def states(self) -> list[int]:
        """The distinct states of spare slots."""
        return sorted(set(self.spares.tolist()))

    @cached_property
    def furthest(self) -> int:
        """The largest capacity, 0 if there is none."""
        return int(self.slot_counts.max(initial=0))

    @cached_property
    def most(self) -> tuple[Array, Array, Array]:
        """The largest capacity at each count cost, for each state of spare slots."""
        spares, counts = self.spares, self.counts
        last = ((counts[1:] != counts[:-1]) | (spares[1:] != spares[:-1])).nonzero()[0]
        ends = np.append(last, len(counts) - 1)
        return spares[ends], self.slot_counts[ends], counts[ends]


def choices(
    spares: Sequence[int], slot_counts: Sequence[int], counts: Sequence[int], narrow: bool
) -> Choices:
    """The choices in order. narrow: whether the costs fit a machine word."""
    as_counts = np.array(counts, dtype=np.int64 if narrow else object)
    return Choices(np.array(spares, dtype=np.int64), np.array(slot_counts, dtype=np.int64), as_counts)


@dataclass(slots=True, eq=False)
class Offer:
    """The states that an item can take, which equal items share, and the source of their values."""

    choices: Choices
    source: OfferSource


def counts_of_nodes(slot_counts: Sequence[int], unit: int, each: int, wanted: int, narrow: bool) -> Array:
    """The only row of Lattice.counts for nodes that all cost `each`: the largest nodes are used first.

    unit: pods per unit. narrow: whether costs fit a machine word.
    """
    sums = np.cumsum(-np.sort(-(np.array(slot_counts, dtype=np.int64) // unit)))
    number = sums.searchsorted(np.arange(wanted + 1)) + 1
    number[0] = 0
    counts = number if narrow else number.astype(object)
    return np.where(number > len(sums), never(narrow), counts * each)[None, :]


def offered(rows: Array, first: int, own: int, narrow: bool) -> Choices:
    """The choices of a domain with at least `first` units. rows: least counts [state of spare slots, units].

    own: the cost of using the domain itself.
    """
    found = rows < never(narrow)
    found[:, :first] = False
    found[0, 0] = False
    spares, slot_counts = found.nonzero()
    return Choices(spares, slot_counts, rows[spares, slot_counts] + own)


def shifted_back(row: Array, losses: Sequence[int], ratio: int, narrow: bool) -> Array:
    """[loss, units of `ratio`]: the row from each loss on; values beyond its end are unreachable."""
    if len(losses) == 1:
        return row[losses[0] :: ratio][None, :]
    ended = np.append(row, never(narrow))
    at = np.array(losses)[:, None] + np.arange(0, len(row), ratio)
    found: Array = ended[np.minimum(at, len(row))]
    return found


def never(narrow: bool) -> int:
    """The cost of unreachable states: more than any cost; twice it still fits a machine word if costs do."""
    return 1 << 62 if narrow else 1 << 4096


def into_shifted(found: Array, rows: Array, amounts: Array, costs: Array) -> None:
    """Lower `found` to the minimum of the rows, shifted by each amount at its cost.

    found, rows: [row, amount], with the same number of rows, those of `rows` not longer; they do not overlap
    in memory. amounts: below the row length of `found`.
    """
    width = found.shape[1]
    scratch = np.empty_like(rows)
    for amount, cost in zip(amounts.tolist(), costs.tolist(), strict=True):
        length = min(rows.shape[1], width - amount)
        window, shifted = found[:, amount : amount + length], scratch[:, :length]
        # Into a reused buffer: to allocate one each time takes longer than the addition.
        np.add(rows[:, :length], cost, out=shifted)
        np.minimum(window, shifted, out=window)


def _shift_steps(rows: int, width: int, shifts: int, narrow: bool) -> int:
    """The budget steps of `into_shifted`. narrow: whether costs fit a machine word."""
    elements = (SHIFT if rows > 1 else 1) * rows * width * shifts
    return PART // 2 + SHIFTED * shifts + added(elements, narrow)


class StateRows:
    """The rows [state, capacity] after each item of a sequence, for `wanted` workers."""

    def __init__(
        self, offers: Sequence[Offer], spare: SpareSlots, wanted: int, narrow: bool, budget: Budget
    ) -> None:
        """narrow: whether count costs fit a machine word. Raises OutOfSteps."""
        self.narrow = narrow
        self.budget = budget
        self.unreachable: int = never(narrow)
        """The count cost of unreachable states."""
        number = len(spare.losses)
        dtype: Any = np.int64 if narrow else object
        first = np.full((number, wanted + 1), self.unreachable, dtype=dtype)
        first[0, 0] = 0
        pairs = {each: np.array(spare.sums[each]).T for offer in offers for each in offer.choices.states}
        self.parts = {each: (_rows(before), _rows(after)) for each, (before, after) in pairs.items()}
        """For each item state the states before and after it."""
        self.origins = np.full((number, number), -1)
        """For each item state: the state before each state after it, -1 for none."""
        for spare_state, (before, after) in pairs.items():
            self.origins[spare_state, after] = before
        self.rows = [first]
        reach = 0
        for offer in offers:
            reach = min(wanted, reach + offer.choices.furthest)
            self.rows.append(self._merged(self.rows[-1], offer, reach))

    def _merged(self, row: Array, offer: Offer, reach: int) -> Array:
        """The row after one more item: each amount of its offer shifts the row.

        reach: the largest capacity then.
        """
        merged = row.copy()
        self.budget.spend(3 * PART)
        if len(offer.choices):
            self._shift(merged[:, : reach + 1], row[:, : reach + 1], offer)
        inside = merged[:, : reach + 1]
        inside[:] = np.minimum.accumulate(inside[:, ::-1], axis=1)[
            :, ::-1
        ]  # more capacity than needed suffices
        return merged

    def _shift(self, merged: Array, row: Array, offer: Offer) -> None:
        spares, slot_counts, counts = offer.choices.most
        slot_counts = np.minimum(slot_counts, row.shape[1] - 1)  # the demand stands for all larger values
        for spare in offer.choices.states:
            before, after = self.parts[spare]
            found, mine = merged[after], (spares == spare).nonzero()[0]
            number, width = found.shape
            self.budget.spend(PART + _shift_steps(number, width, len(mine), self.narrow))
            into_shifted(found, row[before], slot_counts[mine], counts[mine])
            if not isinstance(after, slice):
                merged[after] = found


def _rows(numbers: Array) -> slice | Array:
    """The row numbers, as a slice if they are consecutive."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers


class PaidItems(StateRows):
    """The same with values instead of counts, for states that cost nothing in domains and nodes."""

    def __init__(
        self, offers: Sequence[Offer], spare: SpareSlots, wanted: int, narrow: bool, budget: Budget
    ) -> None:
        """narrow: whether values fit a machine word. Raises OutOfSteps."""
        self.valued = [_valued(offer, narrow, budget) for offer in offers]
        super().__init__(self.valued, spare, wanted, narrow, budget)

    def value(self, target: State) -> int | None:
        """The least value of a state, None if unreachable."""
        found = int(self.rows[-1][target])
        return None if found >= self.unreachable else found

    def taken(self, target: State) -> list[State]:
        """The state that each item takes in the best solution for a target; ties go to the first items."""
        taken: list[State] = []
        for number in range(len(self.valued) - 1, -1, -1):
            row, best = self.rows[number], self.rows[number + 1][target]
            if row[target] == best:
                taken.append((0, 0))
                continue
            choices = self.valued[number].choices
            self.budget.spend(PART + added(4 * len(choices), self.narrow))
            before = self.origins[choices.spares, target[0]], np.maximum(target[1] - choices.slot_counts, 0)
            first = ((before[0] >= 0) & (row[before] + choices.counts == best)).nonzero()[0][0]
            taken.append((int(choices.spares[first]), int(choices.slot_counts[first])))
            target = int(before[0][first]), int(before[1][first])
        taken.reverse()
        return taken


def _valued(offer: Offer, narrow: bool, budget: Budget) -> Offer:
    """The part of an offer that costs nothing, with values instead of counts. Raises OutOfSteps."""
    costs_nothing = offer.choices
    free = (costs_nothing.counts == 0).nonzero()[0]
    states = list(
        zip(costs_nothing.spares[free].tolist(), costs_nothing.slot_counts[free].tolist(), strict=True)
    )
    budget.spend(1 + len(states) // ASKED)
    values = offer.source.values(states) if states else []
    known = [(*state, value) for state, value in zip(states, values, strict=True) if value is not None]
    spares, slot_counts, counts = zip(*known, strict=True) if known else ((), (), ())
    return Offer(choices(spares, slot_counts, counts, narrow), offer.source)
