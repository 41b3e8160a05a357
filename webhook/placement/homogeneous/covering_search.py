"""The optimum for identical pods, in slices or with few minority pods: a covering knapsack over the tree.

Theory. For identical pods a node is a number, its capacity. A solution is a set of nodes whose capacities add
up to at least the demand. Its cost is the sum of the costs of the nodes and domains used (see costs.Costs).
Slices change only the units of the capacities (see items). For minority pods beside slices the knapsack has a
second coordinate, the spare slots left for them (see lattice and surrogate). The tree knapsack for "at least
k" and its bounds are standard (Kellerer, Pferschy, Pisinger: Knapsack Problems, 2004). Three arguments keep
it small in large clusters:

* A single domain with capacity for the whole gang beats any two of its level. Domains whose capacity, an
  upper bound, suffices are tried in order of their cost bounds, each before the domain around it. If a domain
  lacks the spare slots, the search continues in the domain around it.
* Of domains that differ only in their names (see bounds.canonical_form), the first is searched for all of
  them. So a new cluster of equal blocks takes no longer than one block.
* In a domain whose children share the gang, most children cannot be in a solution with the fewest children
  (see candidate_children). If the knapsack over the others finds a solution with so few, it is the optimum.
  Otherwise the knapsack takes all children that differ. Beside anchors, if one more child suffices, a few are
  tried alone (see beside_anchors).
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

from webhook.placement.bounds import (
    SmallestSets,
    anchored_children,
    canonical_form,
    census,
    first_of_equals,
    least_cost,
    smallest_sets,
)
from webhook.placement.budget import Budget
from webhook.placement.costs import COUNT_BITS, SCORE_BITS, SLOT_BITS, PackedCost
from webhook.placement.evaluate import Cover
from webhook.placement.homogeneous.beside_anchors import OneMore
from webhook.placement.homogeneous.candidate_children import Screening
from webhook.placement.homogeneous.items import DomainKnapsack, Filled, KnapsackTerms
from webhook.placement.homogeneous.min_plus import never
from webhook.placement.homogeneous.minority_pods import NONE, SpareSlots
from webhook.placement.question import Question
from webhook.placement.vertex import Vertex, regions

ALONE: Final = 4
"""The most children that are tried alone beside those that anchors use, before all are tried together."""

_Found = tuple[int, Filled]
"""The cost, and the chosen nodes and domains."""


class CoveringSearch:
    """The search for one question, with spare slots beside the workers."""

    def __init__(self, question: Question, spare: SpareSlots, budget: Budget) -> None:
        self.question = question
        self.costs = question.costs()
        self.budget = budget
        self.spare = spare
        self.screening = Screening(question, spare, budget)
        self.workers = question.counts[0]
        self.least = self.workers + spare.most
        """The fewest free slots of the nodes in any solution."""
        self.bounds: dict[object, int] = {}
        """By canonical form the lower bounds of the costs of domains."""

    def solve(self, root: Vertex) -> _Found | None:
        """The optimum and its cost. Raises OutOfSteps."""
        best: _Found | None = None
        seen: set[object] = set()
        for bound, around, domain in self._regions(root):
            if best is not None and bound >= best[0]:
                break
            if self._is_repeated(domain, seen):
                continue
            base = around + (0 if domain.state is not None else domain.own)
            found = self.inside(domain, None if best is None else best[0] - base)
            if found is not None:
                best = (base + found[0], found[1])
        return best

    def _regions(self, root: Vertex) -> list[tuple[int, int, Vertex]]:
        """Lower bounds of the cost, the costs of the domains around, and domains of the required level."""
        enough = [each for each in regions(root, self.question.required) if each[1].free_slots >= self.least]
        bounded = [
            (around + (self._bound(domain, is_raised=True) if len(enough) > 1 else 0), around, domain)
            for around, domain in enough
        ]
        return sorted(bounded, key=itemgetter(0))

    def _is_repeated(self, domain: Vertex, seen: set[object]) -> bool:
        """Whether a domain differs only in its names from one that was searched. seen: their forms."""
        if self.question.anchored and domain.state is None:
            return False  # few domains are left then
        self.budget.spend()
        form = canonical_form(domain)
        is_repeated = form in seen
        seen.add(form)
        return is_repeated

    def inside(self, vertex: Vertex, limit: int | None) -> _Found | None:
        """The best solution inside a domain with enough free slots, without the domain's cost; None if none
        is below the limit.
        """
        if vertex.state is not None:
            return self._alone(vertex, limit)
        best = self._in_one(vertex, limit)
        if best is not None or self._fits_in_one(vertex):
            return best
        return self.together(vertex, limit)

    def _fits_in_one(self, vertex: Vertex) -> bool:
        """Whether a single child has a solution, so that none in several children costs less.

        With slices, capacities are only upper bounds.
        """
        if self.question.anchored or self.question.slices:
            return False
        if vertex.leaves is not None:
            return max(vertex.leaves.every[0]) >= self.least
        return any(part.free_slots >= self.least for part in vertex.parts)

    def _in_one(self, vertex: Vertex, limit: int | None) -> _Found | None:
        """The best solution in one of the children."""
        best: _Found | None = None
        seen: set[object] = set()
        for least, child in self._by_bound(vertex):
            if limit is not None and least >= limit:
                break
            if self._is_repeated(child, seen):
                continue
            own = 0 if child.state is not None else child.own
            found = self.inside(child, None if limit is None else limit - own)
            if found is not None:
                limit = own + found[0]
                best = limit, found[1]
        return best

    def _alone(self, vertex: Vertex, limit: int | None) -> _Found | None:
        """A single node that fits all pods."""
        if vertex.slot_counts[0] < self.least or (limit is not None and vertex.own >= limit):
            return None
        return vertex.own, Filled(0, self.workers, 1, vertex.own, vertex.state)

    def _by_bound(self, vertex: Vertex) -> Iterable[tuple[int, Vertex]]:
        """The children with capacity for the gang, and a lower bound of their costs, the lowest first.

        If anchors use exactly one child, it is the only one, since the others cost more.
        """
        if vertex.leaves is not None:
            cheapest = vertex.leaves.cheapest(self.least)
            self.budget.spend()
            return [] if cheapest is None else [(cheapest.own, cheapest)]
        if self.question.anchored:
            used = [vertex.parts[number] for number in anchored_children(vertex, self.costs)]
            return [(0, child) for child in used if len(used) == 1 and child.free_slots >= self.least]
        enough = [part for part in vertex.parts if part.free_slots >= self.least]
        self.budget.spend(len(enough))
        return self._in_order(enough)

    def _in_order(self, domains: Sequence[Vertex]) -> Iterator[tuple[int, Vertex]]:
        """Domains and lower bounds of their costs, the lowest first; a bound is raised once it is the lowest.

        In large clusters, most bounds are never raised.
        """
        heap = [
            (self._bound(domain, is_raised=False), number, False) for number, domain in enumerate(domains)
        ]
        heapq.heapify(heap)
        while heap:
            bound, number, is_raised = heap[0]
            if is_raised:
                heapq.heappop(heap)
                yield bound, domains[number]
            else:
                heapq.heapreplace(heap, (self._bound(domains[number], is_raised=True), number, True))

    def _bound(self, child: Vertex, *, is_raised: bool) -> int:
        """A lower bound of the cost of using a domain. is_raised: by its smallest sets of children."""
        if child.state is not None or self.question.anchored:
            return child.own
        if not is_raised:
            return child.own + least_cost(child, self.least, self.costs)
        form = canonical_form(child)
        if form not in self.bounds:
            smallest = smallest_sets(child, self.least, self.budget)
            self.bounds[form] = child.own + least_cost(child, self.least, self.costs, smallest)
        return self.bounds[form]

    # --- a domain whose children share the gang -----------------------------------------------------

    def together(self, vertex: Vertex, limit: int | None) -> _Found | None:
        """The best solution in a domain if no single child fits all pods."""
        self.budget.spend(census(vertex)[-1][0])
        levels = self.levels(vertex)
        special = self._beside_anchors if self.question.anchored else self._in_smallest
        best = special(vertex, levels) if vertex.parts else None
        if best is None:
            best = self.within(self._knapsack(vertex, levels), levels, limit)
        return None if best is None or (limit is not None and best[0] >= limit) else best

    def within(self, inside: DomainKnapsack, levels: Sequence[int], limit: int | None) -> _Found | None:
        """The best solution of a knapsack; None if there is none, or surely none below the limit."""
        fewest = self._fewest(inside, inside.terms)
        if fewest is None or (limit is not None and self._least(inside, levels) >= limit):
            return None
        return self._solved(inside, levels, fewest)

    def _beside_anchors(self, vertex: Vertex, levels: Sequence[int]) -> _Found | None:
        """The best solution with one child more than anchors use; None if that is not enough.

        The children with the lowest bounds are tried one by one, then all that may be better together.
        """
        bounds = OneMore(vertex, self.least, self.costs).bounds(self.budget)
        best: _Found | None = None
        for least, number in bounds[:ALONE]:
            if best is None or least < best[0]:
                best = self._with_children(vertex, levels, [number], best)
        others = [number for least, number in bounds[ALONE:] if best is None or least < best[0]]
        return self._with_children(vertex, levels, others, best) if others else best

    def _with_children(
        self, vertex: Vertex, levels: Sequence[int], numbers: Sequence[int], best: _Found | None
    ) -> _Found | None:
        """The best solution in the anchored children and these; `best` if that costs no more."""
        terms = self.terms(vertex, levels)
        used = sorted({*anchored_children(vertex, self.costs), *numbers})
        wanted = self._wanted(terms.unit(vertex.bottom))
        inside = DomainKnapsack(terms, vertex, wanted, dict.fromkeys(used, 0))
        found = self.within(inside, levels, None if best is None else best[0])
        return min((each for each in (best, found) if each is not None), key=itemgetter(0), default=None)

    def _in_smallest(self, vertex: Vertex, levels: Sequence[int]) -> _Found | None:
        """The best solution, if it is in the smallest sets of children and reaches the lower bound.

        Solutions that are equal up to the penalty, which no bound has, use only children of these sets too.
        """
        if len(levels) != 2:  # else the bound is seldom reached
            return None
        smallest = smallest_sets(vertex, self.least, self.budget)
        if not smallest.children:
            return None
        inside = self._smallest_knapsack(vertex, levels, smallest)
        fewest = self._fewest(inside, inside.terms)
        bound = least_cost(vertex, self.least, self.costs, smallest)
        if fewest is None or any(fewest[level] != self._count(bound, level) for level in levels):
            return None
        best = self._solved(inside, levels, fewest)
        return best if best is not None and best[0] >> SCORE_BITS == bound >> SCORE_BITS else None

    def _smallest_knapsack(
        self, vertex: Vertex, levels: Sequence[int], smallest: SmallestSets
    ) -> DomainKnapsack:
        """The knapsack over the smallest sets of children, each with the pods for which the others are too
        small.
        """
        terms = self.terms(vertex, levels)
        unit = terms.unit(vertex.bottom)
        wanted = self._wanted(unit)
        least = {
            number: max(0, wanted - (smallest.slots - vertex.parts[number].free_slots) // unit)
            for number in first_of_equals(vertex.parts, smallest.children, smallest.number)
        }
        return DomainKnapsack(terms, vertex, wanted, least)

    def _solved(self, inside: DomainKnapsack, levels: Sequence[int], fewest: Sequence[int]) -> _Found | None:
        """The best solution of a knapsack. fewest: see `_fewest`."""
        inside.terms.values = self._values(inside.vertex, levels, fewest)
        state = (len(inside.spare.losses) - 1, inside.wanted)
        (value,) = inside.solve([state])
        if value is None:
            return None
        filled = Filled(0, inside.wanted, inside.unit, 0, parts=inside.filled(state))
        return filled.cost, Filled(0, self.workers, 1, 0, parts=filled.parts)

    def _wanted(self, unit: int) -> int:
        """The demand of a knapsack whose units have so many pods."""
        return self.workers // unit if self.spare.below(unit) is self.spare else self.least

    def _knapsack(self, vertex: Vertex, levels: Sequence[int]) -> DomainKnapsack:
        """The knapsack over the screened children if it reaches the lower bound, else over all children."""
        terms = self.terms(vertex, levels)
        unit = terms.unit(vertex.bottom)
        wanted = self._wanted(unit)
        screened = self.screening.matter(vertex, levels, unit, wanted)
        if screened is not None:
            numbers, first, second = screened
            inside = DomainKnapsack(terms, vertex, wanted, numbers)
            counts = self._fewest(inside, terms)
            if counts and counts[levels[0]] <= first and counts[levels[1]] <= second:
                return inside
        least = self.screening.all_that_differ(vertex, unit, wanted) if vertex.parts else None
        return DomainKnapsack(self.terms(vertex, levels), vertex, wanted, least)

    def levels(self, vertex: Vertex) -> list[int]:
        """The levels for which the search must find the number of domains.

        It omits levels where the number is given, and levels whose domains each have only one child.
        """
        found, depth = census(vertex), self.costs.depth
        every = self.question.anchored
        return [
            level
            for level in range(depth)
            if found[level][0] and (every or level + 1 == depth or found[level + 1][0] != found[level][0])
        ]

    def terms(self, vertex: Vertex, levels: Sequence[int]) -> KnapsackTerms:
        numbers, most = census(vertex), sum(self.question.counts)
        fields = [
            (self.costs.domains[level], COUNT_BITS, min(most, numbers[level][0]).bit_length())
            for level in levels
        ]
        slices = tuple(part for part in self.question.slices if part[0] > vertex.bottom)
        counts = PackedCost(fields)
        return KnapsackTerms(counts, counts, self.budget, self.costs, self.spare, slices)

    def _fewest(self, inside: DomainKnapsack, terms: KnapsackTerms) -> list[int] | None:
        """The number of domains of each level in the best solution; 0 if it follows from the level below."""
        packed = inside.counts[-1, inside.wanted]
        if packed >= never(terms.counts.fits):
            return None
        cost = terms.counts.unpack(int(packed))
        return [self._count(cost, level) for level in range(self.costs.depth)]

    def _count(self, cost: int, level: int) -> int:
        """The number of domains of a level in a cost."""
        return cost >> self.costs.domains[level] & (1 << COUNT_BITS) - 1

    def _least(self, inside: DomainKnapsack, levels: Sequence[int]) -> int:
        """A lower bound of the cost of the best solution, given the numbers of domains."""
        packed = int(inside.counts[-1, inside.wanted])
        leftover = 0 if self.question.anchored else self.least
        return inside.terms.counts.unpack(packed) + sum(
            leftover << self.costs.leftover[level] for level in levels
        )

    def _values(self, vertex: Vertex, levels: Sequence[int], fewest: Sequence[int]) -> PackedCost:
        found = census(vertex)
        fields = [
            (self.costs.leftover[level], SLOT_BITS, (fewest[level] * found[level][1]).bit_length())
            for level in reversed(levels)
        ]
        penalty = (self.costs.most_penalty * min(found[-1][0], sum(self.question.counts))).bit_length()
        return PackedCost([*fields, (0, SCORE_BITS, penalty)])


def cover(question: Question, root: Vertex, pods: int, budget: Budget) -> Cover | None:
    """The cheapest nodes for so many pods of the first class; None if they do not fit.

    Raises OutOfSteps.
    """
    alone = replace(question, classes=question.classes[:1], counts=(pods,), slices=(), spread=None)
    best = CoveringSearch(alone, NONE, budget).solve(root)
    return None if best is None else Cover(best[0], list(best[1].slot_counts()))
