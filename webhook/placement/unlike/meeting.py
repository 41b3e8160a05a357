"""Unlike pods that nearly fill their nodes are found a place: what half of the nodes takes, the others leave.

Each half is filled node after node, a few thousand of the ways to do so side by side; two ways that together
hold all pods are a place (meet in the middle; Horowitz and Sahni, 1974, "Computing Partitions with
Applications to the Knapsack Problem"). Of very many ways those are kept that hold of each class about the
part that falls to such nodes, and leave over no more than theirs: in both halves these lie closest together,
so that pairs are found. One node stands between the halves: a pair need only agree up to what that takes.

It only finds: that there is no place it cannot know. What it finds are sets that fit each node, in all the
pods that are asked for.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from webhook.placement.budget import Budget, OutOfSteps
from webhook.placement.prices import PART, added
from webhook.placement.question import Counts
from webhook.placement.unlike.filling import Filling
from webhook.placement.unlike.takes import Array, Takes, takes

NODES: Final = 64
"""Beyond so many, halves hardly meet."""

CLASSES: Final = 16
"""Likewise."""

TRIES: Final = ((1000, 3.0), (1000, 1.5), (3000, 3.0), (3000, 1.5), (3000, 4.5))
"""How many ways to fill a half are kept; and it leaves over no more than its part and what falls to so many
nodes. One is tried after the other. Of 90 planted packings each of 20 nodes (hack/comparing/packings.py;
seeds 0 to 29, 100 to 129, 200 to 229) 90 were found with 8 kinds of pods and up to 2 of a resource left over,
87 and 83 with 10 kinds and up to 2 and 1 left over, 78 with 12 kinds and up to 1.
"""

FEW: Final = 50
"""Ways of which some are kept though they leave more over: while there are few, none is given up."""

TRIED: Final = 30
"""Ways to go on that are tried, for each that may be kept."""

BETWEEN: Final = 2000
"""Sets that the nodes between two halves take together; of one node as many as there are."""

CHUNK: Final = 16
"""Sets between two halves that are looked up together."""

LARGEST: Final = 2**60
"""Amounts in all that machine words hold."""


class _Half(NamedTuple):
    """Ways to fill some nodes. held: pods of each class; key: tells them apart; trail: for each node the way
    before it and the set that it takes, by number.
    """

    held: Array
    key: Array
    trail: list[tuple[Array, Array]]


class Meeting:
    """The pods of one question and the nodes that they nearly fill."""

    def __init__(self, filling: Filling, budget: Budget) -> None:
        """budget: of the steps that may be taken."""
        self.budget = budget
        self.names = [name for _, name in filling.nodes]
        self.kinds = [kind for kind, _ in filling.nodes]
        self.needs = np.array(filling.needs, dtype=np.int64)
        self.counts = np.array(filling.counts, dtype=np.int64)
        self.free = np.array([kind.free for kind in self.kinds], dtype=np.int64)
        self.spare = self.free.sum(axis=0) - self.counts @ self.needs
        # Each way has a number of its own, as long as they fit a machine word, and hardly two have the same
        # beyond: then a pair that does not hold all pods is passed over.
        base = int(self.counts.max()) + 1
        powers = [pow(base, number, 2**64) for number in range(len(self.counts))]
        self.weights = np.array(powers, dtype=np.uint64)

    def solve(self) -> dict[str, Counts] | None:
        """Node name -> pods of each class; None if none was found. Raises OutOfSteps."""
        known: dict[int, Takes] = {}
        for kind in self.kinds:
            if kind.number not in known:
                known[kind.number] = takes(
                    kind.free, kind.rooms, self.needs, self.counts, self.spare, len(self.kinds), self.budget
                )
        sets = [known[kind.number] for kind in self.kinds]
        if not all(len(each.pods) for each in sets):
            return None
        order: list[int] = np.argsort([len(each.pods) for each in sets], kind="stable").tolist()
        for number, (ways, ahead) in enumerate(TRIES):
            halves, between = _split(order, [len(each.pods) for each in sets], number)
            first = self._filled(halves[0], sets, ways, ahead)
            second = self._filled(halves[1], sets, ways, ahead) if first is not None else None
            if first is None or second is None:
                continue
            joined = self._joined(between, sets)
            met = self._met(first, joined.held, second)
            if met is not None:
                way, of_between, other = met
                found = self._traced(between, joined, way=of_between)
                found |= self._traced(halves[0], first, way)
                found |= self._traced(halves[1], second, other)
                return {
                    self.names[node]: tuple(sets[node].pods[chosen].tolist())
                    for node, chosen in sorted(found.items())
                    if sets[node].pods[chosen].any()
                }
        return None

    def _joined(self, nodes: Sequence[int], sets: Sequence[Takes]) -> _Half:
        """All that these nodes take together."""
        held, trail = np.zeros((1, len(self.counts)), dtype=np.int64), []
        for node in nodes:
            pods = sets[node].pods
            before, number = _pairs(len(held), len(pods), len(held) * len(pods))
            self.budget.spend(PART + added(8 * len(before) * held.shape[1], True))
            held = held[before] + pods[number]
            trail.append((before, number))
        return _Half(held, held.astype(np.uint64) @ self.weights, trail)

    def _filled(self, nodes: Sequence[int], sets: Sequence[Takes], ways: int, ahead: float) -> _Half | None:
        """So many ways to fill these nodes, one after the other; None where none is left."""
        held = np.zeros((1, len(self.counts)), dtype=np.int64)
        left = np.zeros((1, len(self.spare)), dtype=np.int64)
        key = np.zeros(1, dtype=np.uint64)
        trail = []
        total = np.maximum(1, self.free.sum(axis=0))
        fallen = np.zeros(len(self.spare))
        for node in nodes:
            pods, over = sets[node]
            fallen += self.free[node] / total
            before, number = _pairs(len(held), len(pods), ways * TRIED)
            self.budget.spend(4 * PART + added(24 * len(before) * held.shape[1], True))
            new_held, new_left = held[before] + pods[number], left[before] + over[number]
            most = np.minimum(self.spare, self.spare * (fallen + ahead / len(self.kinds)) + 1)
            fine = (new_held <= self.counts).all(axis=1) & (new_left <= self.spare).all(axis=1)
            fits = np.flatnonzero(fine & (new_left <= most).all(axis=1))
            if len(fits) < FEW:
                fits = np.flatnonzero(fine)
                much = ((new_left[fits] - most) / np.maximum(1, self.spare)).max(axis=1)
                fits = fits[np.argsort(much, kind="stable")[:FEW]]
            keys = new_held[fits].astype(np.uint64) @ self.weights
            order = np.argsort(keys, kind="stable")
            fits, keys = fits[order], keys[order]
            apart = np.ones(len(fits), dtype=np.bool_)
            apart[1:] = keys[1:] != keys[:-1]
            fits, keys = fits[apart], keys[apart]
            if not len(fits):
                return None
            if len(fits) > ways:
                near = self._nearest(new_held[fits], float(fallen.mean()), ways)
                fits, keys = fits[near], keys[near]
            held, left, key = new_held[fits], new_left[fits], keys
            trail.append((before[fits], number[fits]))
        return _Half(held, key, trail)

    def _nearest(self, held: Array, part: float, ways: int) -> Array:
        """So many ways that hold of each class about such a part of its pods, as chance would have it."""
        spread = np.maximum(self.counts * part * (1 - part), 0.3)
        apart = ((held - self.counts * part) ** 2 / spread).sum(axis=1)
        return np.sort(np.argsort(apart, kind="stable")[:ways])

    def _met(self, first: _Half, pods: Array, second: _Half) -> tuple[int, int, int] | None:
        """A way of each half, and a set of the node between them, that hold all pods together."""
        rows = np.argsort(second.key, kind="stable")
        ordered = second.key[rows]
        wanted = (self.counts - first.held).astype(np.uint64) @ self.weights
        of_sets = pods.astype(np.uint64) @ self.weights
        for begin in range(0, len(pods), CHUNK):
            rest = wanted[:, None] - of_sets[begin : begin + CHUNK]
            self.budget.spend(2 * PART + added(64 * rest.size, True))
            at = np.minimum(ordered.searchsorted(rest), len(ordered) - 1)
            for way, number in np.argwhere(ordered[at] == rest).tolist():
                other = int(rows[at[way, number]])
                if (first.held[way] + pods[begin + number] + second.held[other] == self.counts).all():
                    return way, begin + number, other
        return None

    def _traced(self, nodes: Sequence[int], half: _Half, way: int) -> dict[int, int]:
        """The set that each node takes in one way, by number."""
        found = {}
        for node, (before, number) in zip(reversed(nodes), reversed(half.trail), strict=True):
            found[node] = int(number[way])
            way = int(before[way])
        return found


def _split(order: Sequence[int], sets: Sequence[int], turn: int) -> tuple[list[list[int]], list[int]]:
    """Two halves of the nodes, and those between; others in each turn. sets: how many each node takes."""
    rest = list(order)
    between = [rest.pop(-1 - turn % len(rest))]
    many = sets[between[0]]
    while len(rest) > 2 and many * sets[rest[-1]] <= BETWEEN:
        between.append(rest.pop())
        many *= sets[between[-1]]
    first = [node for number, node in enumerate(rest) if (number >> turn) + number & 1] if turn else rest[::2]
    return [first, [node for node in rest if node not in set(first)]], between


def _pairs(ways: int, sets: int, most: int) -> tuple[Array, Array]:
    """Which ways go on with which sets: each with all, or with some from all over, others than the next."""
    each = min(sets, max(1, most // ways))
    before = np.repeat(np.arange(ways), each)
    stride = sets / each
    shift = np.repeat(np.arange(ways) * 7919 % sets, each)
    number = (np.tile((np.arange(each) * stride).astype(np.int64), ways) + shift) % sets
    return before, number


def serves(filling: Filling) -> bool:
    """Whether the pods may fit by what they ask for in all, and are few enough kinds on few enough nodes."""
    if filling.carded or len(filling.counts) > CLASSES or not 2 < len(filling.nodes) <= NODES:
        return False
    free = filling.after[0]
    asked = [
        sum(count * need[number] for need, count in zip(filling.needs, filling.counts, strict=True))
        for number in range(len(free))
    ]
    return max(free, default=0) < LARGEST and all(a <= f for a, f in zip(asked, free, strict=True))


def solve(filling: Filling, budget: Budget) -> dict[str, Counts] | None:
    """Node name -> pods of each class; None if none was found in the steps there are."""
    try:
        return Meeting(filling, budget).solve()
    except OutOfSteps:
        return None
