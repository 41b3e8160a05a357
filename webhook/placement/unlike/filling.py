"""Whether unlike pods fit on given nodes at all: node after node is filled.

The question is vector bin packing, NP-hard, so the search has a budget; within it the answer is certain
either way. Nodes come in a fixed order, the smallest first, and each takes a set of pods to which no other
that is left could be added: such a set loses nothing, since pods that a solution puts on later nodes may be
moved (bin completion; Korf, 2002, "A New Algorithm for Optimal Bin Packing"). Sets that leave so much free
that the later nodes cannot hold the rest are left out, the fullest sets come first, and what was left at a
node without success is remembered. One look is at one set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import add, ge, gt, le, mul, sub

from webhook.placement import capacity
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.cards.choose import signature
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState
from webhook.placement.vertex import Vertex

_LOOK = 4
"""Steps that a look at one set stands for."""

_ROOMS = 16
"""Rooms of nodes, or kinds of a set, that are looked at in one step."""

_NODE = 48
"""A node is looked at for as long as so many rooms."""

_CLASSES = 400
"""Classes beyond which nothing is tried: each is one call inside the other."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike to the gang's classes: room for each class alone, what is free, one of them, and
    the names of all.
    """

    number: int
    rooms: Counts
    free: Counts
    node: NodeState
    names: list[str]


class Filling:
    """The pods of one question, packed into given nodes.

    needs: of each class the amounts of the resources that the gang asks for; scale: the largest free amount
    of each on any node. exact: whether each question about cards was decided; one that was not counts as not
    fitting, and no answer is certain then.
    """

    def __init__(self, question: Question, nodes: Sequence[Vertex], budget: Budget) -> None:
        """nodes: vertices of single nodes. budget: of the steps that may be taken. Raises OutOfSteps."""
        self.classes = question.classes
        self.counts = question.counts
        self.budget = budget
        self.exact = True
        if len(self.counts) > _CLASSES:
            raise OutOfSteps
        self.carded = any(pod.wants_cards for pod in question.classes)
        needed = len(nodes) * (_NODE * (1 + self.carded) + 2 * len(question.counts)) // _ROOMS
        if needed > budget.left:  # nothing of it is done, so nothing is spent
            raise OutOfSteps
        budget.spend(needed)
        resources = sorted({resource for pod in question.classes for resource, _ in pod.requests})
        requests = [dict(pod.requests) for pod in question.classes]
        self.needs: list[Counts] = [tuple(each.get(r, 0) for r in resources) for each in requests]
        self.amounts = list(zip(*self.needs, strict=True))
        """Of each resource what a pod of each class asks for."""
        self.kinds = self._kinds(nodes, resources)
        self.scale = [max(1, *(kind.free[r] for kind in self.kinds)) for r in range(len(resources))]
        found = sorted(self.kinds, key=lambda kind: (self._share(kind.free), kind.number))
        self.nodes = [(kind, name) for kind in found for name in kind.names]
        sizes = [self._share(need) for need in self.needs]
        self.order = sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))
        self.sizes = sizes
        self.after = self._after()
        self.rooms_after = self._rooms_after()
        self.dead: set[tuple[int, Counts]] = set()

    def _kinds(self, nodes: Sequence[Vertex], resources: Sequence[str]) -> list[NodeKind]:
        """The nodes by kind."""
        kinds: dict[object, NodeKind] = {}
        for vertex in nodes:
            state = vertex.state
            assert state is not None
            free = tuple([max(0, state.free.get(resource, 0)) for resource in resources])
            alike = (vertex.rooms, free, tuple(map(signature, state.cards)) if self.carded else ())
            kind = kinds.setdefault(alike, NodeKind(len(kinds), vertex.rooms, free, state, []))
            kind.names.append(state.name)
        return list(kinds.values())

    def _share(self, amounts: Sequence[int]) -> float:
        """How large amounts are in all, each against the largest node."""
        return sum(amount / most for amount, most in zip(amounts, self.scale, strict=True))

    def _after(self) -> list[Counts]:
        """What the nodes from each one on have free."""
        after: list[Counts] = [(0,) * len(self.scale)]
        for kind, _ in reversed(self.nodes):
            after.append(tuple(map(add, after[-1], kind.free)))
        return after[::-1]

    def _rooms_after(self) -> list[Counts]:
        """Places for each class alone on the nodes from each one on."""
        after = [(0,) * len(self.counts)]
        for kind, _ in reversed(self.nodes):
            after.append(tuple(map(int.__add__, after[-1], kind.rooms)))
        return after[::-1]

    def solve(self, kept: int = 0) -> dict[str, Counts] | None:
        """Node name -> pods of each class, or None when there is no way. Raises OutOfSteps.

        kept: steps of the budget that are not for this.
        """
        self.budget = self.budget.part(self.budget.left - kept)
        chosen: list[Counts] = []
        left = [self.counts]
        untried = [self._worth_trying(0, self.counts)]
        while any(left[-1]):
            taken = next(untried[-1], None)
            if taken is None:
                untried.pop()
                self.dead.add((len(untried), left.pop()))
                if not untried:
                    return None
                chosen.pop()
                continue
            chosen.append(taken)
            left.append(tuple(map(int.__sub__, left[-1], taken)))
            untried.append(self._worth_trying(len(chosen), left[-1]))
        return {
            name: taken for (_, name), taken in zip(self.nodes, chosen, strict=False) if any(taken)
        }  # nodes that nothing is left for are not in `chosen`

    def _worth_trying(self, number: int, rest: Counts) -> Iterator[Counts]:
        """What a node may take of the rest; nothing where the later nodes cannot take what is left then."""
        if number == len(self.nodes) or (number, rest) in self.dead:
            return
        if all(map(le, rest, self.rooms_after[number])):
            yield from self._sets(number, rest)

    def _sets(self, number: int, rest: Counts) -> list[Counts]:
        """The sets worth trying on a node, the fullest first."""
        kind, later = self.nodes[number][0], self.after[number + 1]
        self.budget.spend(len(rest) // 2)
        asked = [sum(map(mul, rest, amounts)) for amounts in self.amounts]
        least = list(map(sub, asked, later))
        if any(map(gt, least, kind.free)):
            return []
        order = [n for n in self.order if rest[n] and kind.rooms[n]]
        most = [min(rest[n], kind.rooms[n]) for n in order]
        found = []
        for counts, left in self._extended(kind, order, most, 0, (), kind.free):
            if all(map(ge, map(sub, kind.free, left), least)):
                self.budget.spend(len(rest) // _ROOMS)
                taken = [0] * len(rest)
                for n, count in zip(order, counts, strict=True):
                    taken[n] = count
                found.append((sum(c * self.sizes[n] for n, c in enumerate(taken)), tuple(taken)))
        found.sort(key=lambda pair: (-pair[0], [-count for count in pair[1]]))
        return [taken for _, taken in found]

    def _extended(
        self, kind: NodeKind, order: Sequence[int], most: Sequence[int], at: int, counts: Counts, left: Counts
    ) -> Iterator[tuple[Counts, Counts]]:
        """The sets that begin with these counts and to which nothing can be added, and what they leave."""
        self.budget.spend(_LOOK)
        if at == len(order):
            self.budget.spend(len(order) // 2)  # each class is looked at once more
            for n, (count, top) in enumerate(zip(counts, most, strict=True)):
                if count < top and self._fits(kind, order, counts, n, left):
                    return
            yield counts, left
            return
        need = self.needs[order[at]]
        top = min([most[at], *(free // each for free, each in zip(left, need, strict=True) if each)])
        rest = tuple([free - top * each for free, each in zip(left, need, strict=True)]) if top else left
        for count in range(top, -1, -1):
            if not self.carded or self._cards_fit(kind, order, (*counts, count)):
                yield from self._extended(kind, order, most, at + 1, (*counts, count), rest)
            rest = tuple(map(add, rest, need))

    def _fits(self, kind: NodeKind, order: Sequence[int], counts: Counts, at: int, left: Counts) -> bool:
        """Whether one more pod of a class could be added."""
        if any(map(gt, self.needs[order[at]], left)):
            return False
        more = (*counts[:at], counts[at] + 1, *counts[at + 1 :])
        return not self.carded or self._cards_fit(kind, order, more)

    def _cards_fit(self, kind: NodeKind, order: Sequence[int], counts: Counts) -> bool:
        pods = [self.classes[n] for n, count in zip(order, counts, strict=False) for _ in range(count)]
        fits = capacity.fits_together(pods, kind.node, self.budget)
        self.exact = self.exact and fits is not None
        return bool(fits)
