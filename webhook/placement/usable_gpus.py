"""How many GPUs of a node pods of the mix can use, and how many fewer once a gang is there.

A node's usable GPUs are counted in two ways for each class of the mix, weighted by the class's count:

- by one pod: the free GPUs, or cards, on which a pod of the class can run; 0 if the node lacks anything else
  that the pod requests. The rest is fragmentation as FGD defines it.
- by filling: the GPUs that pods of the class take if they alone fill the node, which depends on the resource
  that runs out first.

A node's value is OF_ONE times the first and once the second. It depends on free amounts alone, and is
computed once for all nodes with the same. A node loses by a gang what it is worth less afterwards; TIGHT
counts against CPU and GPUs that then stay free, so that of nearly equal nodes the fuller one is better.

Source of the first: Q. Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
Fragmentation Gradient Descent (USENIX ATC 2023).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import ge, sub
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from webhook.placement.cards.state import CardState
from webhook.placement.mix import WHOLE, Mix, resource_names
from webhook.placement.model import PodClass, Vector
from webhook.placement.snapshot import NodeState

OF_ONE: Final = 6
"""Found by `hack/bench trace`: with less, whole nodes are opened early; with more, CPU runs out first."""

TIGHT: Final = 20
"""Thousandths of a GPU for a large node that is completely free."""

LARGE_CPU: Final = 128_000
LARGE_GPUS: Final = 8 * WHOLE

MOST_VALUED: Final = 1 << 17
"""The most amounts whose value is cached."""

_BATCH: Final = 256
"""Amounts that are valued at once, which bounds the memory."""

Array = npt.NDArray[np.int64]


class CardAmounts(NamedTuple):
    """Free amounts of the resources that the mix requests of cards, and the amounts that a free card has."""

    free: tuple[int, ...]
    most: tuple[int, ...]


class Amounts(NamedTuple):
    """What matters of a node: free amounts of the resources of the mix, and its cards, the fullest first."""

    free: tuple[int, ...]
    cards: tuple[CardAmounts, ...]


@dataclass(frozen=True)
class MixResources:
    """The resources that classes of a mix request, of nodes and of cards."""

    of_nodes: tuple[str, ...]
    of_cards: tuple[str, ...]

    @staticmethod
    def of(mix: Mix) -> "MixResources":
        """Those of a mix."""
        return MixResources(*resource_names(mix))

    def amounts_of(self, state: NodeState) -> Amounts:
        """What matters of a node's state."""
        free = tuple([max(0, state.free.get(resource, 0)) for resource in self.of_nodes])
        usable = (each for each in state.cards if not each.card.disabled)
        return Amounts(free, tuple(sorted([self._card(each) for each in usable])))

    def _card(self, state: CardState) -> CardAmounts:
        free, most = dict(state.free), state.card.capacity
        names = self.of_cards
        return CardAmounts(
            tuple([free.get(name, 0) for name in names]), tuple([most.get(name, 0) for name in names])
        )

    def later(self, before: Amounts, pod: PodClass, pods: int) -> Amounts:
        """The amounts with so many pods of a class; each takes the fullest cards that serve."""
        wanted = dict(pod.requests)
        free = tuple([
            max(0, amount - pods * wanted.get(name, 0))
            for name, amount in zip(self.of_nodes, before.free, strict=True)
        ])  # fmt: skip
        cards = list(before.cards)
        for request in (each for each in pod.cards if each.count):
            amounts = dict(request.per_card)
            need = tuple([amounts.get(name, 0) for name in self.of_cards])
            for _ in range(pods):
                serving = (n for n, card in enumerate(cards) if all(map(ge, card.free, need)))
                for number in tuple(islice(serving, request.count)):
                    card = cards[number]
                    cards[number] = CardAmounts(tuple(map(sub, card.free, need)), card.most)
                cards.sort()
        return Amounts(free, tuple(cards))


