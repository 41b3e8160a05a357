"""Our verdict on "can this pod's volumes be used on this node" against the real kube-scheduler's, at random.

Each pair is a node of its own and a pod that is pinned to it, with storage classes, volumes and claims that
nobody else may use. The real controllers bind what is to be bound before the pod comes.
"""

import os
import random
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pytest

from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from tests.scheduling.agreement import create, decoded, items, register, steady, verdict
from tests.scheduling.drawn_volumes import REGION, ZONE, ZONES, Body, draw
from webhook.kube import objects
from webhook.kube.storage import (
    CLASSES,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from webhook.placement import Snapshot, capacity
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of
from webhook.scheduling.storage import Storage

PAIRS = int(os.environ.get("TOPOGATE_VOLUME_PAIRS", "60"))
"""More of them take minutes."""


def node_body(dice: random.Random, name: str) -> Body:
    body = SimulatedNode(name, ("b", "s", name), False, 1).manifest()
    body["metadata"]["labels"] |= {key: dice.choice(ZONES) for key in (ZONE, REGION) if dice.random() < 0.75}
    return body


def pod_body(node: str, claims: Iterable[str]) -> Body:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "c", "image": "x"}],
        "volumes": volumes,
    }
    return {"metadata": {"name": node}, "spec": spec}


@pytest.fixture
def storage_ends(cluster: Cluster) -> Iterator[None]:
    """Nothing of this is left to other tests."""
    yield
    for path in (CLASSES, VOLUMES):
        cluster.api().request("DELETE", path)


def stored(cluster: Cluster, claims: list[Body]) -> Storage:
    """The storage of the cluster with these claims."""
    volumes = [msgspec.convert(body, PersistentVolume) for body in items(cluster, VOLUMES)]
    classes = [msgspec.convert(body, StorageClass) for body in items(cluster, CLASSES)]
    return Storage(
        {
            f"{each.metadata.namespace}/{each.metadata.name}": each
            for each in (msgspec.convert(body, PersistentVolumeClaim) for body in claims)
        },
        {each.metadata.name: each for each in volumes},
        {each.metadata.name: each for each in classes},
    )


def wait_until_bound(cluster: Cluster, path: str) -> None:
    """Until the controllers have bound what they will bind without a pod."""

    def is_done() -> bool:
        claims = [body for body in items(cluster, path) if body["spec"].get("volumeName")]
        volumes = items(cluster, VOLUMES)
        return all(body["status"].get("phase") == "Bound" for body in claims) and all(
            body["status"].get("phase") in ("Available", "Bound") for body in volumes
        )

    cluster.wait_for("volumes to be bound", is_done, 60)


def verdicts(cluster: Cluster, namespace: str, names: set[str]) -> dict[str, bool]:
    """Whether kube-scheduler found the node fit: it bound the pod, or nominates the node meanwhile.

    What it waits for may never come: nobody makes volumes here.
    """
    found: dict[str, bool] = {}

    def is_said() -> bool:
        for pod in items(cluster, f"/api/v1/namespaces/{namespace}/pods"):
            node = pod["metadata"]["name"]
            said = verdict(pod)
            if said is None and pod["status"].get("nominatedNodeName") == node:
                said = True
            if said is not None:
                found.setdefault(node, said)
        return found.keys() == names

    cluster.wait_for("a verdict on each pod", is_said, 120)
    return found


@pytest.mark.usefixtures("storage_ends")
def test_our_verdict_on_volumes_and_a_node_is_kube_scheduler_s(cluster: Cluster, namespace: str) -> None:
    dice = random.Random(7)
    names = [f"n{number}" for number in range(PAIRS)]
    path = f"/api/v1/namespaces/{namespace}"
    register(cluster, [node_body(dice, name) for name in names])
    drawn = {name: draw(dice, name, namespace) for name in names}
    create(cluster, ((CLASSES, body) for each in drawn.values() for body in each.classes))
    create(cluster, ((VOLUMES, body) for each in drawn.values() for body in each.volumes))
    create(
        cluster,
        ((f"{path}/persistentvolumeclaims", body) for each in drawn.values() for body in each.claims),
    )
    wait_until_bound(cluster, f"{path}/persistentvolumeclaims")
    storage = stored(cluster, items(cluster, f"{path}/persistentvolumeclaims"))
    create(cluster, ((f"{path}/pods", pod_body(name, each.names)) for name, each in drawn.items()))
    said = verdicts(cluster, namespace, set(names))
    state = steady(cluster, set(names))
    nodes = [node_of(msgspec.convert(body, objects.Node)) for body in state.values()]
    snapshot = Snapshot.build(nodes, [])
    pods = {body["metadata"]["name"]: body for body in items(cluster, f"{path}/pods")}
    wrong: list[Any] = []
    for name in said:
        pod = decoded(pods[name])
        kind = storage.pod_class(pod, convert.pod_class_of(pod))
        reason = kind.problem or capacity.reason_against_node(kind, snapshot.nodes[name])
        if (reason == "") != said[name]:
            wrong.append((name, reason, said[name], pods[name]["status"].get("conditions"), drawn[name]))
    assert not wrong, f"{len(wrong)} of {len(said)}: {wrong[:3]}"
    fit = sum(said.values())
    assert PAIRS // 5 < fit < PAIRS * 4 // 5, f"{fit} of {PAIRS} fit: the pairs do not tell enough"
