"""New nodes that do not say yet where they stand: their labeler or their cloud is about to write it. Pure.

A gang that took them now would lie on them by chance, and be bound before anybody knew better. The wait is
bounded: on a cluster whose nodes never get such labels each is used a little later.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

from webhook.kube.objects import Node
from webhook.placement import Topology


def unlabelled(
    nodes: Mapping[str, Node], label_seconds: float, topology: Topology, now: float
) -> dict[str, float]:
    """Nodes without a complete set of topology labels that are younger, and in how many seconds they are not.

    now: seconds since 1970.
    """
    oldest = f"{datetime.fromtimestamp(now - label_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    found = {}
    for name, node in nodes.items():
        created = node.metadata.creation_timestamp or ""
        if created > oldest and topology.path(node.metadata.labels) is None:
            found[name] = max(0.0, datetime.fromisoformat(created).timestamp() + label_seconds - now)
    return found
