"""The way to the optimum: first the room that odd pods take at least, then the odd pods themselves.

Where that first answer, a lower bound, has places for the odd pods, it is the optimum, without the second
coordinate of the knapsack or with fewer states of it.
"""

from contextlib import suppress

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.mixed.odd import Odd
from webhook.placement.mixed.search import MixedSearch
from webhook.placement.mixed.sharing import shared
from webhook.placement.mixed.spare import spare_room
from webhook.placement.mixed.surrogate import least_losses, profiles
from webhook.placement.mixed.surrogate import solve as by_workers
from webhook.placement.question import Counts, Question
from webhook.placement.solution import Solution
from webhook.placement.tree import Vertex


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum, in mode best-fit, or near it within the budget. Raises OutOfSteps if not even that."""
    return (
        _OddSearch(question, root, budget).solve()
        if len(question.counts) > 1
        else _alike(question, root, budget)
    )


def _alike(question: Question, root: Vertex, budget: Budget) -> Solution:
    """Workers alone."""
    return Solution(_exact(question, root, Odd(question, budget), 0), True)


def _exact(question: Question, root: Vertex, odd: Odd, loss: int) -> dict[str, Counts] | None:
    filled = MixedSearch(question, odd, loss, odd.budget).solve(root)
    if filled is None:
        return None
    found: dict[str, tuple[int, int]] = {}
    filled.deliver(question.counts[0], found)
    return {name: (pods, *odd.states[state]) for name, (pods, state) in found.items()}


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
        near: dict[str, Counts] | None = None
        tries = iter(range(self.odd.most + 1))
        try:
            for more in tries:
                near = self._on_best_nodes(losses, more)
                if near is not None and not more:
                    return Solution(near, True)
                if near is not None or self.question.slices:
                    break
        except _NoRoom:
            return Solution(None, True)
        try:
            part = Odd(self.question, self.budget.part(self.budget.left * 3 // 4))
            return Solution(_exact(self.question, self.root, part, losses[-1]), True)
        except OutOfSteps:
            with suppress(_NoRoom):
                for more in tries:
                    near = near or self._on_best_nodes(losses, more)
            if near is None:
                raise
            return Solution(near, False)

    def _on_best_nodes(self, losses: list[int], more: int) -> dict[str, Counts] | None:
        """All pods on the nodes that are best for the workers and the room that odd pods take at least, and
        `more`; None where these do not suffice. Raises _NoRoom if there are none.
        """
        question = self.question
        if not question.slices:
            if question.machine is not None:
                return None
            return by_workers(question, self.root, self.odd, question.counts[0] + losses[-1] + more)
        spare = spare_room(losses, self.odd.sums, more)
        # Without the steps for this there are none for the odd pods themselves.
        filled = MixedSearch(question, spare, losses[-1] + more, self.budget).solve(self.root)
        if filled is None:
            raise _NoRoom
        return shared(question, self.odd, profiles(self.odd, self.root, list(filled.nodes())))
