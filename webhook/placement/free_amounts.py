"""The free amounts of nodes that matter for a mix, each distinct state with a number.

Most nodes of a cluster are in one of few states, and a state recurs from pass to pass. So what is computed
for a number is computed once.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import ge, sub
from typing import Final, NamedTuple

import numpy as np

from webhook.placement.cards.state import CardState
from webhook.placement.mix import MOST_AMOUNT
from webhook.placement.model import CardRequest, NodeInfo, PodClass
from webhook.placement.served_requests import Array, CardRequests, ServedRequests
from webhook.placement.snapshot import NodeState

MOST_STATES: Final = 1 << 15
"""The most distinct states of a table."""

MOST_TABLES: Final = 8

_FEW: Final = 1 << 10
"""Rows for which memory is taken at first, and the most gangs for which later cards are cached."""


class CardAmounts(NamedTuple):
    """Free amounts of the resources that the mix requests of cards, and the amounts that a free card has."""

    free: tuple[int, ...]
    most: tuple[int, ...]


Cards = tuple[CardAmounts, ...]
"""The cards of a node, the fullest first."""

Labels = tuple[str, ...]
"""The values of a node's labels of models, "" for one that it lacks."""


class CardsOnModel(NamedTuple):
    """A set of cards, on nodes with these labels of models."""

    labels: Labels
    cards: Cards


class MixResources(NamedTuple):
    """The resources that classes of a mix request, of nodes and of cards, and the labels of their models."""

    of_nodes: tuple[str, ...]
    of_cards: tuple[str, ...]
    labels: tuple[str, ...] = ()

    def free_on(self, free: Mapping[str, int]) -> tuple[int, ...]:
        """The free amounts of a node, between 0 and MOST_AMOUNT."""
        return tuple([min(max(0, free.get(resource, 0)), MOST_AMOUNT) for resource in self.of_nodes])

    def labels_on(self, node: NodeInfo) -> Labels:
        """The values of a node's labels of models."""
        return tuple([node.labels.get(key, "") for key in self.labels])

    def cards_on(self, states: Iterable[CardState]) -> Cards:
        """The cards of a node that pods may use."""
        return tuple(sorted([self._card(each) for each in states if not each.card.disabled]))

    def _card(self, state: CardState) -> CardAmounts:
        free, most = dict(state.free), state.card.capacity
        return CardAmounts(
            tuple([min(free.get(name, 0), MOST_AMOUNT) for name in self.of_cards]),
            tuple([min(most.get(name, 0), MOST_AMOUNT) for name in self.of_cards]),
        )

    def later(self, before: Cards, requests: Iterable[CardRequest], pods: int) -> Cards:
        """The cards with so many pods; each takes the fullest cards that serve."""
        cards = list(before)
        for request in (each for each in requests if each.count):
            amounts = dict(request.per_card)
            need = tuple([amounts.get(name, 0) for name in self.of_cards])
            for _ in range(pods):
                serving = (n for n, card in enumerate(cards) if all(map(ge, card.free, need)))
                for number in tuple(islice(serving, request.count)):
                    card = cards[number]
                    cards[number] = CardAmounts(tuple(map(sub, card.free, need)), card.most)
                cards.sort()
        return tuple(cards)


class States:
    """Distinct states of nodes, and distinct sets of cards on nodes of a model, by number."""

    def __init__(self, resources: MixResources) -> None:
        self.resources = resources
        self._numbers: dict[tuple[tuple[int, ...], int], int] = {}
        self._free = np.zeros((_FEW, len(resources.of_nodes)), dtype=np.int64)
        self._cards_on: list[int] = []
        self._sets: dict[CardsOnModel, int] = {}
        self._cards: list[CardsOnModel] = []
        self._served: dict[CardRequests, ServedRequests] = {}
        self._later: dict[object, dict[int, int]] = {}

    @property
    def is_full(self) -> bool:
        """Whether a new table should be made."""
        return max(len(self._cards_on), len(self._cards)) >= MOST_STATES

    def number(self, state: NodeState) -> int:
        """The number of a node's state, cached with it."""
        known: int | None = state.notes.get(self)
        if known is None:
            labels = self.resources.labels_on(state.node)
            cards = self._set(CardsOnModel(labels, self.resources.cards_on(state.cards)))
            known = self._added(self.resources.free_on(state.free), cards)
            state.note(self, known)
        return known

    def _added(self, free: tuple[int, ...], cards: int) -> int:
        key = free, cards
        number = self._numbers.setdefault(key, len(self._cards_on))
        if number == len(self._cards_on):
            if number == len(self._free):
                self._free = np.concatenate([self._free, np.zeros_like(self._free)])
            self._free[number] = free
            self._cards_on.append(cards)
        return number

    def _set(self, there: CardsOnModel) -> int:
        number = self._sets.setdefault(there, len(self._cards))
        if number == len(self._cards):
            self._cards.append(there)
        return number

    def cards_of(self, number: int) -> CardsOnModel:
        """The cards of a set."""
        return self._cards[number]

    def served(self, requests: CardRequests) -> ServedRequests:
        """Which of these requests the sets of cards serve, as far as that has been computed."""
        if requests not in self._served:
            if len(self._served) >= MOST_TABLES:
                self._served.clear()
            self._served[requests] = ServedRequests(requests, self.resources.of_cards)
        return self._served[requests]

    def amounts(self, numbers: Sequence[int]) -> tuple[Array, list[int]]:
        """The free amounts of states, a row for each, and the numbers of their sets of cards."""
        return self._free[numbers], [self._cards_on[number] for number in numbers]

    def later(self, numbers: Sequence[int], pod: PodClass, pods: int) -> tuple[Array, list[int]]:
        """The same with so many pods of a class."""
        free, cards = self.amounts(numbers)
        wanted = dict(pod.requests)
        taken = np.array([pods * wanted.get(name, 0) for name in self.resources.of_nodes], dtype=np.int64)
        if pod.wants_cards:
            cards = self._later_cards(cards, pod.cards, pods)
        return np.maximum(0, free - taken), cards

    def _later_cards(self, cards: Sequence[int], requests: tuple[CardRequest, ...], pods: int) -> list[int]:
        key = requests, pods
        if key not in self._later and len(self._later) >= _FEW:
            self._later.clear()
        known = self._later.setdefault(key, {})
        for number in cards:
            if number not in known:
                labels, before = self._cards[number]
                known[number] = self._set(CardsOnModel(labels, self.resources.later(before, requests, pods)))
        return [known[number] for number in cards]


_tables: dict[MixResources, States] = {}


def states_of(resources: MixResources) -> States:
    """The table for these resources, a new one if it is full; losing one costs time alone."""
    known = _tables.get(resources)
    if known is None or known.is_full:
        if len(_tables) >= MOST_TABLES:
            _tables.clear()
        known = _tables[resources] = States(resources)
    return known
