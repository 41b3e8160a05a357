"""Claims, volumes and what drivers publish of nodes, as a test says."""

from typing import Any

import msgspec

from tests.sweeper.pods import decode, pod_json
from webhook.kube.drivers import CSIDriver, CSINode, CSIStorageCapacity, VolumeAttachment
from webhook.kube.objects import Node, Pod
from webhook.kube.volume_objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from webhook.placement import Assignment, Gang, Member, NoFit, Snapshot, Usage, place
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of
from webhook.scheduling.storage import Storage
from webhook.scheduling.volume_counts import VolumeCounts, volume_counts

Body = dict[str, Any]
DRIVER = "disks.example.com"


def node(name: str) -> Node:
    labels = {"kubernetes.io/hostname": name}
    status = {"allocatable": {"pods": "110"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return msgspec.convert({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


def pod(name: str, *claims: str) -> Pod:
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return decode(pod_json(name, volumes=volumes))


class Shelf:
    """Storage that grows as a test says, on nodes "a" and "b"."""

    def __init__(self) -> None:
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.classes: dict[str, StorageClass] = {}
        self.nodes: dict[str, CSINode] = {}
        self.drivers: dict[str, CSIDriver] = {}
        self.capacities: list[CSIStorageCapacity] = []
        self.attachments: list[VolumeAttachment] = []

    def limit(self, name: str, most: int) -> None:
        drivers = [{"name": DRIVER, "allocatable": {"count": most}}]
        self.nodes[name] = msgspec.convert(
            {"metadata": {"name": name}, "spec": {"drivers": drivers}}, CSINode
        )

    def disk(self, name: str, modes: tuple[str, ...] = ("ReadWriteMany",)) -> str:
        """A claim that is bound to a disk of the driver."""
        spec = {"csi": {"driver": DRIVER, "volumeHandle": name}}
        self.volumes[name] = msgspec.convert({"metadata": {"name": name}, "spec": spec}, PersistentVolume)
        self._claim(name, {"volumeName": name, "accessModes": list(modes)})
        return name

    def local(self, name: str, size: str = "1Gi", class_name: str = "local", *, on: tuple[str, ...]) -> None:
        """A free volume that these nodes can use."""
        host = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(on)}
        spec = {
            "storageClassName": class_name,
            "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
        }
        body = {"metadata": {"name": name}, "spec": spec, "status": {"phase": "Available"}}
        self.volumes[name] = msgspec.convert(body, PersistentVolume)

    def wait(
        self,
        name: str,
        size: str = "1Gi",
        class_name: str = "local",
        by: str = "kubernetes.io/no-provisioner",
    ) -> str:
        """A claim that waits for its first consumer."""
        made = {"provisioner": by, "volumeBindingMode": "WaitForFirstConsumer"}
        self.classes[class_name] = msgspec.convert({"metadata": {"name": class_name}, **made}, StorageClass)
        self._claim(name, {"storageClassName": class_name, "resources": {"requests": {"storage": size}}})
        return name

    def _claim(self, name: str, spec: Body) -> None:
        done = {"pv.kubernetes.io/bind-completed": "yes"} if "volumeName" in spec else {}
        metadata = {"name": name, "namespace": "ns", "annotations": done}
        self.claims[f"ns/{name}"] = msgspec.convert(
            {"metadata": metadata, "spec": spec}, PersistentVolumeClaim
        )

    @property
    def storage(self) -> Storage:
        return Storage(
            self.claims,
            self.volumes,
            self.classes,
            self.nodes,
            self.drivers,
            self.capacities,
            self.attachments,
        )

    def placed(self, gang: list[Pod], there: list[tuple[Pod, str]] | None = None, *others: Pod) -> list[str]:
        """The nodes that a gang gets, in the order of its pods; [] if there is no place."""
        answer = self.answer(gang, there or [], *others)
        if isinstance(answer, NoFit):
            return []
        return [answer.nodes[each.metadata.name] for each in gang]

    def answer(self, gang: list[Pod], there: list[tuple[Pod, str]], *others: Pod) -> Assignment | NoFit:
        nodes = {name: node(name) for name in "ab"}
        waiting = {"g": gang, **{each.metadata.name: [each] for each in others}}
        counts = volume_counts(self.storage, nodes, waiting, there, 64, {})
        usages: dict[str, list[Usage]] = {}
        for each, name in there:
            used = convert.usage_of(each)
            usages.setdefault(name, []).append(counts.usage(each, name, used) if counts else used)
        made = [node_of(each) for each in nodes.values()]
        known = {name: tuple(used) for name, used in usages.items()}
        snapshot = Snapshot.of([counts.node(each) for each in made] if counts else made, known)
        for each in others:
            alone = Gang(each.metadata.name, self.members([each], counts))
            found = place(alone, snapshot)
            assert isinstance(found, Assignment)
            snapshot = snapshot.assume(found, alone)
        return place(Gang("g", self.members(gang, counts)), snapshot)

    def members(self, pods: list[Pod], counts: VolumeCounts | None) -> tuple[Member, ...]:
        classes = [self.storage.pod_class(each, convert.pod_class_of(each)) for each in pods]
        if counts is not None:
            classes = [counts.pod_class(each, kind) for each, kind in zip(pods, classes, strict=True)]
        return tuple(
            Member(each.metadata.name, rank, kind)
            for rank, (each, kind) in enumerate(zip(pods, classes, strict=True))
        )
