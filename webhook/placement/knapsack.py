"""The optimum for identical pods at any size: a covering knapsack over the tree, cut by bounds.

Theory. All pods are alike, so a node is a number, its room, and a solution is a set of nodes whose rooms add
up to at least the demand k; its cost is the sum of the costs of the nodes and domains used (see tree.Costs),
so the least cost per number of pods held ("frontier") is enough to know of everything tried so far.

* A domain that holds all k alone beats any two (one domain at that level, exchange argument), so while there
  is one the search descends into such domains only, in the order of their lower bounds.
* Otherwise the children are tried from the roomiest down, and a state is dropped when its cost plus a lower
  bound on what the missing pods will cost reaches the best solution known. The bound takes each level for
  itself: the fewest domains of that level, largest first, that could hold the missing pods, wherever they
  lie; and at least as much leftover as pods.
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
from functools import lru_cache
from itertools import accumulate

from webhook.placement.search import OutOfSteps
from webhook.placement.tree import Costs, Question, Vertex

Picks = list[Vertex]


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """Some nodes of one domain, after what was taken before: how many, and the sum of their rooms."""

    before: "_Taken | None"
    domain: Vertex
    nodes: int
    total: int


_Ahead = tuple[int, ...]
"""For each level the room that is left to try in the domain that is paid for already, 0 for none."""

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
        self.nothing: _Ahead = (0,) * (question.levels + 1)
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
        bounds = _Suffixes(self, children)
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

    def _extend(self, entry: _Frontier, vertex: Vertex, bounds: "_Suffixes", ahead: _Ahead) -> _Frontier:
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
        result = dict(entry)
        wanted = self.wanted
        for held, (cost, taken) in entry.items():
            if held >= wanted:
                continue
            for offer in offers:
                total = min(held + offer.holds, wanted)
                known = result.get(total)
                if known is None or cost + offer.cost < known[0]:
                    result[total] = (cost + offer.cost, _Taken(taken, vertex, offer.nodes, offer.holds))
                if total == wanted:
                    break
        return result

    def _pruned(self, frontier: _Frontier, bounds: "_Suffixes", ahead: _Ahead) -> _Frontier:
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


def _less(ahead: _Ahead, room: int) -> _Ahead:
    return tuple(max(0, left - room) for left in ahead)


def _pareto(frontier: _Frontier) -> _Frontier:
    kept: _Frontier = {}
    least: int | None = None
    for held in sorted(frontier, reverse=True):
        if least is None or frontier[held][0] < least:
            kept[held] = frontier[held]
            least = frontier[held][0]
    return kept


class _Suffixes:
    """Lower bounds for what is still missing when only the children from some number on are left."""

    def __init__(self, knapsack: Knapsack, children: Sequence[Vertex]) -> None:
        self.knapsack = knapsack
        self.children = children
        self.sums = [0, *accumulate(child.room for child in children)]
        self.top = children[0].top if children else 0
        self.pools: list[list[list[int]]] = []
        self.prices: list[_Price] = []
        self.number = 0
        self.known: dict[tuple[int, _Ahead], int] = {}
        if children and not knapsack.question.anchored:
            below = [_rooms_below(knapsack, child) for child in children]
            self.pools = self._pools(below)
            if self.top < min(knapsack.question.levels, knapsack.lowest - 1) and len(children) > 1:
                self.prices = self._prices([rooms[self.top + 1] for rooms in below])

    def _pools(self, below: Sequence[list[list[int]]]) -> list[list[list[int]]]:
        """For each number the prefix sums of rooms by level, of that child and all later ones.

        Largest first, and no more than hold the gang.
        """
        gathered: list[list[int]] = [[] for _ in range(self.knapsack.question.levels + 1)]
        pools: list[list[list[int]]] = [[[] for _ in gathered]]
        for rooms in reversed(below):
            sums = []
            for level, at_level in enumerate(rooms):
                merged = sorted(gathered[level] + at_level, reverse=True)
                prefix = list(accumulate(merged))
                enough = bisect_left(prefix, self.knapsack.wanted) + 1
                gathered[level] = merged[:enough]
                sums.append(prefix[:enough])
            pools.append(sums)
        pools.reverse()
        return pools

    def _prices(self, rooms: Sequence[list[int]]) -> list["_Price"]:
        """The prices of one domain below the top that bound their number best, as seen from the start."""
        distinct = sorted({room for at_child in rooms for room in at_child})
        step = max(1, len(distinct) // _PRICES_TRIED)
        fewest = bisect_left(self.sums, self.knapsack.wanted)
        bounds = []
        for price in distinct[::step]:
            gains = sorted((_gain(at_child, price) for at_child in rooms), reverse=True)
            bounds.append(((self.knapsack.wanted - sum(gains[:fewest])) / price, price))
        best = sorted(bounds, reverse=True)[:_PRICES_KEPT]
        return [_Price(price, rooms, fewest) for _, price in best]

    def at(self, number: int) -> None:
        """From now on the child of this number is the one being tried."""
        self.number = number
        self.known.clear()

    def least(self, missing: int, ahead: _Ahead) -> int:
        """Least cost of the missing pods, where domains paid for already have some room ahead."""
        if missing <= 0 or self.knapsack.question.anchored:
            return 0
        key = (missing, ahead)
        if key not in self.known:
            self.known[key] = self._compute(missing, ahead)
        return self.known[key]

    def _compute(self, missing: int, ahead: _Ahead) -> int:
        in_current = ahead[self.top]
        first = min(self.number + (1 if in_current else 0), len(self.children))
        beyond = max(0, missing - in_current)
        start = self.sums[first]
        if beyond > self.sums[-1] - start:
            return 1 << 4096
        fewest = bisect_left(self.sums, start + beyond) - first if beyond else 0
        total = self.knapsack.unit(self.top, fewest, beyond)
        for level, sums in enumerate(self.pools[self.number]):
            outside = missing - ahead[level]
            if level > self.top and sums and outside > 0:
                domains = bisect_left(sums, outside) + 1
                if level == self.top + 1:
                    for price in self.prices:
                        domains = max(domains, price.least(outside, self.number, first, fewest, in_current))
                total += self.knapsack.unit(level, domains, outside)
        return total


class _Price:
    """A bound by pricing (Lagrangian relaxation): each domain below the top is worth `price` pods.

    n domains in b children hold at most n * price plus the b largest gains of children, where a child's gain
    is the sum of what its domains hold beyond the price. So n is at least what is missing beyond the gains,
    divided by the price; this sees that few children may be used, which the pool of all domains does not.
    """

    def __init__(self, price: int, rooms: Sequence[list[int]], most: int) -> None:
        """rooms: of the domains below each child, descending; most: children used at most."""
        self.price = price
        self.ahead = [list(accumulate(reversed(at_child), initial=0)) for at_child in rooms]
        self.gain_ahead = [
            list(accumulate((max(0, room - price) for room in reversed(at_child)), initial=0))
            for at_child in rooms
        ]
        self.best: list[list[int]] = [[0]]
        largest: list[int] = []
        for gains in reversed(self.gain_ahead):
            largest = sorted([*largest, gains[-1]], reverse=True)[:most]
            self.best.append(list(accumulate(largest, initial=0)))
        self.best.reverse()

    def least(self, missing: int, number: int, first: int, children: int, in_current: int) -> int:
        """Fewest further domains, in the rest of the current child and so many children from `first` on."""
        best = self.best[first]
        gain = best[min(children, len(best) - 1)]
        if in_current:
            gain += self.gain_ahead[number][bisect_left(self.ahead[number], in_current)]
        return max(0, -((gain - missing) // self.price))


_PRICES_TRIED = 32
_PRICES_KEPT = 2


def _gain(rooms: Sequence[int], price: int) -> int:
    return sum(room - price for room in rooms if room > price)


def _rooms_below(knapsack: Knapsack, child: Vertex) -> list[list[int]]:
    """Rooms of the domains of each level in the child, it included where it stands for several levels."""
    rooms = knapsack.rooms(child)
    for level in range(child.top + 1, child.bottom + 1):
        rooms[level].append(child.room)
    if knapsack.even:  # the number of nodes is given, so bounds on it say nothing
        rooms[knapsack.lowest :] = [[] for _ in rooms[knapsack.lowest :]]
    return rooms


@lru_cache(maxsize=4096)
def sums_of(rooms: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(m, s): the sums s that m of the rooms reach, as far as m - 1 of them do not reach as much.

    rooms are in descending order. Bit s of reach[m] is set when m rooms add up to s.
    """
    reach = [1] + [0] * len(rooms)
    for number, room in enumerate(rooms, start=1):
        for count in range(number, 0, -1):
            reach[count] |= reach[count - 1] << room
    result = []
    top = 0
    for count, sums in enumerate(reach[1:], start=1):
        bits = sums >> top + 1
        position = top + 1
        while bits:
            step = (bits & -bits).bit_length()
            position += step - 1
            result.append((count, position))
            bits >>= step
            position += 1
        top = sum(rooms[:count])
    return tuple(result)


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


def subset(nodes: Sequence[Vertex], count: int, total: int) -> Picks:
    """`count` of the nodes whose rooms add up to `total`, with the least cost, then the first by name."""
    if count == len(nodes):
        return list(nodes)
    best: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {(0, 0): (0, ())}
    by_room: dict[int, list[int]] = {}
    for number, node in enumerate(nodes):
        by_room.setdefault(node.room, []).append(number)
    for room, members in sorted(by_room.items(), reverse=True):
        members.sort(key=lambda number: (nodes[number].own, number))
        costs = [0, *accumulate(nodes[number].own for number in members)]
        after = dict(best)
        for (held, reached), (cost, chosen) in best.items():
            for more in range(1, min(len(members), count - held) + 1):
                if reached + more * room > total:
                    break
                key = (held + more, reached + more * room)
                found = (cost + costs[more], (*chosen, *members[:more]))
                if key not in after or found < after[key]:
                    after[key] = found
        best = after
    return [nodes[number] for number in best[count, total][1]]
