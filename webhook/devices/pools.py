"""The devices that each node can use: ResourceSlices combined into pools, as in kube-scheduler. Pure.

Only slices of a pool's highest generation count, and no device is allocated before all of them exist. Devices
of several nodes, and devices that share counters with other nodes, are not modelled. They are ignored, and a
request that only they could meet is reported.

Source of the rules: k8s.io/dynamic-resource-allocation/structured, GatherPools.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Final

from labeler.contract.quantities import exact
from webhook.devices.selectors import Described, described
from webhook.devices.shares import Amount, CounterName, DeviceId, PoolId, amounts_of, counters_of
from webhook.kube.affinity import NodeSelector
from webhook.kube.devices import CounterSet, Device, DeviceTaint, ResourceSlice, SliceSpec
from webhook.placement.eligibility import NAME_FIELD, Term, term_holds
from webhook.scheduling.convert import node_term


@dataclass(frozen=True, eq=False)
class OneDevice:
    """A device. unmodelled: why it is ignored, "" if it is not.

    counters: the amounts that it consumes of its pool's counters. is_shared: whether several claims may have
    shares of it.
    """

    id: DeviceId
    described: Described
    taints: tuple[DeviceTaint, ...] = ()
    unmodelled: str = ""
    amounts: tuple[Amount, ...] = ()
    counters: tuple[tuple[CounterName, Fraction], ...] = ()
    is_shared: bool = False

    @property
    def is_divided(self) -> bool:
        """Whether devices are allocated in parts, so that counting them does not suffice."""
        return self.is_shared or bool(self.counters)


@dataclass(frozen=True, eq=False)
class NodePool:
    """The part of a pool that one node can use. fault: why it cannot be allocated now, "" if it can.

    counters: of the pool. consumers: the devices that consume them, on any node.
    """

    id: PoolId
    devices: tuple[OneDevice, ...] = ()
    fault: str = ""
    counters: Mapping[CounterName, Fraction] = field(default_factory=dict)
    consumers: tuple[OneDevice, ...] = ()

    @cached_property
    def counted(self) -> frozenset[DeviceId]:
        """The devices whose allocation affects the node: those that it can use, and all consumers."""
        return frozenset(each.id for each in (*self.devices, *self.consumers))


@dataclass(frozen=True, eq=False)
class _Read:
    """A slice with its devices, parsed once."""

    source: ResourceSlice
    devices: tuple[OneDevice, ...]
    is_late: bool
    """Whether its devices are tried last, since binding conditions may make them unusable."""


class Pools:
    """All slices, and the pools of each node. Parsed slices are cached while they exist."""

    def __init__(self) -> None:
        self._slices_read: dict[str, _Read] = {}
        self._read: dict[str, _Read] = {}
        self._of_node: dict[str, list[_Read]] = {}
        self._wide: list[_Read] = []
        self._newest: dict[PoolId, tuple[int, int]] = {}
        self._counted: dict[PoolId, _Counted] = {}

    def update(self, slices: Iterable[ResourceSlice]) -> bool:
        """Update to the current slices; returns whether anything changed."""
        before, self._slices_read = self._slices_read, {}
        is_same = True
        for each in slices:
            known = before.get(each.metadata.name)
            if known is None or known.source is not each:
                known, is_same = _read(each), False
            self._slices_read[each.metadata.name] = known
        if is_same and len(before) == len(self._slices_read):
            return False
        self._sort()
        return True

    def _sort(self) -> None:
        self._of_node, self._wide, self._newest = {}, [], {}
        self._read = dict(self._slices_read)
        for name in sorted(self._read):
            spec = self._read[name].source.spec
            pool = (spec.driver, spec.pool.name)
            generation, count = self._newest.get(pool, (spec.pool.generation, 0))
            if spec.pool.generation > generation:
                generation, count = spec.pool.generation, 0
            self._newest[pool] = generation, count + (spec.pool.generation == generation)
        self._counted = self._with_counters()
        for name in sorted(self._read):
            each = self._read[name]
            spec = each.source.spec
            if spec.shared_counters:
                continue
            counted = self._counted.get((spec.driver, spec.pool.name))
            if counted is not None and counted.crossing:
                each = self._read[name] = _without(each, counted.crossing)
            names = _only_for(spec)
            if names is None:
                self._wide.append(each)
            for node in names or ():
                self._of_node.setdefault(node, []).append(each)

    def _with_counters(self) -> dict[PoolId, "_Counted"]:
        """The counters of each pool with counters, from all its slices."""
        sets: dict[PoolId, list[CounterSet]] = {}
        parts: dict[PoolId, list[_Read]] = {}
        for name in sorted(self._read):
            each = self._read[name]
            spec = each.source.spec
            pool = (spec.driver, spec.pool.name)
            if spec.pool.generation == self._newest[pool][0]:
                parts.setdefault(pool, []).append(each)
                if spec.shared_counters:
                    sets.setdefault(pool, []).extend(spec.shared_counters)
        using = {pool for pool, found in parts.items() if any(d.counters for p in found for d in p.devices)}
        return {pool: _counted(sets.get(pool, []), parts[pool]) for pool in sets.keys() | using}

    def devices(self) -> Iterator[OneDevice]:
        """All devices of all nodes."""
        for each in self._read.values():
            yield from each.devices

    def on(self, node: str, labels: Mapping[str, str]) -> tuple[NodePool, ...]:
        """The pools of a node, in the order in which kube-scheduler tries them."""
        found: dict[PoolId, list[tuple[_Read, tuple[OneDevice, ...]]]] = {}
        for each in (*self._of_node.get(node, ()), *self._wide):
            usable = _usable(each, node, labels)
            if usable is not None:
                spec = each.source.spec
                found.setdefault((spec.driver, spec.pool.name), []).append((each, usable))
        pools = [made for pool, parts in found.items() if (made := self._pool(pool, parts)) is not None]
        # kube-scheduler reads the counters of a pool, and its validity, for every node.
        others = (pool for pool, counted in self._counted.items() if counted.has_sets and pool not in found)
        pools += [NodePool(pool, fault=fault) for pool in others if (fault := self._fault(pool))]
        late = {pool for pool, parts in found.items() if any(each.is_late for each, _ in parts)}
        return tuple(sorted(pools, key=lambda pool: (pool.id in late, pool.id)))

    def _fault(self, pool: PoolId) -> str:
        counted = self._counted.get(pool)
        if counted is not None and self._newest[pool][1] != counted.slice_count:
            return UPDATED
        return counted.fault if counted is not None else ""

    def _pool(self, pool: PoolId, parts: list[tuple[_Read, tuple[OneDevice, ...]]]) -> NodePool | None:
        generation, count = self._newest[pool]
        current = [part for part in parts if part[0].source.spec.pool.generation == generation]
        if not current:
            return None
        # Sorted by name as in _sort, with of_node and wide merged.
        current.sort(key=lambda part: part[0].source.metadata.name)
        if count != current[0][0].source.spec.pool.resource_slice_count:
            return NodePool(pool, fault=UPDATED)
        names = [device.name for part, _ in current for device in part.source.spec.devices]
        if len(set(names)) != len(names):
            return NodePool(pool, fault="names a device twice")
        if fault := self._fault(pool):
            return NodePool(pool, fault=fault)
        devices = tuple(device for _, each in current for device in each)
        counted = self._counted.get(pool)
        if counted is None:
            return NodePool(pool, devices)
        return NodePool(pool, devices, counters=counted.counters, consumers=counted.consumers)


UPDATED: Final = "is being updated"


@dataclass(frozen=True)
class _Counted:
    """The counters of a pool. crossing: counter sets that devices of several nodes consume."""

    counters: Mapping[CounterName, Fraction]
    consumers: tuple[OneDevice, ...]
    slice_count: int
    crossing: frozenset[str]
    fault: str
    has_sets: bool


def _counted(sets: list[CounterSet], parts: list[_Read]) -> _Counted:
    counters = {
        (each.name, name): exact(str(counter.value))
        for each in sets
        for name, counter in each.counters.items()
    }
    consumers = tuple(device for part in parts for device in part.devices if device.counters)
    names = [each.name for each in sets]
    fault = "names a set of counters twice" if len(set(names)) != len(names) else ""
    if any(name not in counters for device in consumers for name, _ in device.counters):
        fault = fault or "has devices that use up counters which it does not have"
    users: dict[str, set[str]] = {}
    for part in parts:
        for raw, device in zip(part.source.spec.devices, part.devices, strict=True):
            for (set_name, _), _ in device.counters:
                users.setdefault(set_name, set()).add(_node_of(part.source.spec, raw))
    crossing = frozenset(name for name, nodes in users.items() if len(nodes) > 1)
    count = parts[0].source.spec.pool.resource_slice_count
    return _Counted(counters, consumers, count, crossing, fault, bool(sets))


def _node_of(spec: SliceSpec, device: Device) -> str:
    """The only node that can use a device, "" if there are several."""
    selector = device.node_selector if spec.per_device_node_selection else spec.node_selector
    name = device.node_name if spec.per_device_node_selection else spec.node_name
    return name or _one_node(selector)


def _without(each: _Read, crossing: frozenset[str]) -> _Read:
    """The slice without the devices that consume these counter sets."""
    return replace(
        each,
        devices=tuple(
            replace(device, unmodelled=device.unmodelled or CROSSING)
            if any(name in crossing for (name, _), _ in device.counters)
            else device
            for device in each.devices
        ),
    )


CROSSING: Final = "it shares counters with devices of other nodes"
SHARED: Final = "it is one that several nodes share"


def _read(each: ResourceSlice) -> _Read:
    spec = each.spec
    devices = tuple(_read_device(spec, device) for device in spec.devices)
    return _Read(each, devices, any(device.binding_conditions for device in spec.devices))


def _read_device(spec: SliceSpec, device: Device) -> OneDevice:
    unmodelled = "" if _node_of(spec, device) else SHARED
    if device.node_allocatable_resource_mappings:
        unmodelled = unmodelled or "it represents a resource of its node"
    try:
        amounts, counters = amounts_of(device), counters_of(device)
    except ValueError as error:
        amounts, counters, unmodelled = (), (), unmodelled or str(error)
    return OneDevice(
        (spec.driver, spec.pool.name, device.name),
        described(spec.driver, device),
        device.taints,
        unmodelled,
        amounts,
        counters,
        device.allow_multiple_allocations,
    )


def _only_for(spec: SliceSpec) -> frozenset[str] | None:
    """The only nodes that may use a slice's devices, None if it does not name them all."""
    parts = spec.devices if spec.per_device_node_selection else (Device(),)
    names = {_node_of(spec, each) for each in parts}
    return None if "" in names else frozenset(names)


