"""Patterns of a node: the maximal numbers of pods of each class that fit together.

Maximal patterns suffice, since pods can be removed from a pattern. Nodes with the same capacities, free
amounts and cards have the same patterns. Source: Gilmore and Gomory, A linear programming approach to the
cutting-stock problem (1961); here there are several resources, and nodes differ.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

from webhook.placement import capacity
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.cards.packing import Fillings
from webhook.placement.heterogeneous.arrays import GangArrays
from webhook.placement.question import Counts, pods_of

MOST: Final = 3000
"""The most patterns of one node kind."""

VISITS: Final = 20_000
"""The fewest steps for the patterns of one node kind."""

SHARE: Final = 8
"""The patterns of one node kind have one part in so many of the remaining steps."""

VISIT: Final = 3
"""Steps to try one number of pods of a class."""

CLASSES: Final = 30
"""With more classes on a node, its patterns are too many to enumerate."""

CARDS: Final = 10
"""Steps per card search, beside those that it takes itself."""

LOOKS: Final = 1000
"""The looks of such a search: packing usually finds that pods fit in a few looks."""

NodeKind = tuple[object, ...]
"""The facts that determine the patterns of a node."""


class Patterns(NamedTuple):
    """every: all patterns if exact, else some of them."""

    every: tuple[Counts, ...]
    exact: bool


class NodePatterns:
    """The patterns of nodes for one gang, computed once per node kind."""

    def __init__(self, arrays: GangArrays, budget: Budget) -> None:
        self.arrays = arrays
        self.budget = budget
        self._kind_of: dict[int, NodeKind] = {}
        self._patterns: dict[NodeKind, Patterns] = {}

    def kind(self, node: int) -> NodeKind:
        """The kind of a node."""
        if node not in self._kind_of:
            arrays, state = self.arrays, self.arrays.states[node]
            carded = state.cards and any(arrays.carded)
            self._kind_of[node] = (
                arrays.slot_counts[:, node].tobytes(),
                arrays.free[node].tobytes(),
                capacity.cards_key(state) if carded else (),
            )
        return self._kind_of[node]

    def of(self, node: int) -> Patterns:
        """The patterns of a node."""
        kind = self.kind(node)
        if kind not in self._patterns:
            part = self.budget.part(max(VISITS, self.budget.left // SHARE))
            self._patterns[kind] = _Listing(self.arrays, node, part).patterns()
        return self._patterns[kind]


@dataclass(slots=True)
class _Listing:
    """Lists the patterns of one node, starting with the classes that have the least capacity.

    exact: whether cards are decided.
    """

    arrays: GangArrays
    node: int
    budget: Budget
    exact: bool = True
    order: list[int] = field(default_factory=list)
    fits: dict[tuple[tuple[int, int], ...], bool] = field(default_factory=dict)

    def patterns(self) -> Patterns:
        """All patterns, or those found before the steps ended."""
        arrays = self.arrays
        slot_counts = arrays.slot_counts[:, self.node].tolist()
        self.order = sorted(
            filter(slot_counts.__getitem__, range(len(slot_counts))), key=slot_counts.__getitem__
        )
        if not self.order or len(self.order) > CLASSES:
            return Patterns((), not self.order)
        every = Fillings(
            [arrays.request_rows[number] for number in self.order],
            [slot_counts[number] for number in self.order],
            partial(self.budget.spend, VISIT),
            self._cards_fit if any(arrays.carded[number] for number in self.order) else None,
        )
        return self._listed(every.of(arrays.free[self.node].tolist()))

    def _listed(self, every: Iterator[Counts]) -> Patterns:
        """These fillings as pods of each class."""
        found: list[Counts] = []
        try:
            for filling in islice(every, MOST + 1):
                counts = dict(zip(self.order, filling, strict=True))
                found.append(tuple(counts.get(number, 0) for number in range(len(self.arrays.slot_counts))))
        except OutOfSteps:
            return Patterns(tuple(found), False)
        return Patterns(tuple(found[:MOST]), self.exact and len(found) <= MOST)

    def _cards_fit(self, counts: Counts) -> bool:
        """Whether the cards serve so many pods of the first classes. If undecided, it is False."""
        classes = self.arrays.question.classes
        pods = zip(self.order, counts, strict=False)
        wanted = tuple(sorted((each, count) for each, count in pods if count and self.arrays.carded[each]))
        if len(wanted) <= 1:
            return True  # see slot_counts
        if wanted not in self.fits:
            self.budget.take(CARDS)
            carded = pods_of([classes[each] for each, _ in wanted], [count for _, count in wanted])
            fits = capacity.fits_together(carded, self.arrays.states[self.node], self.budget, LOOKS)
            self.exact &= fits is not None
            self.fits[wanted] = bool(fits)
        return self.fits[wanted]
