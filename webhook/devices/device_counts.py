"""Counts of GPU devices for display: how many a node has, and how many each pod has. Pure.

They do not affect placement. A GPU with allocated partitions or shares counts by these allocations.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from webhook.devices.claims import Filter, UnmodelledError, read
from webhook.devices.pools import OneDevice
from webhook.devices.selectors import SelectorError
from webhook.devices.supply import Supply
from webhook.kube.devices import ALL, DeviceClaim, DeviceClass, DeviceRequest, ResourceClaim, SubRequest
from webhook.kube.objects import Node, Pod


def gpu_classes(classes: Iterable[str], patterns: Collection[str]) -> list[str]:
    """The names of the DeviceClasses whose devices count as GPUs."""
    return sorted(name for name in classes if any(fnmatchcase(name, each) for each in patterns))


class DeviceCounts:
    """The counts of one pass."""

    def __init__(self, supply: Supply, patterns: Collection[str]) -> None:
        """patterns: names or shell patterns of the DeviceClasses of GPUs."""
        self._supply = supply
        self._of = supply.claims, supply.classes
        names = gpu_classes(supply.classes, patterns)
        self._filters = [each for name in names if (each := _filter_of(name, supply.classes)) is not None]
        self._of_pods: dict[str, Counter[tuple[str, str, str]]] = {}
        for claim in supply.claims.values():
            self._add(claim)

    def serves(self, supply: Supply) -> bool:
        """Whether the counts are still current."""
        return self._of[0] is supply.claims and self._of[1] is supply.classes and not supply.is_undecided

    def _add(self, claim: ResourceClaim) -> None:
        allocation = claim.status.allocation
        if allocation is None or not claim.status.reserved_for:
            return
        # The devices of a claim that several pods share count once.
        uid = claim.status.reserved_for[0].uid
        mine = self._of_pods.setdefault(uid, Counter())
        mine.update(
            (each.driver, each.pool, each.device)
            for each in allocation.devices.results
            if not each.admin_access
        )

    @property
    def counts_any(self) -> bool:
        """Whether any DeviceClass counts as GPUs."""
        return bool(self._filters)

    def of_node(self, node: Node) -> int:
        """The number of GPUs of a node."""
        return len(self._gpus(node))

    def has_any(self, uid: str) -> bool:
        """Whether any device is allocated to a pod."""
        return uid in self._of_pods

    def of_pod(self, uid: str, node: Node) -> int:
        """The number of a node's GPUs that are allocated to a pod."""
        given = self._of_pods.get(uid)
        if not given:
            return 0
        there = self._gpus(node)
        return sum(1 for device in given if device in there)

    def _gpus(self, node: Node) -> Collection[tuple[str, str, str]]:
        there = self._supply.on(node.metadata.name, node.metadata.labels)
        return self._supply.named(there, tuple(self._filters), self._is_gpu)

    def _is_gpu(self, device: OneDevice) -> bool:
        return any(self._matches(each, device) for each in self._filters)

    def _matches(self, filter_: Filter, device: OneDevice) -> bool:
        try:
            return self._supply.matches(filter_, device)
        except SelectorError:
            return False


def devices_of(pod: Pod, supply: Supply, is_counted: Callable[[str], bool]) -> int | None:
    """The number of devices of some DeviceClasses that a pod's claims have, or request until allocation.

    None while the requests of a claim are unknown. The devices of a claim that several pods share count for
    the first pod in reservedFor. A request for all devices of a node counts as one until allocation.
    """
    count = 0
    for found in supply.claims_of(pod):
        if supply.problem or found is None:
            return None
        claim, status = found
        if status.allocation is None or not status.reserved_for:
            firsts = (request.choices[0] for request in claim.asked if request.choices)
            count += sum(
                1 if each.allocation_mode == ALL else each.count
                for each in firsts
                if is_counted(each.device_class_name) and not each.admin_access
            )
        elif status.reserved_for[0].uid == pod.metadata.uid:
            classes = dict(_classes_by_request(claim))
            count += sum(
                is_counted(classes.get(each.request, "")) and not each.admin_access
                for each in status.allocation.devices.results
            )
    return count


def _classes_by_request(claim: DeviceClaim) -> Iterator[tuple[str, str]]:
    """The DeviceClass of each request, by its name as an allocation has it."""
    for request in claim.asked:
        for each in request.choices:
            name = request.name if request.exactly is not None else f"{request.name}/{each.name}"
            yield name, each.device_class_name


def _filter_of(name: str, classes: Mapping[str, DeviceClass]) -> Filter | None:
    """The filter of a DeviceClass; None if the class is unreadable."""
    request = DeviceRequest(name="", exactly=SubRequest(device_class_name=name))
    try:
        asked = read(DeviceClaim(requests=(request,)), classes)
    except UnmodelledError:
        return None
    return asked.requests[0][0].filter
