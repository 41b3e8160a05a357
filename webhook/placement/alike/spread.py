"""Identical pods spread over the domains of a level, at most so many in each, or evenly: the optimum.

Theory. The spread says of each domain d of its level how many pods it takes at least and at most. With a cap
that is none, and the cap less those that are there. Evenly, the sum of the squares of what the domains hold
is least; squares are convex, so pod by pod the emptiest domain takes the next, as water finds its level: each
domain takes what it lacks of that as far as it has room, and some of those that end there take one more.
Which ones, cost decides.

What a domain takes inside costs what alike.knapsack finds for so many pods, and domains do not meet there.
Under a cap any number up to it may be asked for, and sharing solves the knapsack for all of them at once,
from the nodes up: costs add up in all their fields. The pods that are free to go here or there (beyond the
least of every domain) are shared by sharing.CostPart, up the tree. The fewest domains just below the top come
first, so of these each that is used holds what the others cannot. Where the best without a cap keeps it, that
is the best with it.

With n pods, N nodes, D domains and a cap c the work is c * N additions for the domains (c * c for each domain
inside), n * c * D for what they share, and n * min(D, n) where they are single nodes; it is counted in steps.
Beyond them the roomiest domains are filled, which is not proven.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from webhook.placement.alike import knapsack
from webhook.placement.alike.knapsack import Knapsack
from webhook.placement.alike.rooms import child_rooms
from webhook.placement.alike.sharing import UNKNOWN, CheapestParts, CostPart, DomainPart, JoinedParts
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.model import Mode
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import Path
from webhook.placement.solution import Solution
from webhook.placement.tree import Vertex, domains_at, nodes_of

KNAPSACK_STEPS: Final = 30
"""Steps for so many pods on one node of a domain, beside one for each of its children."""

FEW: Final = 2
"""Amounts up to which a knapsack for each of them is quicker than one for all."""

COVERING_STEPS: Final = 5000
"""Steps for pods that share several nodes, beside a hundred for each child."""


@dataclass(slots=True, eq=False)
class SpreadDomain:
    """A domain of the level: how many pods it takes at least and at most, and what so many cost."""

    vertex: Vertex
    least: int
    most: int
    known: dict[int, int] = field(default_factory=dict)


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum for identical pods that are spread; modes other than balanced count as best-fit."""
    if question.options.mode not in (Mode.BEST_FIT, Mode.BALANCED):
        question = replace(question, options=replace(question.options, mode=Mode.BEST_FIT))
    if question.spread is not None and question.spread.most is not None:
        free = knapsack.solve(replace(question, spread=None), root)
        if free.counts is None or _is_spread(question, root, free.counts):
            return free  # nothing is better than the best without the cap
    best: tuple[tuple[int, int], dict[str, Counts]] | None = None
    proven = True
    for base, vertex in Knapsack(question).roots(root, 0):
        shares = _shares(question, vertex)
        if shares is None:
            continue
        unevenness, domains = shares
        spread = SpreadSearch(question, vertex, domains, budget)
        try:
            cost, taken = spread.solve()
        except OutOfSteps:
            proven, cost, taken = False, UNKNOWN, spread.simple()
        value = unevenness, base + cost
        if best is None or value < best[0]:
            best = value, spread.counts(taken)
    return Solution(None if best is None else best[1], proven)


def _is_spread(question: Question, root: Vertex, counts: Mapping[str, Counts]) -> bool:
    """Whether a distribution keeps the cap."""
    assert question.spread is not None
    wish, held = question.spread, Counter[Path]()
    for vertex in nodes_of(root):
        if vertex.state is not None and vertex.state.name in counts:
            held[vertex.key[: wish.level + 2]] += sum(counts[vertex.state.name])
    return all(number + wish.there_in(key) <= (wish.most or number) for key, number in held.items())


def room(question: Question, vertex: Vertex) -> int:
    """How many of the pods a domain has room for under the spread's cap."""
    assert question.spread is not None
    wish = question.spread
    if wish.most is None:
        return vertex.room
    return sum(
        min(domain.room, max(0, wish.most - wish.there_in(domain.key)))
        for domain in domains_at(vertex, wish.level)
    )


def _roomy(parts: Sequence[CostPart], wanted: int) -> list[CostPart]:
    """Domains of which the fewest are to be used: those that can be among them, for what they hold then."""
    rooms = sorted((len(part.curve) - 1 for part in parts), reverse=True)
    sums = list(accumulate(rooms))
    fewest = bisect_left(sums, wanted)
    needed = wanted - (sums[fewest - 1] if fewest else 0)
    roomy = [part for part in parts if len(part.curve) > needed]
    for part in roomy:
        part.curve = [part.curve[0], *[part.curve[needed]] * (needed - 1), *part.curve[needed:]]
    return roomy


