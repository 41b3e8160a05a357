"""A few odd pods beside workers without slices: the workers' own knapsack for somewhat more of them.

Theory (a surrogate relaxation). Odd pods that share a node take away room for some workers there, on the best
node for them at least l; however they are shared out, all of them together take away at least L, the least
sum of such l. So the nodes of any solution have room for K + L workers together, where K is the number of
workers, and the optimum for so many workers alone costs no more than the gang. Where the odd pods find places
on its nodes that leave room for K, it is the gang's optimum, in every field of the objective.
"""

from collections.abc import Sequence
from dataclasses import replace

from webhook.placement.alike.knapsack import Knapsack
from webhook.placement.budget import Budget
from webhook.placement.mixed.odd import Odd
from webhook.placement.mixed.sharing import Profile
from webhook.placement.question import Counts, Question
from webhook.placement.snapshot import NodeState
from webhook.placement.vertex import Leaves, Vertex, around, even_of


def least_losses(odd: Odd, root: Vertex) -> list[int] | None:
    """For each state of odd pods the room for workers that it takes at least, on the nodes best for it.

    None where the odd pods find no places at all. Raises OutOfSteps.
    """
    kinds = [kind for block in root.parts for kind in block.notes["kinds"]]
    found = odd.profiles([state for state, _ in kinds], [alone for _, alone in kinds])
    odd.budget.spend(len(found) * len(odd.states) // 4 + sum(map(len, odd.sums)) // 4)
    losses = [
        min((rooms[0] - rooms[state] for rooms in found if rooms[state] >= 0), default=None)
        for state in range(len(odd.states))
    ]
    least: list[int | None] = [0, *(None for _ in losses[1:])]
    for before in range(len(losses)):  # what a state goes on to has a higher number
        lost = least[before]
        for more, after in odd.onward[before] if lost is not None else ():
            loss, so_far = losses[more], least[after]
            if loss is not None and lost is not None and (so_far is None or lost + loss < so_far):
                least[after] = lost + loss
    known = [lost for lost in least if lost is not None]
    return known if len(known) == len(least) else None


def _alone(vertex: Vertex) -> tuple[list[NodeState], list[Counts]]:
    """The nodes of a domain of leaves, or a single node."""
    if vertex.leaves is not None:
        return vertex.leaves.states, list(zip(*vertex.leaves.every, strict=True))
    return ([vertex.state], [vertex.rooms]) if vertex.state is not None else ([], [])


def best_nodes(question: Question, root: Vertex, workers: int, budget: Budget) -> list[NodeState] | None:
    """The nodes that `workers` alone would use, in topology order. Raises OutOfSteps."""
    alone = replace(question, classes=question.classes[:1], counts=(workers,))
    inside = _for_workers(root)
    cover = Knapsack(alone, budget).solve(inside) if inside is not None else None
    return None if cover is None else [state for state, _, _ in cover.picks]


def profiles(odd: Odd, root: Vertex, nodes: Sequence[NodeState]) -> list[tuple[NodeState, Profile]]:
    """These nodes, and how many workers each takes beside each state of odd pods."""
    names = {state.name for state in nodes}
    alone_on = {}
    for vertex in around(root, nodes):
        for state, alone in zip(*_alone(vertex), strict=True):
            if state.node.name in names:
                alone_on[state.node.name] = alone
    rooms = odd.rooms(nodes, [alone_on[state.name] for state in nodes])
    return list(zip(nodes, rooms, strict=True))


def _for_workers(vertex: Vertex) -> Vertex | None:
    """The domain without nodes that have room for odd pods alone: as even as it is to workers alone."""
    if not vertex.parts:  # quicker worked out than remembered
        return _without_empty(vertex) if vertex.room else None
    if "workers" not in vertex.notes:
        vertex.notes["workers"] = _without_empty(vertex) if vertex.room else None
    found: Vertex | None = vertex.notes["workers"]
    return found


def _without_empty(vertex: Vertex) -> Vertex:
    leaves = vertex.leaves
    if leaves is not None:
        if min(leaves.rooms):
            return vertex
        used = [number for number, room in enumerate(leaves.rooms) if room]
        states, rooms = [leaves.states[n] for n in used], [leaves.rooms[n] for n in used]
        even = (rooms[0], leaves.top) if min(rooms) == max(rooms) else None
        kept = Leaves(leaves.top, states, rooms, [rooms], leaves.score, leaves.costs)
        v = vertex  # dataclasses.replace takes several times as long
        return Vertex(v.top, v.bottom, v.key, v.room, v.own, (), kept, None, v.rooms, even)
    parts = tuple(part for each in vertex.parts if (part := _for_workers(each)) is not None)
    if parts == vertex.parts:
        return vertex
    return replace(vertex, parts=parts, even=even_of(parts), notes={})
