"""How many pods of each class fall to each node, if one way to hold all pods is drawn from all the ways.

Each node draws one of its sets, some more often than others: the odds of a set are the product of the odds of
its pods, and these are such that all nodes together hold on average just the pods that there are. Of all odds
that do, none favours fewer of the ways (exponential tilting, maximum entropy; Barvinok and Hartigan, 2010,
"Maximum Entropy Gaussian Approximations for the Number of Integer Points and Volumes of Polytopes"). So what
some nodes hold is likely completed by the others where it lies near their average, as the sums vary.

What is worked out in fractions is rounded to integers at each turn: machines that round otherwise in the last
digit come to the same answer.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.prices import PART, added
from webhook.placement.unlike.takes import Array, Takes

UNIT: Final = 2**12
"""Averages are in such parts of a pod."""

SCALE: Final = 2**20
"""The scale is in such parts."""

SAMPLE: Final = 256
"""Sets of one node, evenly from all over, that its average is taken from."""

TURNS: Final = 20
"""In which the odds are drawn nearer; four to eight are enough where there is a way."""

FARTHEST: Final = 16.0
"""Logarithms of odds are changed by at most that at once."""

HALVINGS: Final = 8
"""Of a turn that led too far."""

NEAR: Final = 0.1
"""Pods of each class by which the averages of all nodes may be off."""

FINE: Final = 2**12
"""Logarithms of odds are rounded to such parts."""

NONE: Final = -0.5
"""The logarithm of the number of ways is at most what the odds make least: there is none if that is below."""

LEAST: Final = 0.02
"""The least square of a deviation, in pods: classes may fill a node in one way alone."""


class Tilt(NamedTuple):
    """middles: pods of each class that fall to each node, times UNIT; scale: a difference from them times it,
    SCALE times too long, is as long as ways are rare: one for each deviation of an average node's set.
    """

    middles: Array
    scale: Array


def tilt(sets: Sequence[Takes], counts: Array, budget: Budget) -> Tilt | None:
    """What falls to each node of the pods; None where no sets of the nodes can hold all together.

    sets: at least one of each. Raises OutOfSteps.
    """
    odds = _Odds(sets, counts, budget)
    logarithms = np.zeros(len(counts))
    value, share = odds.of(logarithms)
    for _ in range(TURNS):
        if value < NONE and odds.every:
            return None
        middles, spread = odds.moments(share)
        off = counts - middles.sum(axis=0)
        if np.abs(off).max() < NEAR:
            break
        turn = np.linalg.solve(spread + LEAST * np.eye(len(off)), off)
        turn *= min(1.0, FARTHEST / np.abs(turn).max())
        for halving in range(HALVINGS):
            size = 0.5**halving
            tried = np.rint((logarithms + size * turn) * FINE) / FINE
            found, shared = odds.of(tried)
            if found < value - size * (turn @ off) / 8:
                logarithms, value, share = tried, found, shared
                break
        else:
            break
    middles, spread = odds.moments(share)
    root = np.linalg.cholesky(spread / len(sets) + LEAST * np.eye(len(counts)))
    scale = np.rint(np.linalg.inv(root).T * SCALE)
    return Tilt(np.rint(middles * UNIT).astype(np.int64), scale.astype(np.int64))


class _Odds:
    """The sets of all nodes, one below the other."""

    def __init__(self, sets: Sequence[Takes], counts: Array, budget: Budget) -> None:
        some = [_some(each.pods) for each in sets]
        lengths = np.array([len(each) for each in some])
        self.every = int(lengths.sum()) == sum(len(each.pods) for each in sets)
        self.counts = counts
        self.pods = np.concatenate(some).astype(np.float64)
        self.starts = np.cumsum(lengths) - lengths
        self.node = np.repeat(np.arange(len(some)), lengths)
        self.budget = budget

    def of(self, logarithms: Array) -> tuple[float, Array]:
        """At most the logarithm of the number of ways, which the odds that are looked for make least; and
        each set's share of its node.
        """
        self.budget.spend(3 * PART + added(16 * self.pods.size, True))
        sums = np.einsum("ij,j->i", self.pods, logarithms)
        top = np.maximum.reduceat(sums, self.starts)
        weights = np.exp(sums - top[self.node])
        total = np.add.reduceat(weights, self.starts)
        value = (np.log(total) + top).sum() - (logarithms * self.counts).sum()
        return float(value), weights / total[self.node]

    def moments(self, share: Array) -> tuple[Array, Array]:
        """The average of each node, and how the sum over all varies: variances and covariances."""
        self.budget.spend(3 * PART + added(self.pods.size * (4 + len(self.counts)), True))
        weighted = self.pods * share[:, None]
        middles = np.add.reduceat(weighted, self.starts)
        # Not by a library for matrices: it would start threads.
        squares = np.einsum("ij,ik->jk", weighted, self.pods)
        return middles, squares - np.einsum("ij,ik->jk", middles, middles)


def _some(pods: Array) -> Array:
    """So many sets from all over."""
    return pods if len(pods) <= SAMPLE else pods[np.arange(SAMPLE) * len(pods) // SAMPLE]
