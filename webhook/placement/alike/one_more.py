"""Beside anchors, where one more domain suffices: each that may be it is a question of its own.

What anchors use costs nothing, so the best solution uses just one other domain of its level, if one with
enough room is there. Which one it is the numbers of domains below and the rooms mostly tell: the questions
are answered best bound first, and the answer to the first is often below the bounds of all others.
"""

from bisect import bisect_left
from dataclasses import replace
from itertools import accumulate
from typing import Final

from webhook.placement.alike.rooms import anchored_children, rooms_beside
from webhook.placement.budget import Budget
from webhook.placement.costs import Costs
from webhook.placement.vertex import Vertex

EACH: Final = 12
"""Rooms that are sorted in a step of the budget."""

MOST: Final = 200_000
"""Rooms beyond which telling the domains apart takes longer than all of them together."""


def one_more(vertex: Vertex, wanted: int, costs: Costs, budget: Budget) -> list[tuple[int, Vertex]]:
    """The domain with what anchors use and just one more child, for each that has enough room, and at most
    what holding so many pods in it costs, that of using it left out; the cheapest first.

    [] where none or several are needed beside what anchors use, or fewer than three may be the one. Raises
    OutOfSteps.
    """
    first = vertex.bottom + 1
    if not vertex.parts or (costs.machine is not None and first >= costs.machine):
        return []
    anchored = anchored_children(vertex, costs)
    missing = wanted - sum(vertex.parts[number].room for number in anchored)
    others = [n for n, part in enumerate(vertex.parts) if n not in anchored and part.room >= missing]
    if missing <= 0 or not anchored or len(others) < 3:
        return []
    levels = range(first, costs.depth)
    more = {n: [rooms_beside(vertex.parts[n], level, costs)[1] for level in levels] for n in others}
    given = [[rooms_beside(vertex.parts[n], level, costs) for n in anchored] for level in levels]
    free = [sum(sum(rooms) for rooms, _ in of_level) for of_level in given]
    paid = [[room for _, rooms in of_level for room in rooms] for of_level in given]
    held = sum(len(rooms) for of_level in given for split in of_level for rooms in split)
    rooms = held * len(others) + sum(len(rooms) for split in more.values() for rooms in split)
    if rooms > MOST:
        return []
    budget.spend(1 + rooms // EACH)
    found = []
    for number, split in more.items():
        total = 0
        for at, level in enumerate(levels):
            total += _least(paid[at] + split[at], wanted - free[at], level, costs)
        found.append((total, number))
    return [(least, _only(vertex, anchored | {number})) for least, number in sorted(found)]


def _least(rooms: list[int], wanted: int, level: int, costs: Costs) -> int:
    """At most the cost of so many pods in domains of a level with these rooms, the level for itself."""
    rooms.sort()
    number = bisect_left(list(accumulate(reversed(rooms), initial=0)), wanted)
    held = max(0, wanted, sum(rooms[:number]))
    return (number << costs.domains[level]) + (held << costs.leftover[level])


def _only(vertex: Vertex, numbers: set[int]) -> Vertex:
    """The domain as if it had these children alone."""
    parts = tuple(vertex.parts[number] for number in sorted(numbers))
    return replace(vertex, parts=parts, room=sum(part.room for part in parts), even=None, notes={})
