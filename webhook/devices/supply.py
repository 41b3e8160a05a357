"""The devices and claims of one pass: the free devices of each node, and those that filters match. Pure.

Results on a slice, a selector or a node are cached while their input stays the same. So a pass over a cluster
with few changes computes little.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeVar

from webhook.devices.allocate import tolerates
from webhook.devices.attribute_levels import labels_by_attributes
from webhook.devices.claim_capacity import ClaimCapacity
from webhook.devices.claims import Asked, Filter, UnmodelledError, read, read_amounts
from webhook.devices.extended_resources import amounts_of, backing, resources_of
from webhook.devices.pools import NodePool, OneDevice, Pools
from webhook.devices.selectors import SelectorError, Selectors, UndecidedError
from webhook.devices.shares import NOTHING, DeviceId, PoolId, Taken, taken_of
from webhook.kube.affinity import NodeSelector
from webhook.kube.devices import (
    EXTENDED,
    ClaimAllocation,
    ClaimStatus,
    DeviceClaim,
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from webhook.kube.objects import Pod
from webhook.placement.model import NodeInfo

MOST_SHARES: Final = 1024
"""The most shares of one device that are counted."""

MOST_FILTERS: Final = 256
"""The most filters with cached matches; beyond that the cache is cleared. Users may write more."""

R = TypeVar("R")
Labels = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class NodeDevices:
    """The devices of a node. taken: the allocations of these, and of others in the same pools."""

    pools: tuple[NodePool, ...]
    taken: Taken


@dataclass
class Supply:
    """The supply of devices, kept across passes. problem: why it is unknown, "" if it is known.

    is_undecided: whether a result is missing for lack of time; the next update continues.
    """

    selectors: Selectors = field(default_factory=Selectors)
    problem: str = ""
    is_undecided: bool = False
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    templates: Mapping[str, ResourceClaimTemplate] = field(default_factory=dict)
    backing: Mapping[str, str] = field(default_factory=dict)
    """Extended resource -> the DeviceClass that backs it."""
    _extended: Mapping[tuple[str, str], ClaimAllocation] = field(default_factory=dict)
    """kube-scheduler's allocations for extended resources, by namespace and uid of the pods."""
    _pools: Pools = field(default_factory=Pools)
    _nodes: dict[str, tuple[Labels, NodeDevices]] = field(default_factory=dict)
    _taken: dict[PoolId, Taken] = field(default_factory=dict)
    _matched: dict[Filter, dict[OneDevice, bool | str]] = field(default_factory=dict)
    _reached: dict[Filter, frozenset[OneDevice]] = field(default_factory=dict)
    _touched: dict[Filter, frozenset[Hashable]] = field(default_factory=dict)
    _slices: int = 0
    """The number of changes of slices."""
    _labels: dict[str, tuple[Labels, int, Labels, list[str]]] = field(default_factory=dict)
    _totals: dict[Filter, dict[tuple[NodePool, ...], int]] = field(default_factory=dict)
    _named: dict[Hashable, dict[tuple[NodePool, ...], frozenset[DeviceId]]] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _asked: dict[str, tuple[object, Asked | str]] = field(default_factory=dict)
    _amounts: dict[object, dict[NodeDevices, int]] = field(default_factory=dict)
    _completed: dict[str, tuple[NodeInfo, Mapping[str, int], NodeInfo]] = field(default_factory=dict)
    _claim_capacity: ClaimCapacity = field(default_factory=ClaimCapacity)

    def update(
        self,
        slices: Iterable[ResourceSlice],
        classes: Mapping[str, DeviceClass],
        claims: Mapping[str, ResourceClaim],
        templates: Mapping[str, ResourceClaimTemplate],
    ) -> None:
        """Update to the current objects. claims and templates by "namespace/name"."""
        self.problem, self.is_undecided = "", False
        self.selectors.begin()
        self._claim_capacity.begin()
        if self._pools.update(slices):
            self._slices += 1
            self._nodes.clear()
            self._named.clear()
            devices = frozenset(self._pools.devices())
            matched = self._matched
            self._forget_filters()
            self._matched = {
                filter_: {device: found for device, found in known.items() if device in devices}
                for filter_, known in matched.items()
            }
        if classes != self.classes:
            self._asked.clear()
            self.backing = backing(classes.values())
        self._extended = _allocations_of_extended_resources(claims.values())
        self.classes, self.claims, self.templates = classes, claims, templates
        there = {f"claim {name}" for name in claims} | {f"template {name}" for name in templates}
        self._asked = {name: known for name, known in self._asked.items() if name in there}
        self._taken = taken_of(
            each
            for claim in claims.values()
            if claim.status.allocation is not None
            for each in claim.status.allocation.devices.results
        )

    def on(self, node: str, labels: Labels) -> NodeDevices:
        """The devices of a node; the same object while nothing changes."""
        known = self._nodes.get(node)
        if known is None or known[0] is not labels:
            pools = known[1].pools if known and known[0] == labels else self._pools.on(node, labels)
            known = labels, NodeDevices(pools, NOTHING)
        there = known[1]
        taken = NOTHING
        for pool in there.pools:
            if pool.id in self._taken:
                more = self._taken[pool.id].among(pool.counted)
                taken = taken.plus(more.devices, more.shares.items())
        if taken != there.taken:
            there = NodeDevices(there.pools, taken)
        self._nodes[node] = known[0], there
        return there

    def asked(self, name: str, spec_of: ResourceClaim | ResourceClaimTemplate) -> Asked:
        """The requests of a claim, or of a template's claim. Raises UnmodelledError. name: the cache key."""
        known = self._asked.get(name)
        if known is None or known[0] is not spec_of:
            devices = (spec_of.spec if isinstance(spec_of, ResourceClaim) else spec_of.spec.spec).devices
            try:
                known = spec_of, _same(read(devices, self.classes))
            except UnmodelledError as error:
                known = spec_of, str(error)
            self._asked[name] = known
        if isinstance(known[1], str):
            raise UnmodelledError(known[1])
        return known[1]

    def extended(self, pod: Pod) -> Asked | NodeSelector | None:
        """The requests of kube-scheduler's claim for a pod's extended resources, or its nodes once allocated.

        None if there is neither.
        """
        amounts = amounts_of(pod, self.backing)
        if not amounts:
            return None
        given = self._extended.get((pod.metadata.namespace, pod.metadata.uid))
        if given is not None:
            return given.node_selector
        problem = self.problem
        if not problem:
            try:
                return _same(read_amounts(amounts, self.classes))
            except UnmodelledError as error:
                problem = f"for its extended resources it {error}"
        return _same(Asked((), resources=tuple(each.resource for each in amounts), problem=problem))

    def labels(self, node: str, labels: Labels, attributes: Sequence[str]) -> tuple[Labels, list[str]]:
        """The node's labels from attributes of its devices, see labels_by_attributes; cached."""
        known = self._labels.get(node)
        if known is None or known[0] is not labels or known[1] != self._slices:
            before = known[2] if known is not None else {}
            found, problems = labels_by_attributes(node, self._pools.on(node, labels), attributes, before)
            known = self._labels[node] = labels, self._slices, found, problems
        return known[2], known[3]

    def class_names(self, pod: Pod) -> frozenset[str] | None:
        """The DeviceClasses of a pod's claims, None while a claim or template is missing."""
        names: set[str] = set()
        for found in self.claims_of(pod):
            if self.problem or found is None:
                return None
            for request in found[0].asked:
                names.update(choice.device_class_name for choice in request.choices)
        return frozenset(names)

    def claims_of(self, pod: Pod) -> Iterator[tuple[DeviceClaim, ClaimStatus] | None]:
        """The requests and status of each claim of a pod; None for a missing claim."""
        namespace = pod.metadata.namespace
        made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses}
        for each in pod.spec.resource_claims:
            claim = self.claims.get(f"{namespace}/{each.resource_claim_name or made.get(each.name, '')}")
            template = self.templates.get(f"{namespace}/{each.resource_claim_template_name}")
            if claim is not None:
                yield claim.spec.devices, claim.status
            elif template is not None and not each.resource_claim_name:
                yield template.spec.spec.devices, ClaimStatus()
            else:
                yield None

    def asks(self, pod: Pod) -> bool:
        """Whether a pod requests devices, by claims or by resources that a class backs."""
        if pod.spec.resource_claims:
            return True
        return not self.backing.keys().isdisjoint(resources_of(pod.spec))

    def matches(self, filter_: Filter, device: OneDevice) -> bool:
        """Whether all selectors of a filter match a device. Raises SelectorError."""
        known = self._matched.setdefault(filter_, {})
        found = known.get(device)
        if found is None:
            try:
                found = all(self.selectors.matches(each, device.described) for each in filter_.expressions)
            except UndecidedError:
                self.is_undecided = True
                raise
            except SelectorError as error:
                found = str(error)
            known[device] = found
        if isinstance(found, str):
            raise SelectorError(found)
        return found

    def amount_of(self, resource: R, there: NodeDevices, amount: Callable[[R, NodeDevices], int]) -> int:
        """An amount of a node, recomputed only after its devices change."""
        known = self._amounts.setdefault(resource, {})
        found = known.get(there)
        if found is None:
            found = known[there] = amount(resource, there)
        return found

    def completed(self, node: NodeInfo, amounts: Mapping[str, int]) -> NodeInfo:
        """A node with more amounts; the same object for the same amounts."""
        known = self._completed.get(node.name)
        if known is None or known[0] is not node or known[1] != amounts:
            made = replace(node, allocatable={**node.allocatable, **amounts})
            known = self._completed[node.name] = node, amounts, made
        return known[2]

    def _forget_filters(self) -> None:
        self._matched = {}
        self._reached.clear()
        self._touched.clear()
        self._numbers.clear()
        self._totals.clear()

    def keep(self, resources: Collection[object], nodes: Mapping[str, object]) -> None:
        """Drop the amounts of other resources, of older node states and of deleted nodes."""
        if self._claim_capacity.divide(len(resources)):
            self._amounts.clear()
        if max(len(self._matched), len(self._reached)) > MOST_FILTERS:
            self._forget_filters()
        for gone in self._nodes.keys() - nodes.keys():
            del self._nodes[gone]
            self._completed.pop(gone, None)
        there = {each for _, each in self._nodes.values()} if resources else set()
        self._amounts = {
            each: {key: amount for key, amount in self._amounts.get(each, {}).items() if key in there}
            for each in resources
        }

    def pods(self, there: NodeDevices, claims: tuple[Asked, ...], most: int) -> int:
        """How many pods with such claims fit on a node. Raises UndecidedError."""
        try:
            return self._claim_capacity.pods(there.pools, there.taken, claims, self.matches, most)
        except UndecidedError:
            self.is_undecided = True
            raise

    def free(self, there: NodeDevices, filter_: Filter) -> int:
        """The number of devices of a node that a request may get, in order, until a selector fails."""
        count = 0
        for pool in there.pools:
            for device in pool.devices:
                if device.id in there.taken.devices:
                    continue
                try:
                    matches = self.matches(filter_, device)
                except UndecidedError:
                    raise
                except SelectorError:
                    return count
                usable = matches and not device.unmodelled
                count += usable and tolerates(filter_.tolerations, device.taints)
        return count

    def total(self, there: NodeDevices, filter_: Filter) -> int:
        """The number of matching devices of a node, allocated or tainted included; a shared device counts
        many.
        """
        known = self._totals.setdefault(filter_, {})
        if there.pools not in known:
            devices = (device for pool in there.pools for device in pool.devices)
            found = [device for device in devices if self._may_match(filter_, device)]
            known[there.pools] = sum(MOST_SHARES if each.is_shared else 1 for each in found)
        return known[there.pools]

    def named(
        self, there: NodeDevices, what: Hashable, is_one: Callable[[OneDevice], bool]
    ) -> frozenset[DeviceId]:
        """The devices of a node that meet a condition. what: the cache key, valid while slices stay."""
        known = self._named.setdefault(what, {})
        if there.pools not in known:
            devices = (device for pool in there.pools for device in pool.devices)
            found = frozenset(device.id for device in devices if is_one(device))
            if self.is_undecided:
                return found
            known[there.pools] = found
        return known[there.pools]

    def reached(self, filter_: Filter) -> frozenset[OneDevice]:
        """All devices of all nodes that a request may get or fails on, allocated ones included."""
        known = self._reached.get(filter_)
        if known is None:
            found = (each for each in self._pools.devices() if self._may_match(filter_, each))
            known = self._reached[filter_] = frozenset(found)
        return known

    def divides(self, filter_: Filter) -> bool:
        """Whether any of these devices is allocated in parts."""
        return bool(
            self.number_of(
                ("divides", filter_), lambda: any(each.is_divided for each in self.reached(filter_))
            )
        )

    def touched(self, filter_: Filter) -> frozenset[Hashable]:
        """The devices of `reached`, and the counter sets that they consume."""
        known = self._touched.get(filter_)
        if known is None:
            found = self.reached(filter_)
            sets = ((device.id[:2], name) for device in found for (name, _), _ in device.counters)
            known = self._touched[filter_] = frozenset((*found, *sets))
        return known

    def number_of(self, what: Hashable, work_out: Callable[[], int]) -> int:
        """A number that depends on all devices, recomputed only after slices change."""
        known = self._numbers.get(what)
        if known is None:
            known = self._numbers[what] = work_out()
        return known

    def _may_match(self, filter_: Filter, device: OneDevice) -> bool:
        try:
            return self.matches(filter_, device)
        except UndecidedError:
            raise
        except SelectorError:
            return True


def _allocations_of_extended_resources(
    claims: Iterable[ResourceClaim],
) -> dict[tuple[str, str], ClaimAllocation]:
    """kube-scheduler's allocations for extended resources, by namespace and uid of the pods."""
    return {
        (claim.metadata.namespace, owner.uid): allocation
        for claim in claims
        if claim.metadata.annotations.get(EXTENDED) == "true"
        and (owner := claim.metadata.controller)
        and (allocation := claim.status.allocation)
    }


@lru_cache(maxsize=4096)
def _same(asked: Asked) -> Asked:
    """One object for all equal values, so that they compare fast."""
    return asked
