"""Our verdict on "can these pods be on this node with their volumes" against the real kube-scheduler's.

Each pair is a node of its own and one to three pods that are pinned to it, with storage classes, volumes and
claims that nobody else may use, drawn at random. The real controllers bind what is to be bound before the
pods come.
"""

import os
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pytest

from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from tests.scheduling import drawn_counts
from tests.scheduling.agreement import create, decoded, is_scheduled, items, register, steady
from tests.scheduling.drawn_volumes import REGION, ZONE, ZONES, Body, Drawn, draw
from webhook.kube import drivers, objects
from webhook.kube.client import ApiError
from webhook.kube.volume_objects import (
    CLAIMS,
    CLASSES,
    VOLUMES,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from webhook.placement import Assignment, Gang, Member, Snapshot, Usage, place
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of
from webhook.scheduling.storage import Storage
from webhook.scheduling.volume_counts import volume_counts

PAIRS = int(os.environ.get("TOPOGATE_VOLUME_PAIRS", "60"))
"""More of them take minutes."""

SEED = int(os.environ.get("TOPOGATE_VOLUME_SEED", "7"))

GATEWAY_TIMEOUT = 504

COUNTED = drawn_counts.attached, drawn_counts.attached, drawn_counts.local, drawn_counts.roomy
"""Of what is drawn, the pairs where numbers decide, beside those with a claim for one pod alone."""


def drawn_for(dice: random.Random, node: str, namespace: str) -> Drawn:
    """Volumes and claims of a pair."""
    if dice.random() < 0.45:
        return draw(dice, node, namespace)
    drawn = Drawn()
    dice.choice((*COUNTED, *COUNTED, drawn_counts.by_one_pod))(dice, drawn, node, namespace)
    return drawn


def node_body(dice: random.Random, name: str) -> Body:
    body = SimulatedNode(name, ("b", "s", name), False, 1).manifest()
    body["metadata"]["labels"] |= {key: dice.choice(ZONES) for key in (ZONE, REGION) if dice.random() < 0.75}
    return body


def csi_node(node: str, limits: Mapping[str, int]) -> Body:
    csi_drivers = [
        {"name": name, "nodeID": node, "allocatable": {"count": most}} for name, most in limits.items()
    ]
    return {"metadata": {"name": node}, "spec": {"drivers": csi_drivers}}


def pod_body(name: str, node: str, claims: Iterable[str], *, stands: bool = False) -> Body:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]
    spec: Body = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "containers": [{"name": "c", "image": "x"}],
        "volumes": volumes,
    }
    return {"metadata": {"name": name}, "spec": {**spec, "nodeName": node} if stands else spec}


