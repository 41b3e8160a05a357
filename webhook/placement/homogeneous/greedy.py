"""When the search of workers in slices, or with minority pods, runs out of steps: a place by a simple rule.

Domain by domain, from the top: the tightest that holds the rest alone, else the largest, those already paid
for before others. What a domain holds is counted in whole slices. On the nodes chosen so, minority pods find
their places exactly (see sharing); where they do not, the rule asks for capacity for more workers, at last
for all that there is. So with steps enough it finds a place whenever there is one, but not the best.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from math import prod
from typing import Final

from webhook.placement.bounds import census
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.homogeneous.minority_pods import MinorityPods
from webhook.placement.homogeneous.surrogate import shared
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState, key_of
from webhook.placement.vertex import Vertex, domains_at

STATES: Final = 256
"""States of minority pods beyond which nothing is tried: eight pods all unlike."""

GROWTH: Final = 4
"""By how much more capacity than before the next try has."""

SHARED: Final = 6
"""Steps for a node among which pods are shared out."""


def first_found(question: Question, root: Vertex, budget: Budget) -> dict[str, Counts] | None:
    """A feasible distribution within the steps, or None, which says nothing."""
    states = prod(count + 1 for count in question.counts[1:])
    if states > STATES or states**2 // 8 > budget.left:
        return None
    minority = MinorityPods(question, budget)
    workers = question.counts[0]
    regions = [region for region in domains_at(root, question.required) if region.free_slots >= workers]
    with suppress(OutOfSteps):
        budget.spend(states**2 // 8)
        for vertex in sorted(regions, key=lambda region: region.free_slots):
            found = _Region(question, minority, vertex).solve()
            if found is not None:
                return found
    return None


_At = tuple[int, ...]
"""Where a domain or a node is: its number among its siblings, at each vertex on the way. It orders as the
topology does."""


@dataclass(slots=True)
class _RegionPart:
    """A domain, and the workers that it holds in whole slices. parts: below it; None if not yet looked at."""

    at: _At
    vertex: Vertex
    most: int
    parts: list["_RegionPart"] | None = None


class _Region:
    """A domain of the required level, or the cluster; what is inside is looked at once it is asked for."""

    def __init__(self, question: Question, minority: MinorityPods, vertex: Vertex) -> None:
        """Raises OutOfSteps."""
        self.question = question
        self.minority = minority
        self.finest = max((level for level, _ in question.slices), default=-1)
        """The lowest level with slices: below it capacities are what they are."""
        self.nodes: dict[_At, tuple[NodeState, Counts]] = {}
        """Those looked at, with their capacities for each class alone."""
        self.groups: dict[_At, list[_At]] = {}
        """The nodes of each domain just around nodes that was looked at."""
        self.around: dict[_At, _At] = {}
        """For each node looked at that domain."""
        self.count = census(vertex)[-1][0] if vertex.state is None else 1
        self.root = self._domain(vertex, ())

    def solve(self) -> dict[str, Counts] | None:
        """All pods, or None. Raises OutOfSteps."""
        workers, minority = self.question.counts[0], self.minority
        spare = self.root.most - workers
        if spare < 0:
            return None
        more = 0
        while more <= spare and self.count > minority.most:
            chosen: set[_At] = set()
            self._choose(self.root, workers + more, chosen)
            free_slots = sum(self.nodes[number][1][0] for number in chosen)
            # Where workers fill all of it, minority pods hardly ever have places there.
            found = self._shared(chosen) if free_slots >= workers + minority.most else None
            if found is None and minority.most:
                found = self._shared(self._for_minority(chosen))
            if found is not None:
                return found
            more = more * GROWTH + minority.most + 1
        self._afford(self.count)
        return self._shared(set(self._every(self.root)))

    def _afford(self, nodes: int) -> None:
        if SHARED * nodes > self.minority.budget.left:
            raise OutOfSteps

    def _shared(self, chosen: set[_At]) -> dict[str, Counts] | None:
        self._afford(len(chosen))
        self.minority.budget.spend(SHARED * len(chosen))
        picked = [self.nodes[number] for number in sorted(chosen)]
        states = [state for state, _ in picked]
        slot_counts = self.minority.slot_counts(states, [alone for _, alone in picked])
        return shared(self.question, self.minority, list(zip(states, slot_counts, strict=True)))

    def _for_minority(self, chosen: set[_At]) -> set[_At]:
        """And as many nodes besides as minority pods of each class: in domains in use those with the least
        capacity for workers first, then any.
        """
        found = set(chosen)
        near = [at for group in sorted({self.around[each] for each in chosen}) for at in self.groups[group]]
        for number, count in enumerate(self.question.counts[1:], start=1):
            self.minority.budget.spend(len(near) // 3)
            places = (at for at in near if at not in found and self._takes(at, number))
            best = nsmallest(count, places, key=lambda at: (self.nodes[at][1][0], at))
            if len(best) < count:
                self.minority.budget.spend(self.count // 8)
                far = (at for at in self._every(self.root) if at not in found and self._takes(at, number))
                best = list(islice(far, count))
            found.update(best)
        return found

    def _takes(self, at: _At, number: int) -> bool:
        """Whether a node has capacity for a pod of a class."""
        return self.nodes[at][1][number] > 0

    # --- what domains hold, and which are chosen ---------------------------------------------------

    def _domain(self, vertex: Vertex, at: _At) -> _RegionPart:
        domain = _RegionPart(at, vertex, vertex.free_slots)
        self.minority.budget.spend()
        if vertex.top <= self.finest:
            if vertex.state is None:
                domain.most = sum(part.most for part in self._parts(domain)) + sum(self._slot_counts(vertex))
            domain.most = self._in_slices(domain.most, vertex.top, vertex.bottom + 1)
        return domain

    def _parts(self, domain: _RegionPart) -> list[_RegionPart]:
        """The domains just below, and nodes that stand alone; none where below it there are nodes alone."""
        if domain.parts is None:
            domain.parts = [self._domain(part, (*domain.at, n)) for n, part in enumerate(domain.vertex.parts)]
        return domain.parts

    def _slot_counts(self, vertex: Vertex) -> list[int]:
        """Of nodes that stand just below, in whole slices."""
        leaves = vertex.leaves
        if leaves is None or leaves.top > self.finest:
            return leaves.slot_counts if leaves is not None else []
        self.minority.budget.spend(1 + len(leaves.slot_counts) // 2)
        return [
            self._in_slices(free_slots, leaves.top, leaves.costs.depth) for free_slots in leaves.slot_counts
        ]

    def _group(self, domain: _RegionPart) -> list[_At]:
        """The nodes of a domain just around nodes, or the node that it is; they have been looked at then."""
        if domain.at not in self.groups:
            vertex, leaves = domain.vertex, domain.vertex.leaves
            if leaves is not None:
                self.minority.budget.spend(1 + len(leaves.slot_counts) // 2)
                group = [(*domain.at, number) for number in range(len(leaves.slot_counts))]
                slot_counts = zip(*leaves.every, strict=True)
                self.nodes.update(zip(group, zip(leaves.states, slot_counts, strict=True), strict=True))
            else:
                assert vertex.state is not None
                self.minority.budget.spend()
                group = [domain.at]
                self.nodes[domain.at] = vertex.state, vertex.slot_counts
            self.groups[domain.at] = group
            self.around.update(dict.fromkeys(group, domain.at))
        return self.groups[domain.at]

    def _every(self, domain: _RegionPart) -> Iterator[_At]:
        """All nodes of a domain, in topology order."""
        if domain.vertex.parts:
            for part in self._parts(domain):
                yield from self._every(part)
        else:
            yield from self._group(domain)

    def _in_slices(self, free_slots: int, first: int, end: int) -> int:
        """Of a capacity in a domain that stands for these levels, what whole slices take."""
        size = next((size for level, size in self.question.slices if first <= level < end), 1)
        return free_slots - free_slots % size

    def _choose(self, domain: _RegionPart, workers: int, chosen: set[_At]) -> None:
        """Add the nodes for so many workers."""
        if domain.vertex.parts:
            parts = self._parts(domain)
            paid = {number for number, part in enumerate(parts) if self._is_paid(part.vertex)}
            for number, given in self._given([part.most for part in parts], paid, workers):
                self._choose(parts[number], given, chosen)
            return
        group = self._group(domain)
        if domain.vertex.leaves is None:
            chosen.update(group)
            return
        around = self._is_paid(domain.vertex)
        paid = {n for n, at in enumerate(group) if self._is_anchored(at)} if around else set()
        chosen.update(
            group[number] for number, _ in self._given(self._slot_counts(domain.vertex), paid, workers)
        )

    def _is_paid(self, vertex: Vertex) -> bool:
        return vertex.key[: vertex.top + 2] in self.question.anchored

    def _is_anchored(self, at: _At) -> bool:
        levels = self.question.levels
        return key_of(self.nodes[at][0], levels)[: levels + 2] in self.question.anchored

    def _given(self, slot_counts: Sequence[int], paid: set[int], workers: int) -> Iterator[tuple[int, int]]:
        """Which of some capacities take the workers, and how many each."""
        self.minority.budget.spend(1 + len(slot_counts) // 4)
        for group in (sorted(paid), [number for number in range(len(slot_counts)) if number not in paid]):
            order = sorted(group, key=lambda number: (slot_counts[number], -number))
            while workers and order and slot_counts[order[-1]]:
                enough = bisect_left(order, workers, key=slot_counts.__getitem__)
                number = order.pop(min(enough, len(order) - 1))
                given = min(workers, slot_counts[number])
                workers -= given
                yield number, given
