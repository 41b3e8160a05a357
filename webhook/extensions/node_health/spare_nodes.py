"""Spare nodes: free nodes of each block that only replacements of lost pods may use. Pure.

Of each GPU model, as many nodes of a block as the setting spare_nodes says, if so many are free: the last
ones in the block's order, so that they stay the same from pass to pass. This module chooses them;
decide.node_exclusions says which pods are replacements, and decide.reservations keeps all others away.
"""

from collections import Counter
from collections.abc import Set

from webhook.placement import Snapshot
from webhook.placement.snapshot import NodeState
from webhook.scheduling.gpus import Counting


def spares(
    snapshot: Snapshot, counting: Counting, per_block: int, without: Set[str] = frozenset()
) -> frozenset[str]:
    """The names of the spare nodes. without: nodes that are never chosen, such as failing ones."""
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
