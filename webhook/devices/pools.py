"""The devices that each node can use: ResourceSlices put together to pools, as kube-scheduler does it. Pure.

Of a pool only slices of the highest generation count, and nothing of it is given before all are there.
Devices of several nodes, and such as share counters or capacity with others, are not modelled: they are left
out, and a request that only they could meet is told so.

Source of the rules: k8s.io/dynamic-resource-allocation/structured, GatherPools.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from webhook.devices.selectors import Described, described
from webhook.kube.affinity import NodeSelector
from webhook.kube.devices import Device, DeviceTaint, ResourceSlice
from webhook.placement.eligibility import NAME_FIELD, Term, term_holds
from webhook.scheduling.convert import node_term

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""

PoolId = tuple[str, str]


@dataclass(frozen=True, eq=False)
class OneDevice:
    """A device. unmodelled: why it is left out, "" if it is not."""

    id: DeviceId
    described: Described
    taints: tuple[DeviceTaint, ...] = ()
    unmodelled: str = ""


@dataclass(frozen=True)
class NodePool:
    """What of a pool one node can use. fault: why nothing of it can be given at the moment, "" if it can."""

    id: PoolId
    devices: tuple[OneDevice, ...] = ()
    fault: str = ""


@dataclass(frozen=True, eq=False)
class _Read:
    """A slice with its devices, as read once."""

    source: ResourceSlice
    devices: tuple[OneDevice, ...]
    is_late: bool
    """Whether its devices are tried last, as they may turn out to be unusable (binding conditions)."""


class Pools:
    """All slices, and from them the pools of each node. What is read of a slice stays while it is there."""

    def __init__(self) -> None:
        self._read: dict[str, _Read] = {}
        self._of_node: dict[str, list[_Read]] = {}
        self._wide: list[_Read] = []
        self._newest: dict[PoolId, tuple[int, int]] = {}

    def update(self, slices: Iterable[ResourceSlice]) -> bool:
        """Take in the slices that there are now; whether anything is different."""
        before, self._read = self._read, {}
        is_same = True
        for each in slices:
            known = before.get(each.metadata.name)
            if known is None or known.source is not each:
                known, is_same = _read(each), False
            self._read[each.metadata.name] = known
        if is_same and len(before) == len(self._read):
            return False
        self._sort()
        return True

    def _sort(self) -> None:
        self._of_node, self._wide, self._newest = {}, [], {}
        for name in sorted(self._read):
            each = self._read[name]
            spec = each.source.spec
            pool = (spec.driver, spec.pool.name)
            generation, count = self._newest.get(pool, (spec.pool.generation, 0))
            if spec.pool.generation > generation:
                generation, count = spec.pool.generation, 0
            self._newest[pool] = generation, count + (spec.pool.generation == generation)
            if spec.node_name:
                self._of_node.setdefault(spec.node_name, []).append(each)
            else:
                self._wide.append(each)

    def devices(self) -> Iterator[OneDevice]:
        """All devices, of whatever node."""
        for each in self._read.values():
            yield from each.devices

    def on(self, node: str, labels: Mapping[str, str]) -> tuple[NodePool, ...]:
        """The pools of a node, in the order in which kube-scheduler tries them."""
        found: dict[PoolId, list[tuple[_Read, tuple[OneDevice, ...]]]] = {}
        for each in self._of_node.get(node, ()):
            spec = each.source.spec
            if not spec.shared_counters:
                found.setdefault((spec.driver, spec.pool.name), []).append((each, each.devices))
        for each in self._wide:
            usable = _usable(each, node, labels)
            if usable is not None:
                spec = each.source.spec
                found.setdefault((spec.driver, spec.pool.name), []).append((each, usable))
        pools = [made for pool, parts in found.items() if (made := self._pool(pool, parts)) is not None]
        late = {pool for pool, parts in found.items() if any(each.is_late for each, _ in parts)}
        return tuple(sorted(pools, key=lambda pool: (pool.id in late, pool.id)))

    def _pool(self, pool: PoolId, parts: list[tuple[_Read, tuple[OneDevice, ...]]]) -> NodePool | None:
        generation, count = self._newest[pool]
        current = [part for part in parts if part[0].source.spec.pool.generation == generation]
        if not current:
            return None
        # Sorted by name: see _sort, and of_node and wide together.
        current.sort(key=lambda part: part[0].source.metadata.name)
        if count != current[0][0].source.spec.pool.resource_slice_count:
            return NodePool(pool, fault="is being updated")
        devices = tuple(device for _, each in current for device in each)
        names = [device.name for part, _ in current for device in part.source.spec.devices]
        if len(set(names)) != len(names):
            return NodePool(pool, fault="names a device twice")
        return NodePool(pool, devices)


SHARED: Final = "it is one that several nodes share"


def _read(each: ResourceSlice) -> _Read:
    spec = each.spec
    shared = (
        "" if spec.node_name or _one_node(spec.node_selector) or spec.per_device_node_selection else SHARED
    )
    devices = []
    for device in spec.devices:
        unmodelled = shared or _unmodelled(device, spec.per_device_node_selection)
        identity = spec.driver, spec.pool.name, device.name
        devices.append(OneDevice(identity, described(spec.driver, device), device.taints, unmodelled))
    return _Read(each, tuple(devices), any(device.binding_conditions for device in spec.devices))


def _unmodelled(device: Device, says_where: bool) -> str:
    if says_where and not device.node_name and not _one_node(device.node_selector):
        return SHARED
    if device.consumes_counters:
        return "it shares counters with others (a partition)"
    if device.allow_multiple_allocations:
        return "its capacity is shared out among several claims"
    if device.node_allocatable_resource_mappings:
        return "it stands for a resource of its node"
    return ""


def _one_node(selector: NodeSelector | None) -> bool:
    """Whether a selector names a single node."""
    if selector is None or len(selector.node_selector_terms) != 1:
        return False
    fields = selector.node_selector_terms[0].match_fields
    return any(each.key == NAME_FIELD and each.operator == "In" for each in fields)


def _usable(each: _Read, node: str, labels: Mapping[str, str]) -> tuple[OneDevice, ...] | None:
    """What this node can use of a slice that names no node, None if that is nothing."""
    spec = each.source.spec
    if spec.shared_counters:
        return None
    if spec.per_device_node_selection:
        pairs = zip(spec.devices, each.devices, strict=True)
        found = tuple(device for said, device in pairs if _is_for(said, node, labels))
        return found or None
    return each.devices if spec.all_nodes or selects(spec.node_selector, node, labels) else None


def _is_for(device: Device, node: str, labels: Mapping[str, str]) -> bool:
    if device.node_name:
        return device.node_name == node
    return device.all_nodes or selects(device.node_selector, node, labels)


def selects(selector: NodeSelector | None, node: str, labels: Mapping[str, str]) -> bool:
    """Whether a selector (None: of nothing) selects a node."""
    return selector is not None and any(term_holds(term, node, labels) for term in terms(selector))


def terms(selector: NodeSelector) -> Iterator[Term]:
    """The terms of which one must hold."""
    return map(node_term, selector.node_selector_terms)
