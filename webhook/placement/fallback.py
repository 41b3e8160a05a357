"""When the exact search for unlike pods runs out of steps: the best that simple rules find.

Domains are tried from the smallest up, so a gang that fits in one domain of a low level stays there; inside a
domain the largest pods go first, each to the node with the least room that still takes it.
"""

from collections.abc import Iterator, Sequence

from webhook.placement import capacity
from webhook.placement.model import PodClass
from webhook.placement.tree import Question, Vertex

State = tuple[int, ...]


def first_found(question: Question, root: Vertex) -> dict[str, State] | None:
    """A feasible distribution, or None when the rules find none; says nothing about what exists."""
    if question.slices:
        return None
    for domain in sorted(_domains(question, root), key=lambda vertex: -vertex.bottom):
        nodes = list(_nodes(domain))
        for order in _orders(question):
            found = _fill(question, nodes, order)
            if found is not None:
                return found
    return None


def _domains(question: Question, vertex: Vertex) -> Iterator[Vertex]:
    if question.required is None or vertex.bottom >= question.required:
        yield vertex
    for child in vertex.children:
        yield from _domains(question, child)


def _nodes(vertex: Vertex) -> Iterator[Vertex]:
    if vertex.state is not None:
        yield vertex
    for child in vertex.children:
        yield from _nodes(child)


def _orders(question: Question) -> Iterator[list[int]]:
    """Orders of the classes: by requests from the largest, by each resource, by where they may run."""
    numbers = range(len(question.classes))
    resources = sorted({r for pod in question.classes for r, _ in pod.requests})
    seen = set()
    for resource in [*resources, ""]:
        order = sorted(numbers, key=lambda n: (-dict(question.classes[n].requests).get(resource, 0), n))
        if tuple(order) not in seen:
            seen.add(tuple(order))
            yield order


def _fill(question: Question, nodes: Sequence[Vertex], order: Sequence[int]) -> dict[str, State] | None:
    residents: dict[str, list[int]] = {}
    room = {id(vertex): vertex for vertex in nodes}
    for number in order:
        for _ in range(question.counts[number]):
            host = _tightest(question, list(room.values()), residents, number)
            if host is None:
                return None
            assert host.state is not None
            residents.setdefault(host.state.name, []).append(number)
    return {
        name: tuple(taken.count(number) for number in range(len(question.counts)))
        for name, taken in residents.items()
    }


def _tightest(
    question: Question, nodes: Sequence[Vertex], residents: dict[str, list[int]], number: int
) -> Vertex | None:
    candidates = [vertex for vertex in nodes if vertex.rooms[number]]
    candidates.sort(
        key=lambda vertex: (vertex.state is None or vertex.state.name not in residents, vertex.room)
    )
    for vertex in candidates:
        assert vertex.state is not None
        pods: list[PodClass] = [question.classes[n] for n in [*residents.get(vertex.state.name, []), number]]
        if capacity.fits_together(pods, vertex.state):
            return vertex
    return None
