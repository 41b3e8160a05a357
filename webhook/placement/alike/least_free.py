"""Mode least-free: fill the smallest holes first, so that large ones stay whole for others.

Inside the tightest domain of the wished level (required, else preferred where one suffices, else the
cluster): the smallest node that takes the whole gang, or the nodes from the smallest room up until all have
a place. For identical pods alone; what "smallest" means to unlike pods is not defined.
"""

from webhook.placement.question import Counts, Question
from webhook.placement.solution import Solution
from webhook.placement.vertex import Vertex, domains_at, nodes_of


def solve(question: Question, root: Vertex) -> Solution:
    """The distribution that the mode asks for, or none when they do not fit."""
    wanted = question.counts[0]
    levels = [question.required] if question.required is not None else [question.preferred, None]
    for level in levels:
        fitting = [domain for domain in domains_at(root, level) if domain.room >= wanted]
        if fitting:
            return Solution(_fill(min(fitting, key=lambda domain: domain.room), wanted), True)
    return Solution(None, True)


def _fill(domain: Vertex, wanted: int) -> dict[str, Counts]:
    nodes = sorted(nodes_of(domain), key=lambda node: node.room)
    whole = next((node for node in nodes if node.room >= wanted), None)
    counts: dict[str, Counts] = {}
    for node in [whole] if whole is not None else nodes:
        assert node.state is not None
        if wanted:
            counts[node.state.name] = (min(wanted, node.room),)
            wanted -= min(wanted, node.room)
    return counts
