"""Whether unlike pods fit on given nodes at all: a complete search that remembers what led nowhere.

The question is vector bin packing, NP-hard, so the search has a limit of its own, in steps; within it the
answer is certain either way. The class with the least room to spare comes first
(the "fail first" rule of Haralick and Elliott, 1980), on the node that it fills best. Nodes that are alike
and hold the same are one choice. A state (what is still to place, and what the nodes of each kind hold)
that led nowhere is not entered again. A branch ends when a class has fewer places left than pods, or when the
nodes that can still take something have less of a resource free than the pods ask for.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from webhook.placement import capacity
from webhook.placement.snapshot import NodeState
from webhook.placement.tree import Question, Vertex
from webhook.placement.unlike.node_options import State

LIMIT = 3_000
"""Steps of one search, a fraction of a second."""


DEEPEST = 400
"""Pods or nodes beyond which neither search is tried: each is one call inside the other."""


class OutOfLimit(Exception):
    """The limit is used up."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Nodes that are alike to the gang's classes: room for each class alone, what is free, one of them, and
    the names of all.
    """

    number: int
    rooms: State
    free: State
    node: NodeState
    names: list[str]


def needs_of(question: Question) -> tuple[list[str], list[State]]:
    """The resources that the gang asks for, and of each class the amounts in this order."""
    resources = sorted({resource for pod in question.classes for resource, _ in pod.requests})
    needs = [dict(pod.requests) for pod in question.classes]
    return resources, [tuple(need.get(resource, 0) for resource in resources) for need in needs]


def kinds_of(nodes: Sequence[Vertex], resources: Sequence[str], carded: bool) -> list[Kind]:
    """The nodes by kind. carded: cards matter, so that nodes with cards are not alike."""
    kinds: dict[object, Kind] = {}
    for vertex in nodes:
        state = vertex.state
        assert state is not None
        free = tuple(state.free.get(resource, 0) for resource in resources)
        alike = (vertex.rooms, free, id(state) if carded and state.cards else 0)
        kind = kinds.setdefault(alike, Kind(len(kinds), vertex.rooms, free, state, []))
        kind.names.append(state.name)
    return list(kinds.values())


_Load = tuple[int, State]
"""A kind's number and the pods of each class that such a node holds."""


class Fitting:
    """One question on some nodes."""

    def __init__(self, question: Question, nodes: Sequence[Vertex], limit: int) -> None:
        """nodes: vertices of single nodes. limit: most steps."""
        self.classes = question.classes
        self.counts = question.counts
        self.limit = limit
        self.steps = 0
        resources, self.needs = needs_of(question)
        self.carded = any(pod.wants_cards for pod in question.classes)
        self.kinds = kinds_of(nodes, resources, self.carded)
        self.scale = [max(1, *(kind.free[r] for kind in self.kinds)) for r in range(len(resources))]
        self.left: dict[_Load, State] = {}
        self.places: dict[_Load, State] = {}
        self.dead: set[tuple[State, frozenset[tuple[_Load, int]]]] = set()

    def solve(self) -> dict[str, State] | None:
        """Node name -> pods of each class, or None when there is no way. Raises OutOfLimit."""
        if sum(self.counts) > DEEPEST:
            raise OutOfLimit
        nothing = (0,) * len(self.counts)
        loads = Counter({(kind.number, nothing): len(kind.names) for kind in self.kinds})
        if not self._place(self.counts, loads):
            return None
        found: dict[str, State] = {}
        waiting = {kind.number: iter(kind.names) for kind in self.kinds}
        for (number, held), times in sorted(loads.items()):
            for _ in range(times if any(held) else 0):
                found[next(waiting[number])] = held
        return found

    def _place(self, rest: State, loads: Counter[_Load]) -> bool:
        """Place what is left; on success `loads` holds all, otherwise it is as before."""
        if not any(rest):
            return True
        self.steps += 1 + len(loads) // 16  # each load is looked at
        if self.steps > self.limit:
            raise OutOfLimit
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

    def _tightest(self, rest: State, loads: Counter[_Load]) -> int | None:
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
        return min(wanted, key=lambda number: (room[number] / rest[number], -self._size(number), number))

    def _size(self, number: int) -> float:
        return sum(need / most for need, most in zip(self.needs[number], self.scale, strict=True))

    def _choices(self, number: int, loads: Counter[_Load]) -> list[_Load]:
        """The loads that a pod of the class can join, the best filled first."""
        need = self.needs[number]

        def rest(load: _Load) -> float:
            left = self._left(load)
            return sum((a - b) / most for a, b, most in zip(left, need, self.scale, strict=True))

        return sorted(
            (load for load in loads if self._places(load)[number]), key=lambda load: (rest(load), load)
        )

    def _left(self, load: _Load) -> State:
        """What such a node has free beside what it holds."""
        if load not in self.left:
            kind, held = load
            left = list(self.kinds[kind].free)
            for need, count in zip(self.needs, held, strict=True):
                if count:
                    left = [amount - count * each for amount, each in zip(left, need, strict=True)]
            self.left[load] = tuple(left)
        return self.left[load]

    def _places(self, load: _Load) -> State:
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

    def _with_cards(self, kind: Kind, held: State, number: int) -> int:
        """How many more pods of a class find cards beside those held."""
        pods = [pod for pod, count in zip(self.classes, held, strict=True) for _ in range(count)]
        most = 0
        while most < self.counts[number]:
            pods.append(self.classes[number])
            if not capacity.fits_together(pods, kind.node):
                break
            most += 1
        return most


def _move(loads: Counter[_Load], source: _Load, target: _Load) -> None:
    """One node from one load to another."""
    loads[source] -= 1
    if not loads[source]:
        del loads[source]
    loads[target] += 1
