"""What a solver found: how many pods of each class go to which node."""

from collections.abc import Mapping
from dataclasses import dataclass

from webhook.placement.question import Counts
from webhook.placement.snapshot import NodeState


@dataclass(frozen=True, slots=True)
class Cover:
    """Nodes in topology order that hold identical pods, each with the pods it may take, and their cost."""

    cost: int
    nodes: list[tuple[NodeState, int]]


@dataclass(frozen=True, slots=True)
class Solution:
    """Pods of each class by node (None: no place found), and whether that is proven to be the best.

    cost: that of the nodes used, where the solver knows it; counts are in topology order then.
    """

    counts: Mapping[str, Counts] | None
    proven: bool
    cost: int | None = None
