"""Nodes that are kept free in each block, so that a gang that loses one goes on at once. Pure.

Of each GPU model so many nodes of a block as the operator says, as far as there are that many free ones:
those that are last in the block's order, so that they stay the same ones. Who only replaces pods of a gang
that has its place may use them, and nobody else; they are full again once what was broken is mended.
"""

from collections import Counter
from collections.abc import Set

from webhook.placement import Snapshot
from webhook.placement.snapshot import NodeState
from webhook.scheduling.gpus import Counting


def spares(
    snapshot: Snapshot, counting: Counting, per_block: int, without: Set[str] = frozenset()
) -> frozenset[str]:
    """The names of the nodes that are kept free. without: nodes that serve nobody's replacements."""
    if not per_block:
        return frozenset()
    found: set[str] = set()
    for block in snapshot.blocks.values():
        if all(state.path is None for state in block.states):
            continue
        taken: Counter[str] = Counter()
        for state in reversed(block.states):
            model = counting.model(state.node.labels)
            if taken[model] < per_block and state.name not in without and _is_free(state, counting):
                found.add(state.name)
                taken[model] += 1
    return frozenset(found)


def _is_free(state: NodeState, counting: Counting) -> bool:
    node = state.node
    gpus = counting.gpus(node.allocatable)
    is_open = node.ready and not node.unschedulable and not node.problem
    return is_open and gpus > 0 and counting.gpus(state.free) == gpus
