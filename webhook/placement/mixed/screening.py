"""Which children of a domain can be part of the best solution: told by what they hold at most.

In a domain whose children share the gang, no fewer children can do than the workers alone need, and in a
solution with just so many each child used holds what the others cannot (by pricing, see alike.pricing; beside
anchors alike.beside).
"""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from webhook.placement.alike.beside import heads_beside, needed_beside, priced_beside
from webhook.placement.alike.pricing import Enough, by_parts, by_units, priced
from webhook.placement.alike.rooms import anchored_children, census, least_held, rooms_beside
from webhook.placement.bounds import rooms_at
from webhook.placement.budget import Budget
from webhook.placement.mixed.odd import Stepwise
from webhook.placement.question import Question
from webhook.placement.vertex import Vertex


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
