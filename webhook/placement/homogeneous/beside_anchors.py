"""Beside anchors, where one more child of a domain suffices: a lower bound of the cost with each such child.

The bounds take each level alone, as bounds.least_cost does, and the smallest sets of domains at the second
level (see bounds.smallest_sets). Domains that anchors use cost nothing.
"""

from dataclasses import replace
from itertools import accumulate, chain
from typing import Final

from webhook.placement.bounds import (
    NO_SETS,
    SmallestSets,
    anchored_children,
    first_of_equals,
    least_cost_at,
    slot_counts_at,
    slot_counts_beside,
    smallest_sets,
)
from webhook.placement.budget import Budget
from webhook.placement.costs import Costs
from webhook.placement.vertex import Vertex

MOST: Final = 100_000
"""The most capacities that are sorted."""

SORTED: Final = 12
"""Capacities that are sorted in one step."""


class OneMore:
    """The anchored children of a domain and one more, which together have free slots for a gang."""

    def __init__(self, vertex: Vertex, wanted: int, costs: Costs) -> None:
        """wanted: pods."""
        self.vertex = vertex
        self.costs = costs
        self.anchored = [vertex.parts[number] for number in anchored_children(vertex, costs)]
        self.levels = range(vertex.bottom + 1, costs.depth)
        beside = [[slot_counts_beside(part, level, costs) for part in self.anchored] for level in self.levels]
        self.needs = [wanted - sum(chain.from_iterable(free for free, _ in each)) for each in beside]
        """At each level: the pods that do not fit into domains that anchors use."""
        self.paid = [[*chain.from_iterable(paid for _, paid in each)] for each in beside]
        """At each level: the capacities of other domains of the anchored children."""

    def bounds(self, budget: Budget) -> list[tuple[int, int]]:
        """Lower bounds of the cost, the lowest first, each with the number of the child.

        Of children that differ only in their names, the first is listed. It returns none if no child or more
        than one is needed, or if the bounds take too long. Raises OutOfSteps.
        """
        parts, need = self.vertex.parts, self.needs[0]
        enough = [n for n, part in enumerate(parts) if part not in self.anchored and part.free_slots >= need]
        is_open = self.anchored and need > 0 and len(self.levels) > 1
        numbers = first_of_equals(parts, enough, 1) if is_open else []
        capacities = sum(map(len, self.paid)) * len(numbers)
        if capacities > MOST:
            return []
        budget.spend(1 + capacities // SORTED)
        return sorted((self._bound(parts[number], budget), number) for number in numbers)

    def _bound(self, child: Vertex, budget: Budget) -> int:
        smallest = self._smallest_sets(child, budget)
        every = [
            list(accumulate(sorted([*paid, *slot_counts_at(child, level)], reverse=True)))
            for level, paid in zip(self.levels, self.paid, strict=True)
        ]
        total = 0
        for level, need, sums in zip(self.levels, self.needs, every, strict=True):
            if need > 0:
                is_of_nodes = need == self.needs[-1] and sums == every[-1]  # or of hosts of one node each
                nodes = smallest.nodes if is_of_nodes else 0
                slots = smallest.slots if level == self.levels[1] else 0
                total += least_cost_at(level, sums, need, self.costs, nodes, slots)
        return total

    def _smallest_sets(self, child: Vertex, budget: Budget) -> SmallestSets:
        """The smallest sets of the child's domains and of those of the anchored children without anchors."""
        same = all(part.parts and part.bottom == self.levels[0] for part in (*self.anchored, child))
        if self.needs[1] <= 0 or not same:
            return NO_SETS
        parts, beside = [*child.parts], []
        for part in self.anchored:
            used = anchored_children(part, self.costs)
            parts += [each for n, each in enumerate(part.parts) if n not in used]
            for number in used:
                beside += slot_counts_beside(part.parts[number], self.levels[-1], self.costs)[1]
        domain = replace(self.vertex, bottom=child.bottom, parts=tuple(parts), notes={})
        return smallest_sets(domain, self.needs[-1], budget, beside)
