"""Mode least-free: fill the smallest holes first, so that large ones stay whole for others.

Inside the tightest domain of the wished level (required, else preferred where one suffices, else the
cluster): the smallest node that takes the whole gang, or the nodes from the smallest room up until all have
a place. For identical pods alone; what "smallest" means to unlike pods is not defined.
"""

from collections.abc import Iterator

from webhook.placement.tree import Question, Vertex
from webhook.placement.unlike.node_options import State


def distribute(question: Question, root: Vertex) -> dict[str, State] | None:
    """Node name -> pods, or None when they do not fit."""
    wanted = question.counts[0]
    levels = [question.required] if question.required is not None else [question.preferred, None]
    for level in levels:
        fitting = [domain for domain in _domains(root, level) if domain.room >= wanted]
        if fitting:
            return _fill(min(fitting, key=lambda domain: domain.room), wanted)
    return None


def _domains(vertex: Vertex, level: int | None) -> Iterator[Vertex]:
    """The vertices of a level; None: the cluster."""
    if level is None or vertex.bottom >= level:
        yield vertex
        return
    for child in vertex.children:
        yield from _domains(child, level)


def _nodes(vertex: Vertex) -> Iterator[Vertex]:
    if vertex.state is not None:
        yield vertex
    for child in vertex.children:
        yield from _nodes(child)


def _fill(domain: Vertex, wanted: int) -> dict[str, State]:
    nodes = sorted(_nodes(domain), key=lambda node: node.room)
    whole = next((node for node in nodes if node.room >= wanted), None)
    counts: dict[str, State] = {}
    for node in [whole] if whole is not None else nodes:
        assert node.state is not None
        if wanted:
            counts[node.state.name] = (min(wanted, node.room),)
            wanted -= min(wanted, node.room)
    return counts
