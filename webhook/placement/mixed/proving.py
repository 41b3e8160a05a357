"""The way to the optimum: first the room that odd pods take at least, then the odd pods themselves.

Where that first answer, a lower bound, has places for the odd pods, it is the optimum, without the second
coordinate of the knapsack or with fewer states of it.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.evaluate import cost_of
from webhook.placement.mixed.odd import Odd
from webhook.placement.mixed.search import MixedSearch
from webhook.placement.mixed.sharing import shared
from webhook.placement.mixed.spare import spare_room
from webhook.placement.mixed.surrogate import best_nodes, least_losses, profiles
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState, key_of
from webhook.placement.solution import Solution
from webhook.placement.vertex import Vertex


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum, in mode best-fit, or near it within the budget. Raises OutOfSteps if not even that."""
    if len(question.counts) > 1:
        return _OddSearch(question, root, budget).solve()
    return _exact(question, root, Odd(question, budget), 0)


def _exact(question: Question, root: Vertex, odd: Odd, loss: int) -> Solution:
    filled = MixedSearch(question, odd, loss, odd.budget).solve(root)
    if filled is None:
        return Solution(None, True)
    found: dict[str, tuple[int, int]] = {}
    filled.deliver(question.counts[0], found)
    counts = {name: (pods, *odd.states[state]) for name, (pods, state) in found.items()}
    return _priced(question, root, counts, filled.nodes())


def _priced(
    question: Question, root: Vertex, counts: Mapping[str, Counts], nodes: Iterable[NodeState]
) -> Solution:
    """The optimum with its cost. nodes: those used, and others."""
    used = [key_of(state, question.levels) for state in nodes if state.name in counts]
    return Solution(counts, True, cost_of(root, used))


class _NoRoom(Exception):
    """Not even the workers have room, with what the odd pods take at least."""


class _OddSearch:
    """Workers with odd pods beside them."""

    def __init__(self, question: Question, root: Vertex, budget: Budget) -> None:
        self.question = question
        self.root = root
        self.budget = budget
        self.odd = Odd(question, budget)

    def solve(self) -> Solution:
        losses = least_losses(self.odd, self.root)
        if losses is None:
            return Solution(None, True)
        near: Solution | None = None
        tries = iter(range(self.odd.most + 1))
        try:
            for more in tries:
                near = self._on_best_nodes(losses, more)
                if near is not None and not more:
                    return near
                if near is not None or self.question.slices:
                    break
        except _NoRoom:
            return Solution(None, True)
        try:
            part = Odd(self.question, self.budget.part(self.budget.left * 3 // 4))
            return _exact(self.question, self.root, part, losses[-1])
        except OutOfSteps:
            with suppress(_NoRoom):
                for more in tries:
                    near = near or self._on_best_nodes(losses, more)
            if near is None:
                raise
            return replace(near, proven=False)

    def _on_best_nodes(self, losses: list[int], more: int) -> Solution | None:
        """All pods on the nodes that are best for the workers and the room that odd pods take at least, and
        `more`; None where these do not suffice. Raises _NoRoom if there are none.
        """
        question = self.question
        nodes = self._best_nodes(losses, more)
        counts = None
        if nodes is not None:
            counts = shared(question, self.odd, profiles(self.odd, self.root, nodes))
        return None if counts is None or nodes is None else _priced(question, self.root, counts, nodes)

    def _best_nodes(self, losses: list[int], more: int) -> list[NodeState] | None:
        question = self.question
        if not question.slices:
            if question.machine is not None:
                return None
            return best_nodes(question, self.root, question.counts[0] + losses[-1] + more, self.budget)
        spare = spare_room(losses, self.odd.sums, more)
        # Without the steps for this there are none for the odd pods themselves.
        filled = MixedSearch(question, spare, losses[-1] + more, self.budget).solve(self.root)
        if filled is None:
            raise _NoRoom
        return list(filled.nodes())
