"""Which children of a domain, with which amounts, can be part of a solution with the fewest domains.

What cannot is left out before the knapsack is solved by layers, which is most of the work in large clusters.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import cache

import numpy as np

from webhook.placement.alike.layers import Array, Ranges
from webhook.placement.budget import Budget
from webhook.placement.prices import PART, SHIFTED, added, searched

Enough = Callable[[tuple[int, ...]], int | None]
"""How many parts of the domains with these numbers suffice, at best; None where all do not."""


def by_parts(heads: Sequence[Sequence[int]], wanted: int) -> Enough:
    """Where a domain holds what its parts do. heads: of each domain what it holds with its 0, 1, 2, ...
    roomiest parts.
    """
    rooms = [np.diff(np.array(head, dtype=np.int64)) for head in heads]

    @cache
    def enough(numbers: tuple[int, ...]) -> int | None:
        missing = wanted - sum(heads[number][0] for number in numbers)
        sums = np.cumsum(-np.sort(-np.concatenate([[0], *(rooms[number] for number in numbers)])))
        if missing <= 0:
            return 0
        return int(np.searchsorted(sums, missing)) + 1 if sums[-1] >= missing else None

    return enough


def by_units(heads: Sequence[Sequence[int]], unit: int, wanted: int, more: int, budget: Budget) -> Enough:
    """Where a domain holds whole units of what its parts do. heads: as for by_parts. wanted: units; more:
    what one of the domains holds besides. What is given back raises OutOfSteps.
    """
    never = 1 << 40
    plain, loaded = ([_parts_of_units(head, unit, beside) for head in heads] for beside in (0, more))

    @cache
    def enough(numbers: tuple[int, ...]) -> int | None:
        budget.spend(SHIFTED * sum(len(plain[number]) + len(loaded[number]) for number in numbers))
        least = np.full((2, wanted + 1), never, dtype=np.int64)
        least[0, 0] = 0
        for number in numbers:
            grown = least.copy()
            for units, needed in plain[number]:
                window = grown[:, min(units, wanted) :]
                np.minimum(window, least[:, : window.shape[1]] + needed, out=window)
            for units, needed in loaded[number]:
                last = grown[1, min(units, wanted) :]
                np.minimum(last, least[0, : len(last)] + needed, out=last)
            least = np.minimum.accumulate(grown[:, ::-1], axis=1)[:, ::-1]
        return int(least[1, -1]) if least[1, -1] < never else None

    return enough


def _parts_of_units(head: Sequence[int], unit: int, beside: int) -> list[tuple[int, int]]:
    """For each number of units, of 0 too, the parts that hold them and so much beside."""
    amounts = np.arange(0, head[-1] - beside + 1, unit) + beside
    return list(enumerate(np.searchsorted(head, amounts).tolist()))


def priced(
    heads: Sequence[Sequence[int]],
    wanted: int,
    fewest: int,
    most: int,
    budget: Budget,
    enough: Enough | None,
    prices: Iterable[int] = (),
) -> tuple[list[Ranges], int]:
    """What each domain holds at best in the solutions that use just `fewest` domains and the fewest parts.

    heads: of each domain the sums of the rooms of its 1, 2, ... roomiest parts. most: number of parts that
    suffice with so many domains, which is bettered by `enough`. prices: to be tried, of which some are; by
    default the rooms of the parts. Returns ranges of amounts for each domain, and `most`. Raises OutOfSteps.

    By pricing (Lagrangian relaxation): at a price of p pods for each part, domains are worth what they hold
    beyond the price of their parts, so `fewest` of them hold at most the largest worths and p pods for each
    part. What one domain holds with r parts is bounded from below by what the others then hold at most.
    """
    width = max(map(len, heads))
    held = np.array([[*head, *[_NONE] * (width - len(head))] for head in heads], dtype=np.int64)
    parts = np.arange(1, width + 1)
    tried = sorted(
        each for each in set(prices or np.diff(held, axis=1, prepend=0).ravel().tolist()) if each > 0
    )
    others = np.full(held.shape, -_NONE, dtype=np.int64)
    tables = []
    tries = min(len(tried), 2 * PRICES)
    budget.spend(held.size // 8 + tries * (6 * PART + added(12 * held.size, True)))
    for price in tried[:: max(1, len(tried) // PRICES)]:
        worth = (held - price * parts).max(axis=1)
        order = np.argsort(-worth, kind="stable")
        tables.append((price, worth, order))
        found = enough(tuple(sorted(order[:fewest].tolist()))) if enough is not None else None
        most = most if found is None else min(most, found)
    for price, worth, order in tables:
        best = int(worth[order[:fewest]].sum())
        beside = best - np.maximum(worth, worth[order[fewest - 1]])
        np.minimum(others, beside[:, None] + price * (most - parts), out=others)
    return _ranges(heads, wanted - others, most), most


PRICES = 24
"""How many prices are tried."""


def _ranges(heads: Sequence[Sequence[int]], least: Array, most: int) -> list[Ranges]:
    """For each domain the amounts that need just r parts and are not below least[domain][r - 1]."""
    found = []
    for head, lows in zip(heads, least.tolist(), strict=True):
        shifted = zip(head[:most], [0, *head], lows, strict=False)
        found.append([(low, high) for high, below, need in shifted if (low := max(below + 1, need)) <= high])
    return found


def screen(
    heads: Sequence[Sequence[int]], wanted: int, fewest: int, most: int, budget: Budget
) -> list[Ranges]:
    """The same as `priced`, exactly, in more time. Raises OutOfSteps.

    By a table of the most that can be held with b domains and s parts, over the domains before each one and
    over those after it: both together tell what the others can hold at most beside a domain with r parts.
    """
    width, table = max(map(len, heads)), (fewest + 1) * (most + 2)
    budget.spend(len(heads) * (4 * PART + 2 * width * SHIFTED + added(4 * width * table, True)))
    budget.spend(searched(len(heads) * min(width, most) * table, True))
    before = [_start(fewest, most)]
    for head in heads:
        before.append(_extended(before[-1], head))
    parts = int(np.argmax(before[-1][fewest] >= wanted))
    after = [_start(fewest, most)]
    for head in reversed(heads):
        after.append(_extended(after[-1], head))
    after.reverse()
    width = min(parts, max(map(len, heads)))
    left = parts - np.arange(1, width + 1)[:, None] - np.arange(most + 1)
    left = np.where(left < 0, most + 1, left)
    joined = [_joined(before[n], after[n + 1], fewest - 1, left) for n in range(len(heads))]
    return _ranges(heads, wanted - np.array(joined), parts)


_NONE = -(1 << 60)


def _start(domains: int, parts: int) -> Array:
    """Nothing is held with no domain; the last column stands for a number of parts below 0."""
    table = np.full((domains + 1, parts + 2), _NONE, dtype=np.int64)
    table[0, :-1] = 0
    return table


def _extended(table: Array, head: Sequence[int]) -> Array:
    """The most that can be held with b domains and at most s parts once one more domain may be used."""
    grown = table.copy()
    width = table.shape[1] - 1
    for parts, held in enumerate(head[: width - 1], start=1):
        window = grown[1:, parts:width]
        np.maximum(window, table[:-1, : width - parts] + held, out=window)
    return grown


def _joined(first: Array, second: Array, domains: int, left: Array) -> Array:
    """The most that both hold with just so many domains, for each r; left[r, s]: parts of the second."""
    both = first[: domains + 1, None, :-1] + second[domains::-1][:, left]
    joined: Array = np.maximum(both.max(axis=(0, 2)), 0)
    return joined
