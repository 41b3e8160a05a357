"""How much of one kind of claims a device given to another may keep from being met. Pure.

A whole device keeps one from being met. One that uses up counters, as a large partition, may keep several
small ones; so may a share. It is an upper bound: each counter, or capacity, is taken from pods of its own.
"""

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from math import ceil

from webhook.devices.claims import Choice, Filter
from webhook.devices.pools import OneDevice
from webhook.devices.shares import Amount, CounterName

Reached = Callable[[Filter], frozenset[OneDevice]]


def displaced(choice: Choice, others: Sequence[Choice], reached: Reached) -> int:
    """How many claims with one of some other choices one device of a choice keeps from being met at most."""
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
    """The least that any of these devices uses up of each counter, but for nothing."""
    least: dict[CounterName, Fraction] = {}
    for device in devices:
        for name, amount in device.counters:
            if amount > 0:
                least[name] = min(amount, least.get(name, amount))
    return least


def _of_shares(amounts: Sequence[Amount], choice: Choice, others: Sequence[Choice]) -> int:
    """How many shares for others one share for a choice takes the place of."""
    mine = dict(choice.wanted)
    total = 0
    for each in amounts:
        theirs = (each.consumed(dict(other.wanted).get(each.name)) for other in others)
        smallest = min((amount for amount in theirs if amount > 0), default=None)
        if smallest is not None:
            total += ceil(each.consumed(mine.get(each.name)) / smallest)
    return total
