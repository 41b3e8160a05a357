"""The domain in which most pods of a gang fit, for a gang that cannot be placed."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.heterogeneous.arrays import DomainRange, GangArrays
from webhook.placement.heterogeneous.first_fit_decreasing import FirstFitDecreasing
from webhook.placement.heterogeneous.joint_bounds import JointBounds
from webhook.placement.question import Counts, Question
from webhook.placement.vertex import Vertex

MOST: Final = 64
"""The most domains that are filled, those with the most of the scarcest resource first."""


def nearest_domain(question: Question, root: Vertex, budget: Budget) -> tuple[Vertex, Counts] | None:
    """A domain of the required level, or the cluster, and the pods of each class that fit together."""
    arrays = GangArrays(question, root)
    bounds = JointBounds(arrays)
    budget.take(bounds.steps)
    domains = list(_domains(arrays.root, -1 if question.required is None else question.required))
    if not domains or not len(bounds.needs):
        return None
    shares = np.minimum(bounds.contributions(domains) / bounds.needs, 1.0)
    order = np.lexsort((np.arange(len(domains)), -shares.sum(axis=1), -shares.min(axis=1))).tolist()
    filler = FirstFitDecreasing(arrays, budget)
    best: tuple[Vertex, Counts] | None = None
    for number in order[:MOST]:
        counts = _largest_filling(filler, domains[number])
        if best is None or sum(counts) > sum(best[1]):
            best = domains[number].vertex, counts
        if budget.exhausted:
            break
    return best


def _domains(domain: DomainRange, level: int) -> Iterator[DomainRange]:
    """The domains of a level inside a domain, or the domain itself."""
    if domain.vertex.bottom >= level:
        yield domain
    elif domain.vertex.leaves is not None:
        for number, vertex in enumerate(domain.vertex.leaves.vertices, start=domain.first):
            yield DomainRange(vertex, domain, number, number + 1)
    for part in domain.parts if domain.vertex.bottom < level else ():
        yield from _domains(part, level)


def _largest_filling(filler: FirstFitDecreasing, domain: DomainRange) -> Counts:
    """The pods of each class in the largest of several fillings, one of which has the smallest pods first."""
    arrays = filler.arrays
    best = nothing = (0,) * arrays.classes
    for order in (*filler.orders, filler.orders[0][::-1]):
        taken = filler.fill_partly(((domain.first, domain.end),), order)
        best = max(best, tuple(map(sum, zip(nothing, *taken.values(), strict=True))), key=sum)
        if best == arrays.question.counts or filler.budget.exhausted:
            break
    return best
