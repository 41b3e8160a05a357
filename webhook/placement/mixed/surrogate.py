"""A few odd pods beside workers without slices: the workers' own knapsack for somewhat more of them.

Theory (a surrogate relaxation). Odd pods that share a node take away room for some workers there, on the best
node for them at least l; however they are shared out, all of them together take away at least L, the least
sum of such l. So the nodes of any solution have room for K + L workers together, where K is the number of
workers, and the optimum for so many workers alone costs no more than the gang. Where the odd pods find places
on its nodes that leave room for K, it is the gang's optimum, in every field of the objective.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from webhook.placement.alike.knapsack import Knapsack
from webhook.placement.alike.rooms import Pick
from webhook.placement.mixed.odd import Odd
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState
from webhook.placement.tree import Leaves, Vertex, even_of


def workers_for(odd: Odd, root: Vertex) -> int:
    """Room for how many workers the nodes of any solution have at least. Raises OutOfSteps."""
    profiles = {rooms for states, alone in _nodes(root) for rooms in odd.rooms(states, alone)}
    odd.budget.spend(len(profiles) * len(odd.states) // 4 + sum(map(len, odd.sums)) // 4)
    losses = [
        min((rooms[0] - rooms[state] for rooms in profiles if rooms[state] >= 0), default=None)
        for state in range(len(odd.states))
    ]
    least: list[int | None] = [0, *(None for _ in losses[1:])]
    for before in range(len(losses)):  # what a state goes on to has a higher number
        lost = least[before]
        for more, after in odd.onward[before] if lost is not None else ():
            loss, known = losses[more], least[after]
            if loss is not None and lost is not None and (known is None or lost + loss < known):
                least[after] = lost + loss
    return odd.question.counts[0] + (least[-1] or 0)


def _nodes(vertex: Vertex) -> Iterator[tuple[list[NodeState], list[Counts]]]:
    """The nodes of a domain, some at a time, and their rooms for each class alone."""
    if vertex.leaves is not None:
        yield vertex.leaves.states, list(zip(*vertex.leaves.every, strict=True))
    elif vertex.state is not None:
        yield [vertex.state], [vertex.rooms]
    for part in vertex.parts:
        yield from _nodes(part)


def solve(question: Question, root: Vertex, odd: Odd, workers: int) -> dict[str, Counts] | None:
    """The optimum, if the nodes that `workers` alone would use have places for the odd pods; else None."""
    alone = replace(question, classes=question.classes[:1], counts=(workers,))
    inside = _for_workers(root)
    cover = Knapsack(alone).solve(inside) if inside is not None else None
    if cover is None:
        return None
    used = [state for state, _, _ in cover.picks]
    alone_on = dict(_rooms_of(root, {state.name for state in used}))
    return _shared(question, odd, cover.picks, odd.rooms(used, [alone_on[state.name] for state in used]))


def _for_workers(vertex: Vertex) -> Vertex | None:
    """The domain without nodes that have room for odd pods alone: as even as it is to workers alone."""
    if "workers" not in vertex.notes:
        vertex.notes["workers"] = _without_empty(vertex) if vertex.room else None
    found: Vertex | None = vertex.notes["workers"]
    return found


def _without_empty(vertex: Vertex) -> Vertex:
    leaves = vertex.leaves
    if leaves is not None:
        used = [number for number, room in enumerate(leaves.rooms) if room]
        if len(used) == len(leaves.rooms):
            return vertex
        states, rooms = [leaves.states[n] for n in used], [leaves.rooms[n] for n in used]
        every = [[of_class[n] for n in used] for of_class in leaves.every]
        even = (rooms[0], leaves.top) if min(rooms) == max(rooms) else None
        kept = Leaves(leaves.top, states, rooms, every, leaves.score, leaves.costs)
        return replace(vertex, leaves=kept, even=even, notes={})
    parts = tuple(part for each in vertex.parts if (part := _for_workers(each)) is not None)
    if parts == vertex.parts:
        return vertex
    return replace(vertex, parts=parts, even=even_of(parts), notes={})


def _rooms_of(root: Vertex, names: set[str]) -> Iterator[tuple[str, Counts]]:
    pairs = (pair for states, alone in _nodes(root) for pair in zip(states, alone, strict=True))
    return ((state.name, alone) for state, alone in pairs if state.name in names)


@dataclass(frozen=True, slots=True)
class _NodeStep:
    """For each state of odd pods what the node takes of them to get there."""

    node: int
    more: dict[int, int]


def _shared(
    question: Question, odd: Odd, picks: Sequence[Pick], rooms: Sequence[tuple[int, ...]]
) -> dict[str, Counts] | None:
    """All pods on these nodes, or None: the odd ones where they take least room, then the workers."""
    least: dict[int, int] = {0: 0}
    steps: list[_NodeStep] = []
    carriers: dict[tuple[int, ...], int] = {}
    for number, profile in enumerate(rooms):
        carriers[profile] = carriers.get(profile, 0) + 1
        if carriers[profile] > sum(odd.counts):  # more nodes of this kind than there are odd pods
            continue
        odd.budget.spend(1 + sum(map(len, odd.sums)) // 4)
        after, step = dict(least), _NodeStep(number, {})
        for more in range(1, len(profile)):
            if profile[more] < 0:
                continue
            for one, other in odd.sums[more]:
                loss = least.get(one, -1) + profile[0] - profile[more]
                if one in least and loss < after.get(other, loss + 1):
                    after[other] = loss
                    step.more[other] = more
        least = after
        steps.append(step)
    everybody = len(odd.states) - 1
    if sum(profile[0] for profile in rooms) - least.get(everybody, 1 << 60) < question.counts[0]:
        return None
    carried = [0] * len(rooms)
    state = everybody
    for step in reversed(steps):
        if state in step.more and state:
            carried[step.node] = step.more[state]
            state = next(one for one, other in odd.sums[step.more[state]] if other == state)
    found: dict[str, Counts] = {}
    left = question.counts[0]
    for (node, _, _), profile, more in zip(picks, rooms, carried, strict=True):
        pods = min(left, profile[more])
        if pods or more:
            found[node.name] = (pods, *odd.states[more])
        left -= pods
    return found
