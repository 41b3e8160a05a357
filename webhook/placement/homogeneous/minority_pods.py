"""The minority pods of a gang: the placed ones as a state number, and the slots that they leave on a node."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, product
from math import prod
from typing import Final

from webhook.placement import capacity
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.evaluate import Solution, cost_of
from webhook.placement.question import Counts, Question, pods_of
from webhook.placement.snapshot import NodeState, key_of
from webhook.placement.vertex import Vertex, around

MOST_MINORITY: Final = 8
"""The most minority pods whose distribution is searched exactly."""

FITTING: Final = 7
"""Steps to compute the slots for workers of a node beside one state of minority pods."""

EXCLUDED: Final = 4
"""States of which a node has too few free slots, compared in one step."""

Profile = tuple[int, ...]
"""Slots for workers beside each state of the minority pods; -1 if these do not fit."""

Sums = tuple[tuple[tuple[int, int], ...], ...]
"""For each added state: pairs of the states before and after the addition."""


@dataclass(frozen=True)
class MinorityPods:
    """The classes of a question except the first, the workers.

    A state is a vector of placed pods, numbered by its position in `states`: none first, all last.
    """

    question: Question
    budget: Budget
    slot_counts_of: dict[object, tuple[int, ...]] = field(default_factory=dict)

    @property
    def counts(self) -> Counts:
        """The number of minority pods of each class."""
        return self.question.counts[1:]

    @property
    def most(self) -> int:
        """The number of all minority pods."""
        return sum(self.counts)

    @cached_property
    def states(self) -> tuple[Counts, ...]:
        """All vectors of minority pods by class that a node or domain may hold."""
        return tuple(product(*(range(count + 1) for count in self.counts)))

    @cached_property
    def sums(self) -> Sums:
        """For each state added: the pairs of states before and after."""
        numbers = {state: number for number, state in enumerate(self.states)}
        return tuple(
            tuple(
                (number, numbers[after])
                for number, before in enumerate(self.states)
                if (after := tuple(map(int.__add__, before, more))) in numbers
            )
            for more in self.states
        )

    @cached_property
    def into(self) -> Sums:
        """For each state: pairs of an added state, the empty one first, and the state before."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.states]
        for more, pairs in enumerate(self.sums):
            for before, after in pairs:
                found[after].append((more, before))
        return tuple(map(tuple, found))

    def slot_counts(self, nodes: Sequence[NodeState], alone: Sequence[Counts]) -> list[tuple[int, ...]]:
        """For each node: its slots for workers beside each state; -1 if the state does not fit.

        alone: the free slots of each node for each class alone.
        """
        keys = self._keys(nodes, alone)
        return [self.slot_counts_of[key] for key in keys]

    def _keys(self, nodes: Sequence[NodeState], alone: Sequence[Counts]) -> list[tuple[object, ...]]:
        """For each node a key that determines its capacities; it computes the capacities of all keys."""
        self.budget.spend(2 * len(nodes))
        free = [[node.free.get(resource, 0) for node in nodes] for resource in self._resources]
        cards = [id(node) if node.cards else 0 for node in nodes] if self._carded else [0] * len(nodes)
        keys: list[tuple[object, ...]] = list(zip(alone, cards, *free, strict=True))
        for key, (node, slot_counts) in dict(zip(keys, zip(nodes, alone, strict=True), strict=True)).items():
            if key not in self.slot_counts_of:
                self.slot_counts_of[key] = self._slot_counts(node, slot_counts)
        return keys

    def _slot_counts(self, node: NodeState, alone: Counts) -> tuple[int, ...]:
        if not any(alone[1:]):
            self.budget.spend()
            return (alone[0], *(-1 for _ in self.states[1:]))
        fitting = prod(min(free, count) + 1 for free, count in zip(alone[1:], self.counts, strict=True))
        self.budget.spend(FITTING * fitting + len(self.states) // EXCLUDED)
        return tuple(self._free_slots(node, alone, state) for state in self.states)

    @cached_property
    def _resources(self) -> tuple[str, ...]:
        return tuple(sorted({resource for pod in self.question.classes for resource, _ in pod.requests}))

    @cached_property
    def _carded(self) -> bool:
        return any(pod.wants_cards for pod in self.question.classes)

    def _free_slots(self, node: NodeState, alone: Counts, state: Counts) -> int:
        if any(map(int.__gt__, state, alone[1:])):
            return -1
        worker, *others = self.question.classes
        left = Counter(node.free)
        for pod, count in zip(others, state, strict=True):
            left.subtract({resource: count * amount for resource, amount in pod.requests})
        asked = [pod.requests for pod, count in zip(others, state, strict=True) if count]
        if any(left[resource] < 0 < amount for resource, amount in chain.from_iterable(asked)):
            return -1
        free_slots = min([alone[0], *(max(0, left[r]) // amount for r, amount in worker.requests if amount)])
        return self._with_cards(node, state, free_slots) if node.cards and self._carded else free_slots

    def _with_cards(self, node: NodeState, state: Counts, most: int) -> int:
        """The slots for workers if cards may leave fewer than the sums. Raises OutOfSteps if undecided."""
        worker, *others = self.question.classes
        pods = pods_of(others, state)
        for free_slots in range(min(most, self.question.counts[0]), -1, -1):
            fits = capacity.fits_together([*pods, *[worker] * free_slots], node, self.budget)
            if fits is None:
                raise OutOfSteps
            if fits:
                return free_slots
        return -1


def _alone(vertex: Vertex) -> tuple[list[NodeState], list[Counts]]:
    """The nodes of a domain of leaves, or a single node."""
    if vertex.leaves is not None:
        return vertex.leaves.states, list(zip(*vertex.leaves.every, strict=True))
    return ([vertex.state], [vertex.slot_counts]) if vertex.state is not None else ([], [])


def profiles(
    minority: MinorityPods, root: Vertex, nodes: Sequence[NodeState]
) -> list[tuple[NodeState, Profile]]:
    """These nodes, each with its slots for workers beside each state of the minority pods."""
    names = {state.name for state in nodes}
    alone_on = {}
    for vertex in around(root, nodes):
        for state, alone in zip(*_alone(vertex), strict=True):
            if state.node.name in names:
                alone_on[state.node.name] = alone
    slot_counts = minority.slot_counts(nodes, [alone_on[state.name] for state in nodes])
    return list(zip(nodes, slot_counts, strict=True))


def distinct_profiles(minority: MinorityPods, root: Vertex) -> set[Profile]:
    """The profiles of all nodes, each once. Raises OutOfSteps."""
    nodes = [kind for block in root.parts for kind in block.notes["groups"]]
    return set(minority.slot_counts([state for state, _ in nodes], [alone for _, alone in nodes]))


def solution_on(
    question: Question, root: Vertex, nodes: Iterable[NodeState], counts: Mapping[str, Counts] | None
) -> Solution:
    """The proven solution with these pods by node name; None: unproven that none exists.

    nodes: in topology order, with all nodes of the pods.
    """
    if counts is None:
        return Solution(None, False)
    used = [key_of(state, question.levels) for state in nodes if state.name in counts]
    return Solution(counts, True, cost_of(root, used))


@dataclass(frozen=True)
class SpareSlots:
    """Spare slots: free slots that are left beside the workers, for minority pods.

    losses: the spare slots in each state; none first, all last. sums: see Sums.
    """

    losses: tuple[int, ...]
    sums: Sums
    known: dict[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """The number of all spare slots, and so the most nodes with any."""
        return self.losses[-1]

    def below(self, unit: int) -> "SpareSlots":
        """The spare slots that matter in domains with such units: without slices below, none are
        distinguished.
        """
        return self if unit > 1 else NONE

    def slot_counts(self, alone: Sequence[int]) -> list[tuple[int, ...]]:
        """For each node: its slots for workers beside each state; -1 if it cannot leave so many.

        alone: the slots for workers of each node.
        """
        return [self._slot_counts(free_slots) for free_slots in alone]

    def _slot_counts(self, free_slots: int) -> tuple[int, ...]:
        if free_slots not in self.known:
            self.known[free_slots] = tuple(
                free_slots - loss if free_slots >= loss else -1 for loss in self.losses
            )
        return self.known[free_slots]


NONE = SpareSlots((0,), (((0, 0),),))
"""No spare slots."""


def spare_slots(losses: Sequence[int], sums: Sums) -> SpareSlots:
    """Spare slots for minority pods. losses, sums: of the states of these pods.

    The states are the minority pods placed so far, or the slots left so far, whichever has fewer states. The
    second lets domains share the slots for one pod.
    """
    most = losses[-1]
    if most + 1 >= len(losses):
        return SpareSlots(tuple(losses), sums)
    by_slots = tuple(
        tuple((before, before + added) for before in range(most + 1 - added)) for added in range(most + 1)
    )
    return SpareSlots(tuple(range(most + 1)), by_slots)
