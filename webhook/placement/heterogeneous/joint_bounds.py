"""Upper bounds of the capacity of domains over all classes and resources together: surrogate constraints.

A measure is a sum to which each node contributes at most some amount, with the need of the gang. There is a
measure for the pods of each class, and one for the total request of each resource. Domains whose
contributions fall short in any measure cannot fit the gang. At each level the gang uses at least as many
domains as the largest contributions need to reach the sum.

Source: Glover, Surrogate constraints, Operations Research 16 (1968).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np

from webhook.placement.heterogeneous.arrays import Array, DomainRange, GangArrays, Ints, Ranges

CLASSES: Final = 64
"""The most classes with a measure: those with the scarcest capacity."""


POOL: Final = 14
"""Steps to compute the cost of a filled set of nodes, beside one for two nodes in use."""

MEASURE: Final = 50
"""Steps to add up a measure, beside one for so many nodes as SUMMED."""

SUMMED: Final = 32

MOST_POOLS: Final = 2000
"""The most domains of a level that are filled one by one."""

MOST_BESIDE: Final = 200
"""The same beside anchored domains, and of single nodes."""

ROUNDING: Final = 1e-3
"""Far more than errors of floating-point numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """of_nodes: the largest contribution of each; sums: their prefix sums; need: the need of the gang."""

    of_nodes: Ints
    need: int
    sums: Ints
    of_domains: tuple[Ints, ...]
    """The contributions of the domains of each level."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A candidate for the gang: a domain, or some of its parts.

    fewest_parts: a lower bound of the parts used that are not anchored. uses_all: whether every useful
    solution uses each of the parts.
    """

    domain: DomainRange
    parts: tuple[DomainRange, ...]
    ranges: Ranges
    fewest_parts: int = 2
    uses_all: bool = False

    @staticmethod
    def of_domain(domain: DomainRange, fewest_parts: int) -> "Candidate":
        """The candidate of a domain whose parts share the gang."""
        return Candidate(domain, tuple(domain.parts), ((domain.first, domain.end),), fewest_parts)

    @staticmethod
    def of_parts(domain: DomainRange, parts: Sequence[DomainRange], *, uses_all: bool) -> "Candidate":
        """The candidate of some parts of a domain."""
        ordered = sorted(parts, key=lambda part: part.first)
        ranges: list[tuple[int, int]] = []
        for part in ordered:
            if ranges and ranges[-1][1] == part.first:
                ranges[-1] = (ranges[-1][0], part.end)
            else:
                ranges.append((part.first, part.end))
        return Candidate(domain, tuple(ordered), tuple(ranges), 0, uses_all)


