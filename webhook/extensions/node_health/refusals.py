"""Nodes whose kubelets have refused pods of a gang: its next pods go elsewhere while there is other room.

A refusal speaks against the node for that gang alone: the node may serve others, or others may have been
quicker. What is remembered is bounded: the oldest of the namespace with the most are dropped first.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from webhook.extensions.node_health.pod_failures import NodeRefusal

MOST: Final = 2000
_REASON: Final = 60
"""The most characters of a reason that are told: of a predicate it may be a sentence."""

_Key = tuple[str, str, str]


@dataclass(frozen=True)
class Refusals:
    """The last refusal of each gang on each node. Losing it lets a pod be refused there again."""

    last: Mapping[_Key, NodeRefusal] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.last)

    def with_more(self, refusals: Iterable[NodeRefusal], now: float, seconds: float) -> "Refusals":
        """Also these, without what is over. now: seconds since 1970; seconds: for how long each counts."""
        last = dict(self.last)
        for each in refusals:
            key = each.namespace, each.gang, each.node
            if key not in last or last[key].at < each.at:
                last[key] = each
        last = {key: each for key, each in last.items() if now - each.at < seconds}
        return Refusals(_newest_of_each_namespace(last) if len(last) > MOST else last)

    @cached_property
    def by_gang(self) -> Mapping[tuple[str, str], Mapping[str, NodeRefusal]]:
        """(namespace, gang_id) -> node -> the refusal there."""
        found: dict[tuple[str, str], dict[str, NodeRefusal]] = {}
        for (namespace, gang, node), each in self.last.items():
            found.setdefault((namespace, gang), {})[node] = each
        return found

    def of(self, namespace: str, gangs: Iterable[str]) -> dict[str, NodeRefusal]:
        """Node -> the refusal there, of gangs by these names (see gang_id)."""
        return {
            node: each for gang in gangs for node, each in self.by_gang.get((namespace, gang), {}).items()
        }


def _newest_of_each_namespace(last: Mapping[_Key, NodeRefusal]) -> dict[_Key, NodeRefusal]:
    """MOST of them: the last ones of all namespaces first, then the last but one, and so on."""
    seen, places = Counter[str](), list[tuple[int, _Key]]()
    for key in sorted(last, key=lambda key: (-last[key].at, key)):
        seen[key[0]] += 1
        places.append((seen[key[0]], key))
    return {key: last[key] for _, key in sorted(places)[:MOST]}


def why_refused(refusal: NodeRefusal) -> str:
    """What people are told of a node where a pod was refused."""
    return f"the kubelet refused a pod of this gang there: {refusal.reason[:_REASON]}"
