"""The pattern program of one candidate: the number of nodes in each group that take each pattern.

Columns: for each domain with a cost whether it is used, and for each group of equal nodes in a domain the
number that take each pattern. Rows: a used domain is inside a used domain; nodes are used only in used
domains; each class is covered. Slices are columns too: at their level each domain has a number of slices, and
holds that many pods. The objective is the documented order, one field after the other.

Source: Gilmore and Gomory (1961), see patterns.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.costs import COUNT_BITS, SCORE_BITS, SLOT_BITS, Costs
from webhook.placement.heterogeneous.arrays import Array, DomainRange, GangArrays, Taken
from webhook.placement.heterogeneous.integer_program import (
    INFINITE,
    SOLVE,
    IntegerProgram,
    LexicographicSearch,
    prices,
)
from webhook.placement.heterogeneous.joint_bounds import Candidate
from webhook.placement.heterogeneous.patterns import NodePatterns
from webhook.placement.question import Counts

COLUMNS: Final = 2500
"""With more columns, the program has only the best patterns of each node group."""

LARGEST: Final = 20_000
"""With more columns, the program is not solved."""

NODE: Final = 10
"""Steps per node to write the program."""

COLUMN: Final = 4
"""Steps per column to write the program."""

FINE: Final = 400
"""The most nodes for which the headroom is an objective, the last one."""


def fields_of(costs: Costs) -> list[tuple[int, int]]:
    """The fields of a cost without the headroom, the most important first: first bit, and number of bits."""
    fields = [(shift, COUNT_BITS) for shift in costs.domains]
    fields += [(shift, SLOT_BITS) for shift in costs.leftover]
    return sorted(fields, reverse=True)


def value_of(cost: int, field_of_cost: tuple[int, int]) -> int:
    """The value of a field of a cost."""
    shift, bits = field_of_cost
    return cost >> shift & (1 << bits) - 1


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes of one domain, the cheapest first, and the column of each pattern."""

    nodes: tuple[int, ...]
    columns: tuple[tuple[int, Counts], ...]


@dataclass(frozen=True, slots=True)
class Quota:
    """The pods of a class in a range of nodes: a number per unit of a column."""

    number: int
    first: int
    end: int
    column: int
    size: int


@dataclass(frozen=True, slots=True)
class Found:
    """taken: a solution below the limit, or None. exact: the candidate has no better one."""

    taken: Taken | None
    exact: bool


