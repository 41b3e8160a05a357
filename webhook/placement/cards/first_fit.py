"""Many sets of pods tried on the cards of one node at once by first-fit decreasing: what fits so, fits.

Demands come from the largest share of a card to the smallest; each is served by the first cards with room.
What does not fit so is tried once more with each kind spread over the cards first. No card serves the demands
of p pods for N different cards more than p times: then they can be dealt out (Gale and Ryser). A set that
fits neither way may still fit otherwise.

Source: Johnson, Near-optimal bin packing algorithms (1973); here resources are many and cards unlike.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from webhook.placement.cards.state import CardState, Demand, demands_of, may_serve
from webhook.placement.model import PodClass
from webhook.placement.prices import PART

Array = NDArray[Any]
"""Of machine words."""

ROUNDS: Final = 3
"""In which a card serves one demand of a kind, where demands are spread."""


def first_fit(states: Sequence[CardState], classes: Sequence[PodClass], sets: Array) -> Array:
    """Which sets fit so.

    states: the node's cards; classes: none of which is searched for; sets: pods of each class, one set a row.
    """
    tried = _Tried(states, classes)
    fits = tried.fit(sets, 0)
    rest = np.flatnonzero(~fits)
    if len(rest):
        fits[rest] = tried.fit(sets[rest], ROUNDS)
    return fits


class _Tried:
    """Demands of some classes on some cards, the largest first."""

    def __init__(self, states: Sequence[CardState], classes: Sequence[PodClass]) -> None:
        every = [(number, demand) for number, pod in enumerate(classes) for demand in demands_of(0, pod)]
        resources = sorted({resource for _, demand in every for resource, _ in demand.wish.per_card})
        free = [[*(dict(s.free).get(r, 0) for r in resources), len(s.tiles)] for s in states]
        self.free = np.array(free, dtype=np.int64).reshape(len(states), len(resources) + 1)
        needs = [_need(demand, resources) for _, demand in every]
        self.needs = np.array(needs, dtype=np.int64).reshape(len(every), len(resources) + 1)
        shares = (self.needs / np.maximum(1, self.free.max(axis=0, initial=0))).max(axis=1)
        self.order = np.argsort(-shares, kind="stable").tolist()
        self.classes = [number for number, _ in every]
        self.spread = [demand.wish.count for _, demand in every]
        has_numa = any(state.card.numa is not None for state in states)
        serves = [[may_serve(s.card, demand.pod_class, has_numa) for s in states] for _, demand in every]
        self.serves = np.array(serves, dtype=np.bool_)

    def fit(self, sets: Array, rounds: int) -> Array:
        """Which sets fit. In so many rounds each card serves one demand of a kind, then as many as it can."""
        left = np.repeat(self.free.T[:, None, :], len(sets), axis=1)  # of each resource, of each set's cards
        fits = np.ones(len(sets), dtype=np.bool_)
        for demand in self.order:
            pods = sets[:, self.classes[demand], None]
            wanted = pods * self.spread[demand]
            served = np.zeros_like(left[0])
            for turn in range(rounds + 1):
                most = np.minimum(pods - served, 1) if turn < rounds else pods - served
                taken = self._take(left, demand, most, wanted)
                wanted = wanted - taken.sum(axis=1, keepdims=True)
                served += taken
            fits &= wanted[:, 0] == 0
        return fits

    def _take(self, left: Array, demand: int, most: Array, wanted: Array) -> Array:
        """How often each card serves a demand, the first cards first; what is left is less by that."""
        most = np.where(self.serves[demand], most, 0)
        used = [(number, need) for number, need in enumerate(self.needs[demand].tolist()) if need]
        for number, need in used:
            most = np.minimum(most, left[number] // need)
        taken: Array = np.clip(wanted - (most.cumsum(axis=1) - most), 0, most)
        for number, need in used:
            left[number] -= taken * need
        return taken


def steps_of(states: Sequence[CardState], classes: Sequence[PodClass], sets: int) -> int:
    """What that costs: see prices."""
    demands = sum(len(pod.cards) for pod in classes)
    return 10 * PART + demands * (12 * PART + sets * len(states) // 30)


def _need(demand: Demand, resources: Sequence[str]) -> list[int]:
    amounts = dict(demand.wish.per_card)
    return [*(amounts.get(resource, 0) for resource in resources), demand.wish.tiles]
