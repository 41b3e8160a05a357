"""The result of a solver, and the cost of the nodes that it uses."""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from webhook.placement.question import Counts
from webhook.placement.snapshot import NodeState, Path
from webhook.placement.vertex import Vertex


@dataclass(frozen=True, slots=True)
class Cover:
    """Nodes in topology order for identical pods, each with its free slots, and the cost of using them."""

    cost: int
    nodes: list[tuple[NodeState, int]]


@dataclass(frozen=True, slots=True)
class Solution:
    """Pods of each class by node (None: no placement found), and whether it is proven to be the best.

    cost: of the nodes used, if the solver knows it; then the counts are in topology order.
    """

    counts: Mapping[str, Counts] | None
    proven: bool
    cost: int | None = None


def cost_of(root: Vertex, places: Iterable[Path]) -> int:
    """Cost of using these nodes. places: their paths, which end with their names."""
    used = set(places)
    return _cost_below(root, {place[:2] for place in used}, {place[-1] for place in used}) or 0


def _cost_below(vertex: Vertex, blocks: Set[Path], names: Set[str]) -> int | None:
    """Cost of using these nodes of a domain; None if it has none of them. blocks: the blocks of the nodes."""
    if vertex.state is not None:
        return vertex.own if vertex.state.node.name in names else None
    leaves = vertex.leaves
    if leaves is not None:
        chosen = [n for n, state in enumerate(leaves.states) if state.node.name in names]
        inside = [leaves.own(number) for number in chosen]
    else:
        parts = [part for part in vertex.parts if part.key[:2] in blocks]
        inside = [cost for part in parts if (cost := _cost_below(part, blocks, names)) is not None]
    return vertex.own + sum(inside) if inside else None
