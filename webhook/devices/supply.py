"""Devices and claims at one moment: which devices of which nodes are free, and who matches which. Pure.

What is worked out of a slice, a selector or a node stays while what it rests on is the same, so a pass over a
cluster in which little has changed works out little.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from webhook.devices.allocate import Given, allocate, tolerates
from webhook.devices.claims import Asked, Filter, UnmodelledError, read
from webhook.devices.pools import DeviceId, NodePool, OneDevice, PoolId, Pools
from webhook.devices.selectors import SelectorError, Selectors, UndecidedError
from webhook.kube.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from webhook.placement.model import NodeInfo

R = TypeVar("R")
Labels = Mapping[str, str]


@dataclass(frozen=True, eq=False)
class NodeDevices:
    """What a node has. taken: of these, what claims have been given."""

    pools: tuple[NodePool, ...]
    taken: frozenset[DeviceId]


@dataclass
class Supply:
    """What there is to be given, kept from pass to pass. problem: why that is not known, "" if it is.

    is_undecided: whether some selector could not be evaluated for want of time.
    """

    selectors: Selectors = field(default_factory=Selectors)
    problem: str = ""
    is_undecided: bool = False
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    claims: Mapping[str, ResourceClaim] = field(default_factory=dict)
    templates: Mapping[str, ResourceClaimTemplate] = field(default_factory=dict)
    _pools: Pools = field(default_factory=Pools)
    _nodes: dict[str, tuple[Labels, NodeDevices]] = field(default_factory=dict)
    _taken: dict[PoolId, set[DeviceId]] = field(default_factory=dict)
    _matched: dict[Filter, dict[OneDevice, bool | str]] = field(default_factory=dict)
    _reached: dict[Filter, frozenset[OneDevice]] = field(default_factory=dict)
    _asked: dict[str, tuple[object, Asked | str]] = field(default_factory=dict)
    _amounts: dict[object, dict[NodeDevices, int]] = field(default_factory=dict)
    _completed: dict[str, tuple[NodeInfo, Mapping[str, int], NodeInfo]] = field(default_factory=dict)

    def update(
        self,
        slices: Iterable[ResourceSlice],
        classes: Mapping[str, DeviceClass],
        claims: Mapping[str, ResourceClaim],
        templates: Mapping[str, ResourceClaimTemplate],
    ) -> None:
        """Take in what there is now. claims and templates by "namespace/name"."""
        self.problem, self.is_undecided = "", False
        self.selectors.begin()
        if self._pools.update(slices):
            self._nodes.clear()
            self._matched.clear()
            self._reached.clear()
        if classes != self.classes:
            self._asked.clear()
        self.classes, self.claims, self.templates = classes, claims, templates
        self._taken = {}
        for claim in claims.values():
            allocation = claim.status.allocation
            for each in allocation.devices.results if allocation is not None else ():
                if not each.admin_access:
                    identity = each.driver, each.pool, each.device
                    self._taken.setdefault(identity[:2], set()).add(identity)

    def on(self, node: str, labels: Labels) -> NodeDevices:
        """What a node has; the very same value while nothing of it has changed."""
        known = self._nodes.get(node)
        if known is None or known[0] is not labels:
            pools = known[1].pools if known and known[0] == labels else self._pools.on(node, labels)
            known = labels, NodeDevices(pools, frozenset())
        there = known[1]
        taken = frozenset().union(*(self._taken.get(pool.id, ()) for pool in there.pools))
        if taken != there.taken:
            there = NodeDevices(there.pools, taken)
        self._nodes[node] = known[0], there
        return there

    def asked(self, name: str, spec_of: ResourceClaim | ResourceClaimTemplate) -> Asked:
        """What a claim, or one of a template, asks for. Raises UnmodelledError. name: keeps the answer."""
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

    def matches(self, filter_: Filter, device: OneDevice) -> bool:
        """Whether all selectors of a filter are true of a device. Raises SelectorError."""
        known = self._matched.setdefault(filter_, {})
        said = known.get(device)
        if said is None:
            try:
                said = all(self.selectors.matches(each, device.described) for each in filter_.expressions)
            except UndecidedError:
                self.is_undecided = True
                raise
            except SelectorError as error:
                said = str(error)
            known[device] = said
        if isinstance(said, str):
            raise SelectorError(said)
        return said

    def kept(self, resource: R, there: NodeDevices, amount: Callable[[R, NodeDevices], int]) -> int:
        """An amount of what a node has, worked out anew only when its devices have changed."""
        known = self._amounts.setdefault(resource, {})
        said = known.get(there)
        if said is None:
            said = known[there] = amount(resource, there)
        return said

    def completed(self, node: NodeInfo, amounts: Mapping[str, int]) -> NodeInfo:
        """A node with more amounts; the very same value for the same ones."""
        known = self._completed.get(node.name)
        if known is None or known[0] is not node or known[1] != amounts:
            made = replace(node, allocatable={**node.allocatable, **amounts})
            known = self._completed[node.name] = node, amounts, made
        return known[2]

    def keep(self, resources: Collection[object]) -> None:
        """Forget the amounts of others, and those of nodes as they were before."""
        there = {each for _, each in self._nodes.values()}
        self._amounts = {
            each: {key: amount for key, amount in self._amounts.get(each, {}).items() if key in there}
            for each in resources
        }

    def fits(self, there: NodeDevices, claims: tuple[Asked, ...], taken: frozenset[DeviceId]) -> Given:
        """What a pod with these claims would be given on a node of which so much is taken."""
        return allocate(there.pools, taken, claims, self.matches)

    def pods(self, there: NodeDevices, claims: tuple[Asked, ...], most: int) -> int:
        """How many pods with such claims, one after the other, find room on a node."""
        taken, count = there.taken, 0
        while count < most:
            given = self.fits(there, claims, taken)
            if given.fault is not None:
                break
            count += 1
            if not given.devices:
                return most  # they take nothing away
            taken |= given.devices
        return count

    def free(self, there: NodeDevices, filter_: Filter) -> int:
        """How many devices of a node a request may be given, tried in order, before a selector fails."""
        count = 0
        for pool in there.pools:
            for device in pool.devices:
                if device.id in there.taken:
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

    def reached(self, filter_: Filter) -> frozenset[OneDevice]:
        """All devices of all nodes that a request may be given, or fails on, taken or not."""
        known = self._reached.get(filter_)
        if known is None:
            found = (each for each in self._pools.devices() if self._may_match(filter_, each))
            known = self._reached[filter_] = frozenset(found)
        return known

    def _may_match(self, filter_: Filter, device: OneDevice) -> bool:
        try:
            return self.matches(filter_, device)
        except UndecidedError:
            raise
        except SelectorError:
            return True


@lru_cache(maxsize=4096)
def _same(asked: Asked) -> Asked:
    """One value for all that are equal: so they compare at once."""
    return asked
