"""Two other ways to place identical pods, written anew from their descriptions, to measure against.

`window` is the search of Google's gke-topology-scheduler daemon: nodes sorted by place, one pod a node, from
every start the next nodes that fit, the least sum of distances between neighbours wins. `best_fit` is the
rule of Kueue's topology-aware scheduling (KEP-2724, phase 2): the lowest level at which one domain holds all,
the tightest such domain; else the largest domains first and the tightest last; then level by level downwards
over the children of all chosen domains together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Place = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """A node: its place from block to host, and its room in pods."""

    place: Place
    room: int


def window(leaves: Sequence[Leaf], wanted: int) -> list[Leaf] | None:
    """The daemon's choice, or None."""
    usable = sorted((leaf for leaf in leaves if leaf.room), key=lambda leaf: leaf.place)
    best: tuple[int, list[Leaf]] | None = None
    for start in range(len(usable) - wanted + 1):
        chosen = usable[start : start + wanted]
        cost = sum(distance(a.place, b.place) for a, b in pairwise(chosen))
        if best is None or cost < best[0]:
            best = (cost, chosen)
    return best[1] if best else None


def distance(first: Place, second: Place) -> int:
    """1,000,000 between blocks, 10,000 between subblocks, 100 between hosts."""
    for cost, a, b in zip((1_000_000, 10_000, 100), first, second, strict=True):
        if a != b:
            return cost
    return 0


def best_fit(leaves: Sequence[Leaf], wanted: int) -> list[Leaf] | None:
    """Kueue's choice with the lowest level preferred, or None."""
    levels = len(leaves[0].place)
    rooms: list[dict[Place, int]] = [{} for _ in range(levels)]
    for leaf in leaves:
        for level in range(levels):
            prefix = leaf.place[: level + 1]
            rooms[level][prefix] = rooms[level].get(prefix, 0) + leaf.room
    level = levels - 2  # the level above hosts is the preferred one
    while level > 0 and max(rooms[level].values()) < wanted:
        level -= 1
    chosen = fewest(rooms[level], wanted)
    if chosen is None:
        return None
    for below in range(level + 1, levels):
        length = below
        pool = {prefix: room for prefix, room in rooms[below].items() if prefix[:length] in chosen}
        chosen = fewest(pool, wanted) or set()
    return [leaf for leaf in leaves if leaf.place in chosen]


def fewest(rooms: dict[Place, int], wanted: int) -> set[Place] | None:
    """Largest domains first, the last one the tightest that finishes."""
    order = sorted(((room, prefix) for prefix, room in rooms.items() if room), key=lambda x: (-x[0], x[1]))
    chosen: set[Place] = set()
    for position, (room, prefix) in enumerate(order):
        if room >= wanted:
            tight = [item for item in order[position:] if item[0] >= wanted]
            return chosen | {min(tight)[1]}
        chosen.add(prefix)
        wanted -= room
    return None
