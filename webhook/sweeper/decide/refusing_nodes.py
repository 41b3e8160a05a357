"""Nodes that a gang does not use again, since one of its pods was not bound or released there. Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.sweeper.decide.node_rules import NodeRule, RuleKind
from webhook.sweeper.observe.gangs import GangKey

AVOID_SECONDS: Final = 600.0
LONGEST_AVOID_SECONDS: Final = 6 * 3600.0

_NOT_BOUND: Final = "a pod of this gang was not bound or released there"

_TOGETHER_SECONDS: Final = 60.0
"""Pods that fail within this time of one another were sent together: that is one failure."""


def avoid_seconds(earlier: int) -> float:
    """How long a gang does not use a node: ten minutes, doubled for each earlier time, six hours at most."""
    return min(LONGEST_AVOID_SECONDS, AVOID_SECONDS * 2.0 ** min(earlier, 16))


def forgotten_at(failed_at: float, until: float) -> float:
    """When the failures of a node count no more, which is not used until then: after as long again.

    If they were forgotten as soon as the node may be used, no failure would be a further one.
    """
    return until + (until - failed_at)


@dataclass(frozen=True)
class ApiRefusal:
    """The API server refused a gang's plan or release. node: on account of which that may be, or ""."""

    gang: GangKey
    node: str = ""


@dataclass(frozen=True)
class GangRefusals:
    """The nodes that a gang does not use, and until when; none after that.

    count: of failures; `at`: when the last one was.
    """

    nodes: frozenset[str] = frozenset()
    count: int = 0
    at: float = float("-inf")
    until: float = 0.0


@dataclass(frozen=True)
class RefusingNodes:
    """The nodes that gangs do not use, since they refused one of their pods.

    An entry under the key of a pod's owner is valid for its successors as well. Losing all of this costs at
    most one more try. Times are seconds of Moment.
    """

    refusing: Mapping[GangKey, GangRefusals] = field(default_factory=dict)

    def at(self, now: float) -> "RefusingNodes":
        """The entries that still count."""
        return RefusingNodes(
            {
                key: each if each.until > now else replace(each, nodes=frozenset())
                for key, each in self.refusing.items()
                if forgotten_at(each.at, each.until) > now
            }
        )

    def refused(self, key: GangKey, nodes: Collection[str], now: float) -> "RefusingNodes":
        """With these and the earlier nodes not used by this gang, for longer than after the last failure.

        A node that it does not use already changes nothing.
        """
        current = self.at(now)
        known = current.refusing.get(key, GangRefusals())
        if known.nodes.issuperset(nodes):
            return current
        found = replace(known, nodes=known.nodes.union(nodes))
        if now - known.at >= _TOGETHER_SECONDS:
            until = now + avoid_seconds(known.count)
            found = replace(found, count=known.count + 1, at=now, until=until)
        return replace(current, refusing={**current.refusing, key: found})

    def after(self, refused: Collection[ApiRefusal], now: float) -> "RefusingNodes":
        """With the nodes on account of which the API server may have refused pods."""
        refusing = self
        for refusal in refused:
            if refusal.node:
                refusing = refusing.refused(refusal.gang, {refusal.node}, now)
        return refusing

    def rules(self) -> Iterator[NodeRule]:
        """The nodes that gangs do not use, as of the last at()."""
        for key, each in self.refusing.items():
            if each.nodes:
                yield NodeRule(each.nodes, _NOT_BOUND, RuleKind.REFUSED, is_hard=True, applies_to=key)

    def nodes_of(self, *keys: GangKey) -> frozenset[str]:
        """The nodes that a gang, known under any of these keys, does not use, as of the last at()."""
        if not self.refusing:
            return frozenset()
        return frozenset().union(*(self.refusing[key].nodes for key in keys if key in self.refusing))
