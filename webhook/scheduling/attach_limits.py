"""Attach limits: how many more volumes of each CSI driver a node takes, as synthetic resources. Pure.

A node takes a number of distinct volumes of a driver; a volume that several of its pods use counts once. A
waiting pod requests the volumes that it alone uses. Shared volumes are the same for many pods, so each such
set of volumes is a resource of its own. A node has of it the attachments that remain beside the set. Amounts
of the resources of other sets need not be free on the node. They count once the pod has a node, where each
pod counts all its volumes. So between gangs planned in the same pass too little may be allowed, until their
pods are bound and counted exactly.

Source of the rules: kube-scheduler's plugin NodeVolumeLimits. Volumes of in-tree plugins count as those of
the CSI drivers that replaced them. Volumes that a pod names itself, without a claim, do not count.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.kube.drivers import CSINode
from webhook.kube.objects import Pod
from webhook.kube.volume_objects import PersistentVolume, PersistentVolumeClaim
from webhook.scheduling.storage import Storage, class_name

DriverVolume = tuple[str, str]
"""A driver and its volume: the handle, or the claim that waits for a volume."""

LimitedSet = tuple[str, frozenset[DriverVolume]]
"""A driver and volumes that pods share."""

UNIT: Final = 1000
"""The amount of one volume. A pod with shared volumes alone takes 1, so that it requests the resource."""

UNLIMITED: Final = 1_000_000_000
"""The amount of a node whose driver reports no limit."""

DRIVERS_BEFORE_CSI: Final = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
}
"""In-tree plugin -> the CSI driver that replaced it, if kube-scheduler 1.36 counts its volumes."""


def driver_volumes(pod: Pod, storage: Storage) -> frozenset[DriverVolume]:
    """The volumes of a pod that drivers attach, including those not provisioned yet."""
    found = set[DriverVolume]()
    for each in pod.spec.volumes:
        claim = storage.claim_of(pod, each)
        volumes = _volumes_of(claim, storage) if claim is not None else None
        if volumes is not None:
            found.add(volumes)
    return frozenset(found)


def _volumes_of(claim: PersistentVolumeClaim, storage: Storage) -> DriverVolume | None:
    volume = storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        return _attached(volume)
    found = storage.classes.get(class_name(claim))
    if found is None or not found.provisioner:
        return None
    driver = DRIVERS_BEFORE_CSI.get(found.provisioner, found.provisioner)
    return driver, f"claim {claim.metadata.namespace}/{claim.metadata.name}"


def _attached(volume: PersistentVolume) -> DriverVolume | None:
    spec = volume.spec
    if spec.csi is not None:
        return (spec.csi.driver, spec.csi.volume_handle) if spec.csi.volume_handle else None
    if spec.aws_elastic_block_store is not None:
        return "ebs.csi.aws.com", spec.aws_elastic_block_store.volume_id.rpartition("/")[2]
    if spec.azure_disk is not None:
        return "disk.csi.azure.com", spec.azure_disk.disk_uri
    if spec.gce_persistent_disk is not None:  # names are only unique in a zone
        return "pd.csi.storage.gke.io", f"{volume.metadata.name} {spec.gce_persistent_disk.pd_name}"
    if spec.cinder is not None:
        return "cinder.csi.openstack.org", spec.cinder.volume_id
    if spec.portworx_volume is not None:
        return "pxd.portworx.com", spec.portworx_volume.volume_id
    return None


def _limits(node: CSINode) -> dict[str, int]:
    """The attach limit of a node by driver, for drivers that report one."""
    counts = {each.name: each.allocatable.count for each in node.spec.drivers if each.allocatable is not None}
    return {driver: count for driver, count in counts.items() if count is not None}


@dataclass
class OnNode:
    """Volumes of one driver on a node. holders: volume -> uids of its pods; stray: attached without a pod."""

    holders: dict[DriverVolume, set[str]] = field(default_factory=dict)
    stray: set[DriverVolume] = field(default_factory=set)


class AttachLimits:
    """The attach-limit resources of one pass."""

    def __init__(  # branches: values that follow from one another, a comprehension each
        self,
        storage: Storage,
        waiting: Mapping[str, Sequence[Pod]],
        assigned: Iterable[tuple[Pod, str]],
        most: int,
    ) -> None:
        """waiting: pods by gang. assigned: pods with their nodes. most: the most resources, see _sets."""
        self._limits = {name: _limits(node) for name, node in storage.nodes.items()}
        limited = {driver for limits in self._limits.values() for driver in limits}
        pods = [pod for each in waiting.values() for pod in each]
        self._volumes_of = {pod.metadata.uid: _of(limited, driver_volumes(pod, storage)) for pod in pods}
        wanted = {driver for volumes in self._volumes_of.values() for driver, _ in volumes}
        self._there: dict[str, dict[str, OnNode]] = {}
        users = Counter(volume for volumes in self._volumes_of.values() for volume in volumes)
        self._waited_for = frozenset(users)
        self._common = {volume for volume, count in users.items() if count > 1}
        if wanted:
            self._count_assigned(storage, wanted, assigned)
        self._set_of = self._sets(pods, most)
        self._of_gang: dict[str, frozenset[LimitedSet]] = {}
        self._first: dict[str, str] = {}
        for gang in waiting.values():
            uids = [pod.metadata.uid for pod in gang]
            if uids:
                self._first.update(dict.fromkeys(uids, uids[0]))
                self._of_gang[uids[0]] = frozenset().union(*(self._set_of[uid] for uid in uids))
        self.sets = tuple(dict.fromkeys(each for sets in self._set_of.values() for each in sets))
        self.names = {each: _name(each) for each in self.sets}
        self._drivers = sorted({driver for driver, _ in self.sets})
        self._untouched: dict[tuple[int | None, ...], Mapping[str, int]] = {}
        """By the limits for these drivers: the amounts of a node with nothing attached."""

    def _count_assigned(
        self, storage: Storage, wanted: set[str], assigned: Iterable[tuple[Pod, str]]
    ) -> None:
        for pod, node in assigned:
            for volume in _of(wanted, driver_volumes(pod, storage)) if pod.spec.volumes else ():
                on_node = self._there.setdefault(node, {}).setdefault(volume[0], OnNode())
                on_node.holders.setdefault(volume, set()).add(pod.metadata.uid)
                if volume in self._waited_for:
                    self._common.add(volume)
        for each in storage.attachments:
            behind = storage.volumes.get(each.spec.source.persistent_volume_name)
            if behind is None or behind.spec.csi is None or each.spec.attacher not in wanted:
                continue
            attached = each.spec.attacher, behind.spec.csi.volume_handle
            on_node = self._there.setdefault(each.spec.node_name, {}).setdefault(attached[0], OnNode())
            on_node.stray.add(attached)

    def _sets(self, waiting: Sequence[Pod], most: int) -> dict[str, tuple[LimitedSet, ...]]:
        """By uid the sets of a pod: for each driver the volumes that it shares with other pods.

        Users may create any number of sets, and each node has an amount of each. So each namespace has a
        share of them. Volumes of sets beyond it count as if no other pod used them.
        """
        found: dict[str, tuple[LimitedSet, ...]] = {}
        namespaces = {pod.metadata.namespace for pod in waiting if self._volumes_of[pod.metadata.uid]}
        share = max(1, most // max(1, len(namespaces)))
        known: dict[str, set[LimitedSet]] = {}
        for pod in waiting:
            mine = known.setdefault(pod.metadata.namespace, set())
            sets = []
            for driver in sorted({driver for driver, _ in self._volumes_of[pod.metadata.uid]}):
                common = _of({driver}, self._volumes_of[pod.metadata.uid]) & self._common
                if common and (driver, common) not in mine and len(mine) >= share:
                    common = frozenset()
                mine |= {(driver, common)} if common else set()
                sets.append((driver, common))
            found[pod.metadata.uid] = tuple(sets)
        return found

    def takes(self, pod: Pod) -> tuple[dict[str, int], dict[str, int]]:
        """The amounts that a waiting pod requests, and the other amounts that it uses once it has a node."""
        uid = pod.metadata.uid
        volumes, own = self._volumes_of.get(uid, frozenset()), self._set_of.get(uid, ())
        gang = self._of_gang.get(self._first.get(uid, ""), frozenset())
        asked = {self.names[each]: UNIT * len(_of({each[0]}, volumes) - each[1]) or 1 for each in own}
        beside: dict[str, int] = {}
        for each in self.sets:
            count = len(_of({each[0]}, volumes) - each[1])
            if count and each not in own:
                (asked if each in gang else beside)[self.names[each]] = UNIT * count
        return asked, beside

    def uses(self, pod: Pod, node: str) -> dict[str, int]:
        """The amounts that a pod uses on its node: volumes that it alone uses and no waiting pod shares."""
        there = self._there.get(node)
        if there is None:
            return {}
        uid = pod.metadata.uid
        alone = Counter(
            volume[0]
            for on_node in there.values()
            for volume, holders in on_node.holders.items()
            if holders == {uid} and volume not in self._waited_for
        )
        return {self.names[each]: UNIT * alone[each[0]] for each in self.sets if alone[each[0]]}

    def on(self, node: str) -> Mapping[str, int]:
        """The amounts of a node before its pods use theirs."""
        limits, there = self._limits.get(node, {}), self._there.get(node)
        if there is not None:
            return self._has(limits, there)
        node_limits = tuple(map(limits.get, self._drivers))
        if node_limits not in self._untouched:
            self._untouched[node_limits] = self._has(limits, {})
        return self._untouched[node_limits]

    def _has(self, limits: Mapping[str, int], there: Mapping[str, OnNode]) -> Mapping[str, int]:
        return {
            self.names[each]: _left(
                limits.get(each[0]), there.get(each[0], _NOTHING), each[1], self._waited_for
            )
            for each in self.sets
        }


_NOTHING: Final = OnNode()


def _left(
    limit: int | None, there: OnNode, common: frozenset[DriverVolume], waited_for: frozenset[DriverVolume]
) -> int:
    if limit is None:
        return UNLIMITED
    alone = sum(len(holders) == 1 and volume not in waited_for for volume, holders in there.holders.items())
    attached = len(there.holders.keys() | there.stray)
    missing = len(common - there.holders.keys())
    left = UNIT * (limit - attached - missing + alone) + UNIT - 1
    # A pod without new volumes is accepted on a full node too.
    return left if missing or not common else max(left, UNIT * alone + UNIT - 1)


def _of(drivers: set[str], volumes: frozenset[DriverVolume]) -> frozenset[DriverVolume]:
    return frozenset(each for each in volumes if each[0] in drivers)


def _name(each: LimitedSet) -> str:
    driver, common = each
    if not common:
        return f"volumes of {driver}"
    digest = hashlib.sha256(repr(sorted(common)).encode()).hexdigest()[:6]
    return f"volumes of {driver} beside {len(common)} in common ({digest})"
