"""A node's cards while pods take the first ones that serve them: quick, and never more than there is."""

from collections.abc import Sequence
from itertools import permutations
from typing import Final

from webhook.placement.cards.state import CardState, Demand, demands_of, may_serve, tile_run
from webhook.placement.model import CardShare, PodClass, Slots

MOST_ORDERS: Final = 24
"""Orders of the classes of pods that are tried."""


class FirstCards:
    """The cards in their order. Cards by links are not served."""

    def __init__(self, states: Sequence[CardState]) -> None:
        self.cards = list(states)
        self._has_numa = any(state.card.numa is not None for state in states)

    def take(self, pod: PodClass) -> Slots | None:
        """The cards of one more pod; None, and nothing taken, where some container finds none."""
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
        """As many cards as a container asks for; where the pod wants a single NUMA node, all of one."""
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
    """How many such pods find cards in this way, at most `most`."""
    cards = FirstCards(states)
    count = 0
    while count < most and cards.take(pod) is not None:
        count += 1
    return count


def first_found(states: Sequence[CardState], pods: Sequence[PodClass]) -> list[Slots] | None:
    """Cards for all these pods, class after class in some orders of these; None says nothing."""
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
