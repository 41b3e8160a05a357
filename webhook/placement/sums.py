"""Which numbers of pods so many nodes of one domain hold, and the nodes for one of these numbers."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from webhook.placement.tree import Vertex


@lru_cache(maxsize=4096)
def sums_of(rooms: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(m, s): the sums s that m of the rooms reach, as far as m - 1 of them do not reach as much.

    rooms are in descending order. Bit s of reach[m] is set when m rooms add up to s.
    """
    reach = [1] + [0] * len(rooms)
    for number, room in enumerate(rooms, start=1):
        for count in range(number, 0, -1):
            reach[count] |= reach[count - 1] << room
    result = []
    top = 0
    for count, sums in enumerate(reach[1:], start=1):
        bits = sums >> top + 1
        position = top + 1
        while bits:
            step = (bits & -bits).bit_length()
            position += step - 1
            result.append((count, position))
            bits >>= step
            position += 1
        top = sum(rooms[:count])
    return tuple(result)


def subset(nodes: Sequence[Vertex], count: int, total: int) -> list[Vertex]:
    """`count` of the nodes whose rooms add up to `total`, with the least cost, then the first by name."""
    if count == len(nodes):
        return list(nodes)
    best: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, ())}
    by_room: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        by_room.setdefault(node.room, []).append(number)
    for room, members in sorted(by_room.items(), reverse=True):
        members.sort(key=lambda number: (nodes[number].own, number))
        costs = [0, *accumulate(nodes[number].own for number in members)]
        after = dict(best)
        for (held, reached), (cost, chosen) in best.items():
            for more in range(1, min(len(members), count - held) + 1):
                if reached + more * room > total:
                    break
                key = (held + more, reached + more * room)
                found = (cost + costs[more], (*chosen, *members[:more]))
                if key not in after or found < after[key]:
                    after[key] = found
        best = after
    return [nodes[number] for number in best[count, total][1]]
