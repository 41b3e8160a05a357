"""How many pods of a gang go to each domain of a label, so that a rule on their number holds. Pure.

Of topology spread: a domain that gains a pod ends at most max_skew above the emptiest one that counts. Then
there is an order in which each pod may go, the lower ones first. As few domains as that leaves are used: the
emptiest one is raised no higher than it must be, and what is left over fills the roomiest.
"""

from collections import Counter
from collections.abc import Mapping


def shares(
    held: Mapping[str, int], rooms: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool
) -> dict[str, int] | None:
    """How many pods go to each domain; None if there is no way.

    held: pods that count already, of each domain that counts. rooms: for how many pods there is room; domains
    that are not named have none. floor_is_zero: whether the emptiest domain is taken to hold none.
    """
    floor = _floor(held, rooms, wanted, skew, floor_is_zero=floor_is_zero)
    if floor is None:
        return None
    found = {value: 0 if floor_is_zero else max(0, floor - count) for value, count in held.items()}
    most = {
        value: max(found[value], min(rooms.get(value, 0), floor + skew - count))
        for value, count in held.items()
    }
    left = wanted - sum(found.values())
    for value in sorted(most, key=lambda each: (found[each] == 0, -most[each], each)):
        more = min(left, most[value] - found[value])
        found[value] += more
        left -= more
    return {value: count for value, count in found.items() if count}


def _floor(
    held: Mapping[str, int], rooms: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool
) -> int | None:
    """What the emptiest domain holds in the end, the least with which all have a place; None if none has."""

    def most(floor: int) -> int:
        return sum(max(0, min(rooms.get(value, 0), floor + skew - count)) for value, count in held.items())

    low = 0 if floor_is_zero else min(held.values(), default=0)
    high = (
        0 if floor_is_zero else min((count + rooms.get(value, 0) for value, count in held.items()), default=0)
    )
    while low < high:
        middle = (low + high) // 2
        if most(middle) >= wanted:
            high = middle
        else:
            low = middle + 1
    if most(low) < wanted:
        return None
    least = 0 if floor_is_zero else sum(max(0, low - count) for count in held.values())
    return low if least <= wanted else None


def cap(held: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool) -> int:
    """At most so many in a domain, as if each had room without end."""
    if floor_is_zero or not held:
        return skew
    alike = Counter(held.values())
    low, high = min(alike), max(alike) + wanted
    while low < high:
        middle = (low + high) // 2
        if sum(times * max(0, middle + skew - count) for count, times in alike.items()) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low + skew


def least_share(value: str, held: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool) -> int:
    """At least so many of the pods go to a domain, whatever room the others have; see shares."""
    others = Counter(count for other, count in held.items() if other != value)
    low, high = 0, wanted
    while low < high:
        middle = (low + high) // 2
        floor = 0 if floor_is_zero else held[value] + middle
        if middle + sum(times * max(0, floor + skew - count) for count, times in others.items()) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low
