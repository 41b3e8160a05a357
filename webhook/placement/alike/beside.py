"""Which children of a domain, with which amounts, can be part of the best solution beside anchors.

What anchors use is given: it costs nothing, whatever it holds. So a child in use already holds that without
any part (a domain of the level below) that costs, and may be left out or not; of other children just the
fewest are used. With this the bounds are those of pricing.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

import numpy as np

from webhook.placement.alike.layers import Array, Ranges
from webhook.placement.alike.pricing import PRICES, Enough
from webhook.placement.budget import Budget
from webhook.placement.prices import PART, added

_NONE = -(1 << 60)


def heads_beside(free: Sequence[int], others: Sequence[int]) -> list[int]:
    """What a child holds at most with 0, 1, 2, ... parts that cost."""
    return list(accumulate(sorted(others, reverse=True), initial=sum(free)))


def needed_beside(heads: Mapping[int, Sequence[int]], numbers: Iterable[int], wanted: int) -> int | None:
    """The fewest parts that cost with which these children hold so much; None where all do not."""
    chosen = list(numbers)
    left = wanted - sum(heads[number][0] for number in chosen)
    rooms = sorted(
        (high - low for n in chosen for low, high in zip(heads[n], heads[n][1:], strict=False)), reverse=True
    )
    for count, room in enumerate([0, *rooms]):
        left -= room
        if left <= 0:
            return count
    return None


def priced_beside(
    heads: Mapping[int, Sequence[int]],
    anchored: set[int],
    wanted: int,
    fewest: int,
    most: int,
    prices: Iterable[int],
    budget: Budget,
    enough: Enough | None,
) -> tuple[dict[int, Ranges], int]:
    """Ranges of amounts, from 0 up, that children hold in solutions that use just `fewest` of those that
    cost, and the fewest parts that cost; children that are part of none are left out.

    heads: see heads_beside, by child. most: parts that cost, of which so many suffice; it is bettered by
    `enough`, which takes positions in `heads`. prices: to be tried, of which some are. Returns the ranges,
    and `most`. By pricing, see pricing.priced. Raises OutOfSteps.
    """
    numbers = list(heads)
    width = max(map(len, heads.values()), default=1)
    held = np.array([[*heads[n], *[_NONE] * (width - len(heads[n]))] for n in numbers], dtype=np.int64)
    paid = np.array([number not in anchored for number in numbers], dtype=np.bool_)
    held[paid, 0] = _NONE  # it is not used
    parts = np.arange(width)
    tried = sorted(each for each in set(prices) if each > 0)
    budget.spend(held.size // 8 + min(len(tried), 2 * PRICES) * (6 * PART + added(12 * held.size, True)))
    others = np.full(held.shape, -_NONE, dtype=np.int64)
    given, payable = np.flatnonzero(~paid).tolist(), np.flatnonzero(paid)
    tables = []
    for price in tried[:: max(1, len(tried) // PRICES)]:
        worth = (held - price * parts).max(axis=1)
        largest = payable[np.argsort(-worth[payable], kind="stable")[:fewest]]
        tables.append((price, worth, largest))
        found = enough(tuple(sorted([*given, *largest.tolist()]))) if enough is not None else None
        most = most if found is None else min(most, found)
    for price, worth, largest in tables:
        best = int(worth[given].sum() + worth[largest].sum())
        last = int(worth[largest[-1]]) if fewest else 0
        beside = best - np.where(paid, np.maximum(worth, last), worth)
        np.minimum(others, beside[:, None] + price * (most - parts), out=others)
    least: Array = wanted - others
    ranges_of: dict[int, Ranges] = {}
    for number, lows in zip(numbers, least.tolist(), strict=True):
        amounts = [-1, *heads[number]]
        costs = number not in anchored
        if costs and not fewest:
            continue
        steps = range(1 if costs else 0, min(most + 1, len(heads[number])))
        ranges = [
            (low, high) for n in steps if (low := max(amounts[n] + 1, lows[n])) <= (high := amounts[n + 1])
        ]
        if ranges:
            ranges_of[number] = ranges
    return ranges_of, most
