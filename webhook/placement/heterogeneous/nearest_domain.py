"""Which domain comes nearest to holding a gang that has no place: the one found to hold most of its pods."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.heterogeneous.arrays import DomainRange, GangArrays, Ints
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
    filler = FirstFitDecreasing(arrays, bounds, budget)
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
    """How many pods of each class a domain is found to hold together: of some fillings the largest.

    Pods in slices come after the others, which are few, and then before these.
    """
    arrays, question = filler.arrays, filler.arrays.question
    layers = len(question.slices)
    in_slices = [number for number, done in enumerate(question.unbound_slices) if done < layers]
    in_slices.sort(key=lambda number: -question.unbound_slices[number])
    best: Counts = (0,) * arrays.classes
    for first in (True, False) if in_slices and not any(arrays.carded) else (False,):
        for counts in _fillings(filler, domain, in_slices, slices_first=first):
            best = max(best, counts, key=sum)
            if best == question.counts:
                return best
    return best


def _fillings(
    filler: FirstFitDecreasing, domain: DomainRange, in_slices: Sequence[int], *, slices_first: bool
) -> Iterator[Counts]:
    """How many pods of each class some fillings of a domain hold. in_slices: the classes in slices."""
    arrays = filler.arrays
    classes = range(arrays.classes)
    others = [number for number in classes if number not in in_slices]
    before = arrays.free[domain.first : domain.end].copy()
    slices = {each: _add_slices(arrays, domain, each, before, []) for each in in_slices if slices_first}
    for taken, free in filler.partial_fills(domain, others, before):
        used = [node - domain.first for node in taken]
        if not slices_first:
            slices = {each: _add_slices(arrays, domain, each, free, used) for each in in_slices}
        beside = (sum(pods[number] for pods in taken.values()) for number in classes)
        yield tuple(slices.get(number, count) for number, count in enumerate(beside))


def _add_slices(arrays: GangArrays, domain: DomainRange, number: int, free: Ints, used: Sequence[int]) -> int:
    """As many pods of a class in whole slices as a domain has capacity for beside others, taken off free.

    used: nodes of the domain with other pods; their cards count as taken.
    """
    question = arrays.question
    free_slots: Ints = arrays.slot_counts[number][domain.first : domain.end].astype(np.int64)
    for resource, amount in arrays.request_rows[number]:
        np.minimum(free_slots, free[:, resource] // amount, out=free_slots)
    np.maximum(free_slots, 0, out=free_slots)
    if arrays.carded[number]:
        free_slots[used] = 0
    slot_counts, starts = [free_slots], [np.arange(domain.first, domain.end)]
    for level, size in reversed(question.slices[question.unbound_slices[number] :]):
        begins = arrays.starts[level]
        inside = begins[(begins >= domain.first) & (begins < domain.end)]
        slot_counts.append(
            np.add.reduceat(slot_counts[-1], np.searchsorted(starts[-1], inside)) // size * size
        )
        starts.append(inside)
    given = _in_order(
        slot_counts[-1], np.array([question.counts[number]]), np.zeros(len(slot_counts[-1]), dtype=np.intp)
    )
    for below in range(len(slot_counts) - 2, -1, -1):
        around = np.searchsorted(starts[below + 1], starts[below], side="right") - 1
        given = _in_order(slot_counts[below], given, around)
    free -= given[:, None] * arrays.requests[number]
    return int(given.sum())


def _in_order(slot_counts: Ints, wanted: Ints, around: Ints) -> Ints:
    """What each part takes of what its domain does, one part after the other. around: each one's domain."""
    before = np.cumsum(slot_counts) - slot_counts
    firsts = np.searchsorted(around, around)  # parts of one domain stand side by side
    taken: Ints = np.clip(wanted[around] - (before - before[firsts]), 0, slot_counts)
    return taken
