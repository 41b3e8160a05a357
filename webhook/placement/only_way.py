"""Gangs of which each class has room on one node alone, as where every pod is pinned to a node of its own."""

from webhook.placement import capacity
from webhook.placement.budget import Budget
from webhook.placement.question import Question, pods_of
from webhook.placement.solution import Solution
from webhook.placement.vertex import Vertex, nodes_of

ROOMS = 8
"""Rooms of a node that are looked at in one step."""


def solve(question: Question, root: Vertex, budget: Budget) -> Solution | None:
    """The only way there is, or that there is none; None where there may be several, or cards decide."""
    if len(question.classes) == 1 or question.slices:
        return None
    where: dict[int, Vertex] = {}
    for node in nodes_of(root):
        budget.take(1 + len(node.rooms) // ROOMS)
        for number, room in enumerate(node.rooms):
            if room:
                if number in where:
                    return None
                where[number] = node
    if len(where) < len(question.classes):
        return Solution(None, True)
    if question.required is not None and len({n.key[: question.required + 2] for n in where.values()}) > 1:
        return Solution(None, True)
    counts: dict[str, list[int]] = {}
    for number, node in where.items():
        assert node.state is not None
        counts.setdefault(node.state.name, [0] * len(question.classes))[number] = question.counts[number]
    states = {node.state.name: node.state for node in where.values() if node.state is not None}
    for name, taken in counts.items():
        pods = pods_of(question.classes, taken)
        budget.take(1 + len(pods))
        fits = capacity.fits_together(pods, states[name], budget)
        if not fits:
            return None if fits is None else Solution(None, True)
    return Solution({name: tuple(taken) for name, taken in counts.items()}, True)
