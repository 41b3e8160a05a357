"""How many pods of a gang go to each domain of a label, so that a rule on their number holds. Pure.

Of topology spread: a domain that gains a pod ends at most max_skew above the emptiest one that counts. Then
there is an order in which each pod may go, the lower ones first. As few domains as that leaves are used: the
emptiest one is raised no higher than it must be, and what is left over fills the roomiest.
"""

from collections.abc import Mapping


def shares(
    held: Mapping[str, int], rooms: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool
) -> dict[str, int] | None:
    """How many pods go to each domain; None if there is no way.

    held: pods that count already, of each domain that counts. rooms: for how many pods there is room; domains
    that are not named have none. floor_is_zero: whether the emptiest domain is taken to hold none.
    """
    highest = 0 if floor_is_zero else min(held.values(), default=0) + wanted
    for floor in range(0 if floor_is_zero else min(held.values(), default=0), highest + 1):
        least = {} if floor_is_zero else {value: max(0, floor - count) for value, count in held.items()}
        if any(rooms.get(value, 0) < count for value, count in least.items()):
            return None  # that domain stays below, and no higher floor is reached either
        most = {
            value: max(least.get(value, 0), min(rooms.get(value, 0), floor + skew - count))
            for value, count in held.items()
        }
        if sum(least.values()) > wanted:
            return None
        if sum(most.values()) < wanted:
            continue
        found = dict(least) or dict.fromkeys(held, 0)
        left = wanted - sum(found.values())
        for value in sorted(most, key=lambda each: (found[each] == 0, -most[each], each)):
            more = min(left, most[value] - found[value])
            found[value] += more
            left -= more
        return {value: count for value, count in found.items() if count}
    return None


def cap(held: Mapping[str, int], wanted: int, skew: int, *, floor_is_zero: bool) -> int | None:
    """At most so many in a domain, as if each had room without end; None if there is no way."""
    rooms = dict.fromkeys(held, wanted)
    found = shares(held, rooms, wanted, skew, floor_is_zero=floor_is_zero)
    if found is None:
        return None
    return skew + (0 if floor_is_zero else min(held[value] + found.get(value, 0) for value in held))
