"""What one node may take of unlike pods that nearly fill all nodes, as rows of a table."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from webhook.placement.budget import Budget
from webhook.placement.prices import PART, added
from webhook.placement.question import Counts

Array = NDArray[Any]
"""Of machine words."""

MOST: Final = 20_000
"""Sets of pods of one node beyond which only some are looked at, evenly over all."""

MORE: Final = 160_000
"""The same once what was found did not do."""

FEWEST: Final = 2000
"""That many are looked at, whatever it costs."""

KEPT: Final = 4000
"""Sets of one node that are kept, likewise: at most 0.8 MB. Steps bound how many nodes have so many."""

WASTE: Final = 4
"""What a node leaves over is at most so many times what is left over a node, if there are sets enough."""

ENOUGH: Final = 30
"""Sets of one node."""


class Takes(NamedTuple):
    """Sets that a node may take: pods of each class, and what is left over of each resource."""

    pods: Array
    left: Array


def takes(
    free: Counts,
    rooms: Counts,
    needs: Array,
    counts: Array,
    spare: Array,
    nodes: int,
    rows: int,
    wide: bool,
    budget: Budget,
) -> Takes:
    """Those that leave no more over than all nodes together may, and rather no more than their part of it.

    free: of each resource; needs: resources of each class; spare: what the nodes have more than is asked for;
    rows: see affordable; wide: whether a node's part does not matter. Raises OutOfSteps.
    """
    most = np.minimum(counts, rooms)
    part = np.minimum(spare, WASTE * spare // nodes + 1)
    if not wide:
        found = _sets(free, most, needs, part, rows, budget)
        if len(found.pods) >= ENOUGH:
            return found
    return _sets(free, most, needs, spare, rows, budget)


def affordable(steps: int, classes: int, wide: bool) -> int:
    """Rows of so many classes that are looked at in so many steps: of each class three tables, see _sets."""
    most = MORE if wide else MOST
    return min(most, max(FEWEST, steps * 1400 // (24 * classes * classes)))


def _sets(free: Counts, most: Array, needs: Array, spare: Array, rows: int, budget: Budget) -> Takes:
    """The sets that fit and leave no more than that over: class after class, no more of any than fills the
    node, and no more rows than that.
    """
    pods = np.zeros((1, len(most)), dtype=np.int64)
    left = np.array([free], dtype=np.int64)
    order = _order(needs, left[0])
    for at, number in enumerate(order):
        asked = needs[number]
        used = np.flatnonzero(asked)
        later = np.minimum(most[order[at + 1 :], None] * needs[order[at + 1 :]], np.array(free)).sum(axis=0)
        must = left - spare - later  # what this class has to take, or too much is left over
        top = np.full(len(pods), most[number])
        least = np.zeros(len(pods), dtype=np.int64)
        if len(used):
            top = np.minimum(top, (left[:, used] // asked[used]).min(axis=1))
            least = np.maximum(0, (-(-must[:, used] // asked[used])).max(axis=1))
        fits = (must[:, asked == 0] <= 0).all(axis=1)
        many = np.where(fits, np.maximum(0, top - least + 1), 0)
        ends = np.cumsum(many)
        total = int(ends[-1]) if len(ends) else 0
        kept = np.arange(rows) * total // rows if total > rows else np.arange(total)
        budget.spend(6 * PART + added(8 * (len(pods) + 3 * len(kept)) * len(most), True))
        row = ends.searchsorted(kept, side="right")  # of the kept alone: there may be very many sets
        count = kept - (ends - many)[row] + least[row]
        pods, left = pods[row], left[row] - count[:, None] * asked
        pods[:, number] = count
    return thinned(Takes(pods, left), KEPT)


def thinned(found: Takes, most: int) -> Takes:
    """At most so many of the sets, evenly over all."""
    if len(found.pods) <= most:
        return found
    kept = np.arange(most) * len(found.pods) // most
    return Takes(found.pods[kept], found.left[kept])


def _order(needs: Array, free: Array) -> Array:
    """The classes: those first that ask for what few ask for, of these the largest; so sets stay few."""
    users = (needs > 0).sum(axis=0)
    rarest = np.where(needs > 0, users, len(needs)).min(axis=1, initial=len(needs))
    shares = (needs / np.maximum(1, free)).sum(axis=1)
    return np.lexsort((np.arange(len(needs)), -shares, rarest))
