"""One gang: domain after domain in the order of what they cost at least, while one may be better.

A domain that the bounds rule out, or that costs at least as much as the best place so far, is passed over. So
what is left is proven; the headroom, a tie-break, is not part of any bound here.
"""

import heapq
from collections.abc import Iterator
from typing import Final

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.costs import SCORE_BITS
from webhook.placement.heterogeneous.arrays import DomainRange, GangArrays, Taken
from webhook.placement.heterogeneous.first_fit_decreasing import Filled, FirstFitDecreasing
from webhook.placement.heterogeneous.joint_bounds import Candidate, JointBounds
from webhook.placement.question import Question, pods_of
from webhook.placement.solution import Solution
from webhook.placement.vertex import Vertex

ALONE: Final = 16
"""Nodes of a domain that are asked whether their cards serve the whole gang, those that cost least first."""

WIDEST: Final = 3
"""Domains with the most room that are filled in any case."""

_Entry = tuple[int, int, Candidate | int]
"""At most its cost, its number, and a candidate or a single node."""


class CandidateSearch:
    """One question that no slices and no spread shape."""

    def __init__(self, question: Question, root: Vertex, budget: Budget) -> None:
        self.question = question
        self.budget = budget
        self.arrays = GangArrays(question, root)
        self.bounds = JointBounds(self.arrays)
        self.filler = FirstFitDecreasing(self.arrays, self.bounds, budget)
        self.best: Filled | None = None

    def first_fit(self) -> Solution:
        """The best place that first-fit-decreasing finds within the steps, proven where its cost is a bound.

        A place in the domains with the most room is looked for in any case.
        """
        heap = self._heap()
        widest = heapq.nlargest(WIDEST, heap)
        certain = True
        while heap:
            least, _, candidate = heapq.heappop(heap)
            if not self._may_be_better(least):
                break
            certain &= self._look(candidate, least)
            if self.budget.exhausted:
                certain &= not heap
                break
        if self.best is None:
            for least, _, candidate in widest:
                self._look(candidate, least)
        if self.best is None:
            return Solution(None, certain)
        cost, taken = self.best
        return Solution(self.arrays.named(taken), certain, cost)

    def _may_be_better(self, least: int) -> bool:
        """Whether something of this bound may be better, but for the headroom."""
        return self.best is None or least >> SCORE_BITS < self.best[0] >> SCORE_BITS

    def _keep(self, found: Filled | None) -> None:
        if found is not None and (self.best is None or found[0] < self.best[0]):
            self.best = found

    def _look(self, candidate: Candidate | int, least: int) -> bool:
        """Look for a place there; whether there is none better than the best then."""
        if isinstance(candidate, int):
            return self._on_one_node(candidate)
        self._keep(self.filler.fill(candidate, least | (1 << SCORE_BITS) - 1))
        return not self._may_be_better(least)

    def _on_one_node(self, node: int) -> bool:
        """Whether it was decided."""
        pods = pods_of(self.question.classes, self.question.counts)
        fits = capacity.fits_together(pods, self.arrays.states[node], self.budget)
        if fits:
            taken: Taken = {node: self.question.counts}
            self._keep((self.arrays.cost(taken), taken))
        return fits is not None

    # --- candidates ----------------------------------------------------------------------------------

    def _heap(self) -> list[_Entry]:
        """All candidates that the bounds do not rule out, by what they cost at least."""
        entries: list[_Entry] = []
        for candidate in self._candidates(self.arrays.root):
            if isinstance(candidate, int):
                holder = self.arrays.holder(candidate)
                around = holder.parent if holder.is_node else holder
                least = self.arrays.base(around) + self.arrays.node_cost(candidate, holder)
            else:
                inside = self.bounds.least_cost(candidate)
                if inside is None:
                    continue
                least = self.arrays.base(candidate.domain) + inside
            entries.append((least, len(entries), candidate))
        heapq.heapify(entries)
        return entries

    def _candidates(self, domain: DomainRange) -> Iterator[Candidate | int]:
        """A domain, and those in it, that may hold the gang, and single nodes."""
        self.budget.take(len(self.bounds.measures))
        if not self.bounds.may_hold(((domain.first, domain.end),)):
            return
        required = self.question.required
        if domain.is_node:
            yield domain.first
            return
        if required is None or domain.vertex.bottom >= required:
            yield Candidate.whole(domain)
        for part in domain.parts:
            yield from self._candidates(part)
        if domain.vertex.leaves is not None:
            fitting = self.bounds.nodes_that_may_hold(domain.first, domain.end).tolist()
            fitting.sort(key=lambda node: (self.arrays.node_cost(node, domain), node))
            yield from fitting[: ALONE if any(self.arrays.carded) else 1]
