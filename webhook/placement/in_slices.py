"""For how many whole slices there is room, layer by layer: what a gang in slices is short of."""

from collections import Counter
from functools import partial

from webhook.placement.names import an
from webhook.placement.question import Question
from webhook.placement.snapshot import Snapshot
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
        lowest = vertex.leaves.costs.depth - 1
        times = Counter(vertex.leaves.rooms)
        each = {room: whole(vertex.leaves.top, lowest, (room, none)) for room in times}
        inside = [
            (room * n, tuple(h * n for h in held))
            for n, (room, held) in ((times[room], found) for room, found in each.items())
        ]
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
