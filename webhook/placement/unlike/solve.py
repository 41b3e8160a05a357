"""The one way into this wing: an exact search while its steps last, then what can be found without one."""

from typing import Final

from webhook.placement.bounds import least_cost
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.question import Question
from webhook.placement.solution import Solution
from webhook.placement.unlike import fallback
from webhook.placement.unlike.frontier import FrontierSearch
from webhook.placement.vertex import Vertex

SOON: Final = 64
"""One step in so many is for an exact search of a vast gang before it is packed."""

LATE: Final = 8
"""And one in so many after that: it may still end, with a better place or knowing that there is none."""


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The best distribution that can be found, and whether nothing better (or nothing at all) exists."""
    most = question.options.budget
    if question.slices or not fallback.is_vast(question.counts):  # nothing packs slices
        exact = _exact(question, root, budget.part(min(most, budget.left // 2)))
        return exact or fallback.first_found(question, root, budget)
    late = min(most, budget.left // LATE)
    exact = _exact(question, root, budget.part(min(most, budget.left // SOON)))
    if exact is not None:
        return exact
    found = fallback.first_found(question, root, budget, late)
    if found.proven:
        return found
    exact = _exact(question, root, budget.part(min(late, budget.left)))
    return found if exact is None or (exact.counts is None and not exact.proven) else exact


def _exact(question: Question, root: Vertex, budget: Budget) -> Solution | None:
    """By the exact search, or None where it does not end."""
    costs = question.costs()

    def bound(vertex: Vertex) -> int:
        return 0 if question.anchored else least_cost(vertex, question.counts[0], costs)

    try:
        search = FrontierSearch(question, budget)
        return Solution(search.solve(root, bound), search.exact)
    except OutOfSteps:
        return None
