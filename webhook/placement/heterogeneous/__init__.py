"""Gangs of several pod classes: joint bounds, first-fit decreasing, and a pattern program for each domain."""

from typing import Final

from webhook.placement.budget import Budget
from webhook.placement.evaluate import Solution
from webhook.placement.question import Counts, Question
from webhook.placement.vertex import Vertex

MOST: Final = 16_000_000
"""The largest product of classes and nodes that the array solvers accept."""

NEAREST_PART: Final = 16
"""The nearest domain is searched for up to one part in so many of MOST."""

# Numpy and HiGHS take a fifth of a second to load, so they are imported on the first use.


def solve(
    question: Question, root: Vertex, nodes: int, budget: Budget, *, fills_only: bool = False
) -> Solution:
    """The best solution found within the steps, and whether it is proven that no better one exists.

    nodes: an upper bound of the nodes in the tree. fills_only: use first-fit alone. It does not serve gangs
    that are spread.
    """
    if question.spread is not None or len(question.listed) * nodes > MOST:
        return Solution(None, False)
    from webhook.placement.heterogeneous.arrays import TooLargeError
    from webhook.placement.heterogeneous.candidate_search import CandidateSearch

    try:
        search = CandidateSearch(question, root, budget, fills_only=fills_only)
    except TooLargeError:
        return Solution(None, False)
    found = search.solve()
    budget.take(search.bounds.steps)  # last, since first-fit must find a placement beside them
    return found


def nearest(question: Question, root: Vertex, nodes: int, budget: Budget) -> tuple[Vertex, Counts] | None:
    """The domain of the required level with the most capacity for the gang, and the pods of each class that
    fit.
    """
    if question.spread is not None or len(question.counts) * nodes > MOST // NEAREST_PART:
        return None
    from webhook.placement.heterogeneous.arrays import TooLargeError
    from webhook.placement.heterogeneous.nearest_domain import nearest_domain

    try:
        return nearest_domain(question, root, budget)
    except TooLargeError:
        return None
