"""Whether unlike pods fit on given nodes at all: a complete search that remembers what led nowhere.

The question is vector bin packing, NP-hard, so the search has a budget; within it the answer is certain
either way. The class with the least room to spare comes first
(the "fail first" rule of Haralick and Elliott, 1980), on the node that it fills best. Nodes that are alike
and hold the same are one choice. A state (what is still to place, and what the nodes of each kind hold)
that led nowhere is not entered again. A branch ends when a class has fewer places left than pods, or when the
nodes that can still take something have less of a resource free than the pods ask for.
"""

from collections import Counter
from collections.abc import Sequence
from operator import sub

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.question import Counts, Question
from webhook.placement.tree import Vertex
from webhook.placement.unlike.node_kinds import DEEPEST, NodeKind, NodePacking

_Load = tuple[int, Counts]
"""A kind's number and the pods of each class that such a node holds."""


class Fitting(NodePacking):
    """The pods of one question, packed into given nodes."""

    def __init__(self, question: Question, nodes: Sequence[Vertex], budget: Budget) -> None:
        super().__init__(question, nodes, budget)
        self.left: dict[_Load, Counts] = {}
        self.places: dict[_Load, Counts] = {}
        self.dead: set[tuple[Counts, frozenset[tuple[_Load, int]]]] = set()

    def solve(self) -> dict[str, Counts] | None:
        """Node name -> pods of each class, or None when there is no way. Raises OutOfSteps."""
        if sum(self.counts) > DEEPEST:
            raise OutOfSteps
        nothing = (0,) * len(self.counts)
        loads = Counter({(kind.number, nothing): len(kind.names) for kind in self.kinds})
        if not self._place(self.counts, loads):
            return None
        found: dict[str, Counts] = {}
        waiting = {kind.number: iter(kind.names) for kind in self.kinds}
        for (number, held), times in sorted(loads.items()):
            for _ in range(times if any(held) else 0):
                found[next(waiting[number])] = held
        return found

    def _place(self, rest: Counts, loads: Counter[_Load]) -> bool:
        """Place what is left; on success `loads` holds all, otherwise it is as before."""
        if not any(rest):
            return True
        self.budget.spend(30 + 5 * len(loads))  # each load is looked at
        state = (rest, frozenset(loads.items()))
        if state in self.dead:
            return False
        number = self._tightest(rest, loads)
        if number is not None:
            fewer = (*rest[:number], rest[number] - 1, *rest[number + 1 :])
            for load in self._choices(number, loads):
                kind, held = load
                more = (kind, (*held[:number], held[number] + 1, *held[number + 1 :]))
                _move(loads, load, more)
                if self._place(fewer, loads):
                    return True
                _move(loads, more, load)
        self.dead.add(state)
        return False

    def _tightest(self, rest: Counts, loads: Counter[_Load]) -> int | None:
        """The class with the least room to spare; None when something cannot be placed any more."""
        wanted = [number for number, count in enumerate(rest) if count]
        room = dict.fromkeys(wanted, 0)
        free = [0] * len(self.scale)
        for load, times in loads.items():
            places = self._places(load)
            useful = False
            for number in wanted:
                if places[number]:
                    room[number] += times * min(places[number], rest[number])
                    useful = True
            if useful:
                for resource, amount in enumerate(self._left(load)):
                    free[resource] += times * amount
        if any(room[number] < rest[number] for number in wanted):
            return None
        for resource, amount in enumerate(free):
            if sum(rest[number] * self.needs[number][resource] for number in wanted) > amount:
                return None
        return min(
            wanted, key=lambda number: (room[number] / rest[number], -self.share(self.needs[number]), number)
        )

    def _choices(self, number: int, loads: Counter[_Load]) -> list[_Load]:
        """The loads that a pod of the class can join, the best filled first."""
        need = self.needs[number]

        def rest(load: _Load) -> float:
            return self.share(tuple(map(sub, self._left(load), need)))

        return sorted(
            (load for load in loads if self._places(load)[number]), key=lambda load: (rest(load), load)
        )

    def _left(self, load: _Load) -> Counts:
        """What such a node has free beside what it holds."""
        if load not in self.left:
            kind, held = load
            left = list(self.kinds[kind].free)
            for need, count in zip(self.needs, held, strict=True):
                if count:
                    left = [amount - count * each for amount, each in zip(left, need, strict=True)]
            self.left[load] = tuple(left)
        return self.left[load]

    def _places(self, load: _Load) -> Counts:
        """How many more pods of each class, alone, such a node takes."""
        if load not in self.places:
            number, held = load
            kind, left = self.kinds[number], self._left(load)
            places = []
            for at, need in enumerate(self.needs):
                most = kind.rooms[at] - held[at]
                for amount, each in zip(left, need, strict=True):
                    if each:
                        most = min(most, amount // each)
                places.append(max(0, most))
            if self.carded and any(held):
                places = [self._with_cards(kind, held, at) if most else 0 for at, most in enumerate(places)]
            self.places[load] = tuple(places)
        return self.places[load]

    def _with_cards(self, kind: NodeKind, held: Counts, number: int) -> int:
        """How many more pods of a class find cards beside those held."""
        pods = [pod for pod, count in zip(self.classes, held, strict=True) for _ in range(count)]
        most = 0
        while most < self.counts[number]:
            pods.append(self.classes[number])
            if not self.fits_together(pods, kind):
                break
            most += 1
        return most


def _move(loads: Counter[_Load], source: _Load, target: _Load) -> None:
    """One node from one load to another."""
    loads[source] -= 1
    if not loads[source]:
        del loads[source]
    loads[target] += 1
