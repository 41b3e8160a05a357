"""Minority pods beside workers: solve the workers' knapsack for slightly more workers.

Theory (a surrogate relaxation). Minority pods that share a node take slots from workers there: at least l
slots on the best node for them. However they are distributed, all of them take at least L slots, the least
sum of such l. So the nodes of any solution have capacity for K + L workers, where K is the number of workers.
The optimum for K + L workers alone therefore costs no more than the gang. If the minority pods fit on its
nodes and leave capacity for K workers, it is the gang's optimum in every field of the objective.

Beside slices, the L slots are a second coordinate of the knapsack, since no slice may use them (see
minority_pods.SpareSlots).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from webhook.placement.budget import Budget
from webhook.placement.evaluate import Solution
from webhook.placement.homogeneous.covering_search import CoveringSearch, cover
from webhook.placement.homogeneous.minority_pods import (
    MOST_MINORITY,
    NONE,
    MinorityPods,
    Profile,
    distinct_profiles,
    profiles,
    solution_on,
    spare_slots,
)
from webhook.placement.homogeneous.two_classes import beside_many
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState, key_of
from webhook.placement.vertex import Vertex


def shared(
    question: Question, minority: MinorityPods, nodes: Sequence[tuple[NodeState, Profile]]
) -> dict[str, Counts] | None:
    """A distribution of all pods on these nodes, or None. Raises OutOfSteps.

    nodes: in topology order; of equal nodes the first ones are filled first.
    """
    keyed = [(key_of(state, question.levels), _Node(state, most)) for state, most in nodes]
    rows: dict[tuple[Profile, ...], list[list[int]]] = {}

    def domain(members: Sequence[tuple[tuple[str, ...], _Node]], number: int, size: int) -> _SliceDomain:
        parts: list[_Part] = [node for _, node in members]
        if number < len(question.slices):
            level, finer = question.slices[number]
            groups = groupby(members, key=lambda each: each[0][: level + 2])
            parts = [domain(list(group), number + 1, finer) for _, group in groups]
        return _SliceDomain(parts, size, minority, rows)

    root, everybody = domain(keyed, 0, 1), len(minority.states) - 1
    if root.most[everybody] < question.counts[0]:
        return None
    found: dict[str, tuple[int, int]] = {}
    root.give(everybody, question.counts[0], found)
    return {name: (pods, *minority.states[state]) for name, (pods, state) in found.items()}


class _Part(Protocol):
    """A node, or a domain with slices."""

    most: Profile

    def give(self, state: int, workers: int, found: dict[str, tuple[int, int]]) -> None:
        """Assign workers and the minority pods of a state: node name -> workers and state."""


@dataclass(slots=True)
class _Node:
    state: NodeState
    most: Profile

    def give(self, state: int, workers: int, found: dict[str, tuple[int, int]]) -> None:
        if workers or state:
            found[self.state.name] = workers, state


class _SliceDomain:
    """A domain of nodes or domains, whose workers come in slices of `size`."""

    def __init__(
        self,
        parts: Sequence[_Part],
        size: int,
        minority: MinorityPods,
        known: dict[tuple[Profile, ...], list[list[int]]],
    ) -> None:
        """known: a cache of rows by the parts of a domain."""
        self.parts = parts
        self.minority = minority
        seen: dict[Profile, int] = {}
        self.carriers: list[int] = []
        """Numbers of the parts that may take minority pods: of equal parts, at most as many as such pods."""
        for number, part in enumerate(parts):
            seen[part.most] = seen.get(part.most, 0) + 1
            if seen[part.most] <= minority.most:
                self.carriers.append(number)
        key = tuple(parts[number].most for number in self.carriers)
        if key not in known:
            known[key] = _rows(key, minority)
        self.rows = known[key]
        beside = sum(part.most[0] for part in parts) - sum(most[0] for most in key)
        self.most = tuple(-1 if amount < 0 else (amount + beside) // size * size for amount in self.rows[-1])

    def give(self, state: int, workers: int, found: dict[str, tuple[int, int]]) -> None:
        """See _Part."""
        carried = [0] * len(self.parts)
        for position in range(len(self.carriers) - 1, -1, -1):
            number = self.carriers[position]
            row, most = self.rows[position], self.parts[number].most
            most_workers = self.rows[position + 1][state]
            carried[number], state = next(
                (more, before)
                for more, before in self.minority.into[state]
                if row[before] >= 0 and most[more] >= 0 and row[before] + most[more] == most_workers
            )
        for part, state_of_part in zip(self.parts, carried, strict=True):
            given = min(workers, part.most[state_of_part])
            part.give(state_of_part, given, found)
            workers -= given


def _rows(parts: Sequence[Profile], minority: MinorityPods) -> list[list[int]]:
    """The most workers beside each state of the minority pods, on the first 0, 1, 2, ... parts."""
    rows = [[0, *[-1] * (len(minority.states) - 1)]]
    for most in parts:
        minority.budget.spend(1 + sum(map(len, minority.sums)) // 4)
        before, row = rows[-1], [-1] * len(minority.states)
        for more, free_slots in enumerate(most):
            if free_slots >= 0:
                for one, other in minority.sums[more]:
                    if before[one] >= 0 and before[one] + free_slots > row[other]:
                        row[other] = before[one] + free_slots
        rows.append(row)
    return rows


def least_losses(minority: MinorityPods, root: Vertex) -> list[int] | None:
    """For each state of minority pods the fewest slots that it takes from workers, on its best nodes.

    None if the minority pods do not fit at all. Raises OutOfSteps.
    """
    found = distinct_profiles(minority, root)
    minority.budget.spend(len(found) * len(minority.states) // 4 + sum(map(len, minority.sums)) // 4)
    losses = [
        min(
            (slot_counts[0] - slot_counts[state] for slot_counts in found if slot_counts[state] >= 0),
            default=None,
        )
        for state in range(len(minority.states))
    ]
    return _least_sums(minority, losses)


def _least_sums(minority: MinorityPods, losses: Sequence[int | None]) -> list[int] | None:
    """For each state the least sum of losses that leads to it; None if one is out of reach.

    losses: of each added state, None if it does not fit.
    """
    least = [0]
    for into in minority.into[1:]:  # the states before have lower numbers
        sums = [least[before] + loss for more, before in into if more and (loss := losses[more]) is not None]
        if not sums:
            return None
        least.append(min(sums))
    return least


def solve(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The optimum for identical pods, in mode best-fit. Raises OutOfSteps.

    With minority pods, the answer that none exists may be unproven.
    """
    if sum(question.counts[1:]) > MOST_MINORITY:
        return beside_many(question, root, budget)
    if len(question.counts) > 1:
        return _beside_minority(question, root, budget)
    best = CoveringSearch(question, NONE, budget).solve(root)
    if best is None:
        return Solution(None, True)
    found: dict[str, int] = {}
    best[1].deliver(question.counts[0], found)
    # Nodes without pods cost nothing, or a solution without them would be better.
    return Solution({name: (pods,) for name, pods in found.items() if pods}, True, best[0])


def _beside_minority(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The solution on the best nodes for slightly more workers, or the answer that none exists.

    It is not proven that none exists if the minority pods do not fit on these nodes.
    """
    minority = MinorityPods(question, budget)
    losses = least_losses(minority, root)
    if losses is None:
        return Solution(None, True)
    nodes = _best_nodes(question, root, minority, losses)
    if nodes is None:  # no capacity for the workers and the fewest slots of the minority pods
        return Solution(None, True)
    counts = shared(question, minority, profiles(minority, root, nodes))
    return solution_on(question, root, nodes, counts)


def _best_nodes(
    question: Question, root: Vertex, minority: MinorityPods, losses: list[int]
) -> list[NodeState] | None:
    """The best nodes for the workers and the fewest slots of the minority pods; None if there are none.

    Raises OutOfSteps.
    """
    if not question.slices:
        best = cover(question, root, question.counts[0] + losses[-1], minority.budget)
        return None if best is None else [node for node, _ in best.nodes]
    found = CoveringSearch(question, spare_slots(losses, minority.sums), minority.budget).solve(root)
    return None if found is None else list(found[1].nodes())
