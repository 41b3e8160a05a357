"""Nodes that a gang could have if pods went: to preempt for it, or to keep for it until it fits. Pure.

Both ask the same: which nodes, when emptied of some pods, make room for the gang, as few and as lightly
used as possible? Nodes are ordered by what would have to go; the shortest sufficient beginning of that
order is found by halving, so a question costs about log2(nodes) placements.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from webhook.placement import Assignment, Gang, NoFit, Options, Snapshot, Usage, place


@dataclass(frozen=True)
class Claim:
    """Where the gang would go, and the names of the pods there that stand in its way."""

    assignment: Assignment
    victims: tuple[str, ...]

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of the assignment."""
        return frozenset(self.assignment.nodes.values())


def claim(gang: Gang, snapshot: Snapshot, options: Options, may_go: Callable[[Usage], bool]) -> Claim | None:
    """The claim for which the least important and the fewest pods would have to go; None if there is none."""
    weights = {
        name: (max(use.priority for use in going), len(going))
        for name, state in snapshot.nodes.items()
        if (going := [use for use in state.usages if may_go(use)])
    }
    order = sorted(weights, key=lambda name: (weights[name], name))

    def emptied(count: int) -> Snapshot:
        return snapshot.without(order[:count], may_go)

    if not order or isinstance(place(gang, emptied(len(order)), options), NoFit):
        return None
    count = _least(len(order), lambda count: not isinstance(place(gang, emptied(count), options), NoFit))
    answer = place(gang, emptied(count), options)
    if isinstance(answer, NoFit):  # room does not grow with every node emptied; then all of them
        count, answer = len(order), place(gang, emptied(len(order)), options)
        if isinstance(answer, NoFit):
            return None
    used = set(answer.nodes.values())
    return Claim(answer, _victims(snapshot, [name for name in order[:count] if name in used], may_go))


def _least(high: int, is_enough: Callable[[int], bool]) -> int:
    """The least count in 1..high that is enough, given that high is."""
    low = 1
    while low < high:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _victims(snapshot: Snapshot, nodes: Sequence[str], may_go: Callable[[Usage], bool]) -> tuple[str, ...]:
    return tuple(sorted(use.name for name in nodes for use in snapshot.nodes[name].usages if may_go(use)))
