"""What must hold of gangs whose pods are to be spread over blocks, or to be in different ones.

A rule is about the moment at which a pod gets its node, and pods go. So a gang is judged when all of its pods
are bound for the first time, if none of them was recreated before.
"""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Any, Final

from hack.soaks.domains import OVER

RULE: Final = "local.topogate.io/rule"
"""Annotation: the rule, and how many pods the gang has."""

LABEL: Final = "local.topogate.io/ruled"
"""Label: the gang, by which its rule selects."""

APART, EVEN = "apart", "even"


def rule(kind: str, name: str) -> dict[str, Any]:
    """The part of a pod's spec that says it."""
    selector = {"matchLabels": {LABEL: name}}
    if kind == APART:
        term = {"topologyKey": OVER, "labelSelector": selector}
        return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    even = {"topologyKey": OVER, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**even, "labelSelector": selector}]}


@dataclass
class _Ruled:
    """The pods of a gang that were ever there, and the blocks of those that are bound."""

    pods: set[str] = field(default_factory=set)
    blocks: dict[str, str] = field(default_factory=dict)
    is_judged: bool = False


@dataclass
class Spreads:
    """Where the pods of such gangs are; faults: sentences. The ledger feeds it.

    blocks: how many there are.
    """

    blocks: int = 1
    faults: list[str] = field(default_factory=list)
    judged: int = 0
    _gangs: dict[str, _Ruled] = field(default_factory=dict)

    def pod(self, pod: dict[str, Any], *, gone: bool) -> None:
        """A version of a pod."""
        metadata = pod["metadata"]
        rule = metadata.get("annotations", {}).get(RULE)
        if not rule:
            return
        kind, size = rule.split("/")
        gang = self._gangs.setdefault(metadata["labels"][LABEL], _Ruled())
        gang.pods.add(metadata["uid"])
        node = pod["spec"].get("nodeName")
        if gone:
            gang.blocks.pop(metadata["uid"], None)
        elif node:
            gang.blocks[metadata["uid"]] = node.split("-")[1]
        if gang.is_judged or len(gang.pods) > int(size) or len(gang.blocks) < int(size):
            return
        gang.is_judged = True
        self.judged += 1
        counts = Counter(gang.blocks.values())
        fewest = 0 if kind == APART or len(counts) < self.blocks else min(counts.values())
        if max(counts.values()) - fewest > 1:
            self.faults.append(f"{metadata['labels'][LABEL]} is to be {kind}, and is in {dict(counts)}")

    def keep_only(self, uids: Set[str]) -> None:
        """The others are gone: a watch was interrupted, and then all that is there was listed."""
        for gang in self._gangs.values():
            gang.blocks = {uid: block for uid, block in gang.blocks.items() if uid in uids}
