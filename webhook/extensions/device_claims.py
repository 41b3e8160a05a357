"""GPUs by device claims (Dynamic Resource Allocation): the devices of nodes, and the claims of pods.

DeviceClasses are read whenever the cluster serves them: they are few, and show which extended resources are
claims and whether devices are GPUs. The other collections are read from the first pass that needs them: a
pod with claims waits, devices are GPUs, or a level of the topology is a device attribute.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import structs

from labeler.contract import keys
from webhook.devices import extended_resources
from webhook.devices.attribute_levels import attribute_keys
from webhook.devices.device_counts import DeviceCounts, devices_of, gpu_classes
from webhook.devices.extended_resources import backing, resources_of
from webhook.devices.needs import Needs, needs
from webhook.devices.selectors import Selectors
from webhook.devices.supply import Supply
from webhook.identity_cache import IdentityCache
from webhook.kube import devices
from webhook.kube.decoding import T
from webhook.kube.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from webhook.kube.objects import Node, Pod
from webhook.placement import NodeInfo, PodClass, Usage
from webhook.placement.topology import Topology
from webhook.policy.values import Policy
from webhook.scheduling.gpus import DEVICES
from webhook.sweeper.extension import Extension, HookInput, ResourcesAdded
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.node_usage import PodsOnNodes, Usages, amended, most_amounts
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.watches import WatchedCollection

logger = logging.getLogger(__name__)

# --- resources of nodes and pods ----------------------------------------------------------------------
# Resources that device claims add to nodes and pods in one pass: see webhook/devices/needs.py.
#
# GPUs by claims are also added as amounts of nodes and pods. These are for display and metrics, not for
# placement.


@dataclass(frozen=True)
class AddedDevices:
    """The devices of nodes, and those that pods request and use. counts: of GPUs."""

    needs: Needs
    counts: "ClaimedGpus"

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The class with the requests of the pod's claims, or with the problem in them."""
        return self.needs.pod_class(pod, pod_class)

    def completed(
        self, nodes: Sequence[NodeInfo], on_nodes: PodsOnNodes, usages: Usages, objects: Mapping[str, Node]
    ) -> tuple[list[NodeInfo], Usages]:
        """The nodes with their devices, and the usages with the devices of claims."""
        made = [self.needs.node(each) for each in nodes]
        claimed = amended(on_nodes, usages, objects, self.needs.concerns, self._usage)
        usages = {**usages, **claimed}
        made, counted = self.counts.counted(self.needs.supply, objects, made, on_nodes, usages)
        return made, {**usages, **counted}

    def devices_of(self, pod: Pod, is_counted: Callable[[str], bool]) -> int | None:
        """See AddedResources."""
        return devices_of(pod, self.needs.supply, is_counted)

    def _usage(self, pod: Pod, node: str, usage: Usage) -> Usage:
        return self.needs.usage(pod, usage)


class ClaimedGpus:
    """Completes nodes and usages; an unchanged node stays the same object."""

    def __init__(self, classes: Collection[str]) -> None:
        """classes: names or shell patterns of the DeviceClasses of GPUs."""
        self._classes = classes
        self._counts: DeviceCounts | None = None
        self._nodes = IdentityCache[tuple[str, int], NodeInfo]()

    def counted(
        self,
        supply: Supply,
        objects: Mapping[str, Node],
        nodes: Sequence[NodeInfo],
        on_nodes: PodsOnNodes,
        usages: Usages,
    ) -> tuple[list[NodeInfo], dict[str, tuple[Usage, ...]]]:
        """The nodes with their GPUs, and the usages of nodes with pods that have GPUs by claims."""
        counts = self._counts
        if counts is None or not counts.serves(supply):
            counts = self._counts = DeviceCounts(supply, self._classes)
        if not counts.counts_any:
            return list(nodes), {}
        found = amended(
            on_nodes,
            usages,
            objects,
            lambda pod: counts.has_any(pod.metadata.uid),
            lambda pod, name, use: _with_gpus(use, counts.of_pod(pod.metadata.uid, objects[name])),
        )
        made = [self._node(each, counts.of_node(objects[each.name])) for each in nodes]
        self._nodes.end_pass()
        return made, found

    def _node(self, node: NodeInfo, gpus: int) -> NodeInfo:
        if not gpus:
            return node
        made = self._nodes.find((node.name, gpus), node)
        if made is not None:
            return made
        made = replace(node, allocatable={**node.allocatable, DEVICES: gpus})
        return self._nodes.keep((node.name, gpus), made, node)


