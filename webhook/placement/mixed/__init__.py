"""Gangs of one large class of workers, in slices or with a few odd pods (a leader, a launcher) beside it.

In mode keep-whole those of identical pods too: the knapsack here needs no order in which nodes are best.
"""

from webhook.placement.budget import Budget
from webhook.placement.model import Mode
from webhook.placement.question import Question
from webhook.placement.solution import Solution
from webhook.placement.tree import FEW_KINDS
from webhook.placement.vertex import Vertex

MOST_PODS = 8
"""Odd pods up to which a gang is taken to be mostly alike."""


def serves(question: Question) -> bool:
    """Whether `solve` serves the question."""
    few = len(question.counts) <= FEW_KINDS
    return few and _mostly_alike(question) and question.options.mode in (Mode.BEST_FIT, Mode.KEEP_WHOLE)


def _mostly_alike(question: Question) -> bool:
    """Whether but for few pods all are workers that slices bind as a whole, if there are any."""
    bound = question.unbound_slices
    whole = not bound or (bound[0] == 0 and all(done >= len(question.slices) for done in bound[1:]))
    return sum(question.counts[1:]) <= MOST_PODS and whole and question.confinement(0) is None


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum. Raises OutOfSteps."""
    # Numpy takes a tenth of a second to load: not before a gang needs it.
    from webhook.placement.mixed.proving import solve as found

    return found(question, root, budget)


def by_rule(question: Question, root: Vertex, budget: Budget) -> Solution:
    """Any place, in any mode, by a simple rule; without one nothing is decided."""
    if not _mostly_alike(question):
        return Solution(None, False)
    from webhook.placement.mixed.greedy import first_found

    return Solution(first_found(question, root, budget), False)
