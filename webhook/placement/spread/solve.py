"""Identical pods spread over the domains of a level, at most so many in each, or evenly: the optimum.

Theory. See shares for what each domain of the level takes at least and at most. Where none has to take any,
these are caps alone (see solve_capped). Else each takes its least or one more: what that costs inside is what
homogeneous.cover finds for so many pods, and domains do not meet there; costs add up in all their fields. The
pods that are free to go here or there are shared by sharing.CostPart, up the tree.

With n pods and D domains the work of that is n * D for what they share, and n * min(D, n) where they are
single nodes; it is counted in steps. Beyond them the largest domains are filled, which is not proven.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from webhook.placement import homogeneous
from webhook.placement.bounds import census, child_slot_counts
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.evaluate import Cover, Solution
from webhook.placement.model import Mode
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState, Path, key_of
from webhook.placement.spread.domain_shares import (
    UNKNOWN,
    CheapestParts,
    CostPart,
    DomainPart,
    NodesUpTo,
    Shares,
    SpreadDomain,
    domains_of,
    joined,
    shares,
    slots_under_cap,
)
from webhook.placement.vertex import Leaves, Vertex, regions, states_of

Caps = Callable[[Path], int]
"""How many pods the domain of a path may take; of a path of the spread's level."""


def caps_of(taken: Iterable[Shares]) -> Caps:
    """The caps of the domains that may take pods; all others take none."""
    most = {path: most for of_domains in taken for path, (_, most) in of_domains.items()}
    return lambda path: most.get(path, 0)


def solve_capped(question: Question, root: Vertex, most: Caps, budget: Budget) -> Solution:
    """The optimum where no domain must take any pods, but each at most so many. Raises OutOfSteps.

    To the domains around it, one that takes at most so many pods is one with so much capacity, at the same
    cost. So the search for homogeneous gangs, which knows what a node costs apart from what it takes, solves
    the same tree with these capacities.
    """
    request = question.spread
    assert request is not None
    tree = _capped(root, request.level, most)
    assert tree is not None
    return homogeneous.solve(replace(question, spread=None), tree, budget)


def _capped(vertex: Vertex, level: int, most: Caps) -> Vertex | None:
    """The domain with the capacities that the caps leave; None where it takes nothing."""
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
    """The same for a domain of nodes that stand alone for the spread's level."""
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
        slot_counts=[leaves.slot_counts[number] for number in used],  # what using a node costs
        every=[bounds],
        made=(),
        worked_out=[leaves.penalties[number] for number in used],
    )
    capped = _with(vertex, sum(bounds), leaves=usable)
    capped.notes["slot_counts"] = [bounds if at >= leaves.top else [] for at in range(depth)]
    return capped


def _with(
    vertex: Vertex, free_slots: int, parts: tuple[Vertex, ...] = (), leaves: Leaves | None = None
) -> Vertex:
    """The domain with another capacity and what is below it; of what costs may be, it knows the old."""
    notes = {"census": census(vertex)}
    return replace(vertex, free_slots=free_slots, parts=parts, leaves=leaves, notes=notes)


KNAPSACK_STEPS: Final = 30
"""Steps for so many pods in a domain, beside one for each of its children and what their knapsack takes."""

LOOK: Final = 5
"""Steps for a domain that may take pods: for its share, and for a tree of such capacities."""

ENDS: Final = 4
"""Steps for a domain without which a search over all of them never ends."""

MADE: Final = 3
"""The same if its pods are worked out for themselves; single nodes are made vertices for it."""

FEW: Final = 64
"""Pods up to which all amounts on the nodes of one domain are worked out together."""


