"""Whole cards that sit close together, for vendors whose cards no annotation names. Pure.

Of all sets of the asked size the one with most closeness between its cards is taken; of equal ones that which
leaves the others closest together for the next container; then that with the lowest names. Cards that are as
close as each other to every other card are interchangeable, so only how many of them are taken is tried: on
a node of 24 cards on 6 switches those are 1,751 choices for 12. Where more than `MOST_CHOICES` remain, as for
12 of 24 cards that all differ, sets are grown card by card instead, and the best of these is taken.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

Closeness = Callable[[str, str], int]
"""How close two cards are, by their names; more is closer, and the order does not matter."""

MOST_CHOICES: Final = 12_870
"""Choices that are all tried: as many as there are sets of 8 of 16 cards that all differ."""
_MOST_STEPS: Final = 200_000
"""Cards that are looked at while sets are grown."""


def closest(available: Iterable[str], must_include: Iterable[str], size: int, close: Closeness) -> list[str]:
    """The names of ``size`` cards, those that must be included among them; fewer if there are fewer."""
    must = sorted(set(must_include))
    free = sorted(set(available) - set(must))
    more = min(max(size - len(must), 0), len(free))
    return sorted((*must, *(free[card] for card in _Search(free, must, close).best(more))))


class _Search:
    """The free cards by their places in the order of names, and how close they are."""

    def __init__(self, free: Sequence[str], must: Sequence[str], close: Closeness) -> None:
        self._between = [[close(a, b) if a != b else 0 for b in free] for a in free]
        self._to_must = [sum(close(each, other) for other in must) for each in free]
        self._to_free = [sum(row) for row in self._between]
        self._groups = self._interchangeable()

    def best(self, size: int) -> tuple[int, ...]:
        """The best so many cards, or good ones where there are too many choices."""
        if _choices([len(group) for group in self._groups], size) <= MOST_CHOICES:
            return self._best_of_all(size)
        return self._grown(size)

    def _interchangeable(self) -> list[list[int]]:
        """The cards in groups: cards of one group have the same links to all other cards."""
        groups: list[list[int]] = []
        for card in range(len(self._between)):
            group = next((group for group in groups if self._are_interchangeable(group[0], card)), None)
            if group is None:
                groups.append([card])
            else:
                group.append(card)
        return groups

    def _are_interchangeable(self, one: int, other: int) -> bool:
        rows = zip(self._between[one], self._between[other], strict=True)
        return self._to_must[one] == self._to_must[other] and all(
            a == b for card, (a, b) in enumerate(rows) if card not in (one, other)
        )

    def _value(self, cards: Sequence[int]) -> tuple[int, int]:
        """Closeness among these and to those that must be included; then what the others lose, negated."""
        inside = sum(self._between[a][b] for a in cards for b in cards) // 2
        near = sum(self._to_must[card] for card in cards)
        return inside + near, inside - sum(self._to_free[card] for card in cards)

    def _best_of_all(self, size: int) -> tuple[int, ...]:
        """By trying each number of cards of each group, those with the lowest names of it."""
        cards_from = [*accumulate((len(group) for group in reversed(self._groups)), initial=0)][::-1]
        best: tuple[tuple[int, int], tuple[int, ...]] | None = None

        def extend(place: int, chosen: tuple[int, ...], value: tuple[int, int]) -> None:
            nonlocal best
            left = size - len(chosen)
            if left == 0:
                cards = tuple(sorted(chosen))
                if best is None or value > best[0] or (value == best[0] and cards < best[1]):
                    best = value, cards
                return
            group = self._groups[place]
            for count in range(min(left, len(group)) + 1):
                taken = (*chosen, *group[:count])
                if left - count <= cards_from[place + 1]:
                    extend(place + 1, taken, value)
                if count < len(group):
                    value = self._joined(value, taken, group[count])

        extend(0, (), (0, 0))
        assert best is not None, "some choice has this size"
        return best[1]

    def _joined(self, value: tuple[int, int], chosen: Iterable[int], card: int) -> tuple[int, int]:
        """The value of chosen cards once another one joins them: sums grow, no set is added up again."""
        row = self._between[card]
        inside = sum(row[each] for each in chosen)
        return value[0] + inside + self._to_must[card], value[1] + inside - self._to_free[card]

    def _grown(self, size: int) -> tuple[int, ...]:
        """The best of the sets that begin with one card and take the closest next, within the work budget.

        Of equally close cards, the one closest to all others comes first, since its neighbours can follow it.
        """
        every = range(len(self._between))
        firsts = every[: max(1, _MOST_STEPS // (size * len(every)))]
        grown = [self._grow(first, size) for first in firsts]
        return max(grown, key=lambda cards: (self._value(cards), [-card for card in cards]))

    def _grow(self, first: int, size: int) -> tuple[int, ...]:
        chosen = [first]
        near = [a + b for a, b in zip(self._to_must, self._between[first], strict=True)]
        left = set(range(len(near))) - {first}
        while len(chosen) < size:
            card = max(left, key=lambda each: (near[each], self._to_free[each], -each))
            left.remove(card)
            chosen.append(card)
            near = [a + b for a, b in zip(near, self._between[card], strict=True)]
        return tuple(sorted(chosen))


def _choices(sizes: Iterable[int], wanted: int) -> int:
    """In how many ways so many cards can be taken of groups of these sizes."""
    ways = [1] + [0] * wanted
    for size in sizes:
        ways = [sum(ways[max(0, count - size) : count + 1]) for count in range(wanted + 1)]
    return ways[wanted]


def common_ancestors(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many PCI ancestors two devices share, from the root down."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
