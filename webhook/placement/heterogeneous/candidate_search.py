"""Branch and bound over candidate domains, in order of their lower cost bounds, while one may be better.

First-fit decreasing fills each candidate. If its bound still allows a better solution, the pattern program
decides it. The search skips a candidate that the bounds exclude, or whose bound is not below the incumbent.
If a domain is too large for one program, sets of its parts become candidates, the smallest sets first. So the
incumbent that remains is proven optimal. The headroom, a tie-break, is in no bound here.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, filterfalse
from math import comb
from typing import Final, NamedTuple

import numpy as np

from webhook.placement import capacity
from webhook.placement.bounds import canonical_form, first_of_equals
from webhook.placement.budget import Budget
from webhook.placement.costs import SCORE_BITS
from webhook.placement.evaluate import Solution
from webhook.placement.heterogeneous.arrays import DomainRange, GangArrays, Ints, Taken
from webhook.placement.heterogeneous.first_fit_decreasing import Filled, FirstFitDecreasing
from webhook.placement.heterogeneous.joint_bounds import Candidate, JointBounds
from webhook.placement.heterogeneous.node_pools import CLASS
from webhook.placement.heterogeneous.pattern_program import PatternProgram
from webhook.placement.heterogeneous.patterns import NodePatterns
from webhook.placement.question import MANY_CLASSES, Question, pods_of
from webhook.placement.vertex import Vertex

ALONE: Final = 16
"""The most nodes of a domain whose cards are checked for the whole gang, the cheapest first."""

FINE: Final = 64
"""The most nodes for which the search improves the headroom alone."""

SMALL: Final = 1500
"""The most columns of a program for a whole domain."""

SETS: Final = 3000
"""The most sets of parts of a domain."""

FILLING: Final = 4
"""First-fit has one part in so many of the steps."""

POOLING: Final = 4
"""Computing the costs of filled sets of nodes has one part in so many of the steps for filling."""

BOUND: Final = 12
"""Steps per measure of the joint bound of a candidate."""

SORTED: Final = 24
"""Nodes of a candidate that are sorted by a measure in one step."""

LISTING: Final = 2
"""The patterns of the nodes of a candidate have one part in so many of the steps left."""


class _Entry(NamedTuple):
    """least: a lower bound of its cost. candidate: a candidate, or a single node.

    is_raised: whether the bound is the joint one, not only the cost of the parts that are surely used.
    """

    least: int
    number: int
    candidate: Candidate | int
    is_raised: bool


class CandidateSearch:
    """The search for one question. fills_only: use first-fit alone."""

    def __init__(self, question: Question, root: Vertex, budget: Budget, *, fills_only: bool) -> None:
        self.question = question
        self.budget = budget
        self.arrays = GangArrays(question, root)
        self.bounds = JointBounds(self.arrays)
        self.filler = FirstFitDecreasing(self.arrays, budget.part(budget.left // FILLING))
        self.patterns = NodePatterns(self.arrays, budget.part(budget.left // LISTING))
        self.fills_only = fills_only or self.arrays.classes > MANY_CLASSES
        self.best: Filled | None = None
        self.is_certain = True
        self._heap: list[_Entry] = []
        self._entries = 0
        self._seen: set[tuple[int, object]] = set()
        """The canonical forms of domains, with the costs of the domains around them."""

    def solve(self) -> Solution:
        """The best solution found within the steps, and whether none is better."""
        for candidate in self._candidates(self.arrays.root, 0):
            self._push(candidate)
        self._fill_levels()
        while self._heap and self._may_be_better(self._heap[0].least):
            entry = heapq.heappop(self._heap)
            if not entry.is_raised:
                self._raise(entry)
                continue
            self._look_at(entry)
            if self.budget.exhausted:
                self.is_certain &= not self._heap or not self._may_be_better(self._heap[0].least)
                break
        if self.best is None:
            return Solution(None, self.is_certain)
        cost, taken = self.best
        return Solution(self.arrays.named(taken), self.is_certain, cost)

    def _fill_levels(self) -> None:
        """Keep the best solution of first-fit in one domain, at the finest level at which it finds any."""
        required = -1 if self.question.required is None else self.question.required
        skips_nodes = not self.question.anchored and not any(self.arrays.carded)
        for level in range(self.arrays.costs.depth - 1, required - 1, -1):
            if self.budget.left < CLASS * self.arrays.classes:
                return
            if skips_nodes and level >= 0 and len(self.arrays.starts[level]) == len(self.arrays.states):
                continue  # single nodes are candidates of their own
            pools = self.bounds.pools(level, self.filler.budget.left // POOLING)
            if pools and (filled := self.filler.fill_best(pools)) is not None:
                self._keep(filled)
                return

    def _look_at(self, entry: _Entry) -> None:
        """Search an entry."""
        if isinstance(entry.candidate, int):
            self._on_one_node(entry.candidate)
        else:
            self._look(entry.candidate, entry.least)

    def _may_be_better(self, least: int) -> bool:
        """Whether a candidate with this bound may improve the incumbent.

        With many nodes, the headroom does not count.
        """
        if self.best is None:
            return True
        beyond = 0 if len(self.arrays.states) <= FINE else SCORE_BITS
        return least >> beyond < self.best[0] >> beyond

    def _keep(self, found: Filled | None) -> None:
        if found is not None and (self.best is None or found[0] < self.best[0]):
            self.best = found

    # --- candidates ----------------------------------------------------------------------------------

    def _push(self, candidate: Candidate | int) -> None:
        """Add a candidate."""
        arrays = self.arrays
        is_node = isinstance(candidate, int)
        if isinstance(candidate, int):
            least = arrays.base(self._outside(candidate)) + arrays.node_cost(candidate)
        else:
            least = arrays.base(candidate.domain) + self.bounds.used_cost(candidate)
        self._entries += 1
        heapq.heappush(self._heap, _Entry(least, self._entries, candidate, is_node))

    def _raise(self, entry: _Entry) -> None:
        """Add an entry again with the joint bound of its candidate, unless that excludes it."""
        candidate = entry.candidate
        assert isinstance(candidate, Candidate)
        inside = self.bounds.least_cost(candidate)
        nodes = sum(end - first for first, end in candidate.ranges)
        self.budget.take(len(self.bounds.needs) * (BOUND + nodes // SORTED))
        if inside is not None:
            least = max(entry.least, self.arrays.base(candidate.domain) + inside)
            heapq.heappush(self._heap, entry._replace(least=least, is_raised=True))

    def _outside(self, node: int) -> DomainRange | None:
        """The domain around a node whose cost is not in the node's own cost."""
        holder = self.arrays.holder(node)
        return holder.parent if holder.is_node else holder

    def _candidates(self, domain: DomainRange, around: int) -> Iterator[Candidate | int]:
        """The domain and the domains inside it that may fit the gang, and single nodes.

        Of domains that differ only in their names, it is the first one. around: the cost of the domains
        around it.
        """
        self.budget.take(len(self.bounds.needs))
        if not self.bounds.may_hold(domain) or self._is_repeated(domain, around):
            return
        required = self.question.required
        if domain.is_node:
            yield domain.first
            return
        if required is None or domain.vertex.bottom >= required:
            yield Candidate.of_domain(domain, 0 if self.question.anchored else 2)
        for part in domain.parts:
            yield from self._candidates(part, around + domain.own)
        if domain.vertex.leaves is not None:
            yield from self._single_nodes(domain)

    def _single_nodes(self, domain: DomainRange) -> list[int]:
        """The cheapest nodes of a domain of nodes that may fit the gang alone."""
        fitting: list[int] = self.bounds.nodes_that_may_hold(domain.first, domain.end).tolist()
        fitting.sort(key=lambda node: (self.arrays.node_cost(node, domain), node))
        most = ALONE if any(self.arrays.carded) else 1
        self.is_certain &= len(fitting) <= most or most == 1
        return fitting[:most]

    def _is_repeated(self, domain: DomainRange, around: int) -> bool:
        """Whether a domain of this form is a candidate already."""
        key = around, canonical_form(domain.vertex)
        is_repeated = key in self._seen
        self._seen.add(key)
        return is_repeated

    # --- one candidate -------------------------------------------------------------------------------

    def _on_one_node(self, node: int) -> None:
        pods = pods_of(self.question.classes, self.question.counts)
        fits = capacity.fits_together(pods, self.arrays.states[node], self.budget)
        self.is_certain &= fits is not None
        if fits:
            taken: Taken = {node: self.question.counts}
            self._keep((self.arrays.cost(taken), taken))

    def _look(self, candidate: Candidate, least: int) -> None:
        """Search a candidate until the incumbent cannot improve, or the rest is undecided."""
        if not self.filler.budget.exhausted:
            self._keep(self.filler.fill(candidate.ranges, least | (1 << SCORE_BITS) - 1))
        if not self._may_be_better(least):
            return
        if self.fills_only:
            self.is_certain = False
            return
        listing = max(self.patterns.budget.left, self.budget.left // LISTING)
        self.patterns.budget = self.budget.part(listing)  # earlier candidates may have spent it
        if not self._split(candidate):
            self._solve(candidate)

    def _solve(self, candidate: Candidate) -> None:
        """Keep the solution of the pattern program."""
        program = PatternProgram(self.arrays, self.patterns, candidate, self.budget)
        if program.is_too_large or self.budget.exhausted:
            self.is_certain = False
            return
        base = self.arrays.base(candidate.domain)
        levels = range(candidate.domain.vertex.bottom + 1, self.arrays.costs.depth)
        least = self.bounds.least_fields(candidate, levels) or {}
        found = program.solve(None if self.best is None else self.best[0] - base, least)
        self.is_certain &= found.exact
        if found.taken is not None:
            self._keep((self.arrays.cost(found.taken), found.taken))

    # --- sets of the parts of a large domain ---------------------------------------------------------

    def _split(self, candidate: Candidate) -> bool:
        """Whether the candidate is too large, so that sets of its parts replace it."""
        if candidate.uses_all or not candidate.parts or not self._is_large(candidate):
            return False
        is_paid = self.arrays.is_paid
        paid, others = list(filter(is_paid, candidate.parts)), list(filterfalse(is_paid, candidate.parts))
        level = candidate.domain.vertex.bottom + 1
        bound, _ = self.bounds.fewest(level, candidate.ranges) or (0, 0)
        fewest = max(candidate.fewest_parts, bound, 0 if paid else 1)
        if fewest >= len(others):
            return False
        self._push(Candidate.of_domain(candidate.domain, fewest + 1))
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
        """Sets of so many parts that may fit the gang together with the anchored parts."""
        needs = self.bounds.needs
        contributed = self.bounds.contributions(others)
        if paid:
            needs = needs - self.bounds.contributions(paid).sum(axis=0)
        if comb(len(others), size) > SETS:
            top = np.sort(contributed, axis=0)[::-1][: size - 1].sum(axis=0)
            enough = np.flatnonzero((contributed + top >= needs).all(axis=1))  # every set consists of these
            others, contributed = [others[number] for number in enough], contributed[enough]
        first = first_of_equals([each.vertex for each in others], range(len(others)), size)
        others, contributed = [others[number] for number in first], contributed[first]
        if comb(len(others), size) > SETS:
            self.is_certain = False
            yield from self._roomiest(others, contributed, needs, size)
            return
        self.budget.take(comb(len(others), size))
        for numbers in _distinct_sets(others, size):
            if (contributed[list(numbers)].sum(axis=0) >= needs).all():
                yield [others[number] for number in numbers]

    @staticmethod
    def _roomiest(
        others: list[DomainRange], contributed: Ints, needs: Ints, size: int
    ) -> Iterator[list[DomainRange]]:
        """The set of the parts with the largest contributions, if there are too many sets."""
        value = np.minimum(contributed / np.maximum(needs, 1), 1.0).min(axis=1)
        order = np.lexsort((np.arange(len(others)), -value))
        yield [others[number] for number in order[:size]]


def _distinct_sets(domains: Sequence[DomainRange], size: int) -> Iterable[tuple[int, ...]]:
    """Sets of so many domains, by number: of those that differ only in names the first one."""
    known: dict[object, int] = {}
    forms = [known.setdefault(canonical_form(each.vertex), len(known)) for each in domains]
    first = dict[tuple[int, ...], tuple[int, ...]]()
    for numbers in combinations(range(len(domains)), size):
        first.setdefault(tuple(sorted(map(forms.__getitem__, numbers))), numbers)
    return first.values()
