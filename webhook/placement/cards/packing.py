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
from functools import lru_cache, partial
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


def _from_each(bins: Sequence[Bin], amounts_of: Callable[[Bin], Amounts]) -> list[Amounts]:
    """For each card number, the sums of the amounts of the cards from there on."""
    sums = accumulate((amounts_of(each) for each in reversed(bins)), lambda a, b: tuple(map(add, a, b)))
    return list(sums)[::-1]


class _Packing:
    """The search for one question. Its bounds cover the cards from a number on."""

    def __init__(self, bins: tuple[Bin, ...], classes: tuple[DemandClass, ...], most_steps: int) -> None:
        self.bins = bins
        self.classes = classes
        self.budget = Budget(most_steps)
        self.takes: list[Amounts] = []
        self.dead: set[tuple[int, Amounts]] = set()
        resources = range(len(classes[0].need)) if classes else range(0)
        self.orders = [
            sorted((k for k in range(len(classes)) if classes[k].need[r]), key=lambda k: -classes[k].need[r])
            for r in resources
        ]
        self.totals = _from_each(bins, lambda each: each.free)
        self.slot_counts = _from_each(bins, self._slot_counts)
        self.holds = [_from_each(bins, partial(self._holds, resource)) for resource in resources]

    def _holds(self, resource: int, each: Bin) -> Amounts:
        """How often a card has each amount of a resource that classes ask for, the largest amount first."""
        return tuple(each.free[resource] // self.classes[k].need[resource] for k in self.orders[resource])

    def _slot_counts(self, each: Bin) -> Amounts:
        return tuple(
            self._times(each, number, each.free, kind.count) for number, kind in enumerate(self.classes)
        )

    def _times(self, each: Bin, number: int, free: Amounts, most_times: int) -> int:
        """How many demands of a class the free amounts of a card can serve."""
        if not each.serves[number]:
            return 0
        for amount, need in zip(free, self.classes[number].need, strict=True):
            if need and amount < need * most_times:
                most_times = max(0, amount // need)
        return most_times

    def serve(self, number: int, left: Amounts) -> bool:
        """Whether the cards from `number` on can serve the remaining demands; if so, `takes` is set."""
        self.budget.spend()
        if not any(left):
            return True
        if number == len(self.bins) or (number, left) in self.dead or self._is_hopeless(number, left):
            return False
        for taken in self._fillings(number, left, self.bins[number].free, ()):
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

    def _fillings(self, number: int, left: Amounts, free: Amounts, taken: Amounts) -> Iterator[Amounts]:
        """The maximal fillings of a card, with the first classes, which are large, first."""
        self.budget.spend()
        each, kind = self.bins[number], len(taken)
        if kind == len(self.classes):
            if not any(
                taken[k] < min(left[k], self.classes[k].count) and self._times(each, k, free, 1)
                for k in range(kind)
            ):
                yield taken
            return
        times = self._times(each, kind, free, min(left[kind], self.classes[kind].count))
        need = self.classes[kind].need
        fewest = times if kind == len(self.classes) - 1 else 0
        for count in range(times, fewest - 1, -1):
            rest = (
                tuple(amount - count * part for amount, part in zip(free, need, strict=True))
                if count
                else free
            )
            yield from self._fillings(number, left, rest, (*taken, count))
