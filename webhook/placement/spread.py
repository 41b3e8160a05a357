"""The optimum for identical pods spread over the domains of a level, with a cap per domain or evenly.

Theory. With a cap, each domain takes pods up to the cap minus the pods already there. An even spread
minimizes the sum of the squared pod counts. Squares are convex, so the domain with the fewest pods takes each
next pod (water filling): each domain is filled to a common level as far as it has capacity, and some of those
at the level take one more. Cost decides which ones.

If no domain must take any pods, the caps alone matter (see solve_capped). Otherwise the cost of so many pods
in a domain is the cost that homogeneous.cover finds. Domains are disjoint, so costs add up in all fields.
CostPart distributes the pods that may be in several domains, up the tree.

With n pods and D domains this takes n * D work, which is counted in steps. If the steps do not suffice, the
largest domains are filled first, and the result is not proven.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from webhook.placement import homogeneous
from webhook.placement.bounds import census, child_slot_counts, slot_counts_at
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.evaluate import Cover, Solution
from webhook.placement.model import Mode
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState, Path, key_of
from webhook.placement.vertex import Leaves, Vertex, domains_at, regions, states_of

# --- what each domain of the level takes --------------------------------------------------------------


def slots_under_cap(question: Question, vertex: Vertex) -> int:
    """Free slots of a domain under the spread's cap."""
    assert question.spread is not None
    request = question.spread
    if request.most is None or not vertex.free_slots:
        return vertex.free_slots
    if not request.there:  # without checking each domain
        return sum(min(free_slots, request.most) for free_slots in slot_counts_at(vertex, request.level))
    found = _slot_counts_of(vertex, request.level)
    return sum(min(free_slots, max(0, request.most - request.there_in(path))) for path, free_slots in found)


Shares = dict[Path, tuple[int, int]]
"""The fewest and most pods that each domain of the level may take, by its path."""


def shares(question: Question, vertex: Vertex) -> tuple[int, Shares]:
    """The growth of the sum of squares, and the shares of the domains. The pods fit, see slots_under_cap."""
    request, wanted = question.spread, question.counts[0]
    assert request is not None
    found = [
        (path, request.there_in(path), free_slots)
        for path, free_slots in _slot_counts_of(vertex, request.level)
        if free_slots
    ]
    cap = request.most
    if cap is not None:
        return 0, {path: (0, min(free, wanted, cap - there)) for path, there, free in found if cap > there}
    level = _level([(there, free) for _, there, free in found], wanted)
    taken: Shares = {}
    grown, left = 0, wanted
    for path, there, free in found:
        least = min(free, max(0, level - there))
        most = min(free, max(0, level + 1 - there))
        if most:
            taken[path] = least, most
        grown += (there + least) ** 2 - there**2
        left -= least
    return grown + left * (2 * level + 1), taken


def _slot_counts_of(vertex: Vertex, level: int) -> Iterator[tuple[Path, int]]:
    """The paths and capacities of a level's domains inside a domain, without making their vertices."""
    if vertex.bottom >= level:
        yield vertex.key[: level + 2], vertex.free_slots
    elif vertex.leaves is not None:
        bottom = vertex.leaves.costs.depth - 1
        for state, free_slots in zip(vertex.leaves.states, vertex.leaves.slot_counts, strict=True):
            yield key_of(state, bottom)[: level + 2], free_slots
    else:
        for part in vertex.parts:
            yield from _slot_counts_of(part, level)


def _level(domains: Sequence[tuple[int, int]], wanted: int) -> int:
    """The highest common pod count up to which the pods fill these domains: pairs of pods there and slots."""
    counted = Counter(domains).items()
    low, high = 0, max(there for there, _ in domains) + wanted
    while low < high:
        middle = (low + high + 1) // 2
        if sum(number * min(free, max(0, middle - there)) for (there, free), number in counted) <= wanted:
            low = middle
        else:
            high = middle - 1
    return low


# --- caps alone ---------------------------------------------------------------------------------------

Caps = Callable[[Path], int]
"""The most pods that the domain of a path at the spread's level may take."""


def solve_capped(question: Question, root: Vertex, most: Caps, budget: Budget) -> Solution:
    """The optimum if domains have caps but no minimum. Raises OutOfSteps.

    To the domains around it, a capped domain is one with less capacity at the same cost. So the search for
    homogeneous gangs solves the same tree with these capacities, since it takes the cost of a node separately
    from its capacity.
    """
    request = question.spread
    assert request is not None
    tree = _capped(root, request.level, most)
    assert tree is not None
    return homogeneous.solve(replace(question, spread=None), tree, budget)


