"""The optimum for identical pods at any size: a covering knapsack over the tree, cut by bounds.

Theory. All pods are alike, so a node is a number, its room, and a solution is a set of nodes whose rooms add
up to at least the demand k; its cost is the sum of the costs of the nodes and domains used (see tree.Costs),
so the least cost per number of pods held ("frontier") is enough to know of everything tried so far.

* A domain that holds all k alone beats any two (one domain at that level, exchange argument), so while there
  is one the search descends into such domains only, in the order of their lower bounds.
* Otherwise the children are tried from the roomiest down, and a state is dropped when its cost plus a lower
  bound on what the missing pods will cost reaches the best solution known. The bound takes each level for
  itself: the fewest domains of that level, largest first, that could hold the missing pods, wherever they
  lie; and at least as much leftover as pods. See bounds, also for the sharper one just below the top.
* Below the lowest label level only the number of nodes and the sum of their rooms matter, so a domain of n
  nodes offers (m, s) pairs instead of 2^n sets: the sums s that m nodes reach, by bit sets.

The first pass counts domains alone (few offers: the m roomiest nodes), the second adds leftover and starts
from the first one's solution. Both are exact; with K = k + 1 states and offers o_d per domain the work is
at most O(K * sum of o_d), and the bounds leave a small part of it. Sources: the tree knapsack for
"at least k" and the bounds are standard (Kellerer, Pferschy, Pisinger: Knapsack Problems, 2004, ch. 2, 5).

Headroom decides between nodes of equal room in one domain, not between domains; see place.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from webhook.placement.bounds import Ahead, Suffixes
from webhook.placement.search import OutOfSteps
from webhook.placement.sums import subset, sums_of
from webhook.placement.tree import Costs, Question, Vertex

Picks = list[Vertex]


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """Some nodes of one domain, after what was taken before: how many, and the sum of their rooms."""

    before: "_Taken | None"
    domain: Vertex
    nodes: int
    total: int


_Frontier = dict[int, tuple[int, _Taken | None]]
"""Pods held (at most k) -> least cost and how."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """A domain's nodes as one choice: pods held, cost, number of nodes."""

    holds: int
    cost: int
    nodes: int


