"""Beside anchors, where one more domain suffices: each that may be it is a question of its own.

What anchors use costs nothing, so the best solution uses just one other domain of its level, if one with
enough room is there. Which one it is the numbers of domains below and the rooms mostly tell: the questions
are answered best bound first, and the answer to the first is often below the bounds of all others.
"""

from bisect import bisect_left
from dataclasses import replace
from itertools import accumulate
from typing import Final

from webhook.placement.alike.rooms import anchored_children
from webhook.placement.bounds import rooms_at
from webhook.placement.budget import Budget
from webhook.placement.costs import COUNT_BITS, Costs
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
    given = [_Split(vertex.parts[number], costs) for number in sorted(anchored)]
    more = {number: _Split(vertex.parts[number], costs) for number in others}
    rooms = sum(map(len, given)) * len(others) + sum(map(len, more.values()))
    if rooms > MOST:
        return []
    budget.spend(1 + rooms // EACH)
    found = [(_least([*given, split], first, wanted, costs), number) for number, split in more.items()]
    return [(least, _only(vertex, anchored | {number})) for least, number in sorted(found)]


class _Split:
    """A child's domains of each level, those that anchors use and the others."""

    def __init__(self, part: Vertex, costs: Costs) -> None:
        self.levels = [_rooms(part, level, costs) for level in range(costs.depth)]

    def __len__(self) -> int:
        return sum(len(free) + len(paid) for free, paid in self.levels)


def _rooms(part: Vertex, level: int, costs: Costs) -> tuple[list[int], list[int]]:
    """Rooms of a child's domains of a level: of those that anchors use, and of the others."""
    if part.bottom >= level:
        return (
            ([], [part.room])
            if part.own >> costs.domains[level] & (1 << COUNT_BITS) - 1
            else ([part.room], [])
        )
    if not part.parts or not anchored_children(part, costs):
        return [], rooms_at(part, level)
    below = [_rooms(each, level, costs) for each in part.parts]
    return [room for free, _ in below for room in free], [room for _, paid in below for room in paid]


def _least(parts: list[_Split], first: int, wanted: int, costs: Costs) -> int:
    """At most the cost of so many pods in these children, each level for itself."""
    total = 0
    for level in range(first, costs.depth):
        free = sum(sum(part.levels[level][0]) for part in parts)
        paid = sorted(room for part in parts for room in part.levels[level][1])
        number = bisect_left(list(accumulate(reversed(paid), initial=0)), wanted - free)
        rooms = max(0, wanted - free, sum(paid[:number]))
        total += (number << costs.domains[level]) + (rooms << costs.leftover[level])
    return total


def _only(vertex: Vertex, numbers: set[int]) -> Vertex:
    """The domain as if it had these children alone."""
    parts = tuple(vertex.parts[number] for number in sorted(numbers))
    return replace(vertex, parts=parts, room=sum(part.room for part in parts), even=None, notes={})