def _capped(vertex: Vertex, level: int, most: Caps) -> Vertex | None:
    """The domain with capacities reduced to the caps; None if no capacity is left."""
    if vertex.bottom >= level:
        free_slots = min(vertex.free_slots, most(vertex.key[: level + 2]))
        if not free_slots:
            return None
        if vertex.state is not None:
            return replace(vertex, free_slots=free_slots, slot_counts=(free_slots,), notes={})
        return _with(vertex, free_slots, parts=vertex.parts, leaves=vertex.leaves)
    if vertex.leaves is not None:
        return _capped_leaves(vertex, vertex.leaves, level, most)
    parts = tuple(part for each in vertex.parts if (part := _capped(each, level, most)) is not None)
    return _with(vertex, sum(part.free_slots for part in parts), parts=parts) if parts else None


def _capped_leaves(vertex: Vertex, leaves: Leaves, level: int, most: Caps) -> Vertex | None:
    """The same for a domain whose nodes are domains of the spread's level."""
    depth = leaves.costs.depth
    bounds = [
        min(free_slots, most(key_of(state, depth - 1)[: level + 2]))
        for state, free_slots in zip(leaves.states, leaves.slot_counts, strict=True)
    ]
    used = [number for number, free_slots in enumerate(bounds) if free_slots]
    if not used:
        return None
    bounds = [bounds[number] for number in used]
    usable = replace(
        leaves,
        states=[leaves.states[number] for number in used],
        slot_counts=[leaves.slot_counts[number] for number in used],  # the cost of using a node
        every=[bounds],
        kinds=bounds,
        made=(),
        firsts=None,
        worked_out=[leaves.penalties[number] for number in used],
    )
    capped = _with(vertex, sum(bounds), leaves=usable)
    capped.notes["slot_counts"] = [bounds if at >= leaves.top else [] for at in range(depth)]
    return capped


def _with(
    vertex: Vertex, free_slots: int, parts: tuple[Vertex, ...] = (), leaves: Leaves | None = None
) -> Vertex:
    """The domain with another capacity and other children, but with the old costs."""
    notes = {"census": census(vertex)}
    return replace(vertex, free_slots=free_slots, parts=parts, leaves=leaves, notes=notes)


# --- pods that domains share --------------------------------------------------------------------------

UNKNOWN: Final = 1 << 4096
"""More than any cost."""

Curve = list[int]
"""The least cost of at least 0, 1, 2, ... pods beyond the minimum of all domains of a part."""


