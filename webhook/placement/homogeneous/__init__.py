"""Homogeneous gangs: identical pods, in slices or with few minority pods (a leader, a launcher)."""

from webhook.placement.budget import Budget
from webhook.placement.evaluate import Cover, Solution
from webhook.placement.homogeneous.minority_pods import MOST_MINORITY
from webhook.placement.model import Mode
from webhook.placement.question import Question
from webhook.placement.tree import FEW_CLASSES
from webhook.placement.vertex import Vertex


def serves(question: Question) -> bool:
    """Whether `solve` serves the question."""
    if question.is_identical:
        return True
    few = len(question.counts) <= FEW_CLASSES
    return few and _is_homogeneous(question) and question.options.mode is not Mode.HEADROOM


def _is_homogeneous(question: Question) -> bool:
    """Whether all pods but a few are workers, and all slices bind them.

    Without slices and cards, there may be many pods of a second class.
    """
    bound = question.unbound_slices
    in_slices = not bound or (bound[0] == 0 and all(done >= len(question.slices) for done in bound[1:]))
    is_few = sum(question.counts[1:]) <= MOST_MINORITY
    is_simple = not bound and not any(pod.wants_cards for pod in question.classes)
    is_served = is_few or (len(question.counts) == 2 and is_simple)
    return is_served and in_slices and question.confinement(0) is None


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum. Raises OutOfSteps."""
    # Numpy takes a tenth of a second to load, so it is imported on the first use.
    from webhook.placement.homogeneous.surrogate import solve as found

    return found(question, root, budget)


def cover(question: Question, root: Vertex, pods: int, budget: Budget) -> Cover | None:
    """The cheapest nodes for so many pods of the first class; None if they do not fit.

    Raises OutOfSteps.
    """
    from webhook.placement.homogeneous.covering_search import cover as found

    return found(question, root, pods, budget)
