"""First-fit of cards: pods take the first cards of a node that serve them, which is fast and feasible."""

from collections.abc import Sequence
from itertools import permutations
from typing import Final

from webhook.placement.cards.state import CardState, Demand, demands_of, may_serve, tile_run
from webhook.placement.model import CardShare, PodClass, Slots

MOST_ORDERS: Final = 24
"""The most orders of pod classes that are tried."""


class FirstCards:
    """The cards in order. Requests for linked cards are not served."""

    def __init__(self, states: Sequence[CardState]) -> None:
        self.cards = list(states)
        self._are_known = bool(states)
        self._has_numa = any(state.card.numa is not None for state in states)

    def take(self, pod: PodClass) -> Slots | None:
        """Take the cards for one more pod; None, with nothing taken, if a container finds none."""
        if not self._are_known:
            return () if pod.takes_any_cards else None
        if pod.linked:
            return None
        before = list(self.cards)
        slots: list[tuple[CardShare, ...]] = [()] * len(pod.cards)
        for demand in demands_of(0, pod):
            found = self._taken(demand)
            if found is None:
                self.cards = before
                return None
            for index in demand.containers:
                slots[index] = found
        return tuple(slots)

    def _taken(self, demand: Demand) -> tuple[CardShare, ...] | None:
        """The cards for a container, all of one NUMA node if the pod asks for a single one."""
        pod, request = demand.pod_class, demand.request
        groups: dict[int | None, list[tuple[int, CardState]]] = {}
        for number, state in enumerate(self.cards):
            if not may_serve(state.card, pod, self._has_numa):
                continue
            after = state.take(request.per_card, request.tiles)
            if after is None:
                continue
            group = groups.setdefault(state.card.numa if pod.single_numa else None, [])
            group.append((number, after))
            if len(group) == request.count:
                return tuple([self._use(number, after, request.tiles) for number, after in group])
        return None

    def _use(self, number: int, after: CardState, tiles: int) -> CardShare:
        given = tile_run(self.cards[number].tiles, tiles)
        self.cards[number] = after
        return CardShare(after.card.name, given)


def most_by_first_cards(states: Sequence[CardState], pod: PodClass, most: int) -> int:
    """The number of such pods, at most `most`, that find cards by first-fit."""
    cards = FirstCards(states)
    count = 0
    while count < most and cards.take(pod) is not None:
        count += 1
    return count


def first_found(states: Sequence[CardState], pods: Sequence[PodClass]) -> list[Slots] | None:
    """Cards for all these pods by first-fit in several class orders; None proves nothing."""
    classes = list(dict.fromkeys(pods))
    for tried, order in enumerate(permutations(classes)):
        if tried == MOST_ORDERS:
            break
        cards = FirstCards(states)
        chosen: list[Slots | None] = [None] * len(pods)
        for pod_class in order:
            for number, pod in enumerate(pods):
                if pod == pod_class:
                    chosen[number] = cards.take(pod) if pod.wants_cards else ()
        found = [slots for slots in chosen if slots is not None]
        if len(found) == len(pods):
            return found
    return None
