"""The devices that kube-scheduler would allocate to a pod's claims on one node: its search, in its order.
Pure.

Claim by claim, request by request and device by device, the search takes the first device that fits, and
backtracks if the rest finds none. So the first complete solution is the one that kube-scheduler chooses, as
long as it tries slices and pools by name (1.36).

Source of the algorithm: k8s.io/dynamic-resource-allocation/structured, allocateOne (incubating, which 1.36
uses by default).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from webhook.devices.claims import Asked, Choice, Filter
from webhook.devices.constraints import ConditionState
from webhook.devices.pools import NodePool, OneDevice
from webhook.devices.selectors import SelectorError, UndecidedError
from webhook.devices.shares import Counters, DeviceId, Share, SharesInUse, Taken
from webhook.kube.devices import MOST_DEVICES, DeviceTaint, DeviceToleration

STEPS: Final = 160_000
"""The largest cost of a search for one pod on one node, in devices that are checked."""

_TAKE_STEPS: Final = 8
"""The cost of a device that is taken, or refused because of the search state."""

Matches = Callable[[Filter, OneDevice], bool]
"""Whether the selectors of a filter match a device. Raises SelectorError."""

_BLOCKING: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True)
class Given:
    """The allocation of a solution. devices: whole devices. shares: of shared devices.

    fault: None for a solution, else why there is none ("" if there are too few devices). steps: the cost of
    the search.
    """

    devices: frozenset[DeviceId] = frozenset()
    shares: tuple[tuple[DeviceId, Share], ...] = ()
    fault: str | None = None
    steps: int = 0


def allocate(
    pools: Sequence[NodePool], used: Taken, claims: Sequence[Asked], matches: Matches, most: int = STEPS
) -> Given:
    """The devices for all these claims of one pod, beside the devices in use.

    most: steps after which the search gives up; then its cost is above `most`.
    """
    steps = _SearchCost(most)
    try:
        search = _DeviceSearch(pools, used, claims, matches, steps)
        given = search.taken() if search.run() else Given(fault="")
    except UndecidedError:
        raise
    except (_RefusedError, SelectorError) as error:
        given = Given(fault=str(error))
    return replace(given, steps=steps.spent)


def tolerates(tolerations: Sequence[DeviceToleration], taints: Sequence[DeviceTaint]) -> bool:
    """Whether a request may get a device with these taints."""
    return all(
        any(_covers(each, taint) for each in tolerations) for taint in taints if taint.effect in _BLOCKING
    )


def _covers(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"


class _RefusedError(Exception):
    """kube-scheduler gives up, or the case is not modelled; the text says why."""


class _TooManyError(Exception):
    """A claim would get more devices than a claim may have."""


@dataclass
class _SearchCost:
    """The cost of a search so far."""

    most: int
    spent: int = 0

    def spend(self, steps: int) -> None:
        self.spent += steps
        if self.spent > self.most:
            raise _RefusedError(f"the search for its devices ended at {self.most} steps")


@dataclass(frozen=True)
class _Step:
    """A device that is tried for a request. counters: those that it consumed."""

    device: OneDevice
    choice: Choice
    share: Share
    counters: Counters | None


class _DeviceSearch:
    def __init__(
        self,
        pools: Sequence[NodePool],
        used: Taken,
        claims: Sequence[Asked],
        matches: Matches,
        steps: _SearchCost,
    ) -> None:
        self._pools = pools
        self._claims = claims
        self._matches = matches
        self._used = used.devices
        self._shares = SharesInUse(used)
        self._counters = {
            pool.id: Counters(pool.counters, [(each.id, each.counters) for each in pool.consumers], used)
            for pool in pools
            if pool.consumers
        }
        self._steps = steps
        self._order = [device for pool in pools for device in pool.devices]
        self._given: list[list[_Step]] = [[] for _ in claims]
        self._conditions = [[ConditionState(each) for each in claim.conditions] for claim in claims]
        self._all = {
            choice: self._devices_of(choice)
            for claim in claims
            for request in claim.requests
            for choice in request
            if choice.count is None
        }
        for claim in claims:
            fewest = sum(min(map(self._count, request)) for request in claim.requests)
            if fewest > MOST_DEVICES:
                raise _RefusedError(
                    f"{fewest} devices are asked for at once; a claim gets at most {MOST_DEVICES}"
                )

    def _devices_of(self, choice: Choice) -> list[OneDevice]:
        """The devices of a choice that asks for all devices."""
        for pool in self._pools:
            if pool.fault:
                raise _RefusedError(
                    f"all devices are asked for, and the pool {'/'.join(pool.id)} {pool.fault}"
                )
        found = [device for device in self._order if self._matches(choice.filter, device)]
        for device in found:
            if device.unmodelled:
                raise _RefusedError(f"all devices are asked for, and of {device.id[2]} {device.unmodelled}")
        # A device without the requested capacity is not among them; an allocated one is.
        return [each for each in found if self._offer(each, choice) is not None]

    def _offer(self, device: OneDevice, choice: Choice) -> Share | None:
        """The share that a choice would take of a device's capacities, None if it does not fit."""
        if not device.is_shared and not choice.wanted:
            return {}
        return self._shares.offer(device.id, device.amounts, choice.wanted)

    def _count(self, choice: Choice) -> int:
        return len(self._all[choice]) if choice.count is None else choice.count

    def taken(self) -> Given:
        """The allocation, which no other pod may use."""
        steps = [step for given in self._given for step in given if not step.choice.admin]
        return Given(
            frozenset(step.device.id for step in steps if not step.device.is_shared),
            tuple((step.device.id, step.share) for step in steps if step.device.is_shared),
        )

    def run(self) -> bool:
        """Whether there is a solution."""
        return self._claim(0)

    def _claim(self, number: int) -> bool:
        if number >= len(self._claims):
            return True
        try:
            return self._request(number, 0)
        except _TooManyError:
            return False

    def _request(self, claim: int, number: int) -> bool:
        requests = self._claims[claim].requests
        if number >= len(requests):
            return self._claim(claim + 1)
        choices = requests[number]
        if len(choices) == 1 and "/" not in choices[0].name:
            return self._choice(claim, number, choices[0])
        too_many = 0
        for choice in choices:
            try:
                if self._choice(claim, number, choice):
                    return True
            except _TooManyError:
                too_many += 1
        if too_many == len(choices):
            raise _TooManyError
        return False

    def _choice(self, claim: int, number: int, choice: Choice) -> bool:
        if choice.count is None:
            devices = self._all[choice]
            return bool(devices) and self._each(claim, number, choice, devices, 0)
        return self._some(claim, number, choice, 0, choice.count)

    def _some(self, claim: int, number: int, choice: Choice, start: int, missing: int) -> bool:
        """Allocate `missing` more devices, from number `start` on."""
        if not missing:
            return self._request(claim, number + 1)
        if len(self._given[claim]) + missing > MOST_DEVICES:
            raise _TooManyError
        for position in range(start, len(self._order)):
            self._steps.spend(1)
            device = self._order[position]
            if self._in_use(device, choice, claim) or not self._matches(choice.filter, device):
                continue
            if not self._take(device, choice, claim):
                continue
            if self._some(claim, number, choice, position + 1, missing - 1):
                return True
            self._give_back(claim)
        return False

    def _each(self, claim: int, number: int, choice: Choice, devices: list[OneDevice], done: int) -> bool:
        """Allocate all of these devices from number `done` on."""
        if done == len(devices):
            return self._request(claim, number + 1)
        if len(self._given[claim]) + len(devices) - done > MOST_DEVICES:
            raise _TooManyError
        device = devices[done]
        if self._in_use(device, choice, claim) or not self._take(device, choice, claim):
            return False
        if self._each(claim, number, choice, devices, done + 1):
            return True
        self._give_back(claim)
        return False

    def _in_use(self, device: OneDevice, choice: Choice, claim: int) -> bool:
        if device.is_shared:
            return not choice.admin and device.id in self._used  # allocated before it was shared
        if choice.admin:
            return any(device is step.device for step in self._given[claim])
        # Devices that this pod gets with admin access are in use for its other claims too.
        return device.id in self._used or any(device is step.device for each in self._given for step in each)

    def _take(self, device: OneDevice, choice: Choice, claim: int) -> bool:
        self._steps.spend(_TAKE_STEPS)
        if device.unmodelled or not tolerates(choice.filter.tolerations, device.taints):
            return False
        counters = self._counters.get(device.id[:2]) if device.counters else None
        if counters is not None and device.is_shared and self._shares.is_begun(device.id):
            counters = None  # the first share of the device consumed them
        if counters is not None and not counters.take(device.counters):
            return False
        share = self._constrained(device, choice, claim)
        if share is None:
            if counters is not None:
                counters.give_back(device.counters)
            return False
        if device.is_shared:
            self._shares.take(device.id, share)
        self._given[claim].append(_Step(device, choice, share, counters))
        return True

    def _constrained(self, device: OneDevice, choice: Choice, claim: int) -> Share | None:
        """The share of the device, after the claim's constraints accept it; None if it is refused."""
        states = self._conditions[claim]
        for number, each in enumerate(states):
            if not each.add(choice, device):
                for before in states[:number]:
                    before.remove(choice)
                if choice.count is None:  # kube-scheduler treats it as an error in the claim
                    raise _RefusedError(f"all devices are asked for, and {device.id[2]} breaks a constraint")
                return None
        share = self._offer(device, choice)
        if share is None:
            for each in states:
                each.remove(choice)
        return share

    def _give_back(self, claim: int) -> None:
        step = self._given[claim].pop()
        if step.device.is_shared:
            self._shares.give_back(step.device.id, step.share)
        if step.counters is not None:
            step.counters.give_back(step.device.counters)
        for each in self._conditions[claim]:
            each.remove(step.choice)
