"""First-fit decreasing: class after class, the largest first, nodes in use before others.

Source: Johnson, Near-optimal bin packing algorithms (1973); for several resources Panigrahy et al.,
Heuristics for vector bin packing (2011). Parts of a domain are taken one after the other, those first that
hold most of what is scarce there; so few of them are used, at every level.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final

import numpy as np

from webhook.placement.budget import Budget
from webhook.placement.heterogeneous.arrays import LARGEST, Array, DomainRange, GangArrays, Ints, Taken
from webhook.placement.heterogeneous.filling import CLASS, Filling, SlotsBeside
from webhook.placement.heterogeneous.joint_bounds import Candidate, JointBounds

ORDERS: Final = 4
"""Orders of the classes that are tried in each set of nodes."""

MANY: Final = 64
"""Classes beyond which a candidate is filled as a whole, classes with few nodes to choose from first."""

SIZES: Final = 1_000_000
"""Nodes are compared by the shares of what is scarce that they have free, in parts of so many."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """is_ranked: nodes go by the ranks of their domains. roomiest_first: then the largest first, else the
    tightest. part: a node that is not in use yet takes only this part of what it has capacity for, at least
    one pod, of each class but the last, so that something of each resource stays for these. in_order: nodes
    go as they are given, whether in use or not.
    """

    is_ranked: bool
    roomiest_first: bool
    part: int = 1
    in_order: bool = False


_VARIANTS: Final = (
    _Variant(True, True),
    _Variant(True, True, 2),
    _Variant(False, True),
    _Variant(False, False),
    _Variant(False, True, 2),
)

_IN_ORDER: Final = _Variant(is_ranked=False, roomiest_first=True, in_order=True)

Filled = tuple[int, Taken]
"""The cost, and the nodes used."""


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """Nodes to fill; ranks: the number of each one's domain in the order in which these are used."""

    numbers: Ints
    ranks: Ints


