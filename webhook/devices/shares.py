"""Devices that are allocated in parts: shares of capacities, and counters that several devices consume. Pure.

A device that allows several allocations gives each an amount of all its capacities. A device that consumes
counters, such as a partition of a GPU, can be allocated only while the counters of its pool suffice.

Source of the rules: k8s.io/dynamic-resource-allocation/structured/internal/incubating, consumable_capacity
and checkAvailableCounters.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Final

from labeler.contract.quantities import exact
from webhook.kube.devices import AllocatedDevice, Capacity, CapacityPolicy, Device

PoolId = tuple[str, str]
"""The driver and name of a pool."""

DeviceId = tuple[str, str, str]
"""The driver, pool and name of a device."""

CounterName = tuple[str, str]
"""The set and name of a counter."""

Wanted = tuple[tuple[str, Fraction], ...]
"""The requested amounts of capacities, per device."""

Share = Mapping[str, Fraction]
"""Allocated amounts of a device's capacities, by name."""

_ZERO: Final = Fraction(0)


@dataclass(frozen=True)
class Amount:
    """A capacity: its amount, and the policy for requests (None: requests are used unchanged)."""

    name: str
    value: Fraction
    policy: CapacityPolicy | None = None

    def consumed(self, asked: Fraction | None) -> Fraction:
        """The amount that a request consumes. asked: None if it does not name the capacity."""
        policy = self.policy
        if asked is None:
            return exact(str(policy.default)) if policy and policy.default is not None else self.value
        if policy is None:
            return asked
        if policy.valid_range is not None and policy.valid_range.min is not None:
            least, step = exact(str(policy.valid_range.min)), policy.valid_range.step
            if asked < least:
                return least
            if step is None:
                return asked
            whole, each = ceil(least), ceil(exact(str(step)))
            return Fraction(whole + each * -((whole - ceil(asked)) // each))
        return next((each for each in map(exact, map(str, policy.valid_values)) if asked <= each), asked)

    def allows(self, consumed: Fraction) -> bool:
        """Whether the policy allows this amount."""
        policy = self.policy
        if policy is None or (policy.default is not None and consumed == exact(str(policy.default))):
            return True
        if policy.valid_range is not None:
            bounds = policy.valid_range
            if bounds.max is not None and consumed > exact(str(bounds.max)):
                return False
            if bounds.step is None or bounds.min is None:
                return True
            return (ceil(consumed) - ceil(exact(str(bounds.min)))) % ceil(exact(str(bounds.step))) == 0
        return not policy.valid_values or consumed in map(exact, map(str, policy.valid_values))


def amounts_of(device: Device) -> tuple[Amount, ...]:
    """The capacities of a device. Raises ValueError for an invalid quantity."""
    return tuple(_amount(name, each) for name, each in device.capacity.items())


def _amount(name: str, capacity: Capacity) -> Amount:
    return Amount(name, exact(str(capacity.value)), capacity.request_policy)


def counters_of(device: Device) -> tuple[tuple[CounterName, Fraction], ...]:
    """The counters that a device consumes. Raises ValueError for an invalid quantity."""
    return tuple(
        ((each.counter_set, name), exact(str(counter.value)))
        for each in device.consumes_counters
        for name, counter in each.counters.items()
    )


def share_of(amounts: Iterable[Amount], wanted: Wanted, used: Share, pending: Share) -> Share | None:
    """The share of a request, None if a capacity does not suffice or is missing.

    used, pending: the shares of others, and of this pod, of the device.
    """
    asked, given = dict(wanted), {}
    for each in amounts:
        amount = given[each.name] = each.consumed(asked.pop(each.name, None))
        there = used.get(each.name, _ZERO) + pending.get(each.name, _ZERO)
        if not each.allows(amount) or there + amount > each.value:
            return None
    return None if asked else given


@dataclass(frozen=True)
class Taken:
    """The allocated parts of some devices: whole devices, and shares of shared ones."""

    devices: frozenset[DeviceId] = frozenset()
    shares: Mapping[DeviceId, Share] = field(default_factory=dict)

    def plus(self, devices: Iterable[DeviceId], shares: Iterable[tuple[DeviceId, Share]]) -> "Taken":
        """With further allocations."""
        added = dict(self.shares)
        for device, share in shares:
            added[device] = sum_of(added.get(device, {}), share)
        return Taken(self.devices.union(devices), added)

    def among(self, devices: frozenset[DeviceId]) -> "Taken":
        """The allocated parts of these devices."""
        shared = devices.intersection(self.shares) if self.shares else ()
        return Taken(self.devices & devices, {each: self.shares[each] for each in shared})

    def holds(self, device: DeviceId) -> bool:
        """Whether the device, or a share of it, is allocated."""
        return device in self.devices or device in self.shares


NOTHING: Final = Taken()


def taken_of(given: Iterable[AllocatedDevice]) -> dict[PoolId, Taken]:
    """The allocated devices by pool. Allocations with admin access take nothing from others."""
    devices: dict[PoolId, set[DeviceId]] = {}
    shares: dict[PoolId, dict[DeviceId, Share]] = {}
    for each in given:
        if each.admin_access:
            continue
        device = each.driver, each.pool, each.device
        if each.share_id:
            share = {name: _given(amount) for name, amount in each.consumed_capacity.items()}
            mine = shares.setdefault(device[:2], {})
            mine[device] = sum_of(mine.get(device, {}), share)
        else:
            devices.setdefault(device[:2], set()).add(device)
    return {
        pool: Taken(frozenset(devices.get(pool, ())), shares.get(pool, {}))
        for pool in devices.keys() | shares.keys()
    }


def _given(amount: str | int | float) -> Fraction:
    """An amount that kube-scheduler wrote; an unreadable one counts as everything."""
    try:
        return exact(str(amount))
    except ValueError:
        return Fraction(10**30)


def sum_of(one: Share, other: Share) -> Share:
    """The sum of two shares."""
    return {name: one.get(name, _ZERO) + other.get(name, _ZERO) for name in (*one, *other)}


class Counters:
    """The remaining counters of a pool during a search."""

    def __init__(
        self,
        there: Mapping[CounterName, Fraction],
        consumers: Iterable[tuple[DeviceId, Sequence[tuple[CounterName, Fraction]]]],
        taken: Taken,
    ) -> None:
        """consumers: all devices of the pool that consume counters, on any node."""
        self._left = dict(there)
        for device, consumed in consumers:
            if taken.holds(device):
                self._add(consumed, -1)

    @property
    def left(self) -> tuple[tuple[CounterName, Fraction], ...]:
        """The remaining amount of each counter."""
        return tuple(sorted(self._left.items()))

    def _add(self, consumed: Iterable[tuple[CounterName, Fraction]], sign: int) -> None:
        for name, amount in consumed:
            if name in self._left:
                self._left[name] += sign * amount

    def take(self, consumed: Sequence[tuple[CounterName, Fraction]]) -> bool:
        """Consume counters; False, with nothing consumed, if any counter of the pool does not suffice."""
        self._add(consumed, -1)
        if min(self._left.values(), default=_ZERO) >= 0:
            return True
        self._add(consumed, 1)
        return False

    def give_back(self, consumed: Iterable[tuple[CounterName, Fraction]]) -> None:
        """Undo a take."""
        self._add(consumed, 1)


class SharesInUse:
    """Shares of devices during a search: of others, and of the pod."""

    def __init__(self, taken: Taken) -> None:
        self._used = taken.shares
        self._pending: dict[DeviceId, Share] = {}
        self._count: Counter[DeviceId] = Counter()

    def is_begun(self, device: DeviceId) -> bool:
        """Whether any share of the device is allocated, so that its counters are consumed."""
        return bool(self._used.get(device)) or self._count[device] > 0

    def offer(self, device: DeviceId, amounts: Iterable[Amount], wanted: Wanted) -> Share | None:
        """The share that a request would get, None if it does not fit."""
        return share_of(amounts, wanted, self._used.get(device, {}), self._pending.get(device, {}))

    def take(self, device: DeviceId, share: Share) -> None:
        """Allocate a share."""
        self._pending[device] = sum_of(self._pending.get(device, {}), share)
        self._count[device] += 1

    def give_back(self, device: DeviceId, share: Share) -> None:
        """Undo a take."""
        self._pending[device] = sum_of(self._pending[device], {name: -each for name, each in share.items()})
        self._count[device] -= 1
