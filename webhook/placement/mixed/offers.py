"""What items offer to a lattice, and the ways from state to state that come of it, as vectors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
State = tuple[int, int]
"""A state of the odd pods, and room for workers."""


class OfferSource(Protocol):
    """What is behind an offer: it knows the values of what it can hold."""

    def firsts(self, states: Sequence[State]) -> list[int]:
        """Of each the part of its value that compares before all that depends on the inside."""

    def values(self, states: Sequence[State]) -> list[int | None]:
        """The least value of each; None for what cannot be held at just its count cost."""


RoomsAtCounts = tuple[Array, Array]
"""Rooms, ascending, and the least count cost of each."""


def rooms_at_counts(rooms: Sequence[int], counts: Sequence[int], narrow: bool) -> RoomsAtCounts:
    """These rooms and count costs; narrow: whether the costs fit a machine word."""
    return np.array(rooms, dtype=np.int64), np.array(counts, dtype=np.int64 if narrow else object)


@dataclass(eq=False)
class Offer:
    """What one item can hold, for each state of odd pods."""

    held: Mapping[int, RoomsAtCounts]
    source: OfferSource

    @cached_property
    def every(self) -> tuple[Array, Array, Array]:
        """All that it can hold: states of odd pods, rooms and count costs."""
        odds = np.repeat(list(self.held), [len(rooms) for rooms, _ in self.held.values()])
        rooms, counts = zip(*self.held.values(), strict=True)
        return odds, np.concatenate(rooms), np.concatenate(counts)

    @cached_property
    def most(self) -> tuple[Array, Array, Array]:
        """Of these the most room at each count cost, for each state of odd pods."""
        odds, rooms, counts = self.every
        last = np.flatnonzero((counts[1:] != counts[:-1]) | (odds[1:] != odds[:-1]))
        ends = np.append(last, len(counts) - 1)
        return odds[ends], rooms[ends], counts[ends]


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


def offered(
    counts: Array, ratio: int, first: int, own: int, narrow: bool, loss: int = 0
) -> RoomsAtCounts | None:
    """What a domain with such a row of counts holds, in units of `ratio` of its own, from `first` units up.

    own: what using it costs besides. loss: of its own units, held for others. None: nothing.
    """
    counts = counts[loss::ratio][first:]
    there = np.flatnonzero(counts < never(narrow))
    return (there + first, counts[there] + own) if len(there) else None


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
