"""First-fit decreasing: the largest classes first, each pod on the first node that fits it.

Source: Johnson, Near-optimal bin packing algorithms (1973). Domains are filled one by one, those with the
most of the scarcest resource first. So few of them are used at every level.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.heterogeneous.arrays import LARGEST, Array, GangArrays, Ints, Ranges, Taken
from webhook.placement.heterogeneous.joint_bounds import POOL
from webhook.placement.heterogeneous.node_pools import CLASS, Filling, SlotsBeside

ORDERS: Final = 6
"""The most class orders that are tried."""

FEW: Final = 8
"""The sets of nodes that are filled by every class order, the best ones by the first order."""

Filled = tuple[int, Taken]
"""The cost, and the nodes used."""

Order = tuple[int, ...]
"""Class numbers in the order of placement."""


class FirstFitDecreasing:
    """Fills domains for one gang. It takes steps from the budget; callers check it before each domain."""

    def __init__(self, arrays: GangArrays, budget: Budget) -> None:
        self.arrays = arrays
        self.budget = budget
        self.beside = SlotsBeside(arrays, budget)

    @cached_property
    def orders(self) -> list[Order]:
        """The class orders: by the largest share of a node, by the sum of these shares, by the fewest usable
        nodes, and by each resource.

        Classes in slices come last, except in the last order, where they come first.
        """
        arrays = self.arrays
        numbers, shares = np.arange(arrays.classes), self._shares_of_largest()
        sizes = -shares.max(axis=1, initial=0.0)
        keys = [sizes, -shares.sum(axis=1), arrays.usable[1], *(-arrays.requests).T][:ORDERS]
        orders = [np.lexsort((numbers, sizes, key)).tolist() for key in keys]
        found = [tuple(sorted(order, key=arrays.is_in_slices)) for order in orders]
        if arrays.question.slices:
            found.append(tuple(sorted(orders[0], key=lambda number: not arrays.is_in_slices(number))))
        return list(dict.fromkeys(found))

    def _shares_of_largest(self) -> Array:
        """For each class and resource the share of an empty, largest node that a pod takes."""
        arrays = self.arrays
        nodes = [state.node.allocatable for state in arrays.states]
        largest = {name: max((has.get(name, 0) for has in nodes), default=0) for name in arrays.resources}
        asked = [dict(pod.requests) for pod in arrays.question.classes]
        rows = [[each.get(name, 0) / max(1, largest[name]) for name in arrays.resources] for each in asked]
        return np.array(rows).reshape(arrays.classes, len(arrays.resources))

    def fill(self, ranges: Ranges, limit: int = -1) -> Filled | None:
        """The best filling of some nodes with the gang, or None. limit: a cost that is good enough."""
        return self._best_attempt([ranges], self._attempts, None, limit)

    def fill_best(self, pools: Sequence[Ranges]) -> Filled | None:
        """The best of the fillings of several sets of nodes by the first order, whatever steps are left.

        Each further order fills only the best few of them, or all sets while none has fitted the gang.
        """
        first, *others = self._attempts
        best, fitting = self._fill_each(pools, *first)
        few = [pools[number] for number in fitting[:FEW]] or pools
        return self._best_attempt(few, others, best)

    @cached_property
    def _attempts(self) -> list[tuple[Order, bool]]:
        """The orders, and the first one once more with the first cards that serve each pod."""
        again = [(self.orders[0], True)] if any(self.arrays.carded) else []
        return [*((order, False) for order in self.orders), *again]

    def _best_attempt(
        self,
        pools: Sequence[Ranges],
        attempts: Sequence[tuple[Order, bool]],
        best: Filled | None,
        limit: int = -1,
    ) -> Filled | None:
        """The best of these fillings and of the best one so far, while steps are left."""
        for order, takes_first_cards in attempts:
            if self.budget.left < CLASS * self.arrays.classes or (best is not None and best[0] <= limit):
                break
            filled, _ = self._fill_each(pools, order, takes_first_cards)
            best = filled if best is None or (filled is not None and filled[0] < best[0]) else best
        return best

    def _fill_each(
        self, pools: Sequence[Ranges], order: Order, takes_first_cards: bool
    ) -> tuple[Filled | None, list[int]]:
        """The cheapest of the fillings of several sets of nodes, class by class in this order.

        It also returns the numbers of the sets that fit the gang, the cheapest first.
        """
        filling = self._filling(pools, takes_first_cards=takes_first_cards)
        for number in order:
            filling.place(number)
            if not filling.drop_short():
                return None, []
        costs = []
        for pool, nodes in filling.used():
            self.budget.take(POOL + len(nodes) // 2)
            costs.append((self.arrays.cost(nodes), pool))
        if not costs:
            return None, []
        costs.sort()
        cost, pool = costs[0]
        return (cost, filling.taken(pool)), [pool for _, pool in costs]

    def fill_partly(self, ranges: Ranges, order: Order) -> Taken:
        """As many pods as fit on some nodes, class by class in this order."""
        filling = self._filling([ranges])
        for number in order:
            filling.place(number)
        return filling.taken(0)

    def _filling(self, pools: Sequence[Ranges], *, takes_first_cards: bool = False) -> Filling:
        numbers = [np.concatenate([np.arange(first, end) for first, end in ranges]) for ranges in pools]
        ordered = [each[np.argsort(self._places[each], kind="stable")] for each in numbers]
        return Filling(self.arrays, self.beside, ordered, self.budget, takes_first_cards=takes_first_cards)

    @cached_property
    def _places(self) -> Ints:
        """The position of each node in the order of filling: nodes of anchored domains come first.

        The other domains follow by their free amount of the scarcest resource, from the coarsest level down.
        The scarcest resource is the one of which the gang requests the largest share.
        """
        arrays = self.arrays
        nodes = np.arange(len(arrays.states))
        scarcest = int(np.argmax(arrays.totals / np.maximum(1, arrays.free.sum(axis=0))))
        name, most = arrays.resources[scarcest], LARGEST // max(1, len(nodes))
        free = np.array([min(state.free.get(name, 0), most) for state in arrays.states], dtype=np.int64)
        keys: list[Array] = []
        for starts, paid in zip(arrays.starts, arrays.paid, strict=True):
            around = np.searchsorted(starts, nodes, side="right") - 1
            keys += [~paid[around], -np.add.reduceat(free, starts)[around], around]
        places = np.empty_like(nodes)
        places[np.lexsort(keys[::-1])] = nodes
        return places