class PatternProgram:
    """The program of one candidate.

    is_too_large: it has too many columns, or the steps do not suffice to write it; it must not be solved.
    exact: it has all patterns of all nodes.
    """

    def __init__(
        self,
        arrays: GangArrays,
        patterns: NodePatterns,
        candidate: Candidate,
        budget: Budget,
    ) -> None:
        """budget: the steps to write the program."""
        self.arrays = arrays
        self.patterns = patterns
        self.candidate = candidate
        self.exact = True
        self.size = sum(end - first for first, end in candidate.ranges)
        """The number of nodes of the candidate."""
        self.is_too_large = NODE * self.size > budget.left
        self.is_fine = self.size <= FINE
        self.program = IntegerProgram()
        self.budget = budget
        self.costs: list[int] = []
        """The cost of each column."""
        self.groups: list[NodeGroup] = []
        self.quotas: list[Quota] = []
        self._used: dict[int, int] = {}
        """The column of each domain's use, by its id."""
        self._covers: list[dict[int, float]] = [{} for _ in range(arrays.classes)]
        if not self.is_too_large:
            self._add_domains()
            self._add_nodes()
        if not self.is_too_large:
            self._cover()

    # --- the model -----------------------------------------------------------------------------------

    def _column(self, cost: int, most: float) -> int:
        self.costs.append(cost)
        return self.program.column(most)

    def _add_domains(self) -> None:
        tops = {id(part) for part in self.candidate.parts}
        for part in self.candidate.parts:
            for domain in part.inside():
                if domain.is_node or not domain.own:
                    continue
                column = self._used[id(domain)] = self._column(domain.own, 1)
                around = self._used.get(id(domain.parent))
                if id(domain) not in tops and around is not None:
                    self.program.row(-INFINITE, 0, {column: 1, around: -1})

    def _add_nodes(self) -> None:
        equal_nodes = list(self._equal_nodes())
        found = [self.patterns.of(nodes[0]) for _, nodes in equal_nodes]
        every: list[Sequence[Counts]] = [each.every for each in found]
        total = sum(map(len, every))
        self.budget.take(NODE * self.size + COLUMN * min(total, COLUMNS))
        self.exact = all(each.exact for each in found)
        if total > COLUMNS:
            numbers = [len(nodes) for _, nodes in equal_nodes]
            every = self._best_patterns(every, numbers) if total <= LARGEST else []
            self.exact, self.is_too_large = False, not every
        for (holder, nodes), patterns in zip(equal_nodes, every, strict=False):
            self._add_group(holder, nodes, patterns)

    def _add_group(self, holder: DomainRange, nodes: Sequence[int], patterns: Sequence[Counts]) -> None:
        """Add equal nodes of a domain: a column for each pattern, and a row that limits them to the nodes."""
        cost = self.arrays.node_cost(nodes[0])
        if not self.is_fine:
            cost = cost >> SCORE_BITS << SCORE_BITS
        most = min(len(nodes), sum(self.arrays.question.counts))
        columns = tuple((self._column(cost, most), pattern) for pattern in patterns if any(pattern))
        if not columns:
            return
        _add_to_covers(self._covers, columns)
        row: dict[int, float] = dict.fromkeys(dict(columns), 1)
        used = self._used.get(id(holder))
        if used is None:
            self.program.row(-INFINITE, len(nodes), row)
        else:
            self.program.row(-INFINITE, 0, row | {used: -len(nodes)})
        self.groups.append(NodeGroup(tuple(nodes), columns))

    def _equal_nodes(self) -> Iterator[tuple[DomainRange, list[int]]]:
        """Groups of equal nodes of a domain, sorted by cost."""
        arrays = self.arrays
        groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
        levels = [level for level, _ in arrays.question.slices]
        holders: dict[tuple[object, ...], DomainRange] = {}
        for node in self._nodes():
            holder = arrays.holder(node)
            zones = tuple(int(np.searchsorted(arrays.starts[level], node, side="right")) for level in levels)
            cost = arrays.node_cost(node, holder) >> (0 if self.is_fine else SCORE_BITS)
            around = arrays.around(node)
            key: tuple[object, ...] = (id(around), self.patterns.kind(node), cost, zones)
            groups[key].append(node)
            holders[key] = around
        for key, nodes in groups.items():
            yield holders[key], sorted(nodes, key=lambda node: (arrays.node_cost(node), node))

    def _nodes(self) -> Iterator[int]:
        for first, end in self.candidate.ranges:
            yield from range(first, end)

    def _cover(self) -> None:
        question = self.arrays.question
        for number, count in enumerate(question.counts):
            layers = question.slices[question.unbound_slices[number] :] if question.slices else ()
            if layers:
                self._cover_by_slices(number, count, layers)
            else:
                self.program.row(count, INFINITE, self._covers[number])

    def _cover_by_slices(self, number: int, count: int, layers: Sequence[tuple[int, int]]) -> None:
        """Add the slices of a class. layers: level and size of each slice layer that binds it, coarsest
        first.
        """
        inner: dict[int, tuple[int, int]] | None = None
        """For the finer layer: the start of a domain -> its column, and the slice size."""
        for level, size in reversed(layers):
            here = {}
            for first, end in self._zones(level):
                if inner is None:
                    slices = self._covers_between(number, first, end)
                else:
                    slices = {
                        column: float(each) for at, (column, each) in inner.items() if first <= at < end
                    }
                if not slices:
                    continue
                column = self._column(0, count // size)
                self.program.row(0, INFINITE if inner is None else 0, slices | {column: -size})
                here[first] = column, size
                if inner is None:
                    self.quotas.append(Quota(number, first, end, column, size))
            inner = here
        assert inner is not None
        self.program.row(count, count, {column: float(size) for column, size in inner.values()})

    def _zones(self, level: int) -> Iterator[tuple[int, int]]:
        """The domains of a level as ranges of nodes, including those around the candidate."""
        starts = self.arrays.starts[level]
        for first, end in self.candidate.ranges:
            low, high = np.searchsorted(starts, (first, end))
            inside = [first, *(each for each in starts[low:high].tolist() if each != first)]
            yield from zip(inside, [*inside[1:], end], strict=True)

    def _covers_between(self, number: int, first: int, end: int) -> dict[int, float]:
        return {
            column: float(pattern[number])
            for group in self.groups
            if first <= group.nodes[0] < end
            for column, pattern in group.columns
            if pattern[number]
        }

    # --- solving it ----------------------------------------------------------------------------------

    def solve(self, limit: int | None, least: Mapping[int, int]) -> Found:
        """The best solution below the limit, a cost without the domains around the candidate.

        least: lower bounds of fields, by their first bits: see JointBounds.least_fields.
        """
        if limit is not None and limit <= 0:
            return Found(None, exact=True)
        search = LexicographicSearch(self.program, self.budget)
        progress = _Progress(search, self.budget, self.exact, limit is None)
        self._decide(progress, limit, least)
        if progress.values is None or not progress.is_better:
            return Found(None, progress.is_proven)
        taken = self._taken(progress.values)
        return Found(taken, progress.exact and taken is not None)

    def _decide(self, progress: "_Progress", limit: int | None, least: Mapping[int, int]) -> None:
        """Decide field after field. limit, least: see `solve`."""
        is_fewest = True
        for shift, bits in self._fields():
            costs = [float(value_of(cost, (shift, bits))) for cost in self.costs]
            most = 0 if limit is None else value_of(limit, (shift, bits))
            floor = least.get(shift, 0) if is_fewest else 0
            if not progress.take(costs, most, floor):
                break
            if shift in self.arrays.costs.domains:
                is_fewest &= progress.at_most(costs, most) <= floor

    def _fields(self) -> list[tuple[int, int]]:
        """The fields that the program decides: see fields_of."""
        return fields_of(self.arrays.costs) + ([(0, SCORE_BITS)] if self.is_fine else [])

    def _taken(self, values: Array) -> Taken | None:
        """The nodes of a solution; None if it does not cover the gang."""
        pods_on: dict[int, list[int]] = {}
        for group in self.groups:
            nodes = iter(group.nodes)
            for column, pattern in group.columns:
                for _ in range(int(values[column])):
                    pods_on[next(nodes)] = list(pattern)
        sliced = {quota.number for quota in self.quotas}
        for number, count in enumerate(self.arrays.question.counts):
            if number not in sliced:
                _trim(pods_on, number, range(len(self.arrays.states)), count)
        for quota in self.quotas:
            wanted = int(values[quota.column]) * quota.size
            _trim(pods_on, quota.number, range(quota.first, quota.end), wanted)
        taken = {node: tuple(counts) for node, counts in pods_on.items() if any(counts)}
        sums = tuple(map(sum, zip(*taken.values(), strict=True)))
        return taken if sums == self.arrays.question.counts else None

    # --- the linear relaxation -----------------------------------------------------------------------

    def _best_patterns(
        self, every: Sequence[Sequence[Counts]], numbers: Sequence[int]
    ) -> list[Sequence[Counts]]:
        """The patterns of each node group with the highest values, if there are too many columns; [] if
        unknown.

        every: the patterns of each group. numbers: the nodes in each group.
        """
        worth = self._relaxed(zip(every, numbers, strict=True))
        if not any(worth):
            return []
        most = max(1, COLUMNS // len(every))
        best: list[Sequence[Counts]] = []
        for patterns in every:
            values = np.array(patterns, dtype=float).reshape(len(patterns), len(worth)) @ np.array(worth)
            best.append([patterns[number] for number in np.argsort(-values, kind="stable")[:most].tolist()])
        return best

    def _relaxed(self, groups: Iterable[tuple[Sequence[Counts], int]]) -> list[float]:
        """The dual value per pod of each class where most of the gang is placed in the relaxation.

        They are 0 if nothing fits. groups: the patterns of nodes, and the number of nodes.
        """
        counts = self.arrays.question.counts
        numbers = Counter[tuple[Counts, ...]]()
        """The number of nodes with the same patterns."""
        for every, number in groups:
            numbers[tuple(every)] += number
        program = IntegerProgram()
        part = program.column(2)
        covers: list[dict[int, float]] = [{part: -float(count)} for count in counts]
        limits: list[tuple[int, dict[int, float]]] = []
        for patterns, number in numbers.items():
            columns = [(program.column(INFINITE), pattern) for pattern in patterns]
            _add_to_covers(covers, columns)
            limits.append((number, dict.fromkeys(dict(columns), 1)))
        for cover in covers:
            program.row(0, INFINITE, cover)
        for number, row in limits:
            program.row(-INFINITE, number, row)
        self.patterns.budget.take(SOLVE * program.entries)
        priced = prices(program, [-1.0, *[0.0] * (len(program.upper) - 1)], len(covers))
        if priced is None or not priced[0]:
            return [0.0] * len(counts)
        return [max(0.0, dual) for dual in priced[1]]


@dataclass(slots=True)
class _Progress:
    """The progress of the lexicographic objective, field by field.

    is_better: a field is below that of the cost to beat, with all fields before it equal. is_hopeless: no
    solution is as good as the cost to beat. values: the best values of the columns so far.
    """

    search: LexicographicSearch
    budget: Budget
    exact: bool
    is_better: bool
    is_hopeless: bool = False
    values: Array | None = None
    decided: list[list[float]] = field(default_factory=list)

    def take(self, costs: list[float], most: int, least: int) -> bool:
        """Decide one more field; returns whether to continue.

        most: the field of the cost to beat. least: a known lower bound.
        """
        if not any(costs):
            self.is_better |= most > 0
            return True
        is_decided = self._is_decided(costs)
        if self.is_better and is_decided:
            return True
        self.decided.append(costs)
        if not self.is_better:
            self.search.at_most(costs, most)
            if self.values is None and most == least:
                return True
        if not (is_decided or self._reaches(costs, least)) and not self._improve(costs):
            return False
        return self._hold(costs, most)

    def _is_decided(self, costs: list[float]) -> bool:
        return self.values is not None and costs in self.decided

    def _reaches(self, costs: list[float], least: int) -> bool:
        return self.values is not None and self._total(costs) <= least

    def _improve(self, costs: list[float]) -> bool:
        """Minimize a field; returns whether to continue with the result."""
        if self.search.is_over and self.values is not None:
            self.exact = False
            return False
        return self._minimise(costs)

    def _hold(self, costs: list[float], most: int) -> bool:
        """Fix a field at its result; returns whether that is not above the cost to beat."""
        total = self._total(costs)
        if not self.is_better and total > most:
            return False
        self.is_better |= total < most
        self.search.at_most(costs, total)
        return True

    @property
    def is_proven(self) -> bool:
        """Whether it is proven, after the last field, that no solution is better."""
        return self.exact and (self.is_hopeless or not self.is_better)

    def at_most(self, costs: list[float], most: int) -> float:
        """The value at which a field is fixed. most: see `take`."""
        return most if self.values is None else self._total(costs)

    def _total(self, costs: list[float]) -> float:
        return 0.0 if self.values is None else float(np.dot(costs, self.values))

    def _minimise(self, costs: list[float]) -> bool:
        found, is_best = self.search.minimise(costs)
        if found is None and is_best and not (self.is_better and self.values is not None):
            self.is_hopeless, self.is_better = True, self.is_better and self.values is None
            return False
        self.exact &= is_best and found is not None
        if found is not None:
            self.values = found
        return self.values is not None and (is_best or self.budget.left >= 0)


def _add_to_covers(covers: Sequence[dict[int, float]], columns: Iterable[tuple[int, Counts]]) -> None:
    """Add the pods of each class per unit of each column. covers: for each class, by column."""
    for column, pattern in columns:
        for number, count in enumerate(pattern):
            if count:
                covers[number][column] = count


def _trim(pods_on: Mapping[int, list[int]], number: int, nodes: range, wanted: int) -> None:
    """Remove pods of a class, from the emptiest nodes first, until these nodes have the wanted number."""
    mine = [node for node in pods_on if node in nodes and pods_on[node][number]]
    surplus = sum(pods_on[node][number] for node in mine) - wanted
    for node in sorted(mine, key=lambda node: (sum(pods_on[node]), -node)):
        if surplus <= 0:
            return
        less = min(surplus, pods_on[node][number])
        pods_on[node][number] -= less
        surplus -= less
