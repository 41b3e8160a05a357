"""The optimum for identical pods at any size: a covering knapsack over the tree, solved exactly.

Theory. All pods are alike, so a node is a number, its room, and a solution is a set of nodes whose rooms add
up to at least the demand k; its cost is the sum of the costs of the nodes and domains used (see costs.Costs).

* A domain that holds all k alone beats any two (one domain at that level, exchange argument), so while there
  is one only such domains are looked into. The domains that hold all while no child of theirs does (covering
  domains) are tried best bound first: the bound takes each level for itself, the fewest domains of that
  level, largest first, that hold k, and at least k pods of leftover. Best-first search ends at the first
  covering domain whose exact cost is below the bounds of all others.
* In a covering domain several children share the pods. Only children roomy enough to be part of a solution
  with the fewest children can matter. Their knapsack is solved by layers.Layers, which calls back for the
  solutions inside a child: numbers of domains first, then leftover and headroom penalty among the solutions
  with those numbers.
* Beside anchors the domains that these use cost nothing at their level. Of the others only those matter that
  can be part of a solution with the fewest, and none where the former have room enough.
* Nodes of one domain with equal room and equal cost are one part: t of them hold t times the room, those with
  the most headroom first.
* Where all nodes have the same room the number of nodes is given and need not be searched for. If they have
  the same headroom penalty too, it does not matter which nodes of a domain are taken, so a domain of nodes
  is taken whole, and what is too much is left out at the end.

With K = k + 1 and o_d offers of domain d (amounts up to its room, at most k) the work on numbers of domains
is O(K * sum of o_d) vector elements. All is polynomial in k and the number of nodes, and the answer is the
optimum in every field of the objective if the steps of the budget suffice for it. Sources: the tree knapsack
for "at least k" and its bounds are standard (Kellerer, Pferschy, Pisinger: Knapsack Problems, 2004).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any

from webhook.placement.alike.one_more import one_more
from webhook.placement.alike.rooms import Pick, anchored_children, child_rooms, node
from webhook.placement.bounds import least_cost
from webhook.placement.budget import Budget
from webhook.placement.question import Counts, Question
from webhook.placement.solution import Solution
from webhook.placement.vertex import Vertex


@dataclass(frozen=True, slots=True)
class Cover:
    """Nodes in topology order that hold the gang, and their cost in all its fields."""

    cost: int
    picks: list[Pick]


_Covering = tuple[int, Vertex | Pick, int | None]
"""A domain with the cost of using it and what is around it, or a node with that of what is around it; and at
most the cost of holding the gang in the domain, where that is known.
"""


class Knapsack:
    """One question of identical pods without slices."""

    def __init__(self, question: Question, budget: Budget) -> None:
        """question: one class, no slices; mode best-fit."""
        self.question = question
        self.budget = budget
        self.costs = question.costs()
        self.wanted = question.counts[0]

    def solve(self, root: Vertex) -> Cover | None:
        """The nodes that hold the gang at least cost, or None when it does not fit. Raises OutOfSteps."""
        domains = [
            covering
            for base, vertex in self.roots(root, 0)
            if vertex.room >= self.wanted
            for covering in self._covering(vertex, base)
        ]
        heap: list[tuple[int, int, int, int, Any]] = []
        for number, (base, covering, least) in enumerate(domains):
            if isinstance(covering, Vertex):
                if least is None:
                    least = self._bound(covering) if len(domains) > 1 else 0
                heap.append((base + least, _BOUNDED, number, base, covering))
            else:
                heap.append((base + covering[2], _SOLVED, number, base, [covering]))
        heapify(heap)
        while heap:
            bound, stage, number, base, known = heappop(heap)
            if stage == _SOLVED:
                return Cover(bound, known)
            if stage == _BOUNDED:
                # Numpy takes a tenth of a second to load: not before a gang needs more than one node.
                from webhook.placement.alike.covering import CoveringDomain

                inside = CoveringDomain(self.question, self.costs, known, self.budget)
                heappush(heap, (max(bound, base + inside.bound()), _COUNTED, number, base, inside))
            else:
                cost, picks = known.solve()
                heappush(heap, (base + cost, _SOLVED, number, base, picks))
        return None

    def roots(self, vertex: Vertex, base: int) -> Iterator[tuple[int, Vertex]]:
        """The domains of the required level, or the cluster, each with the cost of using those around it."""
        if self.question.required is None or vertex.bottom >= self.question.required:
            yield base, vertex
            return
        for child in vertex.children:
            yield from self.roots(child, base + vertex.own)

    def _covering(self, vertex: Vertex, base: int) -> Iterator[_Covering]:
        """The covering domains in a domain, and single nodes that hold all. base: cost of the domains around
        the vertex. Raises OutOfSteps.
        """
        if vertex.state is not None:
            yield base, node((vertex,), 0), None
            return
        base += vertex.own
        leaves = vertex.leaves
        enough = [n for n, room in enumerate(child_rooms(vertex)) if room >= self.wanted]
        if self.question.anchored:
            used = anchored_children(vertex, self.costs)
            if len(used) == 1 and not used.isdisjoint(enough):  # all others cost more
                yield from self._covering(vertex.parts[used.pop()], base)
                return
            parts = one_more(vertex, self.wanted, self.costs, self.budget)
            yield from ((base, part, least) for least, part in parts)
            if not parts:
                yield base, vertex, None
        elif not enough:
            yield base, vertex, None
        elif leaves is not None:
            least = min(leaves.rooms[number] for number in enough)
            tightest = [number for number in enough if leaves.rooms[number] == least]
            yield base, node(leaves, min(tightest, key=leaves.penalties.__getitem__)), None
        else:
            for number in enough:
                yield from self._covering(vertex.parts[number], base)

    def _bound(self, vertex: Vertex) -> int:
        """At most the cost of holding the gang in a domain, without that of using it."""
        return 0 if self.question.anchored else least_cost(vertex, self.wanted, self.costs)


_SOLVED, _COUNTED, _BOUNDED = range(3)
"""What is known of a domain on the heap; of equal bounds the one that is known best comes first."""


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum for identical pods without slices, in mode best-fit. Raises OutOfSteps."""
    cover = Knapsack(question, budget).solve(root)
    if cover is None:
        return Solution(None, True)
    counts: dict[str, Counts] = {}
    left = question.counts[0]
    for state, room, _ in cover.picks:  # filled in the order of the topology; the last may stay partly free
        if left:
            counts[state.node.name] = (min(left, room),)
            left -= min(left, room)
    return Solution(counts, True, cover.cost)
