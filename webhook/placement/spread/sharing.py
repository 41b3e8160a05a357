"""Pods shared by domains of which each has its own costs: min-plus products up the tree.

A part is a domain, or several. Its curve is the least cost of taking at least 0, 1, 2, ... pods beyond what
all its domains take in any case. Domains whose cost has one step, at one height, are one part together: the
cheapest are taken first. So are parts whose curves are convex, as where each domain takes one pod more or not
(evenly): the least sum of convex functions takes the cheapest next pods of all (a merge of their slopes).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Final

from webhook.placement.budget import Budget

UNKNOWN: Final = 1 << 4096
"""More than any cost."""

Curve = list[int]
"""See the module's text."""


class CostPart:
    """Domains that take pods together. curve: see Curve."""

    curve: Curve

    def take(self, more: int, taken: dict[int, int]) -> None:
        """Note what its domains take if so many beyond their least are wanted."""
        raise NotImplementedError


class DomainPart(CostPart):
    """One domain of the spread's level."""

    def __init__(self, key: int, curve: Curve, least: int) -> None:
        self.key, self.curve, self.least = key, curve, least

    def take(self, more: int, taken: dict[int, int]) -> None:
        """Just so many."""
        taken[self.key] = self.least + more


class CheapestParts(CostPart):
    """Domains that each take `height` more pods at once, or none: the cheapest first."""

    def __init__(self, height: int, parts: Sequence[CostPart], left: int) -> None:
        self.height = height
        self.parts = sorted(parts, key=lambda part: part.curve[-1] - part.curve[0])
        number = min(len(parts), -(-left // height))
        base = sum(part.curve[0] for part in parts)
        grown = (part.curve[-1] - part.curve[0] for part in self.parts[:number])
        steps = list(accumulate(grown, initial=base))
        self.curve = [steps[-(-amount // height)] for amount in range(min(left, number * height) + 1)]

    def take(self, more: int, taken: dict[int, int]) -> None:
        """As many of the cheapest as needed."""
        for part in self.parts:
            part.take(min(more, self.height), taken)
            more -= min(more, self.height)


def joined(parts: Sequence[CostPart], own: int, left: int, budget: Budget) -> CostPart:
    """All that is in a domain above the spread's level. own: the cost of using it. left: pods to be shared.

    Raises OutOfSteps.
    """
    budget.spend(sum(len(part.curve) for part in parts) // 10)
    if all(_is_convex(part.curve) for part in parts):
        return ConvexParts(parts, own, left)
    return JoinedParts(parts, own, left, budget)


def _is_convex(curve: Curve) -> bool:
    """Whether each next pod costs no less than the one before, and none less than nothing."""
    more = [after - before for before, after in pairwise(curve)]
    return not more or (more[0] >= 0 and all(before <= after for before, after in pairwise(more)))


class ConvexParts(CostPart):
    """Parts of which each next pod costs no less than the one before: the cheapest next pods of all."""

    def __init__(self, parts: Sequence[CostPart], own: int, left: int) -> None:
        self.parts = parts
        self.next = sorted(
            (after - before, number)
            for number, part in enumerate(parts)
            for before, after in pairwise(part.curve)
        )[:left]
        first = sum(part.curve[0] for part in parts)
        used, *rest = accumulate((cost for cost, _ in self.next), initial=first)
        self.curve = [used + own if used else 0, *(cost + own for cost in rest)]

    def take(self, more: int, taken: dict[int, int]) -> None:
        """Of each part as many as are among the cheapest."""
        of_parts = Counter(number for _, number in self.next[:more])
        for number, part in enumerate(self.parts):
            part.take(of_parts[number], taken)


class JoinedParts(CostPart):
    """Parts of any costs: a min-plus product of one after the other."""

    def __init__(self, parts: Sequence[CostPart], own: int, left: int, budget: Budget) -> None:
        self.parts = parts
        rows: list[Curve] = [[0]]
        for part in parts:
            rows.append(_product(rows[-1], part.curve, left, budget))
        self.rows = rows
        first, *rest = rows[-1]
        self.curve = [first + own if first else 0, *(cost + own for cost in rest)]

    def take(self, more: int, taken: dict[int, int]) -> None:
        """Back through the products."""
        for number in range(len(self.parts) - 1, -1, -1):
            row, part = self.rows[number], self.parts[number]
            wanted = self.rows[number + 1][more]
            for amount in _ends(part.curve):
                before = max(0, more - amount)
                if before < len(row) and row[before] + part.curve[amount] == wanted:
                    part.take(min(amount, more), taken)
                    more = before
                    break


def _ends(curve: Curve) -> Iterator[int]:
    """The amounts beyond which it costs more."""
    last = len(curve) - 1
    return (amount for amount, cost in enumerate(curve) if amount == last or curve[amount + 1] != cost)


def _product(row: Curve, curve: Curve, left: int, budget: Budget) -> Curve:
    """The least cost of at least 0, 1, ... of two parts, no more than `left`."""
    if len(curve) == 1:
        return [known + curve[0] for known in row] if curve[0] else row
    size = min(left, len(row) + len(curve) - 2) + 1
    found = [UNKNOWN] * size
    for amount in _ends(curve):
        length = min(len(row), size - amount)
        budget.spend(2 + len(row) // 5)
        cost = curve[amount]
        if length > 0:
            reached = [known + cost for known in row[:length]]
            found[amount : amount + length] = map(min, found[amount : amount + length], reached)
        if length < len(row):
            found[-1] = min(found[-1], row[max(0, size - 1 - amount)] + cost)
    return list(accumulate(reversed(found), min))[::-1]
