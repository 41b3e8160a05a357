"""Upper bounds of the capacity of domains over all classes and resources together: surrogate constraints.

A measure is a sum to which each node contributes at most some amount, with the need of the gang. There is a
measure for the pods of each class, and one for the total request of each resource. Domains whose
contributions fall short in any measure cannot fit the gang. At each level the gang uses at least as many
domains as the largest contributions need to reach the sum. In exactly so many domains, the need has a price
in their capacity (see least_slots).

Sources: Glover, Surrogate constraints, Operations Research 16 (1968); Geoffrion, Lagrangean relaxation for
integer programming, Mathematical Programming Study 2 (1974).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

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

EXACT: Final = 1 << 40
"""Sums of floating-point numbers up to this size have errors below ROUNDING."""


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
    """The measures of one gang and their bounds.

    amounts: [measure, node], the largest contribution of each. needs: the gang's need in each measure.
    sums: the prefix sums of the amounts. of_domains: for each level [measure, domain].
    """

    def __init__(self, arrays: GangArrays) -> None:
        self.arrays = arrays
        rows, needs = [], []
        for number in self._scarcest():
            rows.append(arrays.slots_of(number).astype(np.int64))
            needs.append(arrays.question.counts[number])
        for number, total in enumerate(arrays.totals.tolist() if arrays.classes > 1 else ()):
            if total:
                rows.append(self._most_used(number))
                needs.append(total)
        nodes = len(arrays.states)
        self.amounts: Ints = np.array(rows, dtype=np.int64).reshape(len(needs), nodes)
        self.needs: Ints = np.array(needs, dtype=np.int64)
        self.sums: Ints = np.cumsum(self.amounts, axis=1)
        self.sums = np.concatenate((np.zeros((len(needs), 1), dtype=np.int64), self.sums), axis=1)
        self.of_domains = self._of_domains(self.amounts)
        self.slots = self._of_domains(arrays.reference)
        """The capacity of the domains of each level."""
        self.steps = arrays.steps + len(needs) * (MEASURE + nodes // SUMMED)
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

    def _of_domains(self, of_nodes: Ints) -> tuple[Ints, ...]:
        """The sums of amounts of nodes in the domains of each level."""
        return tuple(
            np.add.reduceat(of_nodes, starts, axis=-1) if len(starts) else of_nodes[..., :0]
            for starts in self.arrays.starts
        )

    def contributions(self, parts: Sequence[DomainRange]) -> Ints:
        """The contribution of each domain to each measure."""
        firsts = np.array([part.first for part in parts], dtype=np.int64)
        ends = np.array([part.end for part in parts], dtype=np.int64)
        found: Ints = (self.sums[:, ends] - self.sums[:, firsts]).T
        return found

    def may_hold(self, domain: DomainRange) -> bool:
        """Whether no measure excludes that the gang fits into a domain."""
        return bool((self.sums[:, domain.end] - self.sums[:, domain.first] >= self.needs).all())

    def pools(self, level: int, steps: int) -> list[Ranges]:
        """The anchored domains of a level, alone and with each of the others, where they may fit the gang.

        Level -1: all nodes. Of very many domains it is the tightest ones. steps: to compute their costs.
        """
        nodes = len(self.arrays.states)
        if level < 0:
            return [((0, nodes),)] if nodes and self.may_hold(self.arrays.root) else []
        starts, paid = self.arrays.starts[level], self.arrays.paid[level]
        ends = np.append(starts[1:], nodes)
        amounts = self.of_domains[level]
        missing = self.needs - amounts[:, paid].sum(axis=1)
        fits = ~paid & (amounts >= missing[:, None]).all(axis=0)
        is_enough = bool(paid.any() and (missing <= 0).all())
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
        return np.flatnonzero((self.amounts[:, first:end] >= self.needs[:, None]).all(axis=0)) + first

    def fewest(self, level: int, ranges: Ranges, number: int = 0) -> tuple[int, int] | None:
        """Lower bounds of the used domains of a level, and of the capacity of so few, without anchored ones.

        number: another lower bound of the domains. None: the gang does not fit.
        """
        here = numbers_between(self.arrays.starts[level], ranges)
        paid = self.arrays.paid[level][here]
        slots, amounts, needs = self.slots[level][here], self.of_domains[level][:, here], self.needs
        if paid.any():
            needs = needs - amounts[:, paid].sum(axis=1)
            slots, amounts = slots[~paid], amounts[:, ~paid]
        order = np.argsort(-amounts, axis=1, kind="stable")
        sums = np.cumsum(np.take_along_axis(amounts, order, axis=1), axis=1)
        counts = np.where(needs > 0, (sums < needs[:, None]).sum(axis=1) + 1, 0)
        number = max(number, int(counts.max(initial=0)))
        if number > len(slots):
            return None
        smallest = np.argsort(slots, kind="stable")[:number]
        leftover = least = int(slots[smallest].sum())
        few = amounts[:, smallest].sum(axis=1)
        for at in np.flatnonzero(few < needs).tolist():
            row = amounts[at]
            ends = ChosenDomains(least, int(few[at])), ChosenDomains.of(slots, row, order[at, :number])
            leftover = max(leftover, least_slots(slots, row, int(needs[at]), number, *ends, leftover))
        return number, leftover

    def least_fields(self, candidate: Candidate, levels: range) -> dict[int, int] | None:
        """Lower bounds of the fields of the cost of a candidate at some levels, by their first bits.

        Those of the leftover are for solutions with the fewest domains. None if the gang cannot fit.
        """
        costs, found = self.arrays.costs, {}
        domains, bound = -1, None
        for level in levels:
            number = candidate.fewest_parts if level == candidate.domain.vertex.bottom + 1 else 0
            if self.arrays.question.anchored or len(self.arrays.starts[level]) != domains:
                bound = self.fewest(level, candidate.ranges, number)
            if bound is None:
                return None
            domains = len(self.arrays.starts[level])  # if each has one domain, theirs have the same bounds
            found[costs.domains[level]], found[costs.leftover[level]] = bound
        return found

    def used_cost(self, candidate: Candidate) -> int:
        """The cost of the parts that a solution surely uses: a lower bound that is quickly found."""
        if not candidate.uses_all:
            bottom = candidate.domain.vertex.bottom
            return candidate.fewest_parts << self.arrays.costs.domains[bottom + 1]
        parts = candidate.parts
        return sum(
            part.own or (self.arrays.node_cost(part.first, part) if part.is_node else 0) for part in parts
        )

    def least_cost(self, candidate: Candidate) -> int | None:
        """A lower bound of the cost of the gang in a candidate, without the cost of the domain itself.

        None if the gang cannot fit.
        """
        total, bottom = 0, candidate.domain.vertex.bottom
        if candidate.uses_all:
            total = self.used_cost(candidate)
            bottom = max(part.vertex.bottom for part in candidate.parts)
        fields = self.least_fields(candidate, range(bottom + 1, self.arrays.costs.depth))
        return None if fields is None else total + sum(least << shift for shift, least in fields.items())


class ChosenDomains(NamedTuple):
    """The capacity of some domains, and their contribution to a measure."""

    slots: int
    amount: int

    @staticmethod
    def of(slots: Ints, amounts: Ints, numbers: Array) -> "ChosenDomains":
        """The sums over these domains."""
        return ChosenDomains(int(slots[numbers].sum()), int(amounts[numbers].sum()))


def least_slots(
    slots: Ints, amounts: Ints, need: int, number: int, few: ChosenDomains, many: ChosenDomains, known: int
) -> int:
    """A lower bound of the capacity of so many domains whose amounts reach a need; 0 if not above `known`.

    few: the domains with the smallest capacity, whose amounts fall short. many: those with the largest
    amounts, which reach the need.

    Theory (a Lagrangian relaxation). At any price of an amount, the domains with the least capacity minus the
    price of their amounts bound all others from below. Such choices are corners of a convex curve, and the
    line between the last one that falls short and the first one that does not bounds what is between.
    """
    while True:
        rise, run, missing = many.slots - few.slots, many.amount - few.amount, need - few.amount
        least = few.slots + ceil(rise * missing / run - ROUNDING)
        if least <= known:
            return 0
        price = rise / run
        if price * int(amounts.max()) * number > EXACT:
            return 0
        chosen = np.argsort(slots - price * amounts, kind="stable")[:number]
        found = ChosenDomains.of(slots, amounts, chosen)
        if (found.slots - few.slots) * run >= (found.amount - few.amount) * rise:
            return least
        few, many = (few, found) if found.amount >= need else (found, many)


def numbers_between(starts: Ints, ranges: Ranges) -> Array | slice:
    """The numbers of the domains that start in some ranges of nodes."""
    bounds = [np.searchsorted(starts, each).tolist() for each in ranges]
    if len(bounds) == 1:
        return slice(*bounds[0])
    return np.concatenate([np.arange(*each) for each in bounds])
