"""A cost as one integer made of fields, the most important highest; so costs add up and compare.

The fields: domains used at each level, leftover at each level, headroom penalty, and where pods
have preferences what the nodes lack of these (see model.Objective). In mode keep-whole the holes stand among
the domains, before those of the machines.
"""

from webhook.placement.model import Objective

COUNT_BITS = 32
ROOM_BITS = 64
SCORE_BITS = 64
MOST_UNLIKED = 900
"""What a node lacks at most of what its pods would like; see preferences."""

HOLE_BITS = 96
"""For the squares of rooms: of as many pods as capacity.UNBOUNDED, on 100,000 nodes."""


class Costs:
    """Packs and unpacks the fields of a cost for a topology of `levels` label levels and the node below."""

    def __init__(self, levels: int, machine: int | None = None, ties: int = 0) -> None:
        """levels: number of label levels, without the node. machine: in mode keep-whole the level from which
        on domains are machines, else None. ties: bits of the preferences, below those of the headroom.
        """
        self._of_nodes: dict[tuple[int, int], int] = {}
        self.ties = ties
        self.most_penalty = 100 if not ties else (100 << ties) + MOST_UNLIKED
        """The largest penalty of a node: for its headroom and for what its pods would like."""
        self.depth = levels + 1
        self.machine = machine
        self.leftover = [SCORE_BITS + ROOM_BITS * (self.depth - 1 - level) for level in range(self.depth)]
        first = SCORE_BITS + ROOM_BITS * self.depth
        self.domains = [first + COUNT_BITS * (self.depth - 1 - level) for level in range(self.depth)]
        self.holes = 0
        if machine is not None:
            self.holes = first + COUNT_BITS * (self.depth - machine)
            self.domains[:machine] = [shift + HOLE_BITS for shift in self.domains[:machine]]

    def of_domain(self, level: int, room: int) -> int:
        """Cost of using one domain of a level that has room for so many pods."""
        cost = (1 << self.domains[level]) + (room << self.leftover[level])
        if self.machine is not None and level == self.depth - 1:
            cost += room * room << self.holes
        return cost

    def of_levels(self, top: int, bottom: int, room: int) -> int:
        """Cost of using a domain that stands for all these levels."""
        return sum(self.of_domain(level, room) for level in range(top, bottom + 1))

    def of_node(self, top: int, room: int) -> int:
        """Cost of using a node that stands for all levels from `top` down, but for its headroom penalty."""
        cost = self._of_nodes.get((top, room))
        if cost is None:
            cost = self._of_nodes[top, room] = self.of_levels(top, self.depth - 1, room)
        return cost

    def objective(self, cost: int) -> Objective:
        """The fields of a cost."""
        return Objective(
            tuple(cost >> shift & (1 << COUNT_BITS) - 1 for shift in self.domains),
            tuple(cost >> shift & (1 << ROOM_BITS) - 1 for shift in self.leftover),
            (cost & (1 << SCORE_BITS) - 1) >> self.ties,
            0 if self.machine is None else cost >> self.holes & (1 << HOLE_BITS) - 1,
            cost & (1 << self.ties) - 1,
        )
