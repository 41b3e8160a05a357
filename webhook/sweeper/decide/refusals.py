"""Nodes whose kubelets have refused pods of a gang: its next pods go elsewhere while there is other room.

A refusal speaks against the node for that gang alone: the node may serve others, or others may have been
quicker. What is remembered is bounded: the oldest of the namespace with the most are dropped first.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from webhook.sweeper.observe.node_failures import NodeRefusal

MOST: Final = 2000
_REASON: Final = 60
"""The most characters of a reason that are told: of a predicate it may be a sentence."""

_Key = tuple[str, str, str]


class Refusals:
    """Remembers the last refusal of each gang on each node; losing it lets a pod be refused there again."""

    def __init__(self) -> None:
        self._last: dict[_Key, NodeRefusal] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._last)

    def saw(self, refusals: Iterable[NodeRefusal], now: float, seconds: float) -> None:
        """Take in more. now: seconds since 1970; seconds: for how long each counts."""
        for each in refusals:
            key = each.namespace, each.gang, each.node
            if key not in self._last or self._last[key].at < each.at:
                self._last[key] = each
        self._last = {key: each for key, each in self._last.items() if now - each.at < seconds}
        if len(self._last) > MOST:
            self._last = dict(self._newest_of_each_namespace())

    def _newest_of_each_namespace(self) -> list[tuple[_Key, NodeRefusal]]:
        """MOST of them: the last ones of all namespaces first, then the last but one, and so on."""
        seen, places = Counter[str](), list[tuple[int, _Key]]()
        for key in sorted(self._last, key=lambda key: (-self._last[key].at, key)):
            seen[key[0]] += 1
            places.append((seen[key[0]], key))
        return [(key, self._last[key]) for _, key in sorted(places)[:MOST]]

    def of(self, namespace: str, gangs: Iterable[str]) -> dict[str, NodeRefusal]:
        """Node -> the refusal there, of gangs by these names (see gang_id)."""
        wanted = {(namespace, gang) for gang in gangs}
        return {node: each for (*whose, node), each in self._last.items() if tuple(whose) in wanted}


def why_refused(refusal: NodeRefusal) -> str:
    """What people are told of a node where a pod was refused."""
    return f"the kubelet refused a pod of this gang there: {refusal.reason[:_REASON]}"
