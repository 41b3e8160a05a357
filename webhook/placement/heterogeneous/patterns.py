"""Patterns of a node: the maximal numbers of pods of each class that fit together.

Maximal patterns suffice, since pods can be removed from a pattern. Nodes with the same capacities, free
amounts and cards have the same patterns. Source: Gilmore and Gomory, A linear programming approach to the
cutting-stock problem (1961); here there are several resources, and nodes differ.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from webhook.placement import capacity
from webhook.placement.budget import Budget
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
    """Enumerates the patterns of one node, starting with the classes that have the least capacity."""

    arrays: GangArrays
    node: int
    budget: Budget
    exact: bool = True
    is_cut: bool = False
    """Whether the steps ended before the enumeration was complete."""
    found: list[Counts] = field(default_factory=list)
    slot_counts: list[int] = field(init=False)
    order: list[int] = field(init=False)
    carded: frozenset[int] = field(init=False)
    fits: dict[tuple[tuple[int, int], ...], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Compute the capacity for each class."""
        self.slot_counts = self.arrays.slot_counts[:, self.node].tolist()
        self.order = sorted(
            (c for c, free_slots in enumerate(self.slot_counts) if free_slots),
            key=self.slot_counts.__getitem__,
        )
        self.carded = frozenset(c for c in self.order if self.arrays.carded[c])

    def patterns(self) -> Patterns:
        """All patterns, or those found before the steps ended."""
        self.is_cut = len(self.order) > CLASSES
        if self.order and not self.is_cut:
            self._choose(0, self.arrays.free[self.node].tolist(), {})
        return Patterns(tuple(self.found[:MOST]), self.exact and not self.is_cut)

    def _choose(self, position: int, left: list[int], pods: dict[int, int]) -> None:
        """Try every number of pods of the class at a position. left: free amounts."""
        self.budget.take(VISIT)
        if len(self.found) > MOST or self.budget.exhausted:
            self.is_cut = True
            return
        if position == len(self.order):
            self._add(left, pods)
            return
        number = self.order[position]
        request = self.arrays.request_rows[number]
        for count in self._counts(position, left):
            pods[number] = count
            if number in self.carded and count and not self._cards_fit(pods):
                continue
            after = list(left)
            for resource, amount in request:
                after[resource] -= count * amount
            self._choose(position + 1, after, pods)
            if self.is_cut:
                break
        pods.pop(number, None)

    def _counts(self, position: int, left: list[int]) -> range:
        """The numbers of pods to try at a position, the largest first; for the last class only that one."""
        number = self.order[position]
        most = min(
            [self.slot_counts[number], *(left[r] // amount for r, amount in self.arrays.request_rows[number])]
        )
        is_last = position == len(self.order) - 1 and not self.carded
        return range(most, (most if is_last else 0) - 1, -1)

    def _add(self, left: list[int], pods: dict[int, int]) -> None:
        """Add a pattern if it is maximal."""
        if not any(self._fits_more(each, left, pods) for each in self.order):
            self.found.append(tuple(pods.get(each, 0) for each in range(len(self.slot_counts))))

    def _fits_more(self, number: int, left: list[int], pods: dict[int, int]) -> bool:
        """Whether one more pod of a class fits."""
        if pods[number] >= self.slot_counts[number]:
            return False
        if any(left[resource] < amount for resource, amount in self.arrays.request_rows[number]):
            return False
        return not self.carded or self._cards_fit({**pods, number: pods[number] + 1})

    def _cards_fit(self, pods: dict[int, int]) -> bool:
        """Whether the cards serve the pods. If undecided, it is False and the result is not exact."""
        wanted = tuple(sorted((each, count) for each, count in pods.items() if count and each in self.carded))
        if len(wanted) <= 1:
            return all(count <= self.slot_counts[each] for each, count in wanted)
        if wanted not in self.fits:
            self.budget.take(CARDS)
            classes = [self.arrays.question.classes[each] for each, _ in wanted]
            carded = pods_of(classes, [count for _, count in wanted])
            fits = capacity.fits_together(carded, self.arrays.states[self.node], self.budget, LOOKS)
            self.exact &= fits is not None
            self.fits[wanted] = bool(fits)
        return self.fits[wanted]
