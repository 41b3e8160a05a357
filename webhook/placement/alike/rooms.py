"""What the knapsack asks about the inside of a domain, worked out once for each vertex and kept with it."""

from collections import Counter
from itertools import accumulate

from webhook.placement.costs import SCORE_BITS
from webhook.placement.tree import Vertex

Shape = tuple[int, frozenset[tuple[object, int]]]


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


def census(vertex: Vertex) -> list[tuple[int, int]]:
    """Of each level below a vertex the number of domains and the largest room; (0, 0) for other levels."""
    if "census" in vertex.notes:
        known: list[tuple[int, int]] = vertex.notes["census"]
        return known
    if vertex.leaves is not None:
        leaves = vertex.leaves
        all_below = (len(leaves.rooms), max(leaves.rooms))
        found = [all_below if level >= leaves.top else (0, 0) for level in range(leaves.costs.depth)]
    else:
        found = []
        for part in vertex.parts:
            inside = [] if part.state is not None else census(part)
            found += [(0, 0)] * (max(len(inside), part.bottom + 1) - len(found))
            for level in range(part.top, len(found)):
                number, largest = (1, part.room) if level <= part.bottom else inside[level]
                found[level] = (found[level][0] + number, max(found[level][1], largest))
    vertex.notes["census"] = found
    return found


def discords_of(vertex: Vertex) -> set[int]:
    """The discords of the nodes of a domain."""
    if "discords" not in vertex.notes:
        if vertex.state is not None:
            found = {vertex.own & (1 << SCORE_BITS) - 1}
        elif vertex.leaves is not None:
            found = set(vertex.leaves.discords)
        else:
            found = {discord for part in vertex.parts for discord in discords_of(part)}
        vertex.notes["discords"] = found
    known: set[int] = vertex.notes["discords"]
    return known


def shape(vertex: Vertex) -> Shape:
    """Equal for two domains (or nodes) that differ in names alone: the same costs, rooms and discords."""
    if "shape" not in vertex.notes:
        if vertex.leaves is not None:
            inside: Counter[object] = Counter(zip(vertex.leaves.rooms, vertex.leaves.discords, strict=True))
        else:
            inside = Counter(map(shape, vertex.parts))
        vertex.notes["shape"] = (vertex.own, frozenset(inside.items()))
    known: Shape = vertex.notes["shape"]
    return known
