"""Gangs of several classes of pods: joint bounds, first-fit decreasing, a pattern program for each domain."""

from typing import Final

from webhook.placement.budget import Budget
from webhook.placement.evaluate import Solution
from webhook.placement.question import Counts, Question
from webhook.placement.vertex import Vertex

MOST: Final = 16_000_000
"""Classes times nodes up to which a gang is worked out in columns."""

NEAREST_PART: Final = 16
"""The part of that up to which the nearest domain of a gang that has no place is looked for."""

# Numpy and HiGHS take a fifth of a second to load: not before a gang needs them.


def solve(
    question: Question, root: Vertex, nodes: int, budget: Budget, *, fills_only: bool = False
) -> Solution:
    """The best place that is found within the steps, and whether it is proven that there is no better one.

    nodes: at least as many as there are in the tree. fills_only: by first-fit alone. Gangs that are spread
    are not for it.
    """
    if question.spread is not None or len(question.counts) * nodes > MOST:
        return Solution(None, False)
    from webhook.placement.heterogeneous.arrays import TooLargeError
    from webhook.placement.heterogeneous.candidate_search import CandidateSearch

    try:
        return CandidateSearch(question, root, budget, fills_only=fills_only).solve()
    except TooLargeError:
        return Solution(None, False)


def nearest(question: Question, root: Vertex, nodes: int, budget: Budget) -> tuple[Vertex, Counts] | None:
    """Which domain of the required level comes nearest to holding the gang, and what it holds together."""
    if question.spread is not None or len(question.counts) * nodes > MOST // NEAREST_PART:
        return None
    from webhook.placement.heterogeneous.arrays import TooLargeError
    from webhook.placement.heterogeneous.nearest_domain import nearest_domain

    try:
        return nearest_domain(question, root, budget)
    except TooLargeError:
        return None
