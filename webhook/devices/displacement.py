"""Displacement: how many claims of one class a device allocated to another class may block. Pure.

A whole device blocks one claim. A device that consumes counters, such as a large partition, may block several
small ones, and so may a share. The result is an upper bound: it counts each counter or capacity separately.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import ceil

from webhook.devices.claims import Choice, Filter
from webhook.devices.pools import OneDevice
from webhook.devices.shares import Amount, CounterName

Reached = Callable[[Filter], frozenset[OneDevice]]


def displaced(choice: Choice, others: Sequence[Choice], reached: Reached) -> int:
    """An upper bound of the claims with one of the other choices that a device of a choice blocks."""
    mine = reached(choice.filter)
    theirs = {device for each in others for device in reached(each.filter)}
    if not any(device.is_divided for device in mine) and not any(device.is_divided for device in theirs):
        return 1
    least = _least_counters(theirs)
    distinct = {(each.counters, each.amounts if each.is_shared else ()): each for each in mine}
    most = 1
    for device in distinct.values():
        counted = sum(ceil(amount / least[name]) for name, amount in device.counters if least.get(name))
        shared = _of_shares(device.amounts, choice, others) if device.is_shared else 0
        most = max(most, counted, shared)
    return most


def _least_counters(devices: Iterable[OneDevice]) -> dict[CounterName, Fraction]:
    """The smallest amount above 0 that any of these devices consumes of each counter."""
    least: dict[CounterName, Fraction] = {}
    for device in devices:
        for name, amount in device.counters:
            if amount > 0:
                least[name] = min(amount, least.get(name, amount))
    return least


def _of_shares(amounts: Sequence[Amount], choice: Choice, others: Sequence[Choice]) -> int:
    """The number of shares for others that one share for a choice displaces."""
    mine = dict(choice.wanted)
    total = 0
    for each in amounts:
        theirs = (each.consumed(dict(other.wanted).get(each.name)) for other in others)
        smallest = min((amount for amount in theirs if amount > 0), default=None)
        if smallest is not None:
            total += ceil(each.consumed(mine.get(each.name)) / smallest)
    return total