def _with_gpus(use: Usage, gpus: int) -> Usage:
    return replace(use, requests={**use.requests, DEVICES: gpus}) if gpus else use


# --- levels from device attributes --------------------------------------------------------------------
# Topology levels that drivers publish as device attributes: they count as labels of the nodes.


class DeviceLevels:
    """Adds levels to nodes; an unchanged node stays the same object."""

    def __init__(self, topology: Topology) -> None:
        """topology: nodes change only if one of its levels is a device attribute."""
        self._attributes = attribute_keys(topology)
        self._completed = IdentityCache[object, Node]()
        self._logged: Mapping[str, str] = {}

    @property
    def are_wanted(self) -> bool:
        """Whether any level is a device attribute."""
        return bool(self._attributes)

    def of(self, nodes: Mapping[str, Node], supply: Supply | None) -> Mapping[str, Node]:
        """The nodes with the levels of their devices; logs each node whose devices disagree."""
        if not self._attributes or supply is None:
            return nodes
        completed: dict[str, Node] = {}
        reasons: dict[str, str] = {}
        for name, node in nodes.items():
            added, problems = supply.labels(name, node.metadata.labels, self._attributes)
            if problems:
                reasons[name] = "; ".join(problems)
            key = name, tuple(added.items())
            completed[name] = self._completed.find(key, node) or self._completed.keep(
                key, _with_labels(node, added), node
            )
        self._completed.end_pass()
        for name, reason in reasons.items():
            if self._logged.get(name) != reason:
                logger.warning("level_not_known node=%s reason=%r", name, reason)
        self._logged = reasons
        return completed


def _with_labels(node: Node, added: Mapping[str, str]) -> Node:
    metadata = structs.replace(node.metadata, labels={**node.metadata.labels, **added})
    return structs.replace(node, metadata=metadata)


# --- claims without GPUs ------------------------------------------------------------------------------
# Gangs that admission gated for claims that turn out to have no GPU.
#
# The DeviceClasses of a claim are in claims and templates, which may be created later than the pod. So
# admission gates every pod with claims. If the policy lists the DeviceClasses of GPUs, the sweeper decides.


def release_without_placement(gangs: Sequence[PodGang], supply: Supply, policy: Policy) -> list[PodGang]:
    """The gangs; those without any GPU become gangs of CPU-only pods that do not wait for one another.

    A gang with a topology request, or with a gate in a pod's manifest, stays as it is.
    """
    return [_of_cpu_pods(gang) if _is_free(gang, supply, policy) else gang for gang in gangs]


def _is_free(gang: PodGang, supply: Supply, policy: Policy) -> bool:
    try:
        return all(_is_of_other_classes(pod, supply, policy) for pod in (*gang.pods, *gang.later))
    except Exception:  # one bad gang must not stop the others
        logger.exception("release_without_placement_failed gang=%s", gang.key)
        return False


def _of_cpu_pods(gang: PodGang) -> PodGang:
    return replace(gang, cpu_pods=frozenset(pod.metadata.uid for pod in gang.pods), alone=True)


def _is_of_other_classes(pod: Pod, supply: Supply, policy: Policy) -> bool:
    if not pod.spec.resource_claims or any(extended_resources.resources_of(pod.spec)):
        return False
    if not keys.REQUEST_ANNOTATIONS.isdisjoint(pod.metadata.annotations):
        return False
    if any(policy.serves_gate(each.name) and each.name != policy.gate for each in pod.spec.scheduling_gates):
        return False
    names = supply.class_names(pod)
    return names is not None and not any(map(policy.is_gpu_class, names))


UNREAD: Final = (
    "the devices of the cluster have not been read yet: the sweeper needs the right to list and watch "
    "{missing} of resource.k8s.io"
)


def _always_frees(before: object, after: object) -> bool:
    return True


def _frees_devices(before: ResourceClaim | None, after: ResourceClaim | None) -> bool:
    """Whether a change of a claim may free devices: an allocation or a new consumer does not."""
    if before is None or after is None:
        return True
    allocation = before.status.allocation
    is_going = before.metadata.deletion_timestamp != after.metadata.deletion_timestamp
    return (
        is_going
        or before.spec != after.spec
        or (allocation is not None and allocation != after.status.allocation)
    )


