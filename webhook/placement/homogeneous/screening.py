"""Which children of a domain can be part of the best solution: told by what they hold at most.

In a domain whose children share the gang, no fewer children can do than the workers alone need, and in a
solution with just so many each child used holds what the others cannot (see priced;
beside anchors priced_beside, as what anchors use is given and costs nothing, whatever it holds).
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import accumulate

import numpy as np

from webhook.placement.bounds import anchored_children, census, least_held, rooms_at, rooms_beside
from webhook.placement.budget import PART, SHIFTED, Budget, added
from webhook.placement.homogeneous.minority_pods import Stepwise
from webhook.placement.homogeneous.offers import Array
from webhook.placement.question import Question
from webhook.placement.vertex import Vertex

Ranges = list[tuple[int, int]]
"""Amounts from the first to the second, both included."""

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


_NONE = -(1 << 60)

PRICES = 24
"""How many prices are tried."""


def _ranges(heads: Sequence[Sequence[int]], least: Array, most: int) -> list[Ranges]:
    """For each domain the amounts that need just r parts and are not below least[domain][r - 1]."""
    found = []
    for head, lows in zip(heads, least.tolist(), strict=True):
        shifted = zip(head[:most], [0, *head], lows, strict=False)
        found.append([(low, high) for high, below, need in shifted if (low := max(below + 1, need)) <= high])
    return found


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


class Screening:
    """Of one question, with the odd pods or with what stands for them beside the workers."""

    def __init__(self, question: Question, odd: Stepwise, budget: Budget) -> None:
        self.question = question
        self.costs = question.costs()
        self.odd = odd
        self.budget = budget

    def matter(
        self, vertex: Vertex, levels: Sequence[int], unit: int, wanted: int
    ) -> tuple[dict[int, int], int, int] | None:
        """The children that can be part of a solution with the fewest children, with the least units of each;
        that number of children, and the number of domains below for which it holds. None: all may be.

        By what a child and the domains below hold at most; in slices at the child's own level it may be less.
        """
        first, second = vertex.bottom + 1, vertex.bottom + 2
        if not vertex.parts or not {first, second} <= set(levels):
            return None
        machine = self.costs.machine
        if machine is not None and first >= machine:
            return None  # more of them may cost less
        finer_level, finer = next((part for part in self.question.slices if part[0] > first), (second, 1))
        if self.question.anchored:
            return self._beside(vertex, unit, finer_level, finer, wanted)
        rooms = [[room - room % finer for room in rooms_at(part, second)] for part in vertex.parts]
        held = [sum(of_part) // unit for of_part in rooms]
        least, fewest = least_held(held, set(), wanted)
        if fewest > len(held):
            return {}, fewest, 0
        numbers, needed = list(least), min(least.values(), default=0)
        if machine is not None and second >= machine:
            return dict.fromkeys(numbers, needed), fewest, max(1, census(vertex)[second][0])
        largest = sorted(range(len(held)), key=lambda n: -held[n])[:fewest]
        pool = sorted((room for number in largest for room in rooms[number]), reverse=True)
        wasted = self.odd.most + (fewest if unit != finer else 0)  # of a child, what makes no slice
        most = bisect_left(list(accumulate(pool)), wanted * unit) + 1 + wasted
        whole = [[head // finer for head in accumulate(sorted(rooms[n], reverse=True))] for n in numbers]
        ratio = unit // finer
        heads = [[head - head % ratio for head in of_part] for of_part in whole]
        enough = None
        if finer_level <= second:
            enough = self._enough([[0, *head] for head in whole], finer, ratio, wanted)
        prices = {room // finer for number in numbers for room in rooms[number]}
        ranges, most = priced(heads, wanted * ratio, fewest, most, self.budget, enough, prices)
        lows = {number: min(low for low, _ in of) for number, of in zip(numbers, ranges, strict=True) if of}
        least = {number: -(-low // ratio) for number, low in lows.items()}
        return least, fewest, most

    def _enough(self, heads: Sequence[Sequence[int]], finer: int, ratio: int, wanted: int) -> Enough | None:
        """How many parts of domains suffice, where that is told by rooms; heads: as for by_parts, in `finer`
        pods, of which `ratio` make a unit.
        """
        if len(self.odd.states) > 1 and self.odd.below(1) is self.odd:
            return None
        more = -(-self.odd.losses[-1] // finer)  # which has the room for odd pods as well
        if ratio == 1:
            return by_parts(heads, wanted + more)
        return by_units(heads, ratio, wanted, more, self.budget)

    def _beside(
        self, vertex: Vertex, unit: int, finer_level: int, finer: int, wanted: int
    ) -> tuple[dict[int, int], int, int] | None:
        """The same beside anchors, in units of `finer` pods below the children."""
        second, ratio = vertex.bottom + 2, unit // finer
        parts, whole, heads = {}, {}, {}
        for number, part in enumerate(vertex.parts):
            parts[number] = tuple(
                [room // finer for room in rooms] for rooms in rooms_beside(part, second, self.costs)
            )
            whole[number] = heads_beside(*parts[number])
            heads[number] = [head - head % ratio for head in whole[number]]
        anchored = anchored_children(vertex, self.costs)
        held = [heads[number][-1] // ratio for number in heads]
        least, fewest = least_held(held, anchored, wanted)
        if self.costs.machine is not None and second >= self.costs.machine:
            return least, fewest, sum(found[0] for found in census(vertex))
        paid = sorted((number for number in least if number not in anchored), key=lambda n: -held[n])
        if fewest > len(paid):
            return {}, fewest, 0
        most = needed_beside(heads, [*anchored, *paid[:fewest]], wanted * ratio)
        if most is None:
            return None
        most += 1 + self.odd.most + (fewest + len(anchored) if ratio > 1 else 0)
        prices = {room for number in least for room in parts[number][1]}
        heads = {number: heads[number] for number in least}
        enough = None
        if finer_level <= second:
            enough = self._enough([whole[number] for number in least], finer, ratio, wanted)
        ranges, most = priced_beside(
            heads, anchored, wanted * ratio, fewest, most, prices, self.budget, enough
        )
        least = {number: -(-min(of)[0] // ratio) for number, of in ranges.items()}
        return least, fewest, most
