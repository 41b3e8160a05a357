"""Pictures of clusters that hold gangs."""

import msgspec

from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.gangs import key_of


def placement_of(pods: list[Pod], node: str, of: Pod | None = None, **status: object) -> dict[str, Placement]:
    """A Placement that plans the pods on one node. of: a pod of the gang, if none is planned."""
    key = key_of(of or pods[0])
    body = {
        "metadata": {"name": key.placement_name, "namespace": key.namespace, "uid": "u"},
        "spec": {
            "gang": f"{key.kind}/{key.name}",
            "pods": [{"name": p.metadata.name, "uid": p.metadata.uid, "node": node, "rank": 0} for p in pods],
        },
        "status": {"state": "Releasing", **status},
    }
    return {key.placement_key: msgspec.convert(body, Placement)}


def holding(pods: list[Pod], node: str, **status: object) -> dict[str, Placement]:
    """A Placement of pods that wait, for which a node is reserved."""
    (placement,) = placement_of([], node, pods[0], **status).values()
    made = msgspec.structs.replace(
        placement.status, reserved_nodes=[node], reserved_until="2026-01-01T00:30:00Z"
    )
    return {key_of(pods[0]).placement_key: msgspec.structs.replace(placement, status=made)}
