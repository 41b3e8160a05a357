"""Identical pods of which no domain of a level must take any, but each at most so many: the optimum.

Theory. To the domains around it, one that takes at most so many pods is one with so much room, at the same
cost. So the search of `homogeneous`, which knows what a node costs apart from what it takes, solves the
same tree with these rooms. Where the best without the cap keeps it, nothing is better.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate

from webhook.placement import homogeneous
from webhook.placement.bounds import census, child_rooms
from webhook.placement.budget import Budget
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState, Path, key_of
from webhook.placement.solution import Solution
from webhook.placement.spread.shares import Shares
from webhook.placement.vertex import Leaves, Vertex

Caps = Callable[[Path], int]
"""How many pods the domain of a path may take; of a path of the spread's level."""


def caps_of(taken: Iterable[Shares]) -> Caps:
    """The caps of the domains that may take pods; all others take none."""
    most = {path: most for of_domains in taken for path, (_, most) in of_domains.items()}
    return lambda path: most.get(path, 0)


def solve(question: Question, root: Vertex, most: Caps, budget: Budget) -> Solution:
    """The optimum, in mode best-fit. Raises OutOfSteps."""
    wish = question.spread
    assert wish is not None
    tree = _capped(root, wish.level, most)
    assert tree is not None
    if _fewest(tree, question) <= _fewest(root, question):
        free = homogeneous.solve(replace(question, spread=None), root, budget)
        if free.counts is not None and _keeps(question, root, free.counts, most):
            return free
    return homogeneous.solve(replace(question, spread=None), tree, budget)


def _fewest(root: Vertex, question: Question) -> int:
    """At least how many children of the root are used."""
    sums = list(accumulate(sorted(child_rooms(root), reverse=True)))
    return bisect_left(sums, question.counts[0])


def _keeps(question: Question, root: Vertex, counts: Mapping[str, Counts], most: Caps) -> bool:
    """Whether no domain takes more than it may."""
    assert question.spread is not None
    held = Counter[Path]()
    for state in _states(root):
        if state.name in counts:
            path = key_of(state, question.levels)[: question.spread.level + 2]
            held[path] += sum(counts[state.name])
    return all(number <= most(key) for key, number in held.items())


def _states(vertex: Vertex) -> Iterator[NodeState]:
    """The nodes of a domain."""
    if vertex.state is not None:
        yield vertex.state
    elif vertex.leaves is not None:
        yield from vertex.leaves.states
    for part in vertex.parts:
        yield from _states(part)


def _capped(vertex: Vertex, level: int, most: Caps) -> Vertex | None:
    """The domain with the rooms that the caps leave; None where it takes nothing."""
    if vertex.bottom >= level:
        room = min(vertex.room, most(vertex.key[: level + 2]))
        if not room:
            return None
        if vertex.state is not None:
            return replace(vertex, room=room, rooms=(room,), notes={})
        return _with(vertex, room, parts=vertex.parts, leaves=vertex.leaves)
    if vertex.leaves is not None:
        return _capped_leaves(vertex, vertex.leaves, level, most)
    parts = tuple(part for each in vertex.parts if (part := _capped(each, level, most)) is not None)
    return _with(vertex, sum(part.room for part in parts), parts=parts) if parts else None


def _capped_leaves(vertex: Vertex, leaves: Leaves, level: int, most: Caps) -> Vertex | None:
    """The same for a domain of nodes that stand alone for the spread's level."""
    depth = leaves.costs.depth
    bounds = [
        min(room, most(key_of(state, depth - 1)[: level + 2]))
        for state, room in zip(leaves.states, leaves.rooms, strict=True)
    ]
    used = [number for number, room in enumerate(bounds) if room]
    if not used:
        return None
    if len(used) == len(bounds):  # the rooms stay: they are what using a node costs
        kept = replace(leaves, every=[bounds], made=())
    else:
        bounds = [bounds[number] for number in used]
        kept = replace(
            leaves,
            states=[leaves.states[number] for number in used],
            rooms=[leaves.rooms[number] for number in used],
            every=[bounds],
            made=(),
            worked_out=[leaves.penalties[number] for number in used],
        )
    capped = _with(vertex, sum(bounds), leaves=kept)
    capped.notes["rooms"] = [bounds if at >= leaves.top else [] for at in range(depth)]
    return capped


def _with(vertex: Vertex, room: int, parts: tuple[Vertex, ...] = (), leaves: Leaves | None = None) -> Vertex:
    """The domain with another room and what is below it; of what costs may be, it knows the old."""
    notes = {"census": census(vertex)}
    return replace(vertex, room=room, parts=parts, leaves=leaves, notes=notes)
