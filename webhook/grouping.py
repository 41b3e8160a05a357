"""Values by what they have in common."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from operator import itemgetter
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """By key, the values of these pairs; keys and values in the order in which they come."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found


def round_robin(
    items: Iterable[V],
    group_of: Callable[[V], Hashable],
    position: Callable[[V], tuple[float, ...]] = lambda _: (),
) -> list[V]:
    """The items by position; of those with an equal first part, one of each group before a second one."""
    numbers, numbered = Counter[Hashable](), list[tuple[tuple[float, ...], int, V]]()
    for at, each in sorted(((position(each), each) for each in items), key=itemgetter(0)):
        group = group_of(each)
        numbered.append((at[:1], numbers[group], each))
        numbers[group] += 1
    return [each for _, _, each in sorted(numbered, key=itemgetter(0, 1))]