class Knapsack:
    """One question of identical pods without slices. `steps` counts states tried."""

    def __init__(self, question: Question) -> None:
        """question: one class, not balanced, no slices."""
        self.question = question
        self.costs = Costs(question.levels)
        self.wanted = question.counts[0]
        self.nothing: Ahead = (0,) * (question.levels + 1)
        self.steps = 0
        self.budget = question.options.budget
        self.proven = True
        self.offers: dict[tuple[str, ...], Sequence[_Offer] | None] = {}
        self.coarse = True
        self.even = False
        self.lowest = question.levels + 1
        self.given = 0
        self.pools: dict[int, list[list[int]]] = {}
        self.best: tuple[int, _Taken] | None = None
        self.limit = 0

    def solve(self, root: Vertex) -> Picks | None:
        """Nodes that hold the gang at least cost, or None when it does not fit.

        When the budget ends first, the best found so far; `proven` tells.
        """
        if root.even is not None and not self.question.anchored:
            self.even = True
            room, self.lowest = root.even
            levels = range(self.lowest, self.question.levels + 1)
            self.given = sum(self.costs.of_domain(level, room) for level in levels)
            self.wanted = -(-self.wanted // room) * room
        picks = self._greedy(root)
        if picks is None:
            return None
        try:
            for self.coarse in (True, False):
                self.limit = self._cost_of(root, picks) + (0 if self.coarse else 1)
                self.best = None
                self.offers.clear()
                self._pass(root)
                picks = _nodes(self.best[1]) if self.best is not None else picks
        except OutOfSteps:
            self.proven = False
            picks = _nodes(self.best[1]) if self.best is not None else picks
        return self._trimmed(picks) if self.even else picks

    def _greedy(self, root: Vertex) -> Picks | None:
        """A good solution to start from: the tightest domain that holds what is left, else the roomiest."""
        starts = [(v.room, base, n, v) for n, (base, v) in enumerate(self._roots(root, 0))]
        fitting = [start for start in starts if start[0] >= self.wanted]
        if not fitting:
            return None
        picks: Picks = []
        _fill(min(fitting)[-1], self.wanted, picks)
        return picks

    def _trimmed(self, picks: Picks) -> Picks:
        """Without the nodes beyond the demand: those with the least headroom.

        No domain is emptied: one with no more nodes than the surplus would have been left out as a whole.
        """
        surplus = (sum(node.room for node in picks) - self.wanted) // picks[0].room
        return sorted(picks, key=lambda node: node.own)[: len(picks) - surplus]

    def _pass(self, root: Vertex) -> None:
        """Set `best` to the cheapest solution below `limit` (0: none known)."""
        starts = sorted(
            (self._bound(vertex, self.wanted) + base, number, base, vertex)
            for number, (base, vertex) in enumerate(self._roots(root, 0))
            if vertex.room >= self.wanted
        )
        for bound, _, base, vertex in starts:
            if not self._hopeless(bound):
                self._descend(vertex, base)

    def _roots(self, vertex: Vertex, base: int) -> Iterator[tuple[int, Vertex]]:
        """The domains of the required level, or the cluster, each with the cost of using it."""
        base += self._own(vertex) if vertex.top >= 0 else 0
        if self.question.required is None or vertex.bottom >= self.question.required:
            yield base, vertex
            return
        for child in vertex.children:
            yield from self._roots(child, base)

    def _own(self, vertex: Vertex) -> int:
        """The cost of using a domain, in the pass's scale; where nodes are even without what is given."""
        own = vertex.own
        if self.even and vertex.state is not None:
            own -= self.given
        return own >> self.costs.square if self.coarse else own >> self.costs.leftover[-1]

    def _hopeless(self, bound: int) -> bool:
        return bool(self.limit) and bound >= self.limit

    def _found(self, cost: int, taken: _Taken) -> None:
        if not self._hopeless(cost):
            self.best = (cost, taken)
            self.limit = cost

    # --- one domain that holds all ----------------------------------------------------------------

    def _descend(self, vertex: Vertex, base: int) -> None:
        """Try the solutions inside a domain; base: the cost of using it and the domains around it."""
        if vertex.state is not None:
            self._found(base, _Taken(None, vertex, 1, vertex.room))
            return
        enough = [child for child in vertex.children if child.room >= self.wanted]
        if not enough or self.question.anchored:
            self._combine(vertex, base)
            return
        order = sorted(
            (base + self._own(child) + self._bound(child, self.wanted), number)
            for number, child in enumerate(enough)
        )
        for bound, number in order:
            if self._hopeless(bound):
                return
            self._descend(enough[number], base + self._own(enough[number]))

    # --- several domains --------------------------------------------------------------------------

    def _combine(self, vertex: Vertex, base: int) -> None:
        """Try sets of children; solutions below the limit go to `best`."""
        children = self._candidates(vertex)
        bounds = Suffixes(self, children)
        frontier: _Frontier = {0: (base, None)}
        for number, child in enumerate(children):
            bounds.at(number)
            frontier = self._extend(frontier, child, bounds, self.nothing)
            bounds.at(number + 1)
            frontier = self._pruned(frontier, bounds, self.nothing)
        if self.wanted in frontier:
            cost, taken = frontier[self.wanted]
            assert taken is not None
            self._found(cost, taken)

    def _candidates(self, vertex: Vertex) -> list[Vertex]:
        """The children that can be part of a solution with the fewest children, roomiest first."""
        children = sorted(vertex.children, key=lambda child: -child.room)
        if self.question.anchored:
            return children
        sums = list(accumulate(child.room for child in children))
        fewest = bisect_left(sums, self.wanted) + 1
        if fewest > len(sums):
            return []
        least = self.wanted - (sums[fewest - 2] if fewest > 1 else 0)
        return [child for child in children if child.room >= least]

    def _extend(self, entry: _Frontier, vertex: Vertex, bounds: Suffixes, ahead: Ahead) -> _Frontier:
        """The frontier once the vertex may be used too; ahead: of the domains around it, it included."""
        if vertex.key not in self.offers:
            self.offers[vertex.key] = self._offers(vertex)
        offers = self.offers[vertex.key]
        if offers is not None:
            return self._pruned(self._take(entry, vertex, offers), bounds, _less(ahead, vertex.room))
        own = self._own(vertex)
        inner: _Frontier = {held: (cost + own, taken) for held, (cost, taken) in entry.items()}
        inside = tuple(
            vertex.room if vertex.top <= level <= vertex.bottom else room for level, room in enumerate(ahead)
        )
        inner = self._pruned(inner, bounds, inside)
        for child in sorted(vertex.children, key=lambda child: -child.room):
            inner = self._extend(inner, child, bounds, inside)
            inside = _less(inside, child.room)
        return _pareto(entry | _cheaper(entry, inner))

    def _take(self, entry: _Frontier, vertex: Vertex, offers: Sequence[_Offer]) -> _Frontier:
        self.steps += len(entry) * len(offers)
        if self.steps > self.budget:
            raise OutOfSteps
        costs = {held: found[0] for held, found in entry.items()}  # the hot loop below makes no objects
        chosen: dict[int, tuple[int, _Offer]] = {}
        wanted = self.wanted
        pairs = [(offer.holds, offer.cost, offer) for offer in offers]
        for held, (cost, _) in entry.items():
            if held >= wanted:
                continue
            for holds, more, offer in pairs:
                total = held + holds
                if total > wanted:
                    total = wanted
                new = cost + more
                if total not in costs or new < costs[total]:
                    costs[total] = new
                    chosen[total] = (held, offer)
                if total == wanted:
                    break
        result = dict(entry)
        for total, (held, offer) in chosen.items():
            result[total] = (costs[total], _Taken(entry[held][1], vertex, offer.nodes, offer.holds))
        return result

    def _pruned(self, frontier: _Frontier, bounds: Suffixes, ahead: Ahead) -> _Frontier:
        kept: _Frontier = {}
        least: int | None = None
        for held in sorted(frontier, reverse=True):
            found = frontier[held]
            if least is not None and found[0] >= least:
                continue
            least = found[0]
            missing = self.wanted - held
            if self.limit and found[0] + bounds.least(missing, ahead) >= self.limit:
                continue
            kept[held] = found
            if held == self.wanted and found[1] is not None:
                self._found(found[0], found[1])
        return kept

    # --- offers and bounds ------------------------------------------------------------------------

    def _offers(self, vertex: Vertex) -> Sequence[_Offer] | None:
        """What a node, or a domain of nothing but nodes that cost alike, can hold; None for others."""
        own = self._own(vertex)
        if vertex.state is not None:
            return (_Offer(vertex.room, own, 1),)
        count_cost = {self._domains(child) for child in vertex.children}
        if len(count_cost) > 1 or any(child.state is None for child in vertex.children):
            return None
        each = count_cost.pop()
        if self.even and not each:
            return (_Offer(vertex.room, own, len(vertex.children)),)
        rooms = tuple(sorted((child.room for child in vertex.children), reverse=True))
        if self.coarse:
            return [
                _Offer(total, own + each * number, number)
                for number, total in enumerate(accumulate(rooms), start=1)
            ]
        return self._fine_offers(vertex, own, rooms)

    def _domains(self, vertex: Vertex) -> int:
        """The domains that using the vertex adds at each level, packed."""
        shift = 0 if self.coarse else self.costs.square - self.costs.leftover[-1]
        return self._own(vertex) >> shift

    def _fine_offers(self, vertex: Vertex, own: int, rooms: tuple[int, ...]) -> list[_Offer]:
        first = vertex.children[0]
        base = self._own(first) - first.room * self._per_room(first)
        per_room = self._per_room(first)
        return [
            _Offer(total, own + number * base + total * per_room, number) for number, total in sums_of(rooms)
        ]

    def _per_room(self, node: Vertex) -> int:
        """Cost per pod of room of a node: leftover at the levels it stands for, unless anchored."""
        if not node.own >> self.costs.square:
            return 0
        shift = self.costs.leftover[-1]
        levels = range(node.top, min(node.bottom + 1, self.lowest))
        return sum(1 << self.costs.leftover[level] - shift for level in levels)

    def bound(self, vertex: Vertex) -> int:
        """At most the cost of holding the pods of class 0 in a domain, without that of using it."""
        self.coarse = False
        return self._bound(vertex, self.wanted) << self.costs.leftover[-1]

    def _bound(self, vertex: Vertex, missing: int) -> int:
        """Least cost below a domain of holding so many pods in it."""
        if id(vertex) not in self.pools:
            self.pools[id(vertex)] = [list(accumulate(rooms)) for rooms in self.rooms(vertex)]
        return self._least(self.pools[id(vertex)], missing)

    def _least(self, sums: Sequence[Sequence[int]], missing: int) -> int:
        if self.question.anchored:
            return 0
        total = 0
        for level, at_level in enumerate(sums):
            if at_level:
                total += self.unit(level, bisect_left(at_level, missing) + 1, missing)
        return total

    def unit(self, level: int, domains: int, leftover: int) -> int:
        """Cost of some domains of a level with so much room in all, in the pass's scale."""
        if self.even and level >= self.lowest:
            return 0
        if self.coarse:
            return domains << self.costs.domains[level] - self.costs.square
        shift = self.costs.leftover[-1]
        return (domains << self.costs.domains[level] - shift) + (
            leftover << self.costs.leftover[level] - shift
        )

    def rooms(self, vertex: Vertex) -> list[list[int]]:
        """Rooms of the domains of each level below the vertex, roomiest first."""
        rooms: list[list[int]] = [[] for _ in range(self.question.levels + 1)]
        stack = list(vertex.children)
        while stack:
            part = stack.pop()
            for level in range(part.top, part.bottom + 1):
                rooms[level].append(part.room)
            stack += part.children
        for at_level in rooms:
            at_level.sort(reverse=True)
        return rooms

    def _cost_of(self, root: Vertex, picks: Picks) -> int:
        """Cost of a solution in the scale of the pass."""
        used = {id(node) for node in picks}

        def cost(vertex: Vertex) -> int:
            """-1 when nothing of it is used."""
            if vertex.state is not None:
                return self._own(vertex) if id(vertex) in used else -1
            below = [found for found in map(cost, vertex.children) if found >= 0]
            own = self._own(vertex) if vertex.top >= 0 else 0
            return sum(below) + own if below else -1

        return cost(root)


def _fill(vertex: Vertex, wanted: int, picks: Picks) -> None:
    if vertex.state is not None:
        picks.append(vertex)
        return
    left = sorted(vertex.children, key=lambda child: -child.room)
    while wanted > 0:
        fitting = [child for child in left if child.room >= wanted]
        child = fitting[-1] if fitting else left[0]
        left.remove(child)
        _fill(child, min(wanted, child.room), picks)
        wanted -= child.room


def _cheaper(entry: _Frontier, inner: _Frontier) -> _Frontier:
    return {held: found for held, found in inner.items() if held not in entry or found[0] < entry[held][0]}


def _less(ahead: Ahead, room: int) -> Ahead:
    return tuple(max(0, left - room) for left in ahead)


def _pareto(frontier: _Frontier) -> _Frontier:
    kept: _Frontier = {}
    least: int | None = None
    for held in sorted(frontier, reverse=True):
        if least is None or frontier[held][0] < least:
            kept[held] = frontier[held]
            least = frontier[held][0]
    return kept


def _nodes(taken: _Taken | None) -> Picks:
    """The nodes of a solution: of each domain the chosen number with the chosen sum, most headroom first."""
    picks: Picks = []
    while taken is not None:
        if taken.domain.state is not None:
            picks.append(taken.domain)
        else:
            picks += subset(taken.domain.children, taken.nodes, taken.total)
        taken = taken.before
    return picks
