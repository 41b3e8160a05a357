"""One gang: domain after domain in the order of what they cost at least, while one may be better.

Each is filled by first-fit decreasing, and then, while the bounds leave something better open, decided by
the pattern program. A domain that the bounds rule out, or that costs at least as much as the best place so
far, is skipped. One that the linear program rules out teaches a measure by which others may be ruled
out. Of a domain too large for one program sets of its parts are candidates: those of the fewest parts, then
of more. So what is left is proven; the headroom, a tie-break, is not part of any bound here.
"""

import heapq
from collections.abc import Iterator
from itertools import combinations, filterfalse
from math import comb
from typing import Final, NamedTuple

import numpy as np

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.costs import SCORE_BITS
from webhook.placement.evaluate import Solution
from webhook.placement.heterogeneous.arrays import DomainRange, GangArrays, Ints, Taken
from webhook.placement.heterogeneous.first_fit_decreasing import Filled, FirstFitDecreasing
from webhook.placement.heterogeneous.joint_bounds import Candidate, JointBounds
from webhook.placement.heterogeneous.pattern_program import PatternProgram
from webhook.placement.heterogeneous.patterns import NodePatterns
from webhook.placement.question import Question, pods_of
from webhook.placement.vertex import Vertex

ALONE: Final = 16
"""Nodes of a domain that are asked whether their cards serve the whole gang, those that cost least first."""

WIDEST: Final = 3
"""Domains with the most capacity that are filled in any case."""

FINE: Final = 64
"""Nodes up to which a place that is better in the headroom alone is looked for."""

SMALL: Final = 1500
"""Columns up to which a domain is decided by one program."""

SETS: Final = 3000
"""Sets of parts of a domain that are looked at."""

LESSONS: Final = 16
"""Linear programs that are asked for one more measure."""

MOST_NODE_CLASSES: Final = 3000
"""Kinds of nodes up to which a measure is learnt."""

MANY: Final = 64
"""Classes beyond which first-fit alone looks for a place."""

FILLING: Final = 4
"""The part of the steps for first-fit."""

LISTING: Final = 2
"""The part of the steps for the patterns of nodes, and for what they are worth."""


class _Entry(NamedTuple):
    """least: at most its cost. measures: how many there were when that was worked out."""

    least: int
    number: int
    measures: int
    candidate: Candidate | int
    """A candidate, or a single node."""


