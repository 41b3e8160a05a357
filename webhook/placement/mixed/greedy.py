"""When the search of workers in slices, or with odd pods, runs out of steps: a place by a simple rule.

Domain by domain, from the top: the tightest that holds the rest alone, else the roomiest, those already paid
for before others. What a domain holds is counted in whole slices. On the nodes chosen so, odd pods find their
places exactly (see sharing); where they do not, the rule asks for room for more workers, at last for all that
there is. So with steps enough it finds a place whenever there is one, but not the best.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from math import prod
from typing import Final

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.mixed.odd import Odd
from webhook.placement.mixed.sharing import shared
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState, key_of
from webhook.placement.tree import Vertex, domains_at

STATES: Final = 256
"""States of odd pods beyond which nothing is tried: eight pods all unlike."""

GROWTH: Final = 4
"""By how much more room than before the next try has."""

SHARED: Final = 6
"""Steps for a node among which pods are shared out."""


def first_found(question: Question, root: Vertex, budget: Budget) -> dict[str, Counts] | None:
    """A feasible distribution within the steps, or None, which says nothing."""
    states = prod(count + 1 for count in question.counts[1:])
    if states > STATES or states**2 // 8 > budget.left:
        return None
    odd = Odd(question, budget)
    workers = question.counts[0]
    regions = [region for region in domains_at(root, question.required) if region.room >= workers]
    with suppress(OutOfSteps):
        budget.spend(states**2 // 8)
        for vertex in sorted(regions, key=lambda region: region.room):
            found = _Region(question, odd, vertex).solve()
            if found is not None:
                return found
    return None


@dataclass(slots=True)
class _Held:
    """A domain: the number of its first node, workers that it holds in whole slices, whether it is in use
    already. Below it are parts, or nodes with rooms for so many workers in whole slices.
    """

    start: int
    most: int
    paid: bool
    parts: list["_Held"] = field(default_factory=list)
    rooms: list[int] = field(default_factory=list)


class _Region:
    """A domain of the required level, or the cluster."""

    def __init__(self, question: Question, odd: Odd, vertex: Vertex) -> None:
        """Raises OutOfSteps."""
        self.question = question
        self.odd = odd
        self.nodes: list[tuple[NodeState, Counts]] = []
        """In topology order, with their rooms for each class alone."""
        self.around: list[int] = []
        """For each node the first one of the domain just around it."""
        self.groups: dict[int, range] = {}
        """The nodes of such a domain, by the first."""
        self.whole = self._held(vertex)

    def solve(self) -> dict[str, Counts] | None:
        """All pods, or None. Raises OutOfSteps."""
        workers, odd = self.question.counts[0], self.odd
        spare = self.whole.most - workers
        if spare < 0:
            return None
        more = 0
        while more <= spare and len(self.nodes) > odd.most:
            chosen: set[int] = set()
            self._choose(self.whole, workers + more, chosen)
            room = sum(self.nodes[number][1][0] for number in chosen)
            # Where workers fill all of it, odd pods hardly ever have places there.
            found = self._shared(chosen) if room >= workers + odd.most else None
            if found is None and odd.most:
                found = self._shared(self._for_odd(chosen))
            if found is not None:
                return found
            more = more * GROWTH + odd.most + 1
        return self._shared(range(len(self.nodes)))

    def _shared(self, chosen: set[int] | range) -> dict[str, Counts] | None:
        budget = self.odd.budget
        if SHARED * len(chosen) > budget.left:
            raise OutOfSteps
        budget.spend(SHARED * len(chosen))
        picked = [self.nodes[number] for number in sorted(chosen)]
        states = [state for state, _ in picked]
        rooms = self.odd.rooms(states, [alone for _, alone in picked])
        return shared(self.question, self.odd, list(zip(states, rooms, strict=True)))

    def _for_odd(self, chosen: set[int]) -> set[int]:
        """And as many nodes besides as odd pods of each class: in domains in use those with the least room
        for workers first, then any.
        """
        found = set(chosen)
        near = [n for start in sorted({self.around[number] for number in chosen}) for n in self.groups[start]]
        for number, count in enumerate(self.question.counts[1:], start=1):
            self.odd.budget.spend(len(near) // 3)
            places = ((self.nodes[n][1][0], n) for n in near if n not in found and self.nodes[n][1][number])
            best = [position for _, position in nsmallest(count, places)]
            if len(best) < count:
                self.odd.budget.spend(len(self.nodes) // 8)
                far = (n for n, (_, rooms) in enumerate(self.nodes) if rooms[number] and n not in found)
                best = list(islice(far, count))
            found.update(best)
        return found

    # --- what domains hold, and which are chosen ---------------------------------------------------

    def _held(self, vertex: Vertex) -> _Held:
        held = _Held(len(self.nodes), 0, vertex.key[: vertex.top + 2] in self.question.anchored)
        if vertex.leaves is not None:
            leaves = vertex.leaves
            self.odd.budget.spend(1 + len(leaves.rooms) // 2)
            self.nodes += zip(leaves.states, zip(*leaves.every, strict=True), strict=True)
            self._group(held.start)
            held.rooms = [self._whole(room, leaves.top, leaves.costs.depth) for room in leaves.rooms]
        elif vertex.state is not None:
            self.odd.budget.spend(2)
            self.nodes.append((vertex.state, vertex.rooms))
            self._group(held.start)
            held.rooms = [vertex.room]
        else:
            self.odd.budget.spend()
            held.parts = [self._held(part) for part in vertex.parts]
        total = sum(held.rooms) + sum(part.most for part in held.parts)
        held.most = self._whole(total, vertex.top, vertex.bottom + 1)
        return held

    def _group(self, start: int) -> None:
        """Nodes that stand together were added."""
        self.groups[start] = range(start, len(self.nodes))
        self.around += [start] * len(self.groups[start])

    def _whole(self, room: int, first: int, end: int) -> int:
        """Of a room in a domain that stands for these levels, what whole slices take."""
        size = next((size for level, size in self.question.slices if first <= level < end), 1)
        return room - room % size

    def _choose(self, held: _Held, workers: int, chosen: set[int]) -> None:
        """Add the nodes for so many workers."""
        if held.parts:
            rooms = [part.most for part in held.parts]
            paid = {number for number, part in enumerate(held.parts) if part.paid}
            for number, given in self._given(rooms, paid, workers):
                self._choose(held.parts[number], given, chosen)
            return
        numbers = range(held.start, held.start + len(held.rooms))
        paid = {n - held.start for n in numbers if self._is_anchored(n)} if held.paid else set()
        chosen.update(held.start + number for number, _ in self._given(held.rooms, paid, workers))

    def _is_anchored(self, number: int) -> bool:
        levels = self.question.levels
        return key_of(self.nodes[number][0], levels)[: levels + 2] in self.question.anchored

    def _given(self, rooms: Sequence[int], paid: set[int], workers: int) -> Iterator[tuple[int, int]]:
        """Which of some rooms take the workers, and how many each."""
        self.odd.budget.spend(1 + len(rooms) // 4)
        for group in (sorted(paid), [number for number in range(len(rooms)) if number not in paid]):
            order = sorted(group, key=lambda number: (rooms[number], -number))
            while workers and order and rooms[order[-1]]:
                enough = bisect_left(order, workers, key=rooms.__getitem__)
                number = order.pop(min(enough, len(order) - 1))
                given = min(workers, rooms[number])
                workers -= given
                yield number, given