def _lazy(path: str, kind: str, struct: type[T], frees: Callable[[T, T], bool]) -> WatchedCollection[T]:
    return WatchedCollection(path, kind, struct, is_optional=True, is_lazy=True, frees=frees)


SLICES: Final = _lazy(devices.SLICES, "ResourceSlice", ResourceSlice, _always_frees)
CLASSES: Final = _lazy(devices.CLASSES, "DeviceClass", DeviceClass, _always_frees)
CLAIMS: Final = _lazy(devices.CLAIMS, "ResourceClaim", ResourceClaim, _frees_devices)
TEMPLATES: Final = _lazy(devices.TEMPLATES, "ResourceClaimTemplate", ResourceClaimTemplate, _always_frees)
COLLECTIONS: Final = (SLICES, CLASSES, CLAIMS, TEMPLATES)


@dataclass(frozen=True)
class DeviceMemory:
    """Caches, which only save work. read: the copies that the supply was built from."""

    supply: Supply
    levels: DeviceLevels
    counts: ClaimedGpus
    read: tuple[Mapping[str, Any], ...] = ()


def _is_wanted(given: HookInput) -> bool:
    """Whether a waiting pod requests devices, or some devices are GPUs."""
    classes: Mapping[str, DeviceClass] = given.read((CLASSES,)).get(CLASSES, {})
    gated = given.view.gated
    if gpu_classes(classes, given.settings.gpu_device_classes) or any(
        pod.spec.resource_claims for pod in gated
    ):
        return True
    if not classes:
        return False
    asked = {name for pod in gated for name in resources_of(pod.spec)}
    return not asked.isdisjoint(backing(classes.values()))


def _updated(given: HookInput, memory: DeviceMemory) -> tuple[DeviceMemory, bool]:
    """The memory with the current devices, and whether some may be free now, so that gangs are retried."""
    found, supply = given.read(COLLECTIONS), memory.supply
    missing = [each.path.rpartition("/")[2] for each in COLLECTIONS if each not in found]
    supply.problem = UNREAD.format(missing=", ".join(missing)) if missing else ""
    if missing:
        return memory, False
    read = tuple(found[each] for each in COLLECTIONS)
    is_freed = not memory.read or supply.is_undecided
    if is_freed or any(now is not before for now, before in zip(read, memory.read, strict=True)):
        slices, classes, claims, templates = read
        supply.update(slices.values(), classes, claims, templates)
    return replace(memory, read=read), is_freed


class DeviceClaims(Extension):
    """Adds the devices of nodes, and what pods request of them."""

    name = "device_claims"
    collections = COLLECTIONS

    def add_resources(
        self, given: HookInput, memory: DeviceMemory | None
    ) -> tuple[ResourcesAdded, DeviceMemory | None]:
        """Add devices if a pod waits for some, they count as GPUs, or a level is a device attribute."""
        settings, view = given.settings, given.view
        memory = memory or DeviceMemory(
            Supply(Selectors(given.clock)),
            DeviceLevels(settings.topology),
            ClaimedGpus(settings.gpu_device_classes),
        )
        if not (memory.levels.are_wanted or _is_wanted(given)):
            return ResourcesAdded(view.nodes), memory
        memory, is_freed = _updated(given, memory)
        nodes = memory.levels.of(view.nodes, memory.supply)
        unbound, gated = view.index.of[PodTrait.UNBOUND], view.index.of[PodTrait.GATED]
        # Bound pods share no claim with waiting ones, and are the most.
        sent = [pod for uid, pod in unbound.items() if uid not in gated]
        found = needs(view.gated, sent, nodes, memory.supply, most_amounts(len(nodes)), view.gang_of)
        return ResourcesAdded(nodes, AddedDevices(found, memory.counts), is_freed), memory

    def complete_gangs(self, given: HookInput) -> Sequence[PodGang]:
        """Release gangs without a placement if none of their claims has a GPU."""
        supplies = [each.needs.supply for each in given.view.added if isinstance(each, AddedDevices)]
        if given.policy is None or not supplies or given.policy.takes_every_class:
            return given.gangs
        return release_without_placement(given.gangs, supplies[0], given.policy)


DEVICE_CLAIMS: Final = DeviceClaims()