class UsableGpus:
    """The usable GPUs of nodes for one mix."""

    def __init__(self, mix: Mix) -> None:
        self.of = MixResources.of(mix)
        self.gpus = sorted({each.resource for each in mix.classes if each.resource})
        self.weights = np.array([each.count for each in mix.classes], dtype=np.int64)
        self._requests = _table([each.requests for each in mix.classes], self.of.of_nodes)
        self._per_card = _table([each.per_card for each in mix.classes], self.of.of_cards)
        self._cards = np.array([each.cards for each in mix.classes], dtype=np.int64)
        self._thousandths = np.array([each.thousandths for each in mix.classes], dtype=np.int64)
        self._gpu = [self.gpus.index(each.resource) if each.resource else -1 for each in mix.classes]
        self._values: dict[Amounts, tuple[int, int]] = {}

    def lost(self, pairs: Sequence[tuple[Amounts, Amounts]]) -> list[int]:
        """For each node before and after a gang: what it loses, see the module docstring."""
        values = self._values
        missing = dict.fromkeys([each for pair in pairs for each in pair if each not in values])
        if len(values) + len(missing) > MOST_VALUED:
            values.clear()
            missing = dict.fromkeys([each for pair in pairs for each in pair])
        every = list(missing)
        for start in range(0, len(every), _BATCH):
            batch = every[start : start + _BATCH]
            values.update(zip(batch, self._worth(batch), strict=True))
        return [values[before][0] - values[later][0] + values[later][1] for before, later in pairs]

    def _worth(self, batch: Sequence[Amounts]) -> Iterator[tuple[int, int]]:
        """The value of each, and what counts against its free CPU and GPUs."""
        one, filling = self.usable(batch)
        values = (OF_ONE * one + filling) @ self.weights
        names, free = self.of.of_nodes, np.array([each.free for each in batch], dtype=np.int64)
        cpu = free[:, names.index("cpu")] if "cpu" in names else np.zeros(len(batch), dtype=np.int64)
        tight = TIGHT * OF_ONE * int(self.weights.sum())
        spare = tight * cpu // LARGE_CPU + tight * self.free_gpus(batch) // LARGE_GPUS
        return zip(values.tolist(), spare.tolist(), strict=True)

    def free_gpus(self, every: Sequence[Amounts]) -> Array:
        """The free thousandths of GPUs of each node."""
        free = np.array([each.free for each in every], dtype=np.int64)
        whole = sum(free[:, self.of.of_nodes.index(name)] for name in self.gpus)
        _, there = self._cards_of(every)
        found: Array = WHOLE * whole + there.sum(axis=1)
        return found

    def _cards_of(self, every: Sequence[Amounts]) -> tuple[Array, Array]:
        """The free amounts of each card of each node, and its free thousandths, by the scarcest resource."""
        width = max((len(each.cards) for each in every), default=0)
        nothing = (-1,) * len(self.of.of_cards)
        none = CardAmounts(nothing, nothing)
        cards = [card for each in every for card in (*each.cards, *[none] * (width - len(each.cards)))]
        shape = (len(every), width, len(self.of.of_cards))
        free = np.array([card.free for card in cards], dtype=np.int64).reshape(shape)
        most = np.array([card.most for card in cards], dtype=np.int64).reshape(shape)
        shares = np.where(most > 0, WHOLE * free // np.maximum(1, most), WHOLE)
        there = shares.min(axis=2, initial=WHOLE) * (most > 0).any(axis=2)
        return free, there

    def usable(self, every: Sequence[Amounts]) -> tuple[Array, Array]:
        """Thousandths of GPUs that each class can use on each node: by one pod, and by filling the node."""
        free = np.array([each.free for each in every], dtype=np.int64)
        times = _times(free, self._requests)
        one, filling = self._on_cards(every, times)
        for number, gpu in enumerate(self._gpu):
            if gpu >= 0:
                there = WHOLE * free[:, self.of.of_nodes.index(self.gpus[gpu])]
                one[:, number] = np.where(times[:, number] > 0, there, 0)
                filling[:, number] = np.minimum(there, times[:, number] * self._thousandths[number])
        return one, filling

    def _on_cards(self, every: Sequence[Amounts], times: Array) -> tuple[Array, Array]:
        """The same for classes that request cards. times: how many pods the free amounts serve."""
        free, there = self._cards_of(every)
        if not free.size:
            return np.zeros_like(times), np.zeros_like(times)
        shape = (*there.shape, len(self._cards))
        of_card = np.maximum(0, _times(free.reshape(-1, free.shape[2]), self._per_card)).reshape(shape)
        is_serving = of_card > 0
        count = np.maximum(1, self._cards)
        is_usable = (self._cards > 0) & (times > 0) & (is_serving.sum(axis=1) >= self._cards)
        one = np.where(is_usable, (there[:, :, None] * is_serving).sum(axis=1), 0)
        pods = np.minimum(times, of_card.sum(axis=1) // count)
        for _ in range(2):  # a pod's cards are distinct
            pods = np.minimum(pods, np.minimum(of_card, pods[:, None, :]).sum(axis=1) // count)
        filling = np.minimum(there.sum(axis=1)[:, None], pods * self._thousandths)
        return one, np.where(self._cards > 0, filling, 0)


def of_mix(mix: Mix) -> UsableGpus:
    """The usable GPUs for a mix, computed once for it."""
    if "usable" not in mix.notes:
        mix.notes["usable"] = UsableGpus(mix)
    usable: UsableGpus = mix.notes["usable"]
    return usable


def _table(vectors: Sequence[Vector], names: Sequence[str]) -> Array:
    """A row for each vector, 0 where it lacks a name."""
    rows = [[dict(vector).get(name, 0) for name in names] for vector in vectors]
    return np.array(rows, dtype=np.int64).reshape(len(vectors), len(names))


def _times(free: Array, requests: Array) -> Array:
    """[row of free amounts, row of requests]: how many times the requests fit."""
    found = np.full((len(free), len(requests)), 1 << 40, dtype=np.int64)
    for column in range(requests.shape[1]):
        asked = requests[:, column]
        some = np.flatnonzero(asked)
        if len(some):
            found[:, some] = np.minimum(found[:, some], free[:, column, None] // asked[some])
    return found
