"""Which domain comes nearest to holding a gang that has no place: the one found to hold most of its pods."""

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
"""Domains that are filled: those first that may hold most by what is scarcest."""


def nearest_domain(question: Question, root: Vertex, budget: Budget) -> tuple[Vertex, Counts] | None:
    """A domain of the required level, or the cluster, and how many pods of each class it holds together."""
    arrays = GangArrays(question, root)
    bounds = JointBounds(arrays)
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
    """The domains of a level, or of none, in a domain."""
    if domain.vertex.bottom >= level:
        yield domain
    elif domain.vertex.leaves is not None:
        for number, vertex in enumerate(domain.vertex.leaves.vertices, start=domain.first):
            yield DomainRange(vertex, domain, number, number + 1)
    for part in domain.parts if domain.vertex.bottom < level else ():
        yield from _domains(part, level)


def _largest_filling(filler: FirstFitDecreasing, domain: DomainRange) -> Counts:
    """How many pods of each class a domain is found to hold together: of some fillings, one with the smallest
    pods first, the largest.
    """
    arrays = filler.arrays
    best = nothing = (0,) * arrays.classes
    for order in (*filler.orders, filler.orders[0][::-1]):
        taken = filler.fill_partly(((domain.first, domain.end),), order)
        best = max(best, tuple(map(sum, zip(nothing, *taken.values(), strict=True))), key=sum)
        if best == arrays.question.counts or filler.budget.exhausted:
            break
    return best
