"""Whole cards that sit close together, for vendors whose cards no annotation names. Pure.

Of all sets of the asked size the one with most closeness between its cards is taken; of equal ones that which
leaves the others closest together for whoever comes next; then that with the lowest names. All sets are
looked at: a node has 16 cards at most, of which 8 are 12,870 sets.
"""

from collections.abc import Callable, Iterable, Sequence

Closeness = Callable[[str, str], int]
"""How close two cards are, by their names; more is closer, and the order does not matter."""


def closest(available: Iterable[str], must_include: Iterable[str], size: int, close: Closeness) -> list[str]:
    """The names of ``size`` cards, those that must be included among them; fewer if there are fewer."""
    must = sorted(set(must_include))
    free = sorted(set(available) - set(must))
    more = min(max(size - len(must), 0), len(free))
    return sorted((*must, *_best(free, must, more, close)))


def _best(free: Sequence[str], must: Sequence[str], size: int, close: Closeness) -> list[str]:
    """Which of the free cards. Sums grow card by card, so that no set is added up anew."""
    between = [[close(a, b) if a != b else 0 for b in free] for a in free]
    to_must = [sum(close(each, other) for other in must) for each in free]
    to_free = [sum(row) for row in between]
    best: tuple[int, int] | None = None
    best_set: tuple[int, ...] = ()

    def extend(chosen: tuple[int, ...], inside: int, near: int, broken: int) -> None:
        """inside: closeness of the chosen; near: of the chosen to the must; broken: what the others lose."""
        nonlocal best, best_set
        if len(chosen) == size:
            value = inside + near, -broken
            if best is None or value > best:  # of equal ones the first, and they come in the order of names
                best, best_set = value, chosen
            return
        first = chosen[-1] + 1 if chosen else 0
        for card in range(first, len(free) - (size - len(chosen)) + 1):
            row = between[card]
            joined = sum(row[each] for each in chosen)
            extend((*chosen, card), inside + joined, near + to_must[card], broken + to_free[card] - joined)

    extend((), 0, 0, 0)
    return [free[card] for card in best_set]


def common_ancestors(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many PCI ancestors two devices share, from the root down."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
