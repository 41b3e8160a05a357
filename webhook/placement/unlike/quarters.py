"""Ways to fill some of the nodes, those kept that are likely completed by the others."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.prices import PART, added
from webhook.placement.unlike.takes import Array, Takes
from webhook.placement.unlike.tilting import UNIT, Tilt

PAIRS: Final = 100_000
"""Ways with one more set each that are looked at together; of more the sets nearest to the average are."""

OVER: Final = 4
"""Pairs that are made, for each way that may be kept: some do not fit, or hold what another one does. Where
too few are left, so many times as many are made, and so on.
"""

SHIFT: Final = 28
"""Distances are in sixteenths of the deviation of a node's set: UNIT * SCALE >> SHIFT."""


class Quarter(NamedTuple):
    """Ways to fill some nodes. nodes: in the order they were filled; held: pods of each class; key: tells
    ways apart; trail: for each node the way before it and the set that it takes, by number; every: whether
    these are all the ways there are.
    """

    nodes: Sequence[int]
    held: Array
    key: Array
    trail: list[tuple[Array, Array]]
    every: bool

    def traced(self, way: int) -> dict[int, int]:
        """The set that each node takes in one way, by number."""
        found = {}
        for node, (before, number) in zip(reversed(self.nodes), reversed(self.trail), strict=True):
            found[node] = int(number[way])
            way = int(before[way])
        return found


class Ways(NamedTuple):
    """Ways to fill some nodes: pods of each class, what is left over of each resource, and a key."""

    held: Array
    left: Array
    key: Array

    @classmethod
    def none(cls, classes: int, resources: int) -> "Ways":
        """The one way to fill no node."""
        return cls(
            np.zeros((1, classes), dtype=np.int64),
            np.zeros((1, resources), dtype=np.int64),
            np.zeros(1, dtype=np.uint64),
        )


class Filler:
    """Fills nodes with sets of the pods of one question."""

    def __init__(
        self, sets: Sequence[Takes], tilted: Tilt, most: tuple[Array, Array], weights: Array, budget: Budget
    ) -> None:
        """sets: of each node; most: pods that may be held and amounts that may be left over in all; weights:
        of the classes in a key.
        """
        self.sets = sets
        self.tilted = tilted
        self.counts, self.spare = most
        self.weights = weights
        self.budget = budget

    def filled(self, nodes: Sequence[int], ways: int) -> Quarter | None:
        """At most so many ways to fill these nodes, one after the other; None where none is left.

        Raises OutOfSteps.
        """
        known = Ways.none(len(self.counts), len(self.spare))
        middle = np.zeros(len(self.counts), dtype=np.int64)
        trail, every = [], True
        for node in nodes:
            far, among = self._far(known.held, middle, node)
            middle = middle + self.tilted.middles[node]
            known, step, complete = self._next(known, node, far, among, ways)
            every = every and complete
            if not len(known.held):
                return None
            trail.append(step)
        return Quarter(nodes, known.held, known.key, trail, every)

    def lean(self, quarters: Sequence[Quarter]) -> None:
        """Aim at as much less of each class as these quarters hold more, on average, than the pods there are.

        More ways leave much over than little, so the average of those that are near to a point is beyond it.
        """
        held = [quarter.held.sum(axis=0) * UNIT // len(quarter.held) for quarter in quarters]
        more = sum(held) - self.counts * UNIT
        self.tilted = self.tilted._replace(middles=self.tilted.middles - more // len(self.sets))

    def _next(
        self, known: Ways, node: int, far: Array, among: Array, ways: int
    ) -> tuple[Ways, tuple[Array, Array], bool]:
        """So many ways with one more node, the nearest that fit and that are unlike; the way before each and
        its set; whether these are all.
        """
        pods, over = self.sets[node]
        whole = len(known.held) * len(pods)
        looked = OVER * ways
        while True:
            pairs = _least(far, looked)
            before, number = np.divmod(pairs, len(among))
            number = among[number]
            self.budget.spend(4 * PART + added(16 * len(pairs) * (8 + pods.shape[1]), True))
            held, left = known.held[before] + pods[number], known.left[before] + over[number]
            fits = np.flatnonzero((held <= self.counts).all(axis=1) & (left <= self.spare).all(axis=1))
            key, first = np.unique(held[fits].astype(np.uint64) @ self.weights, return_index=True)
            fits = fits[first]
            if len(fits) >= ways or len(pairs) == len(far):
                break
            looked *= OVER
        every = len(pairs) == whole and len(fits) <= ways
        if len(fits) > ways:
            near = np.sort(np.argsort(far[pairs[fits]], kind="stable")[:ways])
            fits, key = fits[near], key[near]
        return Ways(held[fits], left[fits], key), (before[fits], number[fits]), every

    def _far(self, held: Array, middle: Array, node: int) -> tuple[Array, Array]:
        """How far from the average each way is with each set of one more node, row after row; and the sets,
        which are some if there are too many.
        """
        pods = self.sets[node].pods
        scale = self.tilted.scale
        ways = (held * UNIT - middle) @ scale >> SHIFT
        sets = (pods * UNIT - self.tilted.middles[node]) @ scale >> SHIFT
        lengths = (sets * sets).sum(axis=1)
        among = _least(lengths, max(1, PAIRS // len(held)))
        self.budget.spend(2 * PART + added(16 * (len(held) + len(pods)) * scale.size, True))
        self.budget.spend(added(len(held) * len(among) * (scale.shape[1] + 16), True))
        far = ways @ (2 * sets[among].T)
        far += (ways * ways).sum(axis=1)[:, None]
        far += lengths[among]
        return far.ravel(), among


def _least(values: Array, most: int) -> Array:
    """Where the least of some values are, of equal ones the first."""
    if len(values) <= most:
        return np.arange(len(values))
    limit = np.partition(values, most)[most]
    found = np.flatnonzero(values < limit)
    return np.sort(np.concatenate([found, np.flatnonzero(values == limit)[: most - len(found)]]))
