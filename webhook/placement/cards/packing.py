"""Bin packing of demands on cards: card by card over classes of demands, exact within a number of steps.

Equal demands form one class. A state is the number of cards that each class still needs, independent of
order. On each card, only maximal fillings are tried: serving more on one card leaves less for the others
("bin completion"). A failed state is not tried again. A state is pruned if a total, or the number of demands
of at least some size, exceeds the capacity of the remaining cards. p demands for N distinct cards each can be
assigned if no card serves their class more than p times (Gale-Ryser). The problem contains bin packing, so
for some demands the steps end first. Then the demands count as not fitting, and the answer as not exact.

Source: Korf, A new algorithm for optimal bin packing (AAAI 2002); here there are several resources, and cards
differ.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from operator import add, sub
from typing import Final

from webhook.placement.budget import Budget, OutOfSteps

STEPS: Final = 5000
"""Looks for one question. A look checks one class on one card, or one state."""

EACH: Final = 8
"""Budget steps per look."""

LONGEST: Final = 60_000
"""Budget steps after which no more pods are tried on one node."""

FEWEST: Final = 64
"""The fewest looks for one question, even if fewer steps are left."""

LARGEST: Final = 150
"""The most cards and classes together for a search, which recurses once for each."""

Amounts = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bin:
    """A card: its free amounts, and the classes that may use it."""

    free: Amounts
    serves: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class DemandClass:
    """Equal demands: the amounts per card, the number of distinct cards, and how many demands there are."""

    need: Amounts
    spread: int
    count: int


@dataclass(frozen=True, slots=True)
class Answer:
    """For each card the number of demands served by class, or None. exact: None proves that none exists."""

    takes: tuple[Amounts, ...] | None
    exact: bool
    steps: int


@lru_cache(maxsize=2048)
def pack(bins: tuple[Bin, ...], classes: tuple[DemandClass, ...], most_steps: int) -> Answer:
    """Cards for all demands. Answers are cached."""
    if len(bins) + len(classes) > LARGEST:
        return Answer(None, False, 0)
    packing = _Packing(bins, classes, most_steps)
    try:
        found = packing.serve(0, tuple(kind.spread * kind.count for kind in classes))
    except OutOfSteps:
        return Answer(None, False, packing.budget.spent)
    missing = len(bins) - len(packing.takes)
    takes = (*packing.takes, *[(0,) * len(classes)] * missing)
    return Answer(takes if found else None, True, packing.budget.spent)


@lru_cache(maxsize=4096)
def most(
    bins: tuple[Bin, ...], classes: tuple[DemandClass, ...], limit: int, longest: int = LONGEST
) -> tuple[int, bool, int]:
    """How many times all these demands fit, at most `limit`, whether that is exact, and the steps taken.

    Each smaller number of times fits too. After `longest` steps it ends as not exact.
    """
    count = steps = 0
    while count < limit:
        more = tuple(DemandClass(kind.need, kind.spread, kind.count * (count + 1)) for kind in classes)
        answer = pack(bins, more, min(STEPS, max(FEWEST, longest // EACH)))
        steps += EACH * answer.steps
        if answer.takes is None:
            return count, answer.exact, steps
        count += 1
        if steps > longest:
            return count, count == limit, steps
    return count, True, steps


@dataclass(frozen=True, slots=True)
class Fillings:
    """The maximal numbers of demands of each class that fit together, the most of the first classes first.

    needs: for each class what a demand takes, as numbers of resources and amounts above 0. most: demands of
    each class. spend: pays for one look. serves: whether so many demands of the first classes fit, whatever
    is free; None if free amounts alone count.
    """

    needs: Sequence[Sequence[tuple[int, int]]]
    most: Sequence[int]
    spend: Callable[[], None]
    serves: Callable[[Amounts], bool] | None = None

    def of(self, free: Sequence[int], taken: Amounts = ()) -> Iterator[Amounts]:
        """The fillings of these free amounts. taken: the demands of the first classes, chosen already."""
        self.spend()
        kind = len(taken)
        if kind == len(self.needs):
            if not any(self._has_more(each, free, taken) for each in range(kind)):
                yield taken
            return
        for count in self._counts(kind, free):
            more = (*taken, count)
            if not count or self.serves is None or self.serves(more):
                yield from self.of(_left(free, self.needs[kind], count), more)

    def _counts(self, kind: int, free: Sequence[int]) -> range:
        """The numbers to try of a class, the largest first; of the last class that one alone."""
        most = _times(free, self.needs[kind], self.most[kind])
        is_last = self.serves is None and kind == len(self.needs) - 1
        return range(most, (most if is_last else 0) - 1, -1)

    def _has_more(self, kind: int, free: Sequence[int], taken: Amounts) -> bool:
        """Whether one more demand of a class fits."""
        if taken[kind] == self.most[kind] or not _times(free, self.needs[kind], 1):
            return False
        return self.serves is None or self.serves((*taken[:kind], taken[kind] + 1, *taken[kind + 1 :]))


def _left(free: Sequence[int], need: Sequence[tuple[int, int]], count: int) -> list[int]:
    left = list(free)
    for resource, amount in need:
        left[resource] -= count * amount
    return left


def _times(free: Sequence[int], need: Sequence[tuple[int, int]], most: int) -> int:
    """How many demands the free amounts suffice for, at most so many."""
    for resource, amount in need:
        if free[resource] < amount * most:
            most = max(0, free[resource] // amount)
    return most


def _from_each(amounts: Sequence[Amounts]) -> list[Amounts]:
    """For each card number, the sums of the amounts of the cards from there on."""
    sums = accumulate(reversed(amounts), lambda one, other: tuple(map(add, one, other)))
    return list(sums)[::-1]


class _Packing:
    """The search for one question. Its bounds cover the cards from a number on."""

    def __init__(self, bins: tuple[Bin, ...], classes: tuple[DemandClass, ...], most_steps: int) -> None:
        self.bins = bins
        self.classes = classes
        self.budget = Budget(most_steps)
        self.takes: list[Amounts] = []
        self.dead: set[tuple[int, Amounts]] = set()
        self.needs = [[(r, amount) for r, amount in enumerate(kind.need) if amount] for kind in classes]
        resources = range(len(classes[0].need)) if classes else range(0)
        self.orders = [
            sorted((k for k in range(len(classes)) if classes[k].need[r]), key=lambda k: -classes[k].need[r])
            for r in resources
        ]
        self.totals = _from_each([each.free for each in bins])
        self.most = list(map(self._slot_counts, bins))
        """For each card the demands of each class that it serves."""
        self.slot_counts = _from_each(self.most)
        self.holds = [_from_each([self._holds(r, each) for each in bins]) for r in resources]

    def _holds(self, resource: int, each: Bin) -> Amounts:
        """How often a card has each amount of a resource that classes ask for, the largest amount first."""
        return tuple(each.free[resource] // self.classes[k].need[resource] for k in self.orders[resource])

    def _slot_counts(self, each: Bin) -> Amounts:
        """How many demands of each class a card serves, alone."""
        asked = zip(each.serves, self.needs, self.classes, strict=True)
        return tuple([_times(each.free, need, kind.count) if may else 0 for may, need, kind in asked])

    def serve(self, number: int, left: Amounts) -> bool:
        """Whether the cards from `number` on can serve the remaining demands; if so, `takes` is set."""
        self.budget.spend()
        if not any(left):
            return True
        if number == len(self.bins) or (number, left) in self.dead or self._is_hopeless(number, left):
            return False
        most = tuple(map(min, left, self.most[number]))
        for taken in Fillings(self.needs, most, self.budget.spend).of(self.bins[number].free):
            self.takes.append(taken)
            if self.serve(number + 1, tuple(map(sub, left, taken))):
                return True
            self.takes.pop()
        self.dead.add((number, left))
        return False

    def _is_hopeless(self, number: int, left: Amounts) -> bool:
        if any(map(int.__gt__, left, self.slot_counts[number])):
            return True
        for resource, order in enumerate(self.orders):
            holds = self.holds[resource][number]
            wanted = served = 0
            for position, kind in enumerate(order):
                served += left[kind]
                if served > holds[position]:
                    return True
                wanted += left[kind] * self.classes[kind].need[resource]
            if wanted > self.totals[number][resource]:
                return True
        return False
