"""A gang's tree as arrays: nodes in topology order, each domain a range of nodes, amounts in columns."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import gcd
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from webhook.placement import capacity
from webhook.placement.eligibility import Rules
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState
from webhook.placement.vertex import Leaves, Vertex

Ints = NDArray[np.int64]
Array = NDArray[Any]
Ranges = tuple[tuple[int, int], ...]
"""Half-open ranges of node numbers."""

Taken = dict[int, Counts]
"""Node number -> pods of each class on it."""


@dataclass(slots=True, eq=False)
class DomainRange:
    """A domain with capacity for the gang, or a node (vertex.state is set), as a range of node numbers.

    Nodes of vertex.leaves have no DomainRange.
    """

    vertex: Vertex
    parent: "DomainRange | None"
    first: int
    end: int = 0
    parts: list["DomainRange"] = field(default_factory=list)

    @property
    def is_node(self) -> bool:
        """Whether it is a single node."""
        return self.vertex.state is not None

    @property
    def own(self) -> int:
        """The cost of using the domain itself; 0 for a node, see GangArrays.node_cost."""
        return 0 if self.is_node else self.vertex.own

    def inside(self) -> Iterator["DomainRange"]:
        """The domain and all domains inside it, in topology order."""
        yield self
        for part in self.parts:
            yield from part.inside()


NODE: Final = 2
"""Steps per node to make the arrays."""

DOMAIN: Final = 8
"""The same per domain."""

SLOTS: Final = 20
"""Free slots that are read in one step."""

LARGEST: Final = 2**62
"""The largest sum of a resource in grains, so that sums are machine words."""


class TooLargeError(Exception):
    """The sums of amounts do not fit machine words."""


class GangArrays:
    """The gang and its tree as arrays, with amounts in the resources' grains. Raises TooLargeError.

    counts: pods of each class. requests: class x resource. totals: the gang's total request of each resource.
    slot_counts: listed class x node, the free slots for each class alone, at most its pods. free: node x
    resource, at most the totals. reference: the capacity of each node, as costs count it. starts: for each
    level the first node numbers of its domains. paid: whether anchors use these domains.
    """

    def __init__(self, question: Question, root: Vertex) -> None:
        self.question = question
        self.costs = question.costs()
        self.classes = len(question.counts)
        self.counts: Ints = np.array(question.counts, dtype=np.int64)
        self.resources = sorted({resource for pod in question.classes for resource, _ in pod.requests})
        rows = self._rows_in_grains()
        self.request_rows = [[(n, amount) for n, amount in enumerate(row) if amount] for row in rows]
        """For each class the resources that it requests, by number, and the amounts."""
        self.requests: Ints = np.array(rows, dtype=np.int64).reshape(self.classes, len(self.resources))
        self.totals: Ints = self._totals(rows)
        self.carded = [pod.wants_cards for pod in question.classes]
        self.states: list[NodeState] = []
        self.holders: list[DomainRange] = []
        """The innermost domains around nodes, and nodes without one, in topology order."""
        self._read_tree(root)
        columns = [self._free(number) for number in range(len(self.resources))]
        self.free: Ints = np.array(columns, dtype=np.int64).reshape(len(columns), len(self.states)).T
        self._position = {number: position for position, number in enumerate(question.listed)}
        self._allowed: dict[Rules, Array] = {}

    def may_run(self, number: int) -> Array:
        """For each node whether the rules of a class allow it; for a listed one, whether a pod fits alone."""
        if number in self._position:
            fits: Array = self.slot_counts[self._position[number]] > 0
            return fits
        pod = self.question.classes[number]
        if pod.rules not in self._allowed:
            allowed = [not capacity.reason_against_node(pod, state) for state in self.states]
            self._allowed[pod.rules] = np.array(allowed, dtype=np.bool_)
        return self._allowed[pod.rules]

    def slots_of(self, number: int) -> Array:
        """The free slots of each node for a class alone, at most its pods."""
        if number in self._position:
            listed: Array = self.slot_counts[self._position[number]]
            return listed
        fits = self.may_run(number).copy()
        for resource, amount in self.request_rows[number]:
            fits &= self.free[:, resource] >= amount
        if self.counts[number] == 1:
            return fits
        slots = np.where(fits, self.counts[number], 0)
        for resource, amount in self.request_rows[number]:
            np.minimum(slots, self.free[:, resource] // amount, out=slots)
        return slots

    @property
    def steps(self) -> int:
        """Steps to make the arrays, and to compare the domains with one another."""
        nodes = len(self.states)
        domains = sum(1 for _ in self.root.inside())
        return NODE * nodes + DOMAIN * domains + nodes * len(self.question.listed) // SLOTS

    @cached_property
    def usable(self) -> tuple[Ints, Ints]:
        """For each class the free slots of all nodes, and the number of nodes that have any."""
        rows = [
            (int(slots.sum()), np.count_nonzero(slots)) for slots in map(self.slots_of, range(self.classes))
        ]
        sums, nodes = np.array(rows, dtype=np.int64).reshape(-1, 2).T
        return sums, nodes

    def is_in_slices(self, number: int) -> bool:
        """Whether slices bind a class."""
        question = self.question
        return bool(question.slices) and question.unbound_slices[number] < len(question.slices)

    def _read_tree(self, root: Vertex) -> None:
        """Number the nodes, and record the starts of domains and the free slots."""
        self._starts: list[list[int]] = [[] for _ in range(self.costs.depth)]
        self._paid: list[list[bool]] = [[] for _ in range(self.costs.depth)]
        slot_counts: list[Array] = []
        reference: list[int] = []
        self.root = self._domain(root, None, slot_counts, reference)
        self.reference: Ints = np.array(reference, dtype=np.int64)
        every = (
            np.concatenate(slot_counts, axis=1)
            if slot_counts
            else np.zeros((len(self.question.listed), 0), dtype=np.int64)
        )
        most = self.counts[list(self.question.listed), None]
        self.slot_counts: Array = np.minimum(every, most).astype(np.int32)
        self.starts = [np.array(starts, dtype=np.int64) for starts in self._starts]
        self.paid = [np.array(paid, dtype=np.bool_) for paid in self._paid]
        self.firsts = np.array([holder.first for holder in self.holders], dtype=np.int64)

    def _rows_in_grains(self) -> list[list[int]]:
        """The requests by class and resource, in grains: the greatest common divisors of the amounts."""
        asked = [
            [dict(pod.requests).get(name, 0) for name in self.resources] for pod in self.question.classes
        ]
        self._grains = [gcd(*amounts) or 1 for amounts in zip(*asked, strict=True)]
        return [[amount // grain for amount, grain in zip(row, self._grains, strict=True)] for row in asked]

    def _totals(self, rows: Sequence[Sequence[int]]) -> Ints:
        """The gang's total request of each resource. Raises TooLargeError."""
        totals = [sum(map(int.__mul__, self.question.counts, column)) for column in zip(*rows, strict=True)]
        if max(totals, default=0) > LARGEST:
            raise TooLargeError
        return np.array(totals, dtype=np.int64)

    def _free(self, number: int) -> Ints:
        """The free amount of a resource on each node, at most the gang's total request."""
        name, grain, total = self.resources[number], self._grains[number], int(self.totals[number])
        amounts = [state.free.get(name, 0) for state in self.states]
        if max(amounts, default=0) > LARGEST:
            amounts = [min(amount // grain, total) * grain for amount in amounts]
        free: Ints = np.clip(np.array(amounts, dtype=np.int64) // grain, 0, total)
        if free.sum(dtype=np.float64) > LARGEST:
            raise TooLargeError
        return free

    def _domain(
        self, vertex: Vertex, parent: DomainRange | None, slot_counts: list[Array], reference: list[int]
    ) -> DomainRange:
        domain = DomainRange(vertex, parent, len(self.states))
        for level in range(max(vertex.top, 0), vertex.bottom + 1):
            self._starts[level].append(domain.first)
            self._paid[level].append(vertex.key[: level + 2] in self.question.anchored)
        if vertex.state is not None:
            self.states.append(vertex.state)
            self.holders.append(domain)
            slot_counts.append(np.array([vertex.slot_counts], dtype=np.int64).T)
            reference.append(vertex.free_slots)
        elif vertex.leaves is not None:
            self._leaves(vertex.leaves, slot_counts)
            reference += vertex.leaves.slot_counts
            self.holders.append(domain)
        domain.parts = [self._domain(part, domain, slot_counts, reference) for part in vertex.parts]
        domain.end = len(self.states)
        return domain

    def _leaves(self, leaves: Leaves, slot_counts: list[Array]) -> None:
        first, count = len(self.states), len(leaves.states)
        for level in range(leaves.top, self.costs.depth):
            self._starts[level] += range(first, first + count)
            self._paid[level] += [False] * count  # domains of leaves have no anchors
        self.states += leaves.states
        different = {
            id(column): column for column in leaves.every
        }  # all classes without capacity share one entry
        number = {key: position for position, key in enumerate(different)}
        columns = np.array([*different.values()], dtype=np.int64)
        slot_counts.append(columns[[number[id(column)] for column in leaves.every]])

    # --- costs ---------------------------------------------------------------------------------------

    def holder(self, node: int) -> DomainRange:
        """The innermost domain around a node, or the node itself if it has none."""
        return self.holders[int(np.searchsorted(self.firsts, node, side="right")) - 1]

    def around(self, node: int) -> DomainRange:
        """The innermost domain around a node."""
        holder = self.holder(node)
        return holder.parent if holder.is_node and holder.parent is not None else holder

    def node_cost(self, node: int, holder: DomainRange | None = None) -> int:
        """The cost of using a node, without the domains around it."""
        holder = holder or self.holder(node)
        leaves = holder.vertex.leaves
        return holder.vertex.own if leaves is None else leaves.own(node - holder.first)

    def base(self, domain: DomainRange | None) -> int:
        """The cost of using a domain and the domains around it."""
        total = 0
        while domain is not None:
            total += domain.own
            domain = domain.parent
        return total

    def cost(self, nodes: Collection[int]) -> int:
        """The cost of using these nodes."""
        total = 0
        seen: set[int] = set()
        holders = np.searchsorted(self.firsts, list(nodes), side="right") - 1  # one by one it takes longer
        for node, number in zip(nodes, holders.tolist(), strict=True):
            domain: DomainRange | None = self.holders[number]
            total += self.node_cost(node, domain)
            while domain is not None and id(domain) not in seen:
                seen.add(id(domain))
                total += domain.own
                domain = domain.parent
        return total

    def is_paid(self, domain: DomainRange) -> bool:
        """Whether anchors use a domain, or a node, at all levels that it covers."""
        return bool(self.question.anchored) and domain.vertex.key in self.question.anchored

    def named(self, taken: Taken) -> dict[str, Counts]:
        """The pods by node name, in topology order."""
        return {self.states[node].name: tuple(taken[node]) for node in sorted(taken)}
