"""Exact search over the tree, for any number of classes: which node takes how many pods of each class.

Theory. A domain's answer is its frontier: for each reachable state (how many pods of each class it holds) the
least cost, states that another one dominates (holds at least as much, costs no more) left out. The frontier
of a domain is the merge of its children's, plus the cost of using the domain; all costs add up, so the merge
loses no optimum. Pods may always be taken away, so "at least" and "exactly" have the same least cost, which
is why states are clipped at the demand. With t classes of k_i pods there are at most prod(k_i + 1) states:
polynomial for a fixed t. For t = 1 this is the tree knapsack. Pods all unlike make 2^k states, and then the
step budget decides whether the search ends with a proof.

Required level: above and at that level a domain takes what one child holds instead of the sum of several.
Slices: at their level a state is rounded down to multiples of the slice's size, for the classes it binds.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import ge
from typing import Final

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.question import Counts, Question
from webhook.placement.unlike.node_options import node_options
from webhook.placement.vertex import Vertex

_MERGE: Final = 4
"""Steps that a merged pair of states stands for, for every two classes."""

_DOMINANCE: Final = 64
"""Above so many states of several classes, looking for dominated ones costs more than it saves."""


_CLASSES: Final = 40
"""Classes that one node has room for beyond which its states are too many to begin with."""


@dataclass(frozen=True, slots=True, eq=False)
class Trail:
    """How a state came about: a node that takes it, or what was held before and what one more child holds."""

    node: str = ""
    before: "Trail | None" = None
    before_holds: Counts = ()
    child: "Trail | None" = None


Frontier = dict[Counts, tuple[int, Trail | None]]
"""Counts -> least cost and how it comes about."""


class FrontierSearch:
    """One search.

    exact: whether each question about cards was decided; if not, what is found holds but is not proven.
    """

    def __init__(self, question: Question, budget: Budget) -> None:
        """budget: of the steps before OutOfSteps."""
        self.question = question
        self.costs = question.costs()
        self.budget = budget
        self.exact = True
        self.weight = _MERGE * max(1, len(question.counts) // 2)
        self.rooms: dict[int, tuple[int, ...]] = {}
        self.total: tuple[int, ...] = ()
        """Room for each class of all nodes; () while states that cannot be completed are wanted too."""
        self.options: dict[int, tuple[Counts, ...]] = {}
        self.slices_of_level = {
            level: tuple(size if number >= unbound else 1 for unbound in question.unbound_slices)
            for number, (level, size) in enumerate(question.slices)
        }

    def solve(self, root: Vertex, bound: Callable[[Vertex], int]) -> dict[str, Counts] | None:
        """Node name -> pods of each class at least cost, or None when they do not fit.

        bound: at most the cost of holding the gang in a domain, that of using it left out. While one domain
        holds all, no two of its level can be better, so such domains are tried first, the best bound first.
        Raises OutOfSteps.
        """
        counts = self.question.counts
        self.total = _room_of_each(root, self.rooms, self.budget)

        def inside(vertex: Vertex, limit: int | None) -> tuple[int, Trail | None] | None:
            """The best below the vertex, its own cost left out; None if nothing is below the limit."""
            enough = [c for c in vertex.children if all(map(int.__ge__, self._rooms(c), counts))]
            order = sorted((c.own + bound(c), number) for number, c in enumerate(enough))
            best: tuple[int, Trail | None] | None = None
            for least, number in order:
                child = enough[number]
                if limit is not None and least >= limit:
                    continue
                if child.state is not None or self._sliced(child):
                    found = self.frontier(child).get(counts)
                    cost = found[0] if found else 0
                else:
                    below = None if limit is None else limit - child.own
                    found = inside(child, below)
                    cost = found[0] + child.own if found else 0
                if found is not None and (limit is None or cost < limit):
                    limit, best = cost, (cost, found[1])
            if best is not None or self._single(vertex.bottom + 1):
                return best
            found = self._together_in(vertex).get(counts)
            return found if found is not None and (limit is None or found[0] < limit) else None

        # In mode keep-whole one node may not be better than two.
        if self.question.anchored or self.question.confined or self.costs.machine is not None:
            found = self.frontier(root).get(counts)
        else:
            found = inside(root, None)
        return None if found is None else distribution(found[1], counts)

    def _rooms(self, vertex: Vertex) -> tuple[int, ...]:
        """Room for each class alone."""
        return vertex.rooms if vertex.state is not None else self.rooms[id(vertex)]

    def _sliced(self, vertex: Vertex) -> bool:
        return any(level in self.slices_of_level for level in range(vertex.top, vertex.bottom + 1))

    def _together_in(self, vertex: Vertex) -> Frontier:
        """What the children hold together."""
        result: Frontier = {self._empty: (0, None)}
        left = self.total
        for child in self._worth_trying(vertex.children):
            result = self._merge(result, self.frontier(child))
            if left:
                left = tuple(map(int.__sub__, left, self._rooms(child)))
                result = self._hopeful(result, left)
        return result

    def _hopeful(self, frontier: Frontier, left: tuple[int, ...]) -> Frontier:
        """Without the states that all other nodes cannot complete; left: their room for each class."""
        needs = [
            (n, count - room) for n, (count, room) in enumerate(zip(self.question.counts, left, strict=True))
        ]
        needs = [(number, least) for number, least in needs if least > 0]
        if not needs:
            return frontier
        return {
            state: found
            for state, found in frontier.items()
            if all(state[number] >= least for number, least in needs)
        }

    def frontier(self, vertex: Vertex) -> Frontier:
        """What the domain can hold, at which costs; includes the empty state at cost 0.

        Raises OutOfSteps.
        """
        if vertex.state is not None:
            result = self._of_node(vertex)
        elif self._single(vertex.bottom + 1):
            result = self._best_child(vertex)
        else:
            result = self._together_in(vertex)
        result = self._in_slices(vertex, result)
        return {
            state: (cost + vertex.own if any(state) and vertex.state is None else cost, trail)
            for state, (cost, trail) in result.items()
        }

    @property
    def _empty(self) -> Counts:
        return (0,) * len(self.question.counts)

    def _single(self, level: int) -> bool:
        return self.question.required is not None and level <= self.question.required

    def _worth_trying(self, children: Sequence[Vertex]) -> Iterator[Vertex]:
        """Of nodes that are alike no more than the gang has pods: the first by name."""
        seen: Counter[tuple[int, tuple[Counts, ...]]] = Counter()
        most = sum(self.question.counts)
        for child in children:
            if child.state is not None:
                alike = (child.own, self._options(child))
                seen[alike] += 1
                if seen[alike] > most:
                    continue
            yield child

    def _of_node(self, vertex: Vertex) -> Frontier:
        assert vertex.state is not None
        result: Frontier = {self._empty: (0, None)}
        for takes in self._options(vertex):
            self.budget.spend(self.weight)
            result[takes] = (vertex.own, Trail(vertex.state.name))
        return result

    def _options(self, vertex: Vertex) -> tuple[Counts, ...]:
        if sum(map(bool, vertex.rooms)) > _CLASSES:
            raise OutOfSteps
        if id(vertex) not in self.options:
            states, exact = node_options(self.question, vertex, self.budget, self.weight // _MERGE)
            self.exact = self.exact and exact
            self.options[id(vertex)] = tuple(states)
        return self.options[id(vertex)]

    def _best_child(self, vertex: Vertex) -> Frontier:
        result: Frontier = {self._empty: (0, None)}
        for child in vertex.children:
            for state, found in self.frontier(child).items():
                if state not in result or found[0] < result[state][0]:
                    result[state] = found
        return result

    def _merge(self, first: Frontier, second: Frontier) -> Frontier:
        counts = self.question.counts
        result = dict(first)
        for state, (cost, trail) in first.items():
            for more, (extra, inner) in second.items():
                if inner is None:
                    continue
                self.budget.spend(self.weight)
                total = tuple(map(min, map(int.__add__, state, more), counts))
                known = result.get(total)
                if known is None or cost + extra < known[0]:
                    result[total] = (cost + extra, Trail("", trail, state, inner))
        return self._undominated(result)

    def _undominated(self, frontier: Frontier) -> Frontier:
        kept: list[tuple[Counts, tuple[int, Trail | None]]] = []
        if len(self.question.counts) == 1:
            best = None
            for state in sorted(frontier, reverse=True):
                cost = frontier[state][0]
                if best is None or cost < best or not any(state):
                    kept.append((state, frontier[state]))
                    best = cost
            return dict(kept)
        if len(frontier) > _DOMINANCE:
            return frontier
        for state, found in sorted(frontier.items(), key=lambda item: (item[1][0], [-x for x in item[0]])):
            if not any(state) or not any(_covers(other, state) for other, _ in kept):
                kept.append((state, found))
        return dict(kept)

    def _in_slices(self, vertex: Vertex, frontier: Frontier) -> Frontier:
        sizes = [
            self.slices_of_level[level]
            for level in range(vertex.top, vertex.bottom + 1)
            if level in self.slices_of_level
        ]
        for size in reversed(sizes):
            rounded: Frontier = {}
            for state, found in frontier.items():
                down = tuple(count - count % each for count, each in zip(state, size, strict=True))
                if down not in rounded or found[0] < rounded[down][0]:
                    rounded[down] = found
            rounded[self._empty] = (0, None)
            frontier = rounded
        return frontier


def _room_of_each(vertex: Vertex, rooms: dict[int, tuple[int, ...]], budget: Budget) -> tuple[int, ...]:
    """Room for each class alone of a vertex, and by its id of each domain in it."""
    budget.spend()
    if vertex.state is not None:
        return vertex.rooms
    if vertex.leaves is not None:
        budget.spend(len(vertex.leaves.rooms) * (16 + len(vertex.leaves.every)) // 16)
        total = tuple(map(sum, vertex.leaves.every))
    else:
        below = [_room_of_each(part, rooms, budget) for part in vertex.parts]
        budget.spend(sum(map(len, below)) // 16)
        total = tuple(map(sum, zip(*below, strict=True)))
    rooms[id(vertex)] = total
    return total


def _covers(state: Counts, other: Counts) -> bool:
    return all(map(ge, state, other))


def distribution(trail: Trail | None, need: Counts) -> dict[str, Counts]:
    """Node name -> pods of each class, for a need that the trail's state covers.

    What is held before comes first, so children that are earlier by name are filled first. A state at a
    slice's level is a multiple of the slice's size, and so is each part of a need that is one.
    """
    found: dict[str, Counts] = {}
    stack = [(trail, need)]
    while stack:
        part, wanted = stack.pop()
        if part is None or not any(wanted):
            continue
        if part.node:
            found[part.node] = wanted
            continue
        first = tuple(map(min, part.before_holds, wanted))
        stack.append((part.child, tuple(map(int.__sub__, wanted, first))))
        stack.append((part.before, first))
    return found
