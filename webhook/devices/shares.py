"""What devices give out in parts: shares of their capacity, and counters that several devices use up. Pure.

A device that allows several allocations gives to each an amount of every one of its capacities. A device that
consumes counters, as a partition of a GPU, can be given only while the counters of its pool last.

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
"""Driver and name."""

DeviceId = tuple[str, str, str]
"""Driver, pool and name."""

CounterName = tuple[str, str]
"""Set and name."""

Wanted = tuple[tuple[str, Fraction], ...]
"""How much of which capacity a request asks for of each device."""

Share = Mapping[str, Fraction]
"""What somebody has been given of a device's capacities, by their names."""

_ZERO: Final = Fraction(0)


@dataclass(frozen=True)
class Amount:
    """A capacity: how much there is, and how requests for it are read (None: as they are)."""

    name: str
    value: Fraction
    policy: CapacityPolicy | None = None

    def consumed(self, asked: Fraction | None) -> Fraction:
        """What is taken for a request, None where it asks for none of it."""
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
        """Whether so much may be taken at once."""
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
    """The capacities of a device. Raises ValueError for what is no quantity."""
    return tuple(_amount(name, each) for name, each in device.capacity.items())


def _amount(name: str, capacity: Capacity) -> Amount:
    return Amount(name, exact(str(capacity.value)), capacity.request_policy)


def counters_of(device: Device) -> tuple[tuple[CounterName, Fraction], ...]:
    """What a device consumes of which counters. Raises ValueError for what is no quantity."""
    return tuple(
        ((each.counter_set, name), exact(str(counter.value)))
        for each in device.consumes_counters
        for name, counter in each.counters.items()
    )


def share_of(amounts: Iterable[Amount], wanted: Wanted, used: Share, pending: Share) -> Share | None:
    """What a request would be given of these capacities, None if one of them is used up, or not there.

    used, pending: what others, and this pod, have been given of the device.
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
    """What of some devices cannot be given any more: whole devices, and of shared ones the shares."""

    devices: frozenset[DeviceId] = frozenset()
    shares: Mapping[DeviceId, Share] = field(default_factory=dict)

    def plus(self, devices: Iterable[DeviceId], shares: Iterable[tuple[DeviceId, Share]]) -> "Taken":
        """With what is given besides."""
        added = dict(self.shares)
        for device, share in shares:
            added[device] = sum_of(added.get(device, {}), share)
        return Taken(self.devices.union(devices), added)

    def among(self, devices: frozenset[DeviceId]) -> "Taken":
        """What of these devices is taken."""
        shared = devices.intersection(self.shares) if self.shares else ()
        return Taken(self.devices & devices, {each: self.shares[each] for each in shared})

    def holds(self, device: DeviceId) -> bool:
        """Whether anybody has been given the device, or a share of it."""
        return device in self.devices or device in self.shares


NOTHING: Final = Taken()


def taken_of(given: Iterable[AllocatedDevice]) -> dict[PoolId, Taken]:
    """What claims have been given, by pools. What is given for admin access is taken from nobody."""
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
    """An amount that kube-scheduler has written; what cannot be read takes all."""
    try:
        return exact(str(amount))
    except ValueError:
        return Fraction(10**30)


def sum_of(one: Share, other: Share) -> Share:
    """Both together."""
    return {name: one.get(name, _ZERO) + other.get(name, _ZERO) for name in (*one, *other)}


class Counters:
    """What is left of a pool's counters while devices are tried."""

    def __init__(
        self,
        there: Mapping[CounterName, Fraction],
        consumers: Iterable[tuple[DeviceId, Sequence[tuple[CounterName, Fraction]]]],
        taken: Taken,
    ) -> None:
        """consumers: all devices of the pool that consume any, on whatever node."""
        self._left = dict(there)
        for device, consumed in consumers:
            if taken.holds(device):
                self._add(consumed, -1)

    @property
    def left(self) -> tuple[tuple[CounterName, Fraction], ...]:
        """What is left of each."""
        return tuple(sorted(self._left.items()))

    def _add(self, consumed: Iterable[tuple[CounterName, Fraction]], sign: int) -> None:
        for name, amount in consumed:
            if name in self._left:
                self._left[name] += sign * amount

    def take(self, consumed: Sequence[tuple[CounterName, Fraction]]) -> bool:
        """Use up; False, and nothing is used, if any counter of the pool does not last."""
        self._add(consumed, -1)
        if min(self._left.values(), default=_ZERO) >= 0:
            return True
        self._add(consumed, 1)
        return False

    def give_back(self, consumed: Iterable[tuple[CounterName, Fraction]]) -> None:
        """Undo a take."""
        self._add(consumed, 1)


class SharesInUse:
    """Shares of devices while a search goes on: of others, and of the pod that is tried."""

    def __init__(self, taken: Taken) -> None:
        self._used = taken.shares
        self._pending: dict[DeviceId, Share] = {}
        self._count: Counter[DeviceId] = Counter()

    def is_begun(self, device: DeviceId) -> bool:
        """Whether somebody has a share of it: its counters are used up by now."""
        return bool(self._used.get(device)) or self._count[device] > 0

    def offer(self, device: DeviceId, amounts: Iterable[Amount], wanted: Wanted) -> Share | None:
        """What a request would be given of it, None if there is no capacity."""
        return share_of(amounts, wanted, self._used.get(device, {}), self._pending.get(device, {}))

    def take(self, device: DeviceId, share: Share) -> None:
        """Give a share."""
        self._pending[device] = sum_of(self._pending.get(device, {}), share)
        self._count[device] += 1

    def give_back(self, device: DeviceId, share: Share) -> None:
        """Undo a take."""
        self._pending[device] = sum_of(self._pending[device], {name: -each for name, each in share.items()})
        self._count[device] -= 1
