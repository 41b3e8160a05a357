"""Rooms of the domains below a vertex, level by level, and the bound of costs that follows from them."""

from bisect import bisect_left
from itertools import accumulate

from webhook.placement.costs import Costs
from webhook.placement.vertex import Vertex


def room_sums(vertex: Vertex) -> list[list[int]]:
    """Of the domains of each level below a vertex the sums of the 1, 2, ... largest rooms."""
    if "sums" not in vertex.notes:
        vertex.notes["sums"] = [
            list(accumulate(sorted(rooms, reverse=True))) for rooms in rooms_below(vertex)
        ]
    sums: list[list[int]] = vertex.notes["sums"]
    return sums


def rooms_below(vertex: Vertex) -> list[list[int]]:
    """Rooms of the domains of each level below a vertex."""
    if "rooms" in vertex.notes:
        known: list[list[int]] = vertex.notes["rooms"]
        return known
    if vertex.leaves is not None:
        depth = vertex.leaves.costs.depth
        rooms = [vertex.leaves.rooms if level >= vertex.leaves.top else [] for level in range(depth)]
    else:
        rooms = []
        for part in vertex.parts:
            inside = [] if part.state is not None else rooms_below(part)
            while len(rooms) < max(len(inside), part.bottom + 1):
                rooms.append([])
            for level, below in enumerate(inside):
                rooms[level] += below
            for level in range(part.top, part.bottom + 1):
                rooms[level].append(part.room)
    vertex.notes["rooms"] = rooms
    return rooms


def rooms_at(vertex: Vertex, level: int) -> list[int]:
    """Rooms of the domains of a level in a domain, or its own where it stands for the level."""
    return [vertex.room] if vertex.bottom >= level else rooms_below(vertex)[level]


def least_cost(vertex: Vertex, wanted: int, costs: Costs) -> int:
    """At most the cost of holding so many pods in a domain, that of using it left out: each level alone."""
    total = 0
    for level, sums in enumerate(room_sums(vertex)):
        if sums:
            total += (bisect_left(sums, wanted) + 1) << costs.domains[level]
            total += wanted << costs.leftover[level]
    return total
