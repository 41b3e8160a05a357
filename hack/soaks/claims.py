"""Devices that gangs claim in a soak.

kube-scheduler gives them out: a gang that is planned where it finds none never comes to run.
"""

from collections.abc import Mapping
from typing import Any, Final

from hack.local import claims
from webhook.kube.client import Api

DEVICES: Final = 4
"""Of each node, beside the GPUs that its device plugin offers."""

COUNTS: Final = (1, 2, 4)

Json = dict[str, Any]


def publish(api: Api, namespace: str, grid: Mapping[str, Any]) -> None:
    """Give each node devices, and a namespace templates of claims on some of them."""
    claims.publish(api, grid.values(), DEVICES)
    for count in COUNTS:
        claims.create_template(api, namespace, claims.template(f"devices-{count}", count))


def asking(count: int, by_claim: bool) -> tuple[dict[str, int], Json]:
    """The limits, and the part of a pod's spec, that ask for so many devices."""
    if not by_claim:
        return {claims.RESOURCE: count}, {}
    return {}, {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": f"devices-{count}"}]}
