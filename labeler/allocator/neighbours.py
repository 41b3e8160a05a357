"""Whole cards that sit close together, for vendors whose cards no annotation names. Pure.

Of all sets of the asked size the one with most closeness between its cards is taken; of equal ones that which
leaves the others closest together for whoever comes next; then that with the lowest names. All sets are
looked at: a node has 16 cards at most, of which 8 are 12,870 sets.
"""

from collections.abc import Callable, Iterable
from itertools import combinations

Closeness = Callable[[str, str], int]
"""How close two cards are, by their names; more is closer, and the order does not matter."""


def closest(available: Iterable[str], must_include: Iterable[str], size: int, close: Closeness) -> list[str]:
    """The names of ``size`` cards, those that must be included among them; fewer if there are fewer."""
    must = sorted(set(must_include))
    free = sorted(set(available) - set(must))
    every = sorted({*must, *free})
    between = {(a, b): close(a, b) for a, b in combinations(every, 2)}

    def together(cards: Iterable[str]) -> int:
        return sum(between[pair] for pair in combinations(sorted(cards), 2))

    more = min(max(size - len(must), 0), len(free))
    best = max(
        combinations(free, more),
        # max keeps the first of equal ones, and combinations come in the order of names
        key=lambda chosen: (together((*must, *chosen)), together(set(free) - set(chosen))),
    )
    return sorted((*must, *best))


def common_ancestors(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many PCI ancestors two devices share, from the root down."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