def _shares(question: Question, vertex: Vertex) -> tuple[int, list[SpreadDomain]] | None:
    """What each domain takes at least and at most, and by how much the squares grow; None without room."""
    wish, wanted = question.spread, question.counts[0]
    assert wish is not None
    if room(question, vertex) < wanted:
        return None
    found = [
        (domain, wish.there_in(domain.key), domain.room)
        for domain in domains_at(vertex, wish.level)
        if domain.room
    ]
    cap = wish.most
    if cap is not None:
        return 0, [
            SpreadDomain(domain, 0, min(free, wanted, cap - there))
            for domain, there, free in found
            if cap > there
        ]
    level = _level([(there, free) for _, there, free in found], wanted)
    domains = []
    grown = 0
    for domain, there, free in found:
        least = min(free, max(0, level - there))
        most = min(free, max(0, level + 1 - there))
        domains.append(SpreadDomain(domain, least, most))
        grown += (there + least) ** 2 - there**2
    left = wanted - sum(domain.least for domain in domains)
    return grown + left * (2 * level + 1), [domain for domain in domains if domain.most]


def _level(domains: Sequence[tuple[int, int]], wanted: int) -> int:
    """The highest level up to which so many pods fill domains of which each holds some and has room."""
    low, high = 0, max(there for there, _ in domains) + wanted
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(free, max(0, middle - there)) for there, free in domains) <= wanted:
            low = middle
        else:
            high = middle - 1
    return low


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

    def solve(self) -> tuple[int, dict[int, int]]:
        """The least cost, and what each domain takes, by its vertex's id. Raises OutOfSteps."""
        part = self._part(self.vertex)
        taken: dict[int, int] = {}
        part.take(self.left, taken)
        return part.curve[self.left], taken

    def simple(self) -> dict[int, int]:
        """What each domain takes if the roomiest are filled first."""
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
            vertex, left = self.domains[key].vertex, amount
            if not left:
                continue
            cover = self._knapsack(left).solve(vertex)
            assert cover is not None
            for state, free, _ in cover.picks:
                if left:
                    counts[state.name] = (min(left, free),)
                    left -= min(left, free)
        return counts

    def _knapsack(self, amount: int) -> Knapsack:
        return Knapsack(replace(self.question, counts=(amount,), required=None, spread=None))

    def _cost(self, domain: SpreadDomain, amount: int) -> int:
        """Of so many pods in a domain."""
        if not amount:
            return 0
        if amount not in domain.known:
            vertex = domain.vertex
            rooms = child_rooms(vertex) if vertex.state is None else [vertex.room]
            several = vertex.state is None and amount > max(rooms)
            self.budget.spend(KNAPSACK_STEPS + len(rooms) + several * (COVERING_STEPS + 100 * len(rooms)))
            cover = self._knapsack(amount).solve(vertex)
            assert cover is not None
            domain.known[amount] = cover.cost
        return domain.known[amount]

    def _part(self, vertex: Vertex) -> CostPart:
        if id(vertex) in self.domains:
            return self._one(self.domains[id(vertex)])
        found = [
            self._part(child)
            for child in vertex.children
            if id(child) in self.domains or child.bottom < self._lowest  # else it may take none
        ]
        if vertex is self.vertex and not self.question.anchored and not self.given:
            found = _roomy(found, self.left)
        return self._joined(found, vertex, self.left)

    def _one(self, domain: SpreadDomain) -> CostPart:
        vertex, least = domain.vertex, domain.least
        more = min(domain.most - least, self.left)
        if vertex.state is not None and self.question.options.mode is Mode.BEST_FIT:
            self.budget.spend()
            curve = [vertex.own if least else 0, *[vertex.own] * more]
        elif more > FEW and self.question.options.mode is Mode.BEST_FIT:
            curve = self._inside(vertex, least + more).curve[least:]
        else:
            curve = [self._cost(domain, least + each) for each in range(more + 1)]
        return DomainPart(id(vertex), curve, least)

    def _inside(self, vertex: Vertex, most: int) -> CostPart:
        """What it costs to hold 0, 1, ... pods in a domain, which is a domain of the level or below it."""
        if vertex.state is not None:
            self.budget.spend()
            return DomainPart(id(vertex), [0, *[vertex.own] * min(most, vertex.room)], 0)
        return self._joined(
            [self._inside(child, most) for child in vertex.children if child.room], vertex, most
        )

    def _joined(self, found: Sequence[CostPart], vertex: Vertex, most: int) -> CostPart:
        """The parts of a domain, those of one height together."""
        alike: dict[int, list[CostPart]] = {}
        parts: list[CostPart] = []
        for part in found:
            if len(part.curve) > 1 and part.curve[1] == part.curve[-1]:
                alike.setdefault(len(part.curve) - 1, []).append(part)
            else:
                parts.append(part)
        parts += [CheapestParts(height, of_height, most) for height, of_height in alike.items()]
        return JoinedParts(parts, vertex.own, most, self.budget)

    @property
    def _lowest(self) -> int:
        assert self.question.spread is not None
        return self.question.spread.level
