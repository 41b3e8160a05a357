"""GPUs by claims (Dynamic Resource Allocation): devices of nodes, and what pods ask for and take of them.

DeviceClasses are read while the cluster serves them: there are few, and they say which extended resources are
claims, and whether there are GPUs to count. The rest is read from the first pass on in which a pod waits with
claims, in which devices are GPUs, or in which a level of the topology is an attribute of devices.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from webhook.devices.counted import gpu_classes
from webhook.devices.extended import backing, resources_of
from webhook.devices.needs import needs
from webhook.devices.selectors import Selectors
from webhook.devices.supply import Supply
from webhook.extensions.device_claims.added_devices import AddedDevices, ClaimedGpus
from webhook.extensions.device_claims.device_levels import DeviceLevels
from webhook.extensions.device_claims.other_claims import release_without_placement
from webhook.kube import devices
from webhook.kube.decoding import T
from webhook.kube.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from webhook.sweeper.extension import Extension, GangsInput, ResourcesAdded, ResourcesInput, WatchedCollection
from webhook.sweeper.observe.added_resources import most_amounts
from webhook.sweeper.observe.gangs import PodGang

UNREAD: Final = (
    "the devices of the cluster have not been read yet: the sweeper needs the right to list and watch "
    "{missing} of resource.k8s.io"
)


def _always_frees(before: object, after: object) -> bool:
    return True


def _frees_devices(before: ResourceClaim | None, after: ResourceClaim | None) -> bool:
    """A claim that is given devices takes some, and who is meant to use it changes none."""
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
    """Caches: without them the same is worked out again. read: the copies that the supply was made of."""

    supply: Supply
    levels: DeviceLevels
    counts: ClaimedGpus
    read: tuple[Mapping[str, Any], ...] = ()


def add_resources(
    given: ResourcesInput, memory: DeviceMemory | None
) -> tuple[ResourcesAdded, DeviceMemory | None]:
    """Devices, where somebody waits for some, counts them, or has a level of them."""
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
    found = needs(view.gated, view.others, nodes, memory.supply, most_amounts(len(nodes)), view.gang_of)
    return ResourcesAdded(nodes, AddedDevices(found, memory.counts), is_freed), memory


def _is_wanted(given: ResourcesInput) -> bool:
    """Whether a waiting pod asks for devices, or some are GPUs."""
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


def _updated(given: ResourcesInput, memory: DeviceMemory) -> tuple[DeviceMemory, bool]:
    """What is known now, and whether gangs are to be asked about again for that."""
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


def complete_gangs(given: GangsInput) -> Sequence[PodGang]:
    """Gangs whose claims are all on other devices than GPUs are released without a placement."""
    supplies = [each.needs.supply for each in given.view.added if isinstance(each, AddedDevices)]
    if given.policy is None or not supplies or given.policy.takes_every_class:
        return given.gangs
    return release_without_placement(given.gangs, supplies[0], given.policy)


DEVICE_CLAIMS: Final = Extension(
    "device_claims",
    collections=COLLECTIONS,
    add_resources=add_resources,
    complete_gangs=complete_gangs,
)
