"""Whether unlike pods fit on given nodes: node after node is filled, which suits places that are nearly full.

Complete like fitting, within its budget. Nodes come in a fixed order, the smallest first, and each
takes a set of pods to which no other that is left could be added: such a set loses nothing, since pods that a
solution puts on later nodes may be moved (bin completion; Korf, 2002, "A New Algorithm for Optimal Bin
Fitting"). Sets that leave so much free that the later nodes cannot hold the rest are left out, the fullest
sets come first, and what was left at a node without success is remembered. One look is at one set.
"""

from collections.abc import Iterator, Sequence

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.question import Counts, Question
from webhook.placement.tree import Vertex
from webhook.placement.unlike.node_kinds import DEEPEST, NodeKind, NodePacking

_LOOK = 4
"""Steps that a look at one set stands for."""


class Filling(NodePacking):
    """The pods of one question, packed into given nodes."""

    def __init__(self, question: Question, nodes: Sequence[Vertex], budget: Budget) -> None:
        super().__init__(question, nodes, budget)
        found = sorted(self.kinds, key=lambda kind: (self.share(kind.free), kind.number))
        self.nodes = [(kind, name) for kind in found for name in kind.names]
        sizes = [self.share(need) for need in self.needs]
        self.order = sorted(range(len(sizes)), key=lambda number: (-sizes[number], number))
        self.sizes = sizes
        self.after = self._after()
        self.rooms_after = self._rooms_after()
        self.dead: set[tuple[int, Counts]] = set()

    def _after(self) -> list[Counts]:
        """What the nodes from each one on have free."""
        after: list[Counts] = [(0,) * len(self.scale)]
        for kind, _ in reversed(self.nodes):
            after.append(tuple(a + max(0, b) for a, b in zip(after[-1], kind.free, strict=True)))
        return after[::-1]

    def _rooms_after(self) -> list[Counts]:
        """Places for each class alone on the nodes from each one on."""
        after = [(0,) * len(self.counts)]
        for kind, _ in reversed(self.nodes):
            after.append(tuple(map(int.__add__, after[-1], kind.rooms)))
        return after[::-1]

    def solve(self) -> dict[str, Counts] | None:
        """Node name -> pods of each class, or None when there is no way. Raises OutOfSteps."""
        if len(self.nodes) > DEEPEST or len(self.counts) > DEEPEST:
            raise OutOfSteps
        chosen: list[Counts] = []
        if not self._fill(0, self.counts, chosen):
            return None
        return {
            name: taken for (_, name), taken in zip(self.nodes, chosen, strict=False) if any(taken)
        }  # nodes that nothing is left for are not in `chosen`

    def _fill(self, number: int, rest: Counts, chosen: list[Counts]) -> bool:
        if not any(rest):
            return True
        if number == len(self.nodes) or (number, rest) in self.dead:
            return False
        if all(left <= room for left, room in zip(rest, self.rooms_after[number], strict=True)):
            for taken in self._sets(number, rest):
                chosen.append(taken)
                if self._fill(number + 1, tuple(map(int.__sub__, rest, taken)), chosen):
                    return True
                chosen.pop()
        self.dead.add((number, rest))
        return False

    def _sets(self, number: int, rest: Counts) -> list[Counts]:
        """The sets worth trying on a node, the fullest first."""
        kind, later = self.nodes[number][0], self.after[number + 1]
        asked = [0] * len(later)
        for need, count in zip(self.needs, rest, strict=True):
            asked = [total + count * each for total, each in zip(asked, need, strict=True)]
        least = [total - free for total, free in zip(asked, later, strict=True)]
        if any(must > free for must, free in zip(least, kind.free, strict=True)):
            return []
        order = [n for n in self.order if rest[n] and kind.rooms[n]]
        most = [min(rest[n], kind.rooms[n]) for n in order]
        found = []
        for counts, left in self._extended(kind, order, most, 0, (), kind.free):
            filled = [free - unused for free, unused in zip(kind.free, left, strict=True)]
            if all(fill >= must for fill, must in zip(filled, least, strict=True)):
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
            if not any(
                count < top and self._fits(kind, order, counts, n, left)
                for n, (count, top) in enumerate(zip(counts, most, strict=True))
            ):
                yield counts, left
            return
        need = self.needs[order[at]]
        top = min([most[at], *(free // each for free, each in zip(left, need, strict=True) if each)])
        for count in range(max(0, top), -1, -1):
            more = tuple(free - count * each for free, each in zip(left, need, strict=True))
            if not self.carded or self._cards_fit(kind, order, (*counts, count)):
                yield from self._extended(kind, order, most, at + 1, (*counts, count), more)

    def _fits(self, kind: NodeKind, order: Sequence[int], counts: Counts, at: int, left: Counts) -> bool:
        """Whether one more pod of a class could be added."""
        if any(each > free for each, free in zip(self.needs[order[at]], left, strict=True) if each):
            return False
        more = (*counts[:at], counts[at] + 1, *counts[at + 1 :])
        return not self.carded or self._cards_fit(kind, order, more)

    def _cards_fit(self, kind: NodeKind, order: Sequence[int], counts: Counts) -> bool:
        pods = [self.classes[n] for n, count in zip(order, counts, strict=False) for _ in range(count)]
        return self.fits_together(pods, kind)
