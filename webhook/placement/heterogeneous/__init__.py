"""Gangs of several classes of pods: bounds over all classes and resources together, first-fit decreasing."""

from webhook.placement.budget import Budget
from webhook.placement.question import Question
from webhook.placement.solution import Solution
from webhook.placement.vertex import Vertex

MOST: int = 4_000_000
"""Classes times nodes up to which a gang is worked out in columns."""


def first_fit(question: Question, root: Vertex, nodes: int, budget: Budget) -> Solution:
    """The best place that first-fit-decreasing finds, whether it is proven that there is no better one.

    nodes: how many there are in the tree. Gangs in slices, or spread, are not for it.
    """
    if question.slices or question.spread is not None or len(question.counts) * nodes > MOST:
        return Solution(None, False)
    # Numpy takes a tenth of a second to load: not before a gang needs it.
    from webhook.placement.heterogeneous.candidate_search import CandidateSearch

    return CandidateSearch(question, root, budget).first_fit()