class FirstFitDecreasing:
    """Fills domains for one gang. budget: is taken from, and looked at by who asks, before each domain."""

    def __init__(self, arrays: GangArrays, bounds: JointBounds, budget: Budget) -> None:
        self.arrays = arrays
        self.bounds = bounds
        self.budget = budget
        self.beside = SlotsBeside(arrays, budget)
        self._orders = self._orders_of_classes()[:ORDERS]
        supply = np.maximum(1, arrays.free.sum(axis=0))
        most = np.maximum(1, arrays.free.max(axis=0, initial=1))
        scarcity = arrays.totals / supply / most
        self._sizes: Ints = (arrays.free @ scarcity * SIZES).astype(np.int64)

    def _orders_of_classes(self) -> list[tuple[int, ...]]:
        """By the share of a node that a pod takes, by the fewest nodes to choose from, by each resource."""
        arrays = self.arrays
        most = np.maximum(1, arrays.free.max(axis=0, initial=1))
        share = (arrays.requests / most).max(axis=1, initial=0.0)
        choice = np.count_nonzero(arrays.slot_counts, axis=1)
        keys = [-share, choice, *(-arrays.requests).T]
        numbers = np.arange(arrays.classes)
        self._by_choice = tuple(np.lexsort((numbers, -share, choice)).tolist())
        self._by_size = tuple(np.lexsort((numbers, -self._shares_of_largest())).tolist())
        orders = [tuple(np.lexsort((numbers, -share, key)).tolist()) for key in keys]
        return list(dict.fromkeys(orders))

    def _shares_of_largest(self) -> Array:
        """The largest share that a pod of each class takes of what the largest node has when it is empty."""
        names, shares = self.arrays.resources, []
        nodes = [state.node.allocatable for state in self.arrays.states]
        largest = {name: max((has.get(name, 0) for has in nodes), default=0) for name in names}
        for pod in self.arrays.question.classes:
            asked = [amount / max(1, largest[name]) for name, amount in pod.requests]
            shares.append(max(asked, default=0.0))
        return np.array(shares)

    def fill(self, candidate: Candidate, limit: int = -1) -> Filled | None:
        """The best of some fillings of a candidate, by as few of its parts as hold the gang, or None.

        limit: a cost at which nothing better is looked for.
        """
        best: Filled | None = None
        if self.arrays.classes > MANY:
            numbers = np.concatenate([np.arange(first, end) for first, end in candidate.ranges])
            every_node = _Nodes(numbers, np.zeros_like(numbers))
            best = self._better(None, self._fill(every_node, self._by_choice, _VARIANTS[2]))
            if self.budget.exhausted:
                return best
        best = _cheaper(best, self.fill_in_order(candidate))
        for nodes in self._choices(candidate):
            chosen: Filled | None = None
            for order, variant in product(self._orders, _VARIANTS):
                if self.budget.exhausted or (best is not None and best[0] <= limit):
                    return best
                chosen = self._better(chosen, self._fill(nodes, order, variant))
                best = _cheaper(best, chosen)
            if chosen is not None:
                break
        return best

    def fill_in_order(self, candidate: Candidate) -> Filled | None:
        """By the simplest rule: the largest pods first, each onto the first node with capacity for it."""
        if self.budget.left < CLASS * self.arrays.classes:
            return None
        return self._better(None, self._fill(self._by_supply(candidate), self._by_size, _IN_ORDER))

    def _better(self, best: Filled | None, taken: Taken | None) -> Filled | None:
        """The better one of the best so far and of nodes that are taken."""
        if taken is None:
            return best
        cost = self.arrays.cost(taken)
        return (cost, taken) if best is None or cost < best[0] else best

    def partial_fills(
        self, domain: DomainRange, classes: Collection[int], before: Ints
    ) -> Iterator[tuple[Taken, Ints]]:
        """Some ways to put as many pods of these classes into a domain as there is capacity for, and what
        each node has free beside them. before: what each has free without them.
        """
        numbers = np.arange(domain.first, domain.end)
        nodes = _Nodes(numbers, np.zeros(len(numbers), dtype=np.int64))
        for order, variant in product([*self._orders, self._orders[0][::-1]], _VARIANTS[2:]):
            free = before.copy()
            taken = self._fill_partly(nodes, free, [each for each in order if each in classes], variant)
            yield taken, free
            if self.budget.exhausted:
                return

    # --- which nodes ---------------------------------------------------------------------------------

    def _by_supply(self, candidate: Candidate) -> _Nodes:
        """All nodes of a candidate, domain by domain, those first with the most of what is scarcest."""
        numbers = np.concatenate([np.arange(first, end) for first, end in candidate.ranges])
        numbers = numbers[np.argsort(self._supply_order[numbers], kind="stable")]
        return _Nodes(numbers, np.zeros_like(numbers))

    @cached_property
    def _supply_order(self) -> Ints:
        """Where each node stands: after domains that anchors use, the others by what they have free of the
        resource of which the gang asks for the largest share, from the coarsest level down.
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

    def _choices(self, candidate: Candidate) -> Iterator[_Nodes]:
        """Sets of a candidate's nodes: of the fewest parts that may hold the gang, then of more and more."""
        if not candidate.parts:
            numbers = np.concatenate([np.arange(first, end) for first, end in candidate.ranges])
            yield _Nodes(numbers, np.zeros(len(numbers), dtype=np.int64))
            return
        parts, contributions = self._ordered(candidate.parts)
        if candidate.uses_all:
            yield self._nodes(parts)
            return
        enough = (np.cumsum(contributions, axis=0) >= self.bounds.needs).all(axis=1)
        fewest = int(np.argmax(enough)) + 1 if enough.any() else len(parts)
        before = contributions[: fewest - 1].sum(axis=0)
        fitting = (before + contributions[fewest - 1 :] >= self.bounds.needs).all(axis=1)
        tightest = fewest - 1 + int(np.flatnonzero(fitting)[-1]) if fitting.any() else fewest - 1
        if tightest != fewest - 1:
            yield self._nodes([*parts[: fewest - 1], parts[tightest]])
        count = fewest
        while count < len(parts):
            yield self._nodes(parts[:count])
            count += max(1, (count - fewest + 1) // 2)
        yield self._nodes(parts)

    def _ordered(self, parts: Sequence[DomainRange]) -> tuple[list[DomainRange], Ints]:
        """Some parts, those first that anchors pay for, then those that hold most of the gang, and what each
        contributes to each measure.
        """
        contributed = self.bounds.contributions(parts)
        shares = np.minimum(contributed / self.bounds.needs, 1.0)
        scarce = int(np.argmin(contributed.sum(axis=0) / self.bounds.needs))
        value = shares.min(axis=1) + shares[:, scarce] / 1000
        paid = np.array([self.arrays.is_paid(part) for part in parts], dtype=np.bool_)
        order = np.lexsort((np.arange(len(parts)), -value, ~paid)).tolist()
        return [parts[number] for number in order], contributed[order]

    def _nodes(self, parts: Sequence[DomainRange]) -> _Nodes:
        """The nodes of some parts, ranked by the parts and in these by theirs."""
        runs: list[tuple[int, int]] = []
        for part in parts:
            self._add_runs(part, runs)
        numbers = np.concatenate([np.arange(first, end) for first, end in runs])
        lengths = [end - first for first, end in runs]
        return _Nodes(numbers, np.repeat(np.arange(len(runs)), lengths))

    def _add_runs(self, domain: DomainRange, runs: list[tuple[int, int]]) -> None:
        if not domain.parts or all(part.is_node for part in domain.parts):
            runs.append((domain.first, domain.end))
            return
        for part in self._ordered(domain.parts)[0]:
            self._add_runs(part, runs)

    # --- filling them --------------------------------------------------------------------------------

    def _fill(self, nodes: _Nodes, order: Sequence[int], variant: _Variant) -> Taken | None:
        """Class after class in this order; None where one finds too little capacity."""
        free = self.arrays.free[nodes.numbers]
        taken = self._fill_partly(nodes, free, order, variant, stops_when_short=True)
        counts = tuple(map(sum, zip(*taken.values(), strict=True))) if taken else ()
        return taken if counts == self.arrays.question.counts else None

    def _fill_partly(
        self,
        nodes: _Nodes,
        free: Ints,
        order: Sequence[int],
        variant: _Variant,
        *,
        stops_when_short: bool = False,
    ) -> Taken:
        """The same with as many pods as there is capacity for, which are taken off what the nodes have free.

        stops_when_short: it ends at a class that is short.
        """
        ranks = nodes.ranks if variant.is_ranked else np.zeros_like(nodes.ranks)
        filling = Filling(self.arrays, self.beside, nodes.numbers, free, self.budget)
        for number in order:
            filling.choose(number)
            if variant.in_order:
                filling.take_in_order()
            else:
                part = 1 if number == order[-1] else variant.part
                sizes = self._sizes[nodes.numbers] if variant.roomiest_first else -self._sizes[nodes.numbers]
                filling.take_used_first(ranks, sizes, part, roomiest_first=variant.roomiest_first)
            if stops_when_short and filling.left:
                return {}
            filling.place()
        return filling.taken()


def _cheaper(one: Filled | None, other: Filled | None) -> Filled | None:
    """The one that costs less, the first of equals; the other where one is None."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other, key=lambda each: each[0])
