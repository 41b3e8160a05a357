"""When the exact search for unlike pods runs out of steps: the best that simple rules find, else any place.

Domains are tried from the smallest up, so a gang that fits in one domain of a low level stays there; inside a
domain one class after the other is spread over the nodes, roomiest first or tightest first (first-fit
decreasing). Where no rule finds a place, filling searches for one wherever the gang may be.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
from math import prod
from operator import ge

from webhook.placement import capacity
from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.question import Counts, Question
from webhook.placement.solution import Solution
from webhook.placement.unlike.filling import Filling
from webhook.placement.vertex import Vertex, domains_at, nodes_of

_STATES = 10**9
"""States of a gang, what a domain may hold of it, beyond which complete searches hardly ever end."""

_ROOMS = 16
"""Rooms of nodes that are added up, or found to be none, in one step."""

_ADDED = 64
"""Rooms that are added up class by class, or passed over, in one step."""

_PINNED = 4
"""Nodes up to which a class has little choice."""

_NODE = 16
"""A node that is gone through once more takes as long as so many rooms."""


def is_vast(counts: Counts) -> bool:
    """Whether most steps are better spent on finding a place than on complete searches."""
    return prod(count + 1 for count in counts) > _STATES


def first_found(question: Question, root: Vertex, budget: Budget, kept: int = 0) -> Solution:
    """A feasible distribution, which is not proven to be the best, or none, and whether that is certain.

    kept: steps that complete searches leave to another one, where packing does not need them.
    """
    if question.slices:
        return Solution(None, False)
    with contextlib.suppress(OutOfSteps):
        found = _by_rules(question, root, budget.part(budget.left // 4))
        if found is not None:
            return Solution(found, False)
    certain = True
    domains = [list(nodes_of(domain)) for domain in domains_at(root, question.required)]
    budget.take(sum(map(len, domains)) * len(question.counts) // _ADDED)
    starts = [nodes for nodes in domains if _enough(question, nodes)]
    with contextlib.suppress(OutOfSteps):
        for nodes in starts:
            met = _fewest_nodes_first(question, nodes, budget.part(budget.left // 2))
            if met is not None:
                return Solution(met, False)
    for number, nodes in enumerate(starts):
        parts = len(starts) - number
        packed = _packed(question, nodes, budget.part(budget.left // parts), kept // parts)
        if packed.counts is not None:
            return packed
        certain = certain and packed.proven
    return Solution(None, certain)


def _packed(question: Question, nodes: Sequence[Vertex], budget: Budget, kept: int) -> Solution:
    """The same on some nodes, by the complete search where packing finds none."""
    try:
        search = Filling(question, nodes, budget)
        share = budget.left // 16 * (15 if is_vast(question.counts) else 12)
        if (met := _met(search, budget.part(share))) is not None:
            return Solution(met, False)
        found = search.solve(min(kept, budget.left // 2))
    except OutOfSteps:
        return Solution(None, False)
    return Solution(found, found is None and search.exact)


def _met(search: Filling, budget: Budget) -> dict[str, Counts] | None:
    """The same where pods nearly fill few nodes: found far sooner, if there is a place."""
    # Numpy takes a tenth of a second to load: not before a gang needs it.
    from webhook.placement.unlike import meeting

    return meeting.solve(search, budget) if meeting.serves(search) else None


def _enough(question: Question, nodes: Sequence[Vertex]) -> bool:
    """Whether the nodes have room for each class alone."""
    rooms = zip(*[node.rooms for node in nodes], strict=True)
    return bool(nodes) and all(map(ge, map(sum, rooms), question.counts))


def _by_rules(question: Question, root: Vertex, budget: Budget) -> dict[str, Counts] | None:
    """The first distribution that one of the rules finds. Raises OutOfSteps."""
    for domain in sorted(_roomy(question, root, budget), key=lambda vertex: -vertex.bottom):
        nodes = list(nodes_of(domain))
        budget.spend(1 + len(nodes) * _NODE // _ROOMS + len(nodes) * len(question.counts) // _ADDED)
        if _enough(question, nodes):
            for order in _orders(question):
                for roomiest_first in (True, False):
                    budget.spend((len(nodes) + len(order)) // 8)
                    nodes.sort(key=lambda node: node.room, reverse=roomiest_first)
                    found = _fill(question, nodes, order, budget)
                    if found is not None:
                        return found
    return None


def _roomy(question: Question, vertex: Vertex, budget: Budget) -> Iterator[Vertex]:
    """Domains of the required level and below with room for the most frequent class. Raises OutOfSteps."""
    wanted = question.counts[question.reference]
    if vertex.room < wanted:
        return
    if question.required is None or vertex.bottom >= question.required:
        yield vertex
    budget.spend(1 + len(vertex.parts) // _ROOMS)
    if vertex.leaves is not None and max(vertex.leaves.rooms) >= wanted:
        yield from vertex.leaves.vertices
    for part in vertex.parts:
        yield from _roomy(question, part, budget)


def _fewest_nodes_first(
    question: Question, nodes: Sequence[Vertex], budget: Budget
) -> dict[str, Counts] | None:
    """Classes that few nodes take before those that have a choice, each looked for on its own nodes alone: so
    pods that are pinned go where they must, and free ones on what is left. Not where all have a choice.
    Raises OutOfSteps.
    """
    where: list[list[int]] = [[] for _ in question.counts]
    for position, node in enumerate(nodes):
        budget.spend(1 + len(node.rooms) // _ADDED)
        for number in compress(range(len(where)), node.rooms):
            where[number].append(position)
    if min(map(len, where)) > _PINNED:
        return None
    taken: dict[int, dict[int, int]] = {}
    for number in sorted(range(len(where)), key=lambda number: (len(where[number]), number)):
        mine = where[number]
        budget.spend(1 + len(mine) // _ROOMS)
        used, others = [p for p in mine if p in taken], [p for p in mine if p not in taken]
        if not _put(question, nodes, taken, number, chain(used, others), budget):
            return None
    return _distribution(question, nodes, taken)


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


def _fill(
    question: Question, nodes: Sequence[Vertex], order: Sequence[int], budget: Budget
) -> dict[str, Counts] | None:
    """Spread class after class; nodes that are in use already come first."""
    taken: dict[int, dict[int, int]] = {}
    for number in order:
        every = chain(list(taken), (p for p in range(len(nodes)) if p not in taken))
        if not _put(question, nodes, taken, number, _with_room(nodes, every, number, budget), budget):
            return None
    return _distribution(question, nodes, taken)


def _with_room(
    nodes: Sequence[Vertex], positions: Iterable[int], number: int, budget: Budget
) -> Iterator[int]:
    """Those of the positions whose nodes have room for a class."""
    passed = 0
    for position in positions:
        if nodes[position].rooms[number]:
            budget.spend()
            yield position
        else:
            passed += 1
            if not passed % _ROOMS:
                budget.spend()


def _put(
    question: Question,
    nodes: Sequence[Vertex],
    taken: dict[int, dict[int, int]],
    number: int,
    positions: Iterable[int],
    budget: Budget,
) -> bool:
    """Put as many pods of a class as there is room for on each of the positions; whether that is all."""
    left = question.counts[number]
    for position in positions:
        held = taken.get(position, {})
        more = _most(question, nodes[position], held, number, left, budget)
        if more:
            taken.setdefault(position, held)[number] = more
            left -= more
        if not left:
            return True
    return not left


def _distribution(
    question: Question, nodes: Sequence[Vertex], taken: Mapping[int, Mapping[int, int]]
) -> dict[str, Counts]:
    numbers = range(len(question.counts))
    return {
        _name(nodes[position]): tuple([held.get(number, 0) for number in numbers])
        for position, held in taken.items()
    }


def _name(node: Vertex) -> str:
    assert node.state is not None
    return node.state.name


def _most(
    question: Question, node: Vertex, held: Mapping[int, int], number: int, left: int, budget: Budget
) -> int:
    """How many more pods of a class fit on the node beside those it holds, at most `left`.

    held: pods of the other classes, by number.
    """
    assert node.state is not None
    low, high = 0, min(left, node.rooms[number])
    if not held:
        return high
    pods = [question.classes[each] for each in sorted(held) for _ in range(held[each])]
    while low < high:
        middle = (low + high + 1) // 2
        together = [*pods, *[question.classes[number]] * middle]
        budget.spend(5 + len(together))
        if capacity.fits_together(together, node.state, budget):
            low = middle
        else:
            high = middle - 1
    return low
