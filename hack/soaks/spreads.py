"""The rules of gangs whose pods are to be spread over blocks, or to be in different ones.

kube-scheduler holds them at each pod's binding: a gang that is planned against its rule never comes to run.
"""

from typing import Any, Final

from labeler.contract import keys

OVER: Final = keys.PRERELEASE_TOPOLOGY[0]
"""The label of whose domains Jobs of a soak want one each: the block."""

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
