"""What items offer to a lattice, and the ways from state to state that come of it, as vectors."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

WORD = 61
"""Bits that a cost may have in a machine word, so that the sum of two and "unreachable" still fit."""


class PackedCost:
    """Some fields of a wide cost (see costs.Costs), the most important first, in their real widths."""

    def __init__(self, fields: Sequence[tuple[int, int, int]]) -> None:
        """fields: (shift in the wide cost, bits there, bits needed)."""
        self.parts: list[tuple[int, int, int]] = []
        self.bits = 0
        for shift, wide, width in reversed(fields):
            self.parts.append((shift, (1 << wide) - 1, self.bits))
            self.bits += width
        self.fits = self.bits <= WORD
        self._known: dict[int, int] = {}

    def pack(self, cost: int) -> int:
        """The fields of a wide cost."""
        found = self._known.get(cost)
        if found is None:
            found = sum((cost >> shift & mask) << to for shift, mask, to in self.parts)
            self._known[cost] = found
        return found

    def offset(self, shift: int) -> int:
        """Bits of the fields less important than the one with this shift in a wide cost; all without it."""
        return next((to for known, _, to in self.parts if known == shift), self.bits)

    def unpack(self, packed: int) -> int:
        """A wide cost of these fields alone."""
        total = 0
        for shift, _, to in reversed(self.parts):  # the most important first: what is left is below
            total += (packed >> to) << shift
            packed &= (1 << to) - 1
        return total


Array = NDArray[Any]
State = tuple[int, int]
"""A state of the odd pods, and room for workers."""


class OfferSource(Protocol):
    """What is behind an offer: it knows the values of what it can hold."""

    def firsts(self, states: Sequence[State]) -> list[int]:
        """Of each the part of its value that compares before all that depends on the inside."""

    def values(self, states: Sequence[State]) -> list[int | None]:
        """The least value of each; None for what cannot be held at just its count cost."""


@dataclass(eq=False)
class Choices:
    """All that an item can hold: for each, a state of odd pods, room for workers, and the least count cost.

    Ascending by state, then by room.
    """

    odds: Array
    rooms: Array
    counts: Array

    def __len__(self) -> int:
        return len(self.odds)

    @cached_property
    def states(self) -> list[int]:
        """The states of odd pods, each once."""
        return sorted(set(self.odds.tolist()))

    @cached_property
    def furthest(self) -> int:
        """The most room, 0 for nothing."""
        return int(self.rooms.max(initial=0))

    @cached_property
    def most(self) -> tuple[Array, Array, Array]:
        """Of these the most room at each count cost, for each state of odd pods."""
        odds, counts = self.odds, self.counts
        last = ((counts[1:] != counts[:-1]) | (odds[1:] != odds[:-1])).nonzero()[0]
        ends = np.append(last, len(counts) - 1)
        return odds[ends], self.rooms[ends], counts[ends]


def choices(odds: Sequence[int], rooms: Sequence[int], counts: Sequence[int], narrow: bool) -> Choices:
    """These, in order; narrow: whether the costs fit a machine word."""
    as_counts = np.array(counts, dtype=np.int64 if narrow else object)
    return Choices(np.array(odds, dtype=np.int64), np.array(rooms, dtype=np.int64), as_counts)


@dataclass(slots=True, eq=False)
class Offer:
    """What one item can hold, which items that are alike share, and who knows what it is worth."""

    held: Choices
    source: OfferSource


def counts_of_equals(rooms: Sequence[int], unit: int, each: int, wanted: int, narrow: bool) -> Array:
    """The only row of Lattice.counts for nodes with rooms for so many pods that cost `each` alike.

    The roomiest nodes are the fewest.
    """
    held = np.cumsum(-np.sort(-(np.array(rooms, dtype=np.int64) // unit)))
    number = np.searchsorted(held, np.arange(wanted + 1), side="left") + 1
    number[0] = 0
    if not narrow:
        number = number.astype(object)
    return np.where(number > len(held), never(narrow), number * each)[None, :]


def offered(rows: Array, first: int, own: int, narrow: bool) -> Choices:
    """What a domain holds from `first` units up, where rows [state of odd pods, units] are its least counts.

    own: what using it costs besides.
    """
    found = rows < never(narrow)
    found[:, :first] = False
    found[0, 0] = False
    odds, rooms = found.nonzero()
    return Choices(odds, rooms, rows[odds, rooms] + own)


def shifted_back(row: Array, losses: Sequence[int], ratio: int, narrow: bool) -> Array:
    """[loss, units of `ratio`]: the row from each loss on; what lies beyond its end is never."""
    if len(losses) == 1:
        return row[losses[0] :: ratio][None, :]
    ended = np.append(row, never(narrow))
    at = np.array(losses)[:, None] + np.arange(0, len(row), ratio)
    found: Array = ended[np.minimum(at, len(row))]
    return found


@dataclass(slots=True, eq=False)
class StateSteps:
    """Ways from states before an item to states after it, as flat numbers.

    states: what the item holds on any of them; which: on each, as a number of these.
    """

    before: Array
    after: Array
    which: Array
    states: list[State]

    def only(self, keep: Array) -> "StateSteps":
        """Those of them."""
        return StateSteps(self.before[keep], self.after[keep], self.which[keep], self.states)

    def each(self, known: Sequence[int], dtype: Any) -> Array:
        """For each step what is known of the state that it takes; known: of the states."""
        values: Array = np.array(known, dtype=dtype)[self.which]
        return values


def never(narrow: bool) -> int:
    """More than any cost, and twice that still fits a machine word where costs do."""
    return 1 << 62 if narrow else 1 << 4096
