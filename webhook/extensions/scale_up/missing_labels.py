"""New nodes that do not say yet where they stand: their labeler or their cloud is about to write it. Pure.

A gang that took them now would lie on them by chance, and be bound before anybody knew better. The wait is
bounded: on a cluster whose nodes never get such labels each is used a little later. So it is where clocks
differ: a node that was created in the future, by our clock, is not waited for until that has come.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from webhook.kube.objects import Node
from webhook.placement import Topology
from webhook.sweeper.decide.node_exclusions import ExcludedNodes, Exclusion

SKEW_SECONDS: Final = 60.0
"""By so much the API server's clock may be ahead of ours; by more, one of the two was set back."""


_EXCLUSION: Final = Exclusion("it is new, and has no topology labels yet", is_hard=True)


def excluded(nodes: Iterable[str]) -> ExcludedNodes:
    """These are given to nobody."""
    return ExcludedNodes(dict.fromkeys(nodes, _EXCLUSION))


def missing_labels(
    nodes: Mapping[str, Node], label_seconds: float, topology: Topology, now: float
) -> dict[str, float]:
    """Nodes without a complete set of topology labels that are younger, and in how many seconds they are not.

    now: seconds since 1970.
    """
    oldest, newest = _utc(now - label_seconds), _utc(now + SKEW_SECONDS)
    found = {}
    for name, node in nodes.items():
        created = node.metadata.creation_timestamp or ""
        if oldest < created <= newest and topology.path(node.metadata.labels) is None:
            found[name] = max(0.0, datetime.fromisoformat(created).timestamp() + label_seconds - now)
    return found


def _utc(seconds: float) -> str:
    """As the API server writes times, which are in order as texts."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
