"""How many pods with the same claims fit on a node: one search for all equal nodes. Pure.

Users may write claims for which a search tries thousands of combinations on every node and finds none. So the
result for a node serves all nodes whose devices differ only in names, and the work of a pass is bounded. Each
class of claims has a share of it, and continues with the next nodes in the next pass.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from webhook.devices.allocate import STEPS, Matches, allocate, tolerates
from webhook.devices.claims import Claims, Filter
from webhook.devices.pools import NodePool, OneDevice
from webhook.devices.selectors import SelectorError, UndecidedError
from webhook.devices.shares import Counters, Taken

STEPS_OF_A_PASS: Final = 20 * STEPS
"""The steps of all searches in one pass: a few seconds of work."""

MOST_CACHED: Final = 100_000
"""The most devices of nodes with cached answers, about 30 MB; beyond that the cache is cleared.

For claims with many filters and constraints each device counts several times, see _breadth.
"""


@dataclass
class ClaimCapacity:
    """The cached answers, and the steps that are left in this pass."""

    most_steps: int = STEPS_OF_A_PASS
    _share: int = STEPS_OF_A_PASS
    _spent: dict[Claims, int] = field(default_factory=dict)
    _known: dict[Hashable, int] = field(default_factory=dict)
    _cut: dict[Hashable, int] = field(default_factory=dict)
    """By the same keys: the share that was too small, for incomplete answers."""
    _cached: int = 0

    def begin(self) -> None:
        """Start a pass: each class of claims has its full share again."""
        self._spent.clear()

    def divide(self, classes: int) -> bool:
        """Give each class of claims the same share of a pass.

        Returns whether the share grew so much that incomplete answers are dropped.
        """
        self._share = max(1, self.most_steps // max(1, classes))
        again = [key for key, share in self._cut.items() if min(2 * share, self.most_steps) <= self._share]
        for key in again:
            del self._cut[key], self._known[key]
        return bool(again)

    def pods(
        self, pools: Sequence[NodePool], taken: Taken, claims: Claims, matches: Matches, most: int
    ) -> int:
        """How many pods with such claims fit one by one, beside the devices taken.

        Raises UndecidedError if the share of these claims is spent; the search continues in the next pass. If
        a full share does not suffice, the pods found so far count, until shares are larger.
        """
        key = claims, most, _likeness(pools, taken, claims, matches)
        known = self._known.get(key)
        if known is None:
            known, is_cut = self._searched(pools, taken, claims, matches, most)
            size = 1 + _breadth(claims) * sum(len(pool.devices) for pool in pools)
            self._cached += size
            if self._cached > MOST_CACHED:
                self._known.clear()
                self._cut.clear()
                self._cached = size
            self._known[key] = known
            if is_cut and self._share < self.most_steps:
                self._cut[key] = self._share
        return known

    def _searched(
        self, pools: Sequence[NodePool], taken: Taken, claims: Claims, matches: Matches, most: int
    ) -> tuple[int, bool]:
        """The number of pods, and whether the share was too small to search for more."""
        spent, count = self._spent.get(claims, 0), 0
        is_first, is_cut = not spent, False
        while count < most:
            limit = max(0, min(STEPS, self._share - spent))
            given = allocate(pools, taken, claims, matches, limit)
            spent = self._spent[claims] = spent + given.steps
            is_cut = given.steps > limit < STEPS
            if is_cut and not is_first:
                raise UndecidedError("the search for its claims continues in the next pass")
            if given.fault is not None:
                break
            count += 1
            if not given.devices and not given.shares:
                return most, False  # they consume nothing
            taken = taken.plus(given.devices, given.shares)
        return count, is_cut


def _breadth(claims: Claims) -> int:
    """The cached entries per device: results and values; the first four are free."""
    filters = {choice.filter for asked in claims for request in asked.requests for choice in request}
    return 1 + (len(filters) + sum(len(asked.conditions) for asked in claims)) // 4


def _likeness(pools: Sequence[NodePool], taken: Taken, claims: Claims, matches: Matches) -> Hashable:
    """A key of a node for these claims: all facts that a search reads, except names."""
    choices = [choice for asked in claims for request in asked.requests for choice in request]
    filters = list(dict.fromkeys(choice.filter for choice in choices))
    compared = list(dict.fromkeys(rule.attribute for asked in claims for rule in asked.conditions))
    is_divided = any(choice.wanted for choice in choices)
    numbers: list[dict[Hashable, int]] = [{} for _ in compared]

    def values(device: OneDevice) -> Iterator[int]:
        """Numbers for the compared attributes; equal numbers mean equal values."""
        for attribute, seen in zip(compared, numbers, strict=True):
            value = device.described.compared(attribute)
            yield -1 if value is None else seen.setdefault(value, len(seen))

    def state(device: OneDevice) -> Hashable:
        parts: Hashable = None
        if is_divided or device.is_divided:
            used = taken.shares.get(device.id)
            share = None if used is None else tuple(sorted(used.items()))
            parts = device.amounts, device.counters, device.is_shared, share
        selections = tuple(_selection(each, device, matches) for each in filters)
        return selections, tuple(values(device)), device.id in taken.devices, bool(device.unmodelled), parts

    return tuple(
        (bool(pool.fault), tuple(map(state, pool.devices)), _counters_left(pool, taken)) for pool in pools
    )


def _counters_left(pool: NodePool, taken: Taken) -> Hashable:
    if not pool.consumers:
        return ()
    return Counters(pool.counters, [(each.id, each.counters) for each in pool.consumers], taken).left


def _selection(filter_: Filter, device: OneDevice, matches: Matches) -> tuple[bool | None, bool]:
    """Whether a filter selects a device (None: it fails), and whether it tolerates the device's taints."""
    try:
        is_selected: bool | None = matches(filter_, device)
    except UndecidedError:
        raise
    except SelectorError:
        is_selected = None
    return is_selected, tolerates(filter_.tolerations, device.taints)
