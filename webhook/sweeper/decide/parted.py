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
    domain_of, levels = domains.of_nodes(key), len(snapshot.topology.level_names)
    for path, block in snapshot.blocks.items():
        names = [state.node.name for state in block.states]
        values = [domain_of[name] for name in names]
        if values.count(values[0]) == len(values):  # most blocks lie in one domain alone
            whole = values[0]
            if whole is not None and whole in nodes:
                nodes[whole].update(zip(names, block.states, strict=True))
                blocks[whole][path] = block
            continue
        here: dict[str, dict[str, NodeState]] = {}
        for name, value, state in zip(names, values, block.states, strict=True):
            if value is not None and value in nodes:
                here.setdefault(value, {})[name] = state
        for value, states in here.items():
            nodes[value].update(states)
            blocks[value][path] = make_block(path, list(states.values()), levels)
    return {value: Snapshot(snapshot.topology, nodes[value], blocks[value]) for value in wanted}
