"""A gang whose pods have a volume each, beside the same gang without any.

The claims wait for their first consumer, in a class whose volumes can be made in some zones, by a driver of
which each node attaches a limited number. Times are from the API server's objects, as they were read once, to
the assignment, but for what a pass converts of nodes and pods either way.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec

from hack.benchmarks.placing.row import timed
from labeler.contract import keys
from webhook.kube.drivers import CSINode
from webhook.kube.objects import Node, Pod
from webhook.kube.storage import PersistentVolumeClaim, StorageClass
from webhook.placement import Assignment, Gang, Member, NodeInfo, Snapshot, place
from webhook.scheduling.storage import Storage
from webhook.scheduling.volume_counts import Completed, volume_counts

DRIVER: Final = "disks.example.com"
ZONES: Final = 3
LIMIT: Final = 16
"""Volumes that a node attaches."""


def row(nodes: Sequence[NodeInfo], plain: Gang, repeats: int) -> str:
    """One line of the table. plain: a gang of pods without volumes."""
    nodes = [
        replace(each, labels={**each.labels, keys.ZONE_LABEL: f"z{number % ZONES}"})
        for number, each in enumerate(nodes)
    ]
    pods, claims, classes, drivers = _made(nodes, plain)
    there = {
        each.name: msgspec.convert({"metadata": {"name": each.name, "labels": each.labels}}, Node)
        for each in nodes
    }
    completed: Completed = {}

    def with_volumes() -> object:
        storage = Storage(claims, {}, classes, drivers)
        counts = volume_counts(storage, there, {"g": pods}, [], 64, completed)
        assert counts is not None
        members = []
        for pod, each in zip(pods, plain.members, strict=True):
            kind = counts.pod_class(pod, storage.pod_class(pod, each.pod_class))
            members.append(Member(each.name, each.rank, kind))
        return place(Gang("g", tuple(members)), Snapshot.build([counts.node(each) for each in nodes], []))

    def without() -> object:
        members = tuple(Member(each.name, each.rank, each.pod_class) for each in plain.members)
        return place(replace(plain, members=members), Snapshot.build(nodes, []))

    first, answer = timed(with_volumes)
    assert isinstance(answer, Assignment)
    taken: list[float] = []
    beside: list[float] = []
    for _ in range(repeats):
        taken.append(timed(with_volumes)[0])
        seconds, same = timed(without)
        beside.append(seconds)
        assert isinstance(same, Assignment)
        assert same.objective.domains == answer.objective.domains
    ours, theirs = statistics.median(taken), statistics.median(beside)
    return (
        f"{len(nodes):7} nodes {len(pods):6} pods with volumes: "
        f"first {first * 1e3:.1f} ms, then {ours * 1e3:.1f} ms, "
        f"{ours / theirs:.2f} of the same gang without ({theirs * 1e3:.1f} ms); the same domains"
    )


def _made(
    nodes: Sequence[NodeInfo], plain: Gang
) -> tuple[list[Pod], dict[str, PersistentVolumeClaim], dict[str, StorageClass], dict[str, CSINode]]:
    """The gang's pods with their claims, the class of these, and what the driver tells of nodes."""
    zones = [{"key": keys.ZONE_LABEL, "values": [f"z{number}" for number in range(ZONES)]}]
    kind = {
        "metadata": {"name": "disks"},
        "provisioner": DRIVER,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": zones}],
    }
    pods, claims = [], {}
    for each in plain.members:
        spec = {
            "storageClassName": "disks",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "10Gi"}},
        }
        about = {"name": f"{each.name}-disk", "namespace": "demo"}
        claims[f"demo/{each.name}-disk"] = msgspec.convert(
            {"metadata": about, "spec": spec}, PersistentVolumeClaim
        )
        volume = {"name": "disk", "persistentVolumeClaim": {"claimName": f"{each.name}-disk"}}
        body = {
            "metadata": {"name": each.name, "namespace": "demo", "uid": each.name},
            "spec": {"volumes": [volume]},
        }
        pods.append(msgspec.convert(body, Pod))
    told = {"drivers": [{"name": DRIVER, "allocatable": {"count": LIMIT}}]}
    drivers = {n.name: msgspec.convert({"metadata": {"name": n.name}, "spec": told}, CSINode) for n in nodes}
    return pods, claims, {"disks": msgspec.convert(kind, StorageClass)}, drivers