@pytest.fixture
def storage_ends(cluster: Cluster) -> Iterator[None]:
    """Nothing of this is left to other tests."""
    yield
    for path in (CLASSES, VOLUMES, drivers.NODES, drivers.DRIVERS, drivers.ATTACHMENTS):
        for _ in range(1 + PAIRS // 100):  # of many it deletes a part at a time
            try:
                cluster.api().request("DELETE", path, timeout_seconds=90)
                break
            except ApiError as error:
                if error.status != GATEWAY_TIMEOUT:
                    raise


def by_name(cluster: Cluster, path: str, kind: Any) -> dict[str, Any]:
    return {body["metadata"]["name"]: msgspec.convert(body, kind) for body in items(cluster, path)}


def stored(cluster: Cluster) -> Storage:
    """The storage of the cluster."""
    claims = [msgspec.convert(body, PersistentVolumeClaim) for body in items(cluster, CLAIMS)]
    return Storage(
        {f"{each.metadata.namespace}/{each.metadata.name}": each for each in claims},
        by_name(cluster, VOLUMES, PersistentVolume),
        by_name(cluster, CLASSES, StorageClass),
        by_name(cluster, drivers.NODES, drivers.CSINode),
        by_name(cluster, drivers.DRIVERS, drivers.CSIDriver),
        list(by_name(cluster, drivers.CAPACITIES, drivers.CSIStorageCapacity).values()),
        list(by_name(cluster, drivers.ATTACHMENTS, drivers.VolumeAttachment).values()),
    )


def wait_until_bound(cluster: Cluster, path: str) -> None:
    """Until the controllers have bound what they will bind without a pod."""

    def is_done() -> bool:
        claims = [body for body in items(cluster, path) if body["spec"].get("volumeName")]
        volumes = items(cluster, VOLUMES)
        return all(body["status"].get("phase") == "Bound" for body in claims) and all(
            body["status"].get("phase") in ("Available", "Bound") for body in volumes
        )

    cluster.wait_for("volumes to be bound", is_done, 60 + PAIRS)


def decisions(cluster: Cluster, namespace: str, names: set[str]) -> dict[str, bool]:
    """Of each pod whether kube-scheduler found its node fit: it bound the pod, or nominates the node so far.

    What it waits for may never come: nobody makes volumes here.
    """
    found: dict[str, bool] = {}

    def is_decided() -> bool:
        for pod in items(cluster, f"/api/v1/namespaces/{namespace}/pods"):
            decision = is_scheduled(pod)
            if decision is None and pod["status"].get("nominatedNodeName"):
                decision = True
            if decision is not None and pod["metadata"]["name"] in names:
                found.setdefault(pod["metadata"]["name"], decision)
        return found.keys() == names

    cluster.wait_for("a verdict on each pod", is_decided, 120 + PAIRS)
    return found


def ours(
    storage: Storage,
    nodes: Mapping[str, objects.Node],
    gangs: Mapping[str, list[objects.Pod]],
    there: list[tuple[objects.Pod, str]],
) -> dict[str, str]:
    """By node, why not all of its pods have a place there; "" if they have."""
    counts = volume_counts(storage, nodes, gangs, there, 10_000, {})
    assert counts is not None
    usages: dict[str, list[Usage]] = {}
    for pod, node in there:
        usages.setdefault(node, []).append(counts.usage(pod, node, convert.usage_of(pod)))
    found = {}
    for name, pods in gangs.items():
        snapshot = Snapshot.of([counts.node(node_of(nodes[name]))], {name: tuple(usages.get(name, ()))})
        members = tuple(
            Member(
                pod.metadata.name,
                rank,
                counts.pod_class(pod, storage.pod_class(pod, convert.pod_class_of(pod))),
            )
            for rank, pod in enumerate(pods)
        )
        answer = place(Gang(name, members), snapshot)
        found[name] = "" if isinstance(answer, Assignment) else answer.sentence
    return found


@pytest.mark.promise("R106", "I22")
@pytest.mark.timeout(900 + 3 * PAIRS)
@pytest.mark.usefixtures("storage_ends")
def test_our_decision_on_volumes_and_a_node_is_kube_scheduler_s(cluster: Cluster, namespace: str) -> None:
    dice = random.Random(SEED)
    names = [f"n{number}" for number in range(PAIRS)]
    path = f"/api/v1/namespaces/{namespace}"
    register(cluster, [node_body(dice, name) for name in names])
    drawn = {name: drawn_for(dice, name, namespace) for name in names}
    create(cluster, ((CLASSES, body) for each in drawn.values() for body in each.classes))
    create(cluster, ((VOLUMES, body) for each in drawn.values() for body in each.volumes))
    create(cluster, ((drivers.DRIVERS, body) for each in drawn.values() for body in each.drivers))
    create(
        cluster, ((drivers.NODES, csi_node(name, each.limits)) for name, each in drawn.items() if each.limits)
    )
    create(cluster, ((drivers.ATTACHMENTS, body) for each in drawn.values() for body in each.attachments))
    capacities = f"/apis/storage.k8s.io/v1/namespaces/{namespace}/csistoragecapacities"
    create(cluster, ((capacities, body) for each in drawn.values() for body in each.capacities))
    create(
        cluster,
        ((f"{path}/persistentvolumeclaims", body) for each in drawn.values() for body in each.claims),
    )
    wait_until_bound(cluster, f"{path}/persistentvolumeclaims")
    assigned = {f"{n}-t{i}": (n, c) for n, each in drawn.items() for i, c in enumerate(each.assigned)}
    create(cluster, ((f"{path}/pods", pod_body(p, n, c, stands=True)) for p, (n, c) in assigned.items()))
    storage = stored(cluster)
    waiting = {f"{n}-p{i}": (n, c) for n, each in drawn.items() for i, c in enumerate(each.pods)}
    create(cluster, ((f"{path}/pods", pod_body(p, n, c)) for p, (n, c) in waiting.items()))
    decision = decisions(cluster, namespace, set(waiting))
    state = steady(cluster, set(names))
    pods = {body["metadata"]["name"]: body for body in items(cluster, f"{path}/pods")}
    found = ours(
        storage,
        {name: msgspec.convert(body, objects.Node) for name, body in state.items()},
        {name: [decoded(pods[p]) for p, (n, _) in waiting.items() if n == name] for name in names},
        [(decoded(pods[p]), n) for p, (n, _) in assigned.items()],
    )
    theirs = {name: all(decision[p] for p, (n, _) in waiting.items() if n == name) for name in names}
    wrong: list[Any] = [
        (
            name,
            found[name],
            theirs[name],
            drawn[name],
            [pods[p]["status"] for p in waiting if waiting[p][0] == name],
        )
        for name in names
        if (found[name] == "") != theirs[name]
    ]
    assert not wrong, f"{len(wrong)} of {PAIRS}: {wrong[:3]}"
    fit = sum(theirs.values())
    assert PAIRS // 5 < fit < PAIRS * 4 // 5, f"{fit} of {PAIRS} fit: the pairs do not tell enough"