class JointBounds:
    """The measures of one gang and their bounds."""

    def __init__(self, arrays: GangArrays) -> None:
        self.arrays = arrays
        self.measures: list[Measure] = []
        for number in self._scarcest():
            self._add(arrays.slots_of(number).astype(np.int64), arrays.question.counts[number])
        if arrays.classes > 1:
            for number, total in enumerate(arrays.totals.tolist()):
                if total:
                    self._add(self._most_used(number), total)
        self.slots = self._of_domains(arrays.reference)
        """The capacity of the domains of each level."""
        self.needs: Ints = np.array([measure.need for measure in self.measures], dtype=np.int64)
        nodes = len(arrays.states)
        self.steps = arrays.steps + len(self.measures) * (MEASURE + nodes // SUMMED)
        """Steps to make the arrays and these measures, and to compare the domains."""

    def _scarcest(self) -> list[int]:
        """The classes with the least capacity per pod, as many as have measures."""
        shares = self.arrays.usable[0] / self.arrays.counts
        scarcest: list[int] = np.argsort(shares, kind="stable")[:CLASSES].tolist()
        return scarcest

    def _most_used(self, resource: int) -> Ints:
        """The most that the gang can use of a resource on each node."""
        arrays = self.arrays
        free: Ints = arrays.free[:, resource]
        if arrays.question.others:  # so many classes request more than that
            return free
        requested: Ints = arrays.requests[:, resource] @ arrays.slot_counts
        return np.minimum(free, requested)

    def _add(self, of_nodes: Ints, need: int) -> None:
        sums = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(of_nodes)))
        self.measures.append(Measure(of_nodes, need, sums, self._of_domains(of_nodes)))

    def _of_domains(self, of_nodes: Ints) -> tuple[Ints, ...]:
        """The sums of amounts of nodes in the domains of each level."""
        return tuple(
            np.add.reduceat(of_nodes, starts) if len(starts) else of_nodes[:0]
            for starts in self.arrays.starts
        )

    def contributions(self, parts: Sequence[DomainRange]) -> Ints:
        """The contribution of each domain to each measure."""
        firsts = np.array([part.first for part in parts], dtype=np.int64)
        ends = np.array([part.end for part in parts], dtype=np.int64)
        return np.stack([measure.sums[ends] - measure.sums[firsts] for measure in self.measures], axis=1)

    def may_hold(self, ranges: Ranges) -> bool:
        """Whether no measure excludes that the gang fits on these nodes."""
        return all(
            sum(int(measure.sums[end] - measure.sums[first]) for first, end in ranges) >= measure.need
            for measure in self.measures
        )

    def pools(self, level: int, steps: int) -> list[Ranges]:
        """The anchored domains of a level, alone and with each of the others, where they may fit the gang.

        Level -1: all nodes. Of very many domains it is the tightest ones. steps: to compute their costs.
        """
        nodes = len(self.arrays.states)
        if level < 0:
            return [((0, nodes),)] if nodes and self.may_hold(((0, nodes),)) else []
        starts, paid = self.arrays.starts[level], self.arrays.paid[level]
        ends = np.append(starts[1:], nodes)
        fits, is_enough = ~paid, bool(paid.any())
        for measure in self.measures:
            amounts = measure.of_domains[level]
            missing = measure.need - int(amounts[paid].sum())
            fits &= amounts >= missing
            is_enough &= missing <= 0
        here = tuple(zip(starts[paid].tolist(), ends[paid].tolist(), strict=True))
        others = np.flatnonzero(fits)
        most = MOST_BESIDE if here or len(starts) == nodes else MOST_POOLS
        most = min(most, steps // (POOL + sum(end - first for first, end in here)))
        slots = np.add.reduceat(self.arrays.slots_of(self.arrays.question.reference), starts)[others]
        others = np.sort(others[np.argsort(slots, kind="stable")[:most]])
        pools = [(*here, pool) for pool in zip(starts[others].tolist(), ends[others].tolist(), strict=True)]
        return [here, *pools] if is_enough else pools

    def nodes_that_may_hold(self, first: int, end: int) -> Array:
        """The nodes of a range that may fit the gang alone; without cards they do fit it."""
        fits = np.ones(end - first, dtype=np.bool_)
        for measure in self.measures:
            fits &= measure.of_nodes[first:end] >= measure.need
        return np.flatnonzero(fits) + first

    def fewest(self, level: int, ranges: Ranges) -> tuple[int, int] | None:
        """Lower bounds of the used domains of a level, and of their capacity, without anchored ones.

        None: the gang does not fit.
        """
        at = numbers_between(self.arrays.starts[level], ranges)
        paid = self.arrays.paid[level][at]
        slots = self.slots[level][at][~paid]
        fewest = leftover = 0
        for measure in self.measures:
            every = measure.of_domains[level][at]
            left = measure.need - int(every[paid].sum())
            if left <= 0:
                continue
            amounts = every[~paid]
            most = np.cumsum(np.sort(amounts)[::-1])
            count = int(np.searchsorted(most, left)) + 1
            if count > len(most):
                return None
            fewest = max(fewest, count)
            leftover = max(leftover, _least_slots(slots, amounts, left))
        return fewest, max(leftover, int(np.sort(slots)[:fewest].sum()))

    def least_fields(self, candidate: Candidate, levels: range) -> dict[int, int] | None:
        """Lower bounds of the fields of the cost of a candidate at some levels, by their first bits.

        None if the gang cannot fit.
        """
        costs, found = self.arrays.costs, {}
        bounds = [self.fewest(level, candidate.ranges) for level in levels]
        known = [bound for bound in bounds if bound is not None]
        if len(known) < len(bounds):
            return None
        for level, (count, leftover) in zip(levels, known, strict=True):
            if level == candidate.domain.vertex.bottom + 1:
                count = max(count, candidate.fewest_parts)
            found[costs.domains[level]], found[costs.leftover[level]] = count, leftover
        return found

    def least_cost(self, candidate: Candidate) -> int | None:
        """A lower bound of the cost of the gang in a candidate, without the cost of the domain itself.

        None if the gang cannot fit.
        """
        arrays, total, bottom = self.arrays, 0, candidate.domain.vertex.bottom
        if candidate.uses_all:
            total = sum(
                part.own or (arrays.node_cost(part.first, part) if part.is_node else 0)
                for part in candidate.parts
            )
            bottom = max(part.vertex.bottom for part in candidate.parts)
        fields = self.least_fields(candidate, range(bottom + 1, arrays.costs.depth))
        return None if fields is None else total + sum(least << shift for shift, least in fields.items())


def _least_slots(slots: Ints, amounts: Ints, need: int) -> int:
    """The fewest slots of domains whose amounts reach a need, if parts of domains could be used."""
    some = np.flatnonzero(amounts)
    order = some[np.argsort(slots[some] / amounts[some], kind="stable")]
    sums = np.cumsum(amounts[order])
    last = int(np.searchsorted(sums, need))
    part = 1 - (sums[last] - need) / amounts[order[last]]
    whole = int(slots[order[:last]].sum())
    return whole + ceil(float(slots[order[last]] * part) - ROUNDING)


def numbers_between(starts: Ints, ranges: Ranges) -> Ints:
    """The numbers of the domains that start in some ranges of nodes."""
    return np.concatenate([
        np.arange(*np.searchsorted(starts, (first, end))) for first, end in ranges
    ])  # fmt: skip
