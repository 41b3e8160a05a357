"""The one way into this wing: an exact search while its steps last, then what can be found without one."""

from math import prod
from typing import Final

from webhook.placement.bounds import least_cost
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.question import Question
from webhook.placement.solution import Solution
from webhook.placement.unlike import fallback
from webhook.placement.unlike.frontier import FrontierSearch
from webhook.placement.vertex import Vertex

STATES: Final = 10**9
"""States of a gang beyond which the exact search hardly ever ends, so that most steps go to packing it."""


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The best distribution that can be found, and whether nothing better (or nothing at all) exists."""
    share = 2 if prod(count + 1 for count in question.counts) <= STATES else 8
    search = FrontierSearch(question, budget.part(min(question.options.budget, budget.left // share)))
    costs = question.costs()

    def bound(vertex: Vertex) -> int:
        return 0 if question.anchored else least_cost(vertex, question.counts[0], costs)

    try:
        return Solution(search.solve(root, bound), search.exact)
    except OutOfSteps:
        return fallback.first_found(question, root, budget)
