"""When the exact search for unlike pods runs out of steps: the best that simple rules find, else any place.

Domains are tried from the smallest up, so a gang that fits in one domain of a low level stays there; inside a
domain one class after the other is spread over the nodes, roomiest first or tightest first (first-fit
decreasing). Where no rule finds a place, fitting and filling search for one wherever the gang may be.
"""

from collections.abc import Iterator, Sequence

from webhook.placement import capacity
from webhook.placement.tree import Question, Vertex
from webhook.placement.unlike import filling, fitting
from webhook.placement.unlike.filling import Filling
from webhook.placement.unlike.fitting import Fitting, OutOfLimit
from webhook.placement.unlike.node_options import State


def first_found(question: Question, root: Vertex) -> tuple[dict[str, State] | None, bool]:
    """A feasible distribution, or None; and whether it is certain then that there is none."""
    if question.slices:
        return None, False
    found = _by_rules(question, root)
    if found is not None:
        return found, False
    certain = True
    starts = [nodes for domain in _starts(question, root) if _enough(question, nodes := list(_nodes(domain)))]
    for nodes in starts:
        found, none = _packed(question, nodes, len(starts))
        if found is not None:
            return found, False
        certain = certain and none
    return None, certain


def _packed(question: Question, nodes: Sequence[Vertex], parts: int) -> tuple[dict[str, State] | None, bool]:
    """The same on some nodes, by the complete searches, with one of so many parts of their limits."""
    first, second = -(-fitting.LIMIT // parts), -(-filling.LIMIT // parts)
    for search in (Fitting(question, nodes, first), Filling(question, nodes, second)):
        try:
            found = search.solve()
        except OutOfLimit:
            continue
        return found, found is None
    return None, False


def _enough(question: Question, nodes: Sequence[Vertex]) -> bool:
    """Whether the nodes have room for each class alone."""
    if not nodes:
        return False
    return all(sum(rooms) >= count for rooms, count in zip(_rooms(nodes), question.counts, strict=True))


def _starts(question: Question, vertex: Vertex) -> Iterator[Vertex]:
    """The domains one of which must hold the gang."""
    if question.required is None or vertex.bottom >= question.required:
        yield vertex
        return
    for child in vertex.children:
        yield from _starts(question, child)


def _by_rules(question: Question, root: Vertex) -> dict[str, State] | None:
    """The first distribution that one of the rules finds."""
    for domain in sorted(_domains(question, root), key=lambda vertex: -vertex.bottom):
        nodes = list(_nodes(domain))
        if _enough(question, nodes):
            for order in _orders(question):
                for roomiest_first in (True, False):
                    nodes.sort(key=lambda node: node.room, reverse=roomiest_first)
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


def _rooms(nodes: Sequence[Vertex]) -> Iterator[tuple[int, ...]]:
    """The nodes' rooms for each class alone."""
    yield from zip(*(node.rooms for node in nodes), strict=True)


def _orders(question: Question) -> Iterator[list[int]]:
    """Orders of the classes: by each resource they ask for, from the largest request, then as they come."""
    numbers = range(len(question.classes))
    resources = sorted({r for pod in question.classes for r, _ in pod.requests})
    seen = set()
    for resource in [*resources, ""]:
        order = sorted(numbers, key=lambda n: (-dict(question.classes[n].requests).get(resource, 0), n))
        if tuple(order) not in seen:
            seen.add(tuple(order))
            yield order


def _fill(question: Question, nodes: Sequence[Vertex], order: Sequence[int]) -> dict[str, State] | None:
    """Spread class after class; nodes that are in use already come first."""
    taken: dict[int, list[int]] = {}
    for number in order:
        left = question.counts[number]
        for position in [*taken, *(p for p in range(len(nodes)) if p not in taken)]:
            if not left:
                break
            held = taken.get(position, [0] * len(question.counts))
            more = _most(question, nodes[position], held, number, left)
            if more:
                held[number] += more
                taken[position] = held
                left -= more
        if left:
            return None
    return {_name(nodes[position]): tuple(held) for position, held in taken.items()}


def _name(node: Vertex) -> str:
    assert node.state is not None
    return node.state.name


def _most(question: Question, node: Vertex, held: Sequence[int], number: int, left: int) -> int:
    """How many more pods of a class fit on the node beside those it holds, at most `left`."""
    assert node.state is not None
    pods = [pod for pod, count in zip(question.classes, held, strict=True) for _ in range(count)]
    low, high = 0, min(left, node.rooms[number])
    if not pods:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if capacity.fits_together([*pods, *[question.classes[number]] * middle], node.state):
            low = middle
        else:
            high = middle - 1
    return low