@dataclass(slots=True)
class CostPart:
    """A domain of the spread's level (key), which takes at least `least` pods, or parts that share pods.

    For parts with convex curves, taking the cheapest next pods of all parts gives the least sum (`next`: the
    cost of each pod, and the number of its part). A min-plus product adds each of the other parts. rows: the
    curves of all convex parts together, then with one, two, ... of the others.
    """

    curve: Curve
    key: int = 0
    least: int = 0
    convex: Sequence["CostPart"] = ()
    others: Sequence["CostPart"] = ()
    next: list[tuple[int, int]] = field(default_factory=list)
    rows: list[Curve] = field(default_factory=list)

    @staticmethod
    def joined(parts: Iterable["CostPart"], own: int, left: int, budget: Budget) -> "CostPart":
        """The parts of a domain above the spread's level. own: the cost of using it. left: pods to share.

        Raises OutOfSteps.
        """
        convex, others = _divided(parts)
        budget.spend(2 * len(convex) + sum(len(part.curve) for part in (*convex, *others)) // 10)
        slopes = _slopes(convex)[:left]
        first = sum(part.curve[0] for part in convex)
        rows = [list(accumulate((cost for cost, _ in slopes), initial=first))]
        for part in others:
            rows.append(_product(rows[-1], part.curve, left, budget))
        used, *rest = rows[-1]
        curve = [used + own if used else 0, *(cost + own for cost in rest)]
        return CostPart(curve, convex=convex, others=others, next=slopes, rows=rows)

    def take(self, more: int, taken: dict[int, int]) -> None:
        """Record the pods that its domains take, by their keys, for so many pods beyond their minimums."""
        if not self.rows:
            taken[self.key] = self.least + more
            return
        for number in range(len(self.others) - 1, -1, -1):
            row, part, wanted = self.rows[number], self.others[number], self.rows[number + 1][more]
            amount = next(
                each
                for each in _ends(part.curve)
                if max(0, more - each) < len(row) and row[max(0, more - each)] + part.curve[each] == wanted
            )
            part.take(min(amount, more), taken)
            more = max(0, more - amount)
        of_parts = Counter(number for _, number in self.next[:more])
        for number, part in enumerate(self.convex):
            part.take(of_parts[number], taken)


def _divided(parts: Iterable[CostPart]) -> tuple[list[CostPart], list[CostPart]]:
    """The parts with convex curves, and the others."""
    convex: list[CostPart] = []
    others: list[CostPart] = []
    for part in parts:
        (convex if _is_convex(part.curve) else others).append(part)
    return convex, others


def _slopes(parts: Sequence[CostPart]) -> list[tuple[int, int]]:
    """The cost of each next pod of each part, and the number of its part, the cheapest first."""
    return sorted(
        (after - before, number)
        for number, part in enumerate(parts)
        for before, after in pairwise(part.curve)
    )


def _is_convex(curve: Curve) -> bool:
    """Whether each next pod costs at least as much as the one before, and none costs less than 0."""
    more = [after - before for before, after in pairwise(curve)]
    return not more or (more[0] >= 0 and all(before <= after for before, after in pairwise(more)))


def _ends(curve: Curve) -> Iterator[int]:
    """The numbers of pods after which the cost rises."""
    last = len(curve) - 1
    return (amount for amount, cost in enumerate(curve) if amount == last or curve[amount + 1] != cost)


def _product(row: Curve, curve: Curve, left: int, budget: Budget) -> Curve:
    """The least cost of at least 0, 1, ..., `left` pods in two parts. Raises OutOfSteps."""
    size = min(left, len(row) + len(curve) - 2) + 1
    found = [UNKNOWN] * size
    for amount in _ends(curve):
        length = min(len(row), size - amount)
        budget.spend(2 + len(row) // 5)
        cost = curve[amount]
        if length > 0:
            reached = [known + cost for known in row[:length]]
            found[amount : amount + length] = map(min, found[amount : amount + length], reached)
        if length < len(row):
            found[-1] = min(found[-1], row[max(0, size - 1 - amount)] + cost)
    return list(accumulate(reversed(found), min))[::-1]


# --- the search ---------------------------------------------------------------------------------------

KNAPSACK_STEPS: Final = 30
"""Steps to solve a number of pods in a domain, beside one per child and the steps of their knapsack."""

LOOK: Final = 5
"""Steps for a domain that may take pods: for its share, and for its part of the tree."""

MADE: Final = 3
"""The same if its pods are solved separately, which makes vertices of single nodes."""


class _SpreadRegion(NamedTuple):
    """A domain of the required level, or the cluster. around: the cost of the domains around it."""

    around: int
    vertex: Vertex
    taken: Shares


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum for identical pods that are spread; all modes are treated as best-fit."""
    question = replace(question, options=replace(question.options, mode=Mode.BEST_FIT))
    request, wanted = question.spread, question.counts[0]
    assert request is not None
    roots = _large_enough(question, root)
    if not roots:
        return Solution(None, True)
    if request.most is not None and not request.there:  # without checking each domain domain
        cap = min(request.most, wanted)
        found = _within(question, root, lambda _: cap, budget)
        return found or _cheapest(question, _evenest(question, roots, budget), budget)
    return _shared(question, root, _evenest(question, roots, budget), budget)


def _shared(question: Question, root: Vertex, evenest: Sequence[_SpreadRegion], budget: Budget) -> Solution:
    """The best solution of all regions, by caps alone if no domain must take any pods."""
    taken = {path: amounts for each in evenest for path, amounts in each.taken.items()}
    found = None
    if not any(least for least, _ in taken.values()):
        found = _within(question, root, lambda path: taken.get(path, (0, 0))[1], budget)
    return found or _cheapest(question, evenest, budget)


def _large_enough(question: Question, root: Vertex) -> list[tuple[int, Vertex]]:
    """The domains of the required level that fit all pods, and the cost of the domains around each."""
    every = regions(root, question.required)
    return [(around, each) for around, each in every if slots_under_cap(question, each) >= question.counts[0]]


def _within(question: Question, root: Vertex, caps: Caps, budget: Budget) -> Solution | None:
    """The optimum if no domain must take any pods; None if it takes too many steps."""
    try:
        return solve_capped(question, root, caps, budget.part(budget.left * 3 // 4))
    except OutOfSteps:
        return None


def _evenest(question: Question, roots: Iterable[tuple[int, Vertex]], budget: Budget) -> list[_SpreadRegion]:
    """The regions with the most even spread, and the shares of their domains."""
    found: dict[int, list[_SpreadRegion]] = {}
    for around, vertex in roots:
        uneven, taken = shares(question, vertex)
        budget.take(LOOK * len(taken))
        found.setdefault(uneven, []).append(_SpreadRegion(around, vertex, taken))
    return found[min(found)]


def _cheapest(question: Question, evenest: Iterable[_SpreadRegion], budget: Budget) -> Solution:
    """The best solution of all regions."""
    best: tuple[int, dict[str, Counts]] | None = None
    proven = True
    for around, vertex, taken in evenest:
        budget.take(MADE * len(taken))
        search = SpreadSearch(question, vertex, taken, budget)
        try:
            cost, pods_in = search.solve()
        except OutOfSteps:
            proven, cost, pods_in = False, UNKNOWN, search.simple()
        if best is None or around + cost < best[0]:
            best = around + cost, search.counts(pods_in)
            proven = proven and search.proven
    return Solution(None if best is None else best[1], proven)


@dataclass(slots=True, eq=False)
class SpreadDomain:
    """A domain of the spread's level, and the fewest and most pods that it may take."""

    vertex: Vertex
    least: int
    most: int


class SpreadSearch:
    """The search in one domain of the required level, or in the cluster."""

    def __init__(self, question: Question, vertex: Vertex, taken: Shares, budget: Budget) -> None:
        """taken: the shares of the domains."""
        assert question.spread is not None
        self.question = question
        self.vertex = vertex
        self.level = question.spread.level
        named = ((domain, domain.key[: self.level + 2]) for domain in domains_at(vertex, self.level))
        self.domains = {
            id(domain): SpreadDomain(domain, *taken[path]) for domain, path in named if path in taken
        }
        self.left = question.counts[0] - sum(domain.least for domain in self.domains.values())
        self.budget = budget
        self.proven = True
        """Whether every solution inside a domain was optimal."""
        self.covers: dict[tuple[int, int], Cover] = {}
        """The solution for a domain and a number of pods."""

    def solve(self) -> tuple[int, dict[int, int]]:
        """The least cost, and the pods of each domain by the id of its vertex. Raises OutOfSteps."""
        part = self._part(self.vertex)
        taken: dict[int, int] = {}
        part.take(self.left, taken)
        return part.curve[self.left], taken

    def simple(self) -> dict[int, int]:
        """The pods of each domain if the largest domains are filled first."""
        taken = {key: domain.least for key, domain in self.domains.items()}
        left = self.left
        for key, domain in sorted(self.domains.items(), key=lambda pair: -pair[1].most):
            more = min(left, domain.most - domain.least)
            taken[key] += more
            left -= more
        return taken

    def counts(self, taken: dict[int, int]) -> dict[str, Counts]:
        """The pods on each node."""
        counts: dict[str, Counts] = {}
        for key, amount in taken.items():
            left = amount
            for state, free in self._nodes(self.domains[key].vertex, amount) if amount else ():
                if left:
                    counts[state.name] = (min(left, free),)
                    left -= min(left, free)
        return counts

    def _nodes(self, vertex: Vertex, amount: int) -> Iterable[tuple[NodeState, int]]:
        """The nodes for so many pods in a domain, in topology order, with their free slots."""
        if vertex.state is not None:
            return [(vertex.state, vertex.free_slots)]
        if not self.budget.exhausted or (id(vertex), amount) in self.covers:
            with suppress(OutOfSteps):
                return self._cover(vertex, amount).nodes
        self.proven = False
        return sorted(states_of(vertex), key=lambda each: -each[1])

    def _cover(self, vertex: Vertex, amount: int) -> Cover:
        """The optimal nodes for so many pods in a domain. Raises OutOfSteps."""
        if (id(vertex), amount) not in self.covers:
            self.budget.spend(KNAPSACK_STEPS + len(child_slot_counts(vertex)))
            alone = replace(self.question, required=None)
            cover = homogeneous.cover(alone, vertex, amount, self.budget)
            assert cover is not None
            self.covers[id(vertex), amount] = cover
        return self.covers[id(vertex), amount]

    def _part(self, vertex: Vertex) -> CostPart:
        if (domain := self.domains.get(id(vertex))) is not None:
            amounts = range(domain.least, domain.least + min(domain.most - domain.least, self.left) + 1)
            return CostPart([self._cost(vertex, each) for each in amounts], id(vertex), domain.least)
        # Other domains of the spread's level take no pods.
        children = (each for each in vertex.children if id(each) in self.domains or each.bottom < self.level)
        return CostPart.joined(map(self._part, children), vertex.own, self.left, self.budget)

    def _cost(self, vertex: Vertex, amount: int) -> int:
        """The cost of so many pods in a domain. Raises OutOfSteps."""
        if not amount:
            return 0
        if vertex.state is not None:
            self.budget.spend()
            return vertex.own
        return self._cover(vertex, amount).cost
