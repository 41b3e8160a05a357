"""The knapsack inside one domain whose children share the pods; see knapsack for the theory."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from webhook.placement.alike.beside import heads_beside, needed_beside, priced_beside
from webhook.placement.alike.items import Inside, Terms
from webhook.placement.alike.layers import Ranges
from webhook.placement.alike.packed_cost import PackedCost
from webhook.placement.alike.pricing import by_parts, priced, screen
from webhook.placement.alike.rooms import (
    Pick,
    anchored_children,
    census,
    child_rooms,
    least_held,
    penalties_of,
    rooms_beside,
    shape,
)
from webhook.placement.bounds import rooms_at
from webhook.placement.budget import Budget
from webhook.placement.costs import COUNT_BITS, ROOM_BITS, SCORE_BITS, Costs
from webhook.placement.question import Question
from webhook.placement.vertex import Vertex

SCREENED = 100_000
"""Size of the tables up to which they are quicker than what they save."""


class CoveringDomain:
    """One domain, which is paid for already, and the gang in it."""

    def __init__(self, question: Question, costs: Costs, vertex: Vertex, budget: Budget) -> None:
        """vertex: a domain with room for the gang. Raises OutOfSteps."""
        self.costs = costs
        self.budget = budget
        self.vertex = vertex
        self.anchored = bool(question.anchored)
        self.pods = question.counts[0]
        self.unit, self.lowest = 1, costs.depth
        if vertex.even is not None and not self.anchored:
            self.unit, self.lowest = vertex.even
        self.wanted = -(-self.pods // self.unit)
        self.census = census(vertex)
        self.levels = [level for level in range(costs.depth) if self._varies(level)]
        ranges, numbers = self._candidates()
        self.whole = self.lowest < costs.depth and _one_penalty(vertex, numbers)
        self.slack = self._slack()
        counts = self._count_fields()
        self.terms = Terms(
            costs,
            self.unit,
            self.wanted,
            self.slack,
            self.lowest,
            self.whole,
            counts,
            counts,
            budget,
        )
        self.top = Inside(self.terms, vertex, numbers, ranges)
        self.fewest = counts.unpack(int(self.top.layers.counts[self.wanted]))

    def _count_fields(self) -> PackedCost:
        """The numbers of domains of the levels at which they vary, in the widths that they need."""
        most = self.wanted + self.slack
        return PackedCost(
            [
                (self.costs.domains[level], COUNT_BITS, min(most, self.census[level][0]).bit_length())
                for level in self.levels
            ]
        )

    def _varies(self, level: int) -> bool:
        """Whether the number of domains of a level has to be searched for.

        Not where it is given, nor where it is that of the level below because each domain holds just one.
        """
        number = self.census[level][0]
        if not number or level >= self.lowest:
            return False
        return self.anchored or level + 1 == self.costs.depth or self.census[level + 1][0] != number

    def _candidates(self) -> tuple[dict[int, Ranges], list[int]]:
        """Numbers of the children that can be part of a solution with the fewest children.

        Before them what is known of the amounts that they hold in optimal solutions.
        """
        anchored = anchored_children(self.vertex, self.costs) if self.anchored else set[int]()
        held, fewest = least_held(child_rooms(self.vertex), anchored, self.pods)
        numbers = list(held)
        if self.anchored:
            ranges = self._beside(numbers, anchored, fewest)
            return ranges, list(ranges) or numbers
        ranges = self._screened(numbers)
        return ranges, self._unlike(list(ranges) or numbers, fewest)

    def _beside(self, numbers: Sequence[int], anchored: set[int], fewest: int) -> dict[int, Ranges]:
        """The same beside anchors."""
        first, second = self.vertex.bottom + 1, self.vertex.bottom + 2
        if not self.vertex.parts or not {first, second} <= set(self.levels):
            return {}
        parts = {n: rooms_beside(self.vertex.parts[n], second, self.costs) for n in numbers}
        heads = {number: heads_beside(*of_part) for number, of_part in parts.items()}
        paid = sorted((n for n in numbers if n not in anchored), key=lambda n: -heads[n][-1])
        most = needed_beside(heads, [*anchored, *paid[:fewest]], self.pods)
        if most is None:
            return {}
        prices = {room for _, others in parts.values() for room in others}
        by_any = by_parts(list(heads.values()), self.pods)
        found, _ = priced_beside(heads, anchored, self.pods, fewest, most, prices, self.budget, by_any)
        ranges = {n: [(max(1, low), high) for low, high in of if high] for n, of in found.items()}
        return {number: of for number, of in ranges.items() if of}

    def _unlike(self, numbers: list[int], fewest: int) -> list[int]:
        """Of children that are alike in everything no more than can be used: the first by name."""
        if self.vertex.leaves is not None or len(numbers) <= 2 * fewest:
            return numbers
        seen: Counter[object] = Counter()
        kept = []
        for number in numbers:
            alike = shape(self.vertex.parts[number])
            seen[alike] += 1
            if seen[alike] <= fewest:
                kept.append(number)
        return kept

    def _screened(self, numbers: Sequence[int]) -> dict[int, Ranges]:
        """The children that can be part of a solution with the fewest domains at the two highest levels.

        With the ranges that they hold then, in pods. {} where that is not worth working out.
        """
        first, second = self.vertex.bottom + 1, self.vertex.bottom + 2
        if not self.vertex.parts or not {first, second} <= set(self.levels):
            return {}
        parts = [self.vertex.parts[number] for number in numbers]
        rooms = [rooms_at(part, second) for part in parts]
        largest = sorted(range(len(parts)), key=lambda n: -parts[n].room)
        fewest = bisect_left(list(accumulate(parts[n].room for n in largest)), self.pods) + 1
        pool = sorted((room for n in largest[:fewest] for room in rooms[n]), reverse=True)
        enough = bisect_left(list(accumulate(pool)), self.pods) + 1
        heads = [list(accumulate(sorted(at_part, reverse=True))) for at_part in rooms]
        by_any = by_parts([[0, *head] for head in heads], self.pods)
        ranges, enough = priced(heads, self.pods, fewest, enough, self.budget, by_any)
        left = [n for n, at_part in enumerate(ranges) if at_part]
        if len(left) * (fewest + 1) * (enough + 1) < SCREENED:
            exact = screen([heads[n] for n in left], self.pods, fewest, enough, self.budget)
            for number, at_part in zip(left, exact, strict=True):
                ranges[number] = at_part
        return {numbers[n]: ranges[n] for n in left if ranges[n]}

    def _slack(self) -> int:
        """By how much an optimal solution can hold more than is wanted: less than the last thing it takes."""
        if not self.whole:
            return min(self.wanted, self.census[-1][1] // self.unit) - 1
        largest = self.census[self.lowest - 1][1] if self.lowest > 0 else 0
        return max(1, largest // self.unit) - 1

    def bound(self) -> int:
        """A lower bound of the cost: the least numbers of domains, and no more leftover than pods."""
        if self.anchored:
            return self.fewest
        total, number = 0, self.wanted
        for level in range(self.costs.depth - 1, -1, -1):
            if self.census[level][0]:
                if level in self.levels:
                    number = self._fewest(level)
                total += (number << self.costs.domains[level]) + (self.pods << self.costs.leftover[level])
        return total

    def _fewest(self, level: int) -> int:
        return self.fewest >> self.costs.domains[level] & (1 << COUNT_BITS) - 1

    def solve(self) -> tuple[int, list[Pick]]:
        """The least cost without that of using the domain itself, and the nodes in topology order.

        Raises OutOfSteps.
        """
        values, after = self._value_fields()
        self.terms.values = values
        targets = range(self.wanted, min(self.wanted + self.slack, self.top.layers.reach[-1]) + 1)
        known = zip(self.top.layers.solve(targets, values.fits), targets, strict=True)
        _, target = min((value >> after, target, value) for value, target in known if value is not None)[:2]
        cost, picks = self.top.picks(target)
        if self.whole:
            picks = picks[: self.wanted]  # of each domain some are left: it would be left out as a whole
        return cost + sum(own for _, _, own in picks), picks

    def _value_fields(self) -> tuple[PackedCost, int]:
        """Leftover and headroom penalty in the widths that they need, now that the numbers of domains are
        known.

        And the bits that compare after the amount held, where that is the leftover of nodes.
        """
        fields = []
        exact = not self.anchored and not self.whole and self.lowest == self.costs.depth
        for level in self.levels[:-1] if exact else self.levels:
            most = self._fewest(level) * self.census[level][1]
            fields.append((self.costs.leftover[level], ROOM_BITS, most.bit_length()))
        if self.whole:
            return PackedCost(fields), 0
        penalty = (self.costs.most_penalty * min(self.census[-1][0], self.wanted + self.slack)).bit_length()
        fields.append((0, SCORE_BITS, penalty))
        return PackedCost(fields), penalty if exact else 0


def _one_penalty(vertex: Vertex, numbers: Sequence[int] | None) -> bool:
    """Whether all nodes of these children have the same headroom penalty."""
    if vertex.leaves is not None:
        return len(set(vertex.leaves.penalties)) == 1
    parts = vertex.parts if numbers is None else [vertex.parts[number] for number in numbers]
    found: set[int] = set()
    for part in parts:
        found |= penalties_of(part)
        if len(found) > 1:
            return False
    return True
