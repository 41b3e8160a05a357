"""What each domain of a spread's level takes of identical pods, at least and at most.

With a cap that is none, and the cap less those that are there. Evenly, the sum of the squares of what the
domains hold is least; squares are convex, so pod by pod the emptiest domain takes the next, as water finds
its level: each domain takes what it lacks of that as far as it has capacity, and some of those that end there
take one more. Which ones, cost decides.

The pods that are free to go here or there are shared by domains of which each has its own costs: min-plus
products up the tree. A part is a domain, or several. Its curve is the least cost of taking at least 0, 1,
2, ... pods beyond what all its domains take in any case. Domains whose cost has one step, at one height,
are one part together: the cheapest are taken first. So are parts whose curves are convex, as where each
domain takes one pod more or not (evenly): the least sum of convex functions takes the cheapest next pods of
all (a merge of their slopes).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Final

from webhook.placement.bounds import slot_counts_at
from webhook.placement.budget import Budget
from webhook.placement.question import Question
from webhook.placement.snapshot import Path, key_of
from webhook.placement.vertex import Leaves, Vertex, domains_at


@dataclass(slots=True, eq=False)
class SpreadDomain:
    """A domain of the level: how many pods it takes at least and at most, and what so many cost."""

    vertex: Vertex
    least: int
    most: int
    known: dict[int, int] = field(default_factory=dict)


def slots_under_cap(question: Question, vertex: Vertex) -> int:
    """How many of the pods a domain has capacity for under the spread's cap."""
    assert question.spread is not None
    request = question.spread
    if request.most is None or not vertex.free_slots:
        return vertex.free_slots
    if not request.there:  # without a look at each
        return sum(min(free_slots, request.most) for free_slots in slot_counts_at(vertex, request.level))
    found = _slot_counts_of(vertex, request.level)
    return sum(min(free_slots, max(0, request.most - request.there_in(path))) for path, free_slots in found)


Shares = dict[Path, tuple[int, int]]
"""For the path of each domain of the level that may take pods: how many at least and at most."""


def shares(question: Question, vertex: Vertex) -> tuple[int, Shares]:
    """By how much the squares grow, and what domains may take; there is capacity, see slots_under_cap."""
    request, wanted = question.spread, question.counts[0]
    assert request is not None
    found = [
        (path, request.there_in(path), free_slots)
        for path, free_slots in _slot_counts_of(vertex, request.level)
        if free_slots
    ]
    cap = request.most
    if cap is not None:
        return 0, {path: (0, min(free, wanted, cap - there)) for path, there, free in found if cap > there}
    level = _level([(there, free) for _, there, free in found], wanted)
    taken: Shares = {}
    grown, left = 0, wanted
    for path, there, free in found:
        least = min(free, max(0, level - there))
        most = min(free, max(0, level + 1 - there))
        if most:
            taken[path] = least, most
        grown += (there + least) ** 2 - there**2
        left -= least
    return grown + left * (2 * level + 1), taken


def _slot_counts_of(vertex: Vertex, level: int) -> Iterator[tuple[Path, int]]:
    """The paths of a level's domains in a domain, and their capacities; quicker than their vertices."""
    if vertex.bottom >= level:
        yield vertex.key[: level + 2], vertex.free_slots
    elif vertex.leaves is not None:
        bottom = vertex.leaves.costs.depth - 1
        for state, free_slots in zip(vertex.leaves.states, vertex.leaves.slot_counts, strict=True):
            yield key_of(state, bottom)[: level + 2], free_slots
    else:
        for part in vertex.parts:
            yield from _slot_counts_of(part, level)


def domains_of(question: Question, vertex: Vertex, taken: Shares) -> list[SpreadDomain]:
    """The domains that may take pods."""
    assert question.spread is not None
    level = question.spread.level
    named = ((domain, domain.key[: level + 2]) for domain in domains_at(vertex, level))
    return [SpreadDomain(domain, *taken[path]) for domain, path in named if path in taken]


def _level(domains: Sequence[tuple[int, int]], wanted: int) -> int:
    """The highest level up to which so many pods fill domains of which each holds some and has capacity."""
    counted = Counter(domains).items()
    low, high = 0, max(there for there, _ in domains) + wanted
    while low < high:
        middle = (low + high + 1) // 2
        if sum(number * min(free, max(0, middle - there)) for (there, free), number in counted) <= wanted:
            low = middle
        else:
            high = middle - 1
    return low


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


ENTRIES: Final = 4
"""Entries of the knapsack's rows that a step of the budget stands for."""


class NodesUpTo:
    """Up to `most` pods on some nodes that have capacity for them together."""

    def __init__(self, leaves: Leaves, most: int, budget: Budget) -> None:
        """Raises OutOfSteps."""
        self.leaves = leaves
        by_slots: dict[int, list[int]] = {}
        for number in sorted(range(len(leaves.slot_counts)), key=leaves.penalties.__getitem__):
            by_slots.setdefault(leaves.slot_counts[number], []).append(number)
        self.groups = [(free_slots, numbers) for free_slots, numbers in by_slots.items() if free_slots]
        self.rows = [[0, *[UNKNOWN] * most]]
        for free_slots, numbers in self.groups:
            before = self.rows[-1]
            row = before
            for used, cost in enumerate(
                accumulate(map(leaves.own, numbers[: -(-most // free_slots)])), start=1
            ):
                budget.spend(2 + most // ENTRIES)
                shift = min(used * free_slots, most)
                reached = [before[0]] * shift + before[: most + 1 - shift]
                row = list(map(min, row, [known + cost for known in reached]))
            self.rows.append([0, *row[1:]])

    def cost(self, amount: int) -> int:
        """The least for so many pods."""
        return self.rows[-1][amount]

    def nodes(self, amount: int) -> list[int]:
        """The numbers of the nodes for so many pods, in topology order."""
        found: list[int] = []
        for position in range(len(self.groups) - 1, -1, -1):
            free_slots, numbers = self.groups[position]
            wanted, cost, used = self.rows[position + 1][amount], 0, 0
            while self.rows[position][max(0, amount - used * free_slots)] + cost != wanted:
                cost += self.leaves.own(numbers[used])
                used += 1
            found += numbers[:used]
            amount = max(0, amount - used * free_slots)
        return sorted(found)
