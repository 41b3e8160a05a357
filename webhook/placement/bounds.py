"""Rooms of the domains below a vertex, level by level, and the bounds of costs that follow from them.

What is asked about the inside of a domain is worked out once for each vertex and kept with it.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from webhook.placement.budget import Budget
from webhook.placement.costs import COUNT_BITS, Costs
from webhook.placement.model import Gang, Mode, Options
from webhook.placement.question import Impossible, ask
from webhook.placement.snapshot import Snapshot
from webhook.placement.tree import build
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


def census(vertex: Vertex) -> list[tuple[int, int]]:
    """Of each level below a vertex the number of domains and the largest room; (0, 0) for other levels."""
    if "census" in vertex.notes:
        known: list[tuple[int, int]] = vertex.notes["census"]
        return known
    leaves = vertex.leaves
    if leaves is not None:  # quicker worked out than remembered
        above = leaves.top
        return [(0, 0)] * above + [(len(leaves.rooms), max(leaves.rooms))] * (leaves.costs.depth - above)
    numbers: list[int] = []
    largest: list[int] = []
    for part in vertex.parts:
        inside = [] if part.state is not None else census(part)
        missing = max(len(inside), part.bottom + 1) - len(numbers)
        if missing > 0:
            numbers += [0] * missing
            largest += [0] * missing
        for level in range(part.top, part.bottom + 1):
            numbers[level] += 1
            largest[level] = max(largest[level], part.room)
        for level in range(part.bottom + 1, len(inside)):
            number, most = inside[level]
            numbers[level] += number
            if most > largest[level]:
                largest[level] = most
    found = vertex.notes["census"] = list(zip(numbers, largest, strict=True))
    return found


def shape(vertex: Vertex) -> object:
    """Equal for two domains, or nodes, that differ in names alone to identical pods: levels, costs, rooms."""
    if "shape" not in vertex.notes:
        leaves = vertex.leaves
        if leaves is not None:
            inside = Counter[object](zip(leaves.rooms, leaves.every[0], leaves.penalties, strict=True))
        else:
            inside = Counter(map(shape, vertex.parts))
        mine = vertex.top, vertex.bottom, vertex.own, vertex.room, vertex.rooms[:1]
        vertex.notes["shape"] = (*mine, frozenset(inside.items()))
    return vertex.notes["shape"]


def child_rooms(vertex: Vertex) -> list[int]:
    """Rooms of the children of a domain."""
    return vertex.leaves.rooms if vertex.leaves is not None else [part.room for part in vertex.parts]


def anchored_children(vertex: Vertex, costs: Costs) -> set[int]:
    """Numbers of the children that anchors use, so that using them costs nothing at their highest level."""
    level = vertex.bottom + 1
    return {number for number, part in enumerate(vertex.parts) if not _is_paid(part, level, costs)}


def _is_paid(part: Vertex, level: int, costs: Costs) -> bool:
    """Whether using a domain costs one of a level."""
    return bool(part.own >> costs.domains[level] & (1 << COUNT_BITS) - 1)


def rooms_beside(part: Vertex, level: int, costs: Costs) -> tuple[list[int], list[int]]:
    """Rooms of a domain's domains of a level: of those that anchors use, which cost nothing, and of the
    others.
    """
    if part.bottom >= level:
        return ([], [part.room]) if _is_paid(part, level, costs) else ([part.room], [])
    if not anchored_children(part, costs):  # nor is there any in what stands as leaves
        return [], rooms_at(part, level)
    below = [rooms_beside(each, level, costs) for each in part.parts]
    return [room for free, _ in below for room in free], [room for _, paid in below for room in paid]


def least_held(rooms: Sequence[int], anchored: set[int], wanted: int) -> tuple[dict[int, int], int]:
    """The children that can be part of a solution with the fewest children, with the least that each holds
    then, and that number of children. rooms: of all children; anchored: numbers of those that cost nothing.

    Of a level that compares first: a child that costs holds what all others of that number cannot.
    """
    missing = wanted - sum(rooms[number] for number in anchored)
    if missing <= 0:
        return dict.fromkeys(sorted(anchored), 0), 0
    others = sorted((room for number, room in enumerate(rooms) if number not in anchored), reverse=True)
    sums = list(accumulate(others))
    fewest = bisect_left(sums, missing) + 1
    least = missing - (sums[fewest - 2] if fewest > 1 else 0)
    found = {
        number: 0 if number in anchored else least
        for number, room in enumerate(rooms)
        if number in anchored or room >= least
    }
    return found, fewest


def least_domains(gang: Gang, snapshot: Snapshot, options: Options, budget: Budget) -> tuple[int, ...] | None:
    """At least so many domains of each level, the coarsest first, and nodes; None if there is no room.

    Each level for itself: the roomiest domains that together hold the gang. For pods that are alike, without
    placed ones, in modes in which the fewest domains are best; of others an empty tuple, which says nothing:
    so also where the rooms of cards are not decided within the budget, as there may be more than is known.
    What is found out about the blocks of the snapshot is kept for place. Raises PlacementError as place does.
    """
    try:
        question, _ = ask(gang, snapshot, options)
    except Impossible:
        return None
    if options.mode is not Mode.BEST_FIT or len(question.counts) != 1 or question.slices or question.anchored:
        return ()
    tree = build(question, snapshot, budget.part(budget.left // 2))
    if not tree.exact:
        return ()
    wanted = question.counts[0]
    if tree.root.room < wanted:
        return None
    return tuple(bisect_left(sums, wanted) + 1 for sums in room_sums(tree.root))