class _SpreadRegion(NamedTuple):
    """A domain of the required level, or the cluster. around: the cost of using the domains around it."""

    around: int
    vertex: Vertex
    taken: Shares


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum for identical pods that are spread; every mode counts as best-fit."""
    question = replace(question, options=replace(question.options, mode=Mode.BEST_FIT))
    request, wanted = question.spread, question.counts[0]
    assert request is not None
    roots = _large_enough(question, root)
    if not roots:
        return Solution(None, True)
    if (
        request.most is not None and not request.there
    ):  # each may take as many: without a look at each of them
        cap = min(request.most, wanted)
        found = _within(question, root, lambda _: cap, budget)
        return found or _cheapest(question, _evenest(question, roots, budget), budget)
    evenest = _evenest(question, roots, budget)
    if _are_caps(evenest, budget):
        found = _within(question, root, caps_of(each.taken for each in evenest), budget)
        if found is not None:
            return found
    return _cheapest(question, evenest, budget)


def _large_enough(question: Question, root: Vertex) -> list[tuple[int, Vertex]]:
    """The domains of the required level with capacity for all pods, each with the cost of those around it."""
    every = regions(root, question.required)
    return [(around, each) for around, each in every if slots_under_cap(question, each) >= question.counts[0]]


def _are_caps(evenest: Sequence[_SpreadRegion], budget: Budget) -> bool:
    """Whether no domain must take any pods, and there are steps for a search over all of them."""
    if any(least for each in evenest for least, _ in each.taken.values()):
        return False
    return budget.left > ENDS * sum(len(each.taken) for each in evenest)


def _evenest(question: Question, roots: Iterable[tuple[int, Vertex]], budget: Budget) -> list[_SpreadRegion]:
    """The regions in which the pods can be spread most evenly, and what their domains take."""
    found: dict[int, list[_SpreadRegion]] = {}
    for around, vertex in roots:
        uneven, taken = shares(question, vertex)
        budget.take(LOOK * len(taken))
        found.setdefault(uneven, []).append(_SpreadRegion(around, vertex, taken))
    return found[min(found)]


def _cheapest(question: Question, evenest: Iterable[_SpreadRegion], budget: Budget) -> Solution:
    """The best of all regions, each domain with its least or one more."""
    best: tuple[int, dict[str, Counts]] | None = None
    proven = True
    for around, vertex, taken in evenest:
        budget.take(MADE * len(taken))
        spread = SpreadSearch(question, vertex, domains_of(question, vertex, taken), budget)
        try:
            cost, counts = spread.solve()
        except OutOfSteps:
            proven, cost, counts = False, UNKNOWN, spread.simple()
        if best is None or around + cost < best[0]:
            best = around + cost, spread.counts(counts)
            proven = proven and spread.proven
    return Solution(None if best is None else best[1], proven)


def _within(question: Question, root: Vertex, caps: Caps, budget: Budget) -> Solution | None:
    """The optimum where no domain must take any; None where that takes too long: the largest are filled."""
    try:
        return solve_capped(question, root, caps, budget.part(budget.left * 3 // 4))
    except OutOfSteps:
        return None


class SpreadSearch:
    """The pods in one domain of the required level, or in the cluster."""

    def __init__(
        self, question: Question, vertex: Vertex, domains: Sequence[SpreadDomain], budget: Budget
    ) -> None:
        """domains: those that may take pods."""
        self.question = question
        self.vertex = vertex
        self.domains = {id(domain.vertex): domain for domain in domains}
        self.given = sum(domain.least for domain in domains)
        self.left = question.counts[0] - self.given
        self.budget = budget
        self.proven = True
        """Whether the best was found for whatever a domain takes."""
        self.on_nodes: dict[int, NodesUpTo] = {}
        self.covers: dict[tuple[int, int], Cover] = {}
        """For a domain and a number of pods what was found for them."""

    def solve(self) -> tuple[int, dict[int, int]]:
        """The least cost, and what each domain takes, by its vertex's id. Raises OutOfSteps."""
        part = self._part(self.vertex)
        taken: dict[int, int] = {}
        part.take(self.left, taken)
        return part.curve[self.left], taken

    def simple(self) -> dict[int, int]:
        """What each domain takes if the largest are filled first."""
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
            for state, free in self._nodes(key, amount) if amount else ():
                if left:
                    counts[state.name] = (min(left, free),)
                    left -= min(left, free)
        return counts

    def _nodes(self, key: int, amount: int) -> Iterator[tuple[NodeState, int]]:
        """The nodes for so many pods in a domain, in topology order, and their capacities."""
        vertex = self.domains[key].vertex
        if vertex.state is not None:
            yield vertex.state, vertex.free_slots
            return
        if vertex.leaves is not None and key in self.on_nodes:
            leaves = vertex.leaves
            yield from ((leaves.states[n], leaves.slot_counts[n]) for n in self.on_nodes[key].nodes(amount))
            return
        if not self.budget.exhausted or (key, amount) in self.covers:
            with suppress(OutOfSteps):
                cover = self._cover(vertex, amount)
                yield from cover.nodes
                return
        self.proven = False
        yield from sorted(states_of(vertex), key=lambda each: -each[1])

    def _cover(self, vertex: Vertex, amount: int) -> Cover:
        """The best for so many pods in a domain. Raises OutOfSteps."""
        if (id(vertex), amount) not in self.covers:
            alone = replace(self.question, required=None)
            cover = homogeneous.cover(alone, vertex, amount, self.budget)
            assert cover is not None
            self.covers[id(vertex), amount] = cover
        return self.covers[id(vertex), amount]

    def _cost(self, domain: SpreadDomain, amount: int) -> int:
        """Of so many pods in a domain."""
        if not amount:
            return 0
        if amount not in domain.known:
            vertex = domain.vertex
            if self._is_few(domain):
                return vertex.own + self._on_nodes(domain).cost(amount)
            self.budget.spend(
                KNAPSACK_STEPS + (len(child_slot_counts(vertex)) if vertex.state is None else 0)
            )
            domain.known[amount] = self._cover(vertex, amount).cost
        return domain.known[amount]

    def _is_few(self, domain: SpreadDomain) -> bool:
        """Whether the domain is of single nodes and takes so few pods that rows of them are short."""
        return domain.vertex.leaves is not None and domain.most <= FEW

    def _on_nodes(self, domain: SpreadDomain) -> NodesUpTo:
        key, leaves = id(domain.vertex), domain.vertex.leaves
        assert leaves is not None
        if key not in self.on_nodes:
            self.on_nodes[key] = NodesUpTo(leaves, domain.most, self.budget)
        return self.on_nodes[key]

    def _part(self, vertex: Vertex) -> CostPart:
        if id(vertex) in self.domains:
            return self._one(self.domains[id(vertex)])
        found = [
            self._part(child)
            for child in vertex.children
            if id(child) in self.domains or child.bottom < self._lowest  # else it may take none
        ]
        return self._joined(found, vertex)

    def _one(self, domain: SpreadDomain) -> CostPart:
        vertex, least = domain.vertex, domain.least
        more = min(domain.most - least, self.left)
        if vertex.state is not None:
            self.budget.spend()
            curve = [vertex.own if least else 0, *[vertex.own] * more]
        else:
            curve = [self._cost(domain, least + each) for each in range(more + 1)]
        return DomainPart(id(vertex), curve, least)

    def _joined(self, found: Sequence[CostPart], vertex: Vertex) -> CostPart:
        """The parts of a domain, those of one height together."""
        of_height_parts: dict[int, list[CostPart]] = {}
        parts: list[CostPart] = []
        for part in found:
            if len(part.curve) > 1 and part.curve[1] == part.curve[-1]:
                of_height_parts.setdefault(len(part.curve) - 1, []).append(part)
            else:
                parts.append(part)
        self.budget.spend(2 * len(found))
        parts += [
            CheapestParts(height, of_height, self.left) for height, of_height in of_height_parts.items()
        ]
        return joined(parts, vertex.own, self.left, self.budget)

    @property
    def _lowest(self) -> int:
        assert self.question.spread is not None
        return self.question.spread.level
