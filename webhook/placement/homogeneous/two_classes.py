"""Workers beside many pods of one other class: the workers' knapsack for slightly more workers.

Theory (a surrogate relaxation, see surrogate). On any node, m pods of the other class take at least r * m
slots from workers, where r is the least such ratio over all nodes and all m. So the nodes of any solution
have capacity for K + r * M workers, for K workers and M others. If the others fit on the best nodes for so
many workers and leave capacity for K workers, these nodes are the gang's optimum.
"""

import heapq
from collections.abc import Sequence
from fractions import Fraction
from math import ceil

from webhook.placement.budget import Budget
from webhook.placement.evaluate import Solution
from webhook.placement.homogeneous.covering_search import cover
from webhook.placement.homogeneous.minority_pods import (
    MinorityPods,
    Profile,
    distinct_profiles,
    profiles,
    solution_on,
)
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState
from webhook.placement.vertex import Vertex


def beside_many(question: Question, root: Vertex, budget: Budget) -> Solution:
    """The solution on the best nodes for slightly more workers, or the answer that none exists.

    It is not proven that none exists if the other pods do not fit on these nodes. It serves two classes
    without cards and slices. Raises OutOfSteps.
    """
    workers, others = question.counts
    minority = MinorityPods(question, budget)
    least = _least_ratio(minority, root)
    best = None if least is None else cover(question, root, workers + ceil(least * others), budget)
    if best is None:
        return Solution(None, True)
    on_nodes = profiles(minority, root, [state for state, _ in best.nodes])
    budget.spend(len(on_nodes) + others)
    counts = _shared(on_nodes, workers, others)
    return solution_on(question, root, [state for state, _ in best.nodes], counts)


def _shared(
    on_nodes: Sequence[tuple[NodeState, Profile]], workers: int, others: int
) -> dict[str, Counts] | None:
    """The pods of both classes by node name; None if the workers do not fit beside the others."""
    carried = _carried([profile for _, profile in on_nodes], others)
    counts: dict[str, Counts] = {}
    for (state, profile), number in zip(on_nodes, carried, strict=True):
        given = min(workers, profile[number])
        workers -= given
        if given or number:
            counts[state.name] = given, number
    return None if workers or sum(carried) < others else counts


def _least_ratio(minority: MinorityPods, root: Vertex) -> Fraction | None:
    """The fewest slots that each other pod takes from workers; None if it fits nowhere."""
    return min(
        (
            Fraction(profile[0] - slots, number)
            for profile in distinct_profiles(minority, root)
            for number, slots in enumerate(profile)
            if number and slots >= 0
        ),
        default=None,
    )


def _carried(on_nodes: Sequence[Profile], others: int) -> list[int]:
    """The other pods on each node: each where it takes the fewest slots, as many as fit."""
    carried = [0] * len(on_nodes)
    heap = [(profile[0] - profile[1], number) for number, profile in enumerate(on_nodes) if profile[1] >= 0]
    heapq.heapify(heap)
    while heap and others:
        _, number = heapq.heappop(heap)
        carried[number] += 1
        others -= 1
        profile, next_one = on_nodes[number], carried[number] + 1
        if next_one < len(profile) and profile[next_one] >= 0:
            heapq.heappush(heap, (profile[next_one - 1] - profile[next_one], number))
    return carried
