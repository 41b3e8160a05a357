"""A snapshot in parts, by the domains of a label that need be no level of the topology. Pure."""

from collections.abc import Collection

from webhook.placement import Snapshot
from webhook.placement.snapshot import Block, NodeState, Path, make_block
from webhook.scheduling.label_domains import LabelDomains


def parted(
    snapshot: Snapshot, domains: LabelDomains, key: str, wanted: Collection[str]
) -> dict[str, Snapshot]:
    """The nodes of each wanted domain; blocks that lie in one alone keep what is known of them."""
    nodes: dict[str, dict[str, NodeState]] = {value: {} for value in wanted}
    blocks: dict[str, dict[Path, Block]] = {value: {} for value in wanted}
    labels, levels = domains.labels, len(snapshot.topology.level_names)
    for path, block in snapshot.blocks.items():
        here: dict[str | None, list[NodeState]] = {}
        for state in block.states:
            here.setdefault(labels[state.node.name].get(key), []).append(state)
        for value, states in here.items():
            if value is not None and value in nodes:
                nodes[value].update([(state.node.name, state) for state in states])
                blocks[value][path] = block if len(here) == 1 else make_block(path, states, levels)
    return {value: Snapshot(snapshot.topology, nodes[value], blocks[value]) for value in wanted}