class CandidateSearch:
    """One question. fills_only: first-fit alone looks for a place."""

    def __init__(self, question: Question, root: Vertex, budget: Budget, *, fills_only: bool) -> None:
        self.question = question
        self.budget = budget
        self.arrays = GangArrays(question, root)
        self.bounds = JointBounds(self.arrays)
        self.filler = FirstFitDecreasing(self.arrays, budget.part(budget.left // FILLING))
        self.patterns = NodePatterns(self.arrays, budget.part(budget.left // LISTING))
        self.fills_only = fills_only or self.arrays.classes > MANY
        self.best: Filled | None = None
        self.is_certain = True
        self._heap: list[_Entry] = []
        self._entries = 0
        self._lessons = LESSONS

    def solve(self) -> Solution:
        """The best place that is found within the steps, and whether nothing better exists.

        A place in the domains with the most capacity is looked for in any case.
        """
        for candidate in self._candidates(self.arrays.root):
            self._push(candidate)
        for entry in heapq.nlargest(WIDEST, self._heap):
            if isinstance(entry.candidate, Candidate):
                self._keep(self.filler.fill(entry.candidate.ranges))
        while self._heap and self._may_be_better(self._heap[0].least):
            self._look_at(heapq.heappop(self._heap))
            if self.budget.exhausted:
                self.is_certain &= not self._heap or not self._may_be_better(self._heap[0].least)
                break
        if self.best is None:
            return Solution(None, self.is_certain)
        cost, taken = self.best
        is_best = self.is_certain and not self.question.options.any_place
        return Solution(self.arrays.named(taken), is_best, cost)

    def _look_at(self, entry: _Entry) -> None:
        """Look for a place there, or work out its bound again where measures have come since."""
        if isinstance(entry.candidate, int):
            self._on_one_node(entry.candidate)
        elif entry.measures < len(self.bounds.measures):
            self._push(entry.candidate)
        else:
            self._look(entry.candidate, entry.least)

    def _may_be_better(self, least: int) -> bool:
        """Whether something of this bound may be better, in many nodes but for the headroom, and better ones
        matter.
        """
        if self.best is None:
            return True
        beyond = 0 if len(self.arrays.states) <= FINE else SCORE_BITS
        return not self.question.options.any_place and least >> beyond < self.best[0] >> beyond

    def _keep(self, found: Filled | None) -> None:
        if found is not None and (self.best is None or found[0] < self.best[0]):
            self.best = found

    # --- candidates ----------------------------------------------------------------------------------

    def _push(self, candidate: Candidate | int) -> None:
        """A candidate, unless the bounds rule it out."""
        arrays = self.arrays
        if isinstance(candidate, int):
            least = arrays.base(self._outside(candidate)) + arrays.node_cost(candidate)
        else:
            inside = self.bounds.least_cost(candidate) if self.bounds.may_hold(candidate.ranges) else None
            if inside is None:
                return
            least = arrays.base(candidate.domain) + inside
        self._entries += 1
        self.budget.take(len(self.bounds.measures))
        heapq.heappush(self._heap, _Entry(least, self._entries, len(self.bounds.measures), candidate))

    def _outside(self, node: int) -> DomainRange | None:
        """The domain around a node whose cost the node's own does not have."""
        holder = self.arrays.holder(node)
        return holder.parent if holder.is_node else holder

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
            yield Candidate.of_domain(domain, 0 if self.question.anchored else 2)
        for part in domain.parts:
            yield from self._candidates(part)
        if domain.vertex.leaves is not None:
            fitting = self.bounds.nodes_that_may_hold(domain.first, domain.end).tolist()
            fitting.sort(key=lambda node: (self.arrays.node_cost(node, domain), node))
            most = ALONE if any(self.arrays.carded) else 1
            self.is_certain &= len(fitting) <= most or most == 1
            yield from fitting[:most]

    # --- looking at one ------------------------------------------------------------------------------

    def _on_one_node(self, node: int) -> None:
        pods = pods_of(self.question.classes, self.question.counts)
        fits = capacity.fits_together(pods, self.arrays.states[node], self.budget)
        self.is_certain &= fits is not None
        if fits:
            taken: Taken = {node: self.question.counts}
            self._keep((self.arrays.cost(taken), taken))

    def _look(self, candidate: Candidate, least: int) -> None:
        """Look for a place there, until there is none better than the best, or that is not certain."""
        is_filled = self._fill(candidate, least)
        if not self._may_be_better(least):
            return
        if self.fills_only:
            self.is_certain = False
        elif not self._split(candidate):
            self._solve(candidate, is_filled=is_filled)

    def _fill(self, candidate: Candidate, least: int) -> bool:
        """Keep what first-fit finds, if it may be asked; whether it found a place."""
        if self.filler.budget.exhausted:
            return False
        filled = self.filler.fill(candidate.ranges, least | (1 << SCORE_BITS) - 1)
        self._keep(filled)
        return filled is not None

    def _solve(self, candidate: Candidate, *, is_filled: bool) -> None:
        """Keep what the pattern program finds; of a candidate that it rules out a measure is learnt."""
        program = PatternProgram(self.arrays, self.patterns, self.bounds.measures, candidate, self.budget)
        if program.is_too_large or self.budget.exhausted:
            self.is_certain = False
            return
        if not is_filled and program.exact and self._learn(program):
            self._push(candidate)
            return
        base = self.arrays.base(candidate.domain)
        found = program.solve(None if self.best is None else self.best[0] - base, self._known(candidate))
        self.is_certain &= found.exact
        if found.taken is not None:
            self._keep((self.arrays.cost(found.taken), found.taken))

    def _known(self, candidate: Candidate) -> dict[int, int]:
        """Of the fields of numbers of domains what is known to be the least."""
        costs = self.arrays.costs
        levels = range(candidate.domain.vertex.bottom + 1, costs.depth)
        return {costs.domains[level]: self.bounds.fewest(level, candidate.ranges) or 0 for level in levels}

    def _learn(self, program: PatternProgram) -> bool:
        """One more measure, by which the candidate holds less than the gang; whether there is one."""
        if not self._lessons or self.question.slices:
            return False
        self._lessons -= 1
        weights = program.weights()
        if weights is None:
            return False
        value_of: dict[object, int] = {}
        values = np.zeros(len(self.arrays.states), dtype=np.int64)
        self.budget.take(len(values))
        for node in range(len(values)):
            kind = self.patterns.kind(node)
            if kind not in value_of:
                patterns = self.patterns.of(node)
                if not patterns.exact or len(value_of) > MOST_NODE_CLASSES:
                    return False
                value_of[kind] = max(
                    (sum(map(int.__mul__, weights, pattern)) for pattern in patterns.every), default=0
                )
            values[node] = value_of[kind]
        self.bounds.add(values, sum(map(int.__mul__, weights, self.question.counts)))
        return True

    # --- sets of the parts of a large domain ---------------------------------------------------------

    def _split(self, candidate: Candidate) -> bool:
        """Whether sets of its parts are looked at instead, as it is too large."""
        if candidate.uses_all or not candidate.parts or not self._is_large(candidate):
            return False
        is_paid = self.arrays.is_paid
        paid, others = list(filter(is_paid, candidate.parts)), list(filterfalse(is_paid, candidate.parts))
        level = candidate.domain.vertex.bottom + 1
        bound = self.bounds.fewest(level, candidate.ranges) or 0
        fewest = max(candidate.fewest_parts, bound, 0 if paid else 1)
        if fewest >= len(others):
            return False
        self._push(Candidate.of_domain(candidate.domain, fewest + 1))
        if not fewest:
            self._push(Candidate.of_parts(candidate.domain, paid, uses_all=False))
            return True
        for parts in self._sets(paid, others, fewest):
            self._push(Candidate.of_parts(candidate.domain, [*paid, *parts], uses_all=not paid))
        return True

    def _is_large(self, candidate: Candidate) -> bool:
        """Whether its program has many columns."""
        columns = 0
        seen: set[object] = set()
        for first, end in candidate.ranges:
            for node in range(first, end):
                key = id(self.arrays.around(node)), self.patterns.kind(node)
                if key not in seen:
                    seen.add(key)
                    columns += len(self.patterns.of(node).every)
                    if columns > SMALL or self.budget.exhausted:
                        return True
        return False

    def _sets(
        self, paid: list[DomainRange], others: list[DomainRange], size: int
    ) -> Iterator[list[DomainRange]]:
        """Sets of so many parts that may hold the gang beside those that anchors pay for."""
        needs = self.bounds.needs
        contributed = self.bounds.contributions(others)
        if paid:
            needs = needs - self.bounds.contributions(paid).sum(axis=0)
        if comb(len(others), size) > SETS:
            top = np.sort(contributed, axis=0)[::-1][: size - 1].sum(axis=0)
            enough = np.flatnonzero((contributed + top >= needs).all(axis=1))  # any set is of these
            others, contributed = [others[number] for number in enough], contributed[enough]
        if comb(len(others), size) > SETS:
            self.is_certain = False
            yield from self._roomiest(others, contributed, needs, size)
            return
        self.budget.take(comb(len(others), size))
        for chosen in combinations(range(len(others)), size):
            if (contributed[list(chosen)].sum(axis=0) >= needs).all():
                yield [others[number] for number in chosen]

    @staticmethod
    def _roomiest(
        others: list[DomainRange], contributed: Ints, needs: Ints, size: int
    ) -> Iterator[list[DomainRange]]:
        """The set of the parts that hold most of what is needed, where there are too many sets."""
        value = np.minimum(contributed / np.maximum(needs, 1), 1.0).min(axis=1)
        order = np.lexsort((np.arange(len(others)), -value))
        yield [others[number] for number in order[:size]]
