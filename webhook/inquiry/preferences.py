"""Whether a gang's placement meets what it prefers, in a sentence."""

from collections.abc import Iterable

from webhook.placement import Gang, Snapshot
from webhook.placement.snapshot import key_of


def describe_preferred(gang: Gang, nodes: Iterable[str], snapshot: Snapshot) -> str:
    """For each preferred level, whether one domain has the gang, placed pods included; "" without any."""
    names = {*nodes, *(anchor.node for anchor in gang.anchors if anchor.node in snapshot.nodes)}
    keys = [key_of(snapshot.nodes[name], len(snapshot.topology.level_names)) for name in names]
    found = []
    for level in gang.preferred_levels:
        count = len({key[: snapshot.topology.level(level) + 2] for key in keys})
        found.append(f"one {level}: {'yes' if count == 1 else f'no, it takes {count}'}")
    return f"Preferred: {'; '.join(found)}." if found else ""
