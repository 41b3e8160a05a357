"""Which domain comes nearest to holding a gang that has no place, and how a sentence says so."""

from functools import partial
from typing import Final

from webhook.placement import heterogeneous
from webhook.placement.budget import Budget
from webhook.placement.class_names import ClassNames
from webhook.placement.model import Gang, Nearest
from webhook.placement.names import an
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import Snapshot
from webhook.placement.spread.shares import room_under_cap
from webhook.placement.vertex import Vertex, domains_at

_Held = tuple[int, tuple[int, ...]]
"""Room for workers in whole slices, and for how many slices of each layer."""


def layers(question: Question, snapshot: Snapshot, root: Vertex) -> str:
    """For how many of the slices of each layer there is room: in slices of which layer it is short."""
    if not question.slices:
        return ""
    names = snapshot.topology.names(key[0] for key in snapshot.blocks)
    domains = domains_at(root, question.required)
    held = max((_slices_in(domain, question.slices)[1] for domain in domains), default=())
    sizes = ", ".join(f"{size} per {names[level]}" for level, size in question.slices)
    parts = [
        f"{min(there, question.counts[0] // size)} of {question.counts[0] // size} in {an(names[level])}"
        for (level, size), there in zip(question.slices, held, strict=False)
    ]
    return f" in slices of {sizes}" + (f"; room for {'; '.join(parts)}" if any(held) else "")


def room_in_slices(vertex: Vertex, slices: tuple[tuple[int, int], ...]) -> int:
    """For how many workers in whole slices a domain has room."""
    return _slices_in(vertex, slices)[0]


def _slices_in(vertex: Vertex, slices: tuple[tuple[int, int], ...]) -> _Held:
    """What a domain holds."""
    whole = partial(_whole, slices)
    none = (0,) * len(slices)
    if vertex.state is not None:
        return whole(vertex.top, vertex.bottom, (vertex.room, none))
    if vertex.leaves is not None:
        top, lowest = vertex.leaves.top, vertex.leaves.costs.depth - 1
        inside = [whole(top, lowest, (room, none)) for room in vertex.leaves.rooms]
    else:
        inside = [_slices_in(part, slices) for part in vertex.parts]
    held = tuple(map(sum, zip(*(held for _, held in inside), strict=True))) or none
    return whole(vertex.top, vertex.bottom, (sum(room for room, _ in inside), held))


def _whole(slices: tuple[tuple[int, int], ...], top: int, bottom: int, held: _Held) -> _Held:
    """What a domain of these levels holds of what is in it: slices of its own levels are whole there."""
    room, counts = held[0], list(held[1])
    for layer in reversed(range(len(slices))):
        level, size = slices[layer]
        if top <= level <= bottom:
            counts[layer] = room // size
            room = counts[layer] * size
    return room, tuple(counts)


PART: Final = 8
"""The part of the steps for the domain that comes nearest."""

MOST_NAMED: Final = 3
"""Classes up to which a sentence says for how many pods of each there is room."""


def nearest_domain(
    gang: Gang, question: Question, snapshot: Snapshot, root: Vertex, budget: Budget
) -> Nearest | None:
    """The domain of the required level with the most room for members together, or the whole cluster.

    None where there is none, or where looking for it takes too long.
    """
    found = _most_held(question, root, len(snapshot.nodes), budget)
    if found is None:
        return None
    vertex, held = found
    room = f"has room for {_rooms(gang, question, held)}"
    if question.required is None:
        return Nearest("", (), sum(held), f"the cluster {room}")
    level = snapshot.topology.names(vertex.key[:1])[question.required]
    domain = vertex.key[1 : question.required + 2]
    return Nearest(level, domain, sum(held), f"{level} {'/'.join(domain)} {room}")


def _most_held(question: Question, root: Vertex, nodes: int, budget: Budget) -> tuple[Vertex, Counts] | None:
    if len(question.counts) > 1:
        part = budget.part(max(budget.left, question.options.bound) // PART)
        return heterogeneous.nearest(question, root, nodes, part)
    rooms = ((_room_alone(question, each), each) for each in domains_at(root, question.required))
    room, vertex = max(rooms, key=lambda pair: pair[0], default=(0, None))
    return None if vertex is None else (vertex, (min(room, question.counts[0]),))


def _room_alone(question: Question, vertex: Vertex) -> int:
    """Room of a domain for identical pods, in whole slices, and under a cap."""
    if question.spread is not None:
        return room_under_cap(question, vertex)
    return room_in_slices(vertex, question.slices) if question.slices else vertex.room


def _rooms(gang: Gang, question: Question, held: Counts) -> str:
    """For how many pods of each class there is room where there are a few classes, else for how many pods."""
    if not 1 < len(held) <= MOST_NAMED or not sum(held):
        return f"{sum(held)} of {len(gang.members)}"
    names = ClassNames(gang, question)
    rooms = enumerate(zip(held, question.counts, strict=True))
    *before, last = [f"{room} of {names.pods(number, count)}" for number, (room, count) in rooms]
    return f"{', '.join(before)} and {last}"


def level_word(level: str, snapshot: Snapshot) -> str:
    """What the users of the nodes' labels call a level that is asked for by its name."""
    names = snapshot.topology.level_names
    if level not in names:
        return level
    return snapshot.topology.names(key[0] for key in snapshot.blocks)[names.index(level)]
