"""What a solver found: how many pods of each class go to which node."""

from collections.abc import Mapping
from dataclasses import dataclass

from webhook.placement.question import Counts


@dataclass(frozen=True, slots=True)
class Solution:
    """Pods of each class by node (None: no place found), and whether that is proven to be the best.

    cost: that of the nodes used, where the solver knows it; counts are in topology order then.
    """

    counts: Mapping[str, Counts] | None
    proven: bool
    cost: int | None = None