def _one_node(selector: NodeSelector | None) -> str:
    """The node of a selector that names a single node, else ""."""
    if selector is None or len(selector.node_selector_terms) != 1:
        return ""
    fields = selector.node_selector_terms[0].match_fields
    names = (each.values for each in fields if each.key == NAME_FIELD and each.operator == "In")
    return next((each[0] for each in names if each), "")


def _usable(each: _Read, node: str, labels: Mapping[str, str]) -> tuple[OneDevice, ...] | None:
    """The devices of a slice that this node can use, None if it can use none."""
    spec = each.source.spec
    if spec.node_name:
        return each.devices if spec.node_name == node else None
    if spec.per_device_node_selection:
        pairs = zip(spec.devices, each.devices, strict=True)
        found = tuple(device for raw, device in pairs if _is_for(raw, node, labels))
        return found or None
    return each.devices if spec.all_nodes or selects(spec.node_selector, node, labels) else None


def _is_for(device: Device, node: str, labels: Mapping[str, str]) -> bool:
    if device.node_name:
        return device.node_name == node
    return device.all_nodes or selects(device.node_selector, node, labels)


def selects(selector: NodeSelector | None, node: str, labels: Mapping[str, str]) -> bool:
    """Whether a selector matches a node; None matches no node."""
    return selector is not None and any(term_holds(term, node, labels) for term in terms(selector))


def terms(selector: NodeSelector) -> Iterator[Term]:
    """The alternative terms of a selector."""
    return map(node_term, selector.node_selector_terms)
