"""Nodes and cards while pods go onto them, for first_fit: amounts, rules, and the first cards that serve."""

from collections.abc import Mapping
from typing import Final

from webhook.placement import CardRequest, CardShare, PodClass
from webhook.placement.cards.state import CardState
from webhook.placement.model import Slots
from webhook.placement.snapshot import NodeState

UNLIMITED: Final = 10**9
"""Capacity of a node that limits nothing that a pod asks for."""


def may_run(pod: PodClass, state: NodeState) -> bool:
    """Whether selectors and taints let a pod run on a node, whatever is free there."""
    node = state.node
    if node.unschedulable or not node.ready or node.problem:
        return False
    if any(node.labels.get(key) != value for key, value in pod.rules.selector):
        return False
    tolerated = {each.key for each in pod.rules.tolerations}
    return all(taint.key in tolerated for taint in node.taints if taint.effect != "PreferNoSchedule")


def capacity(pod: PodClass, free: Mapping[str, int]) -> int:
    """How many pods of a class fit into these amounts."""
    fitting = [max(0, free.get(resource, 0)) // amount for resource, amount in pod.requests]
    return min(fitting, default=UNLIMITED)


class FreeNode:
    """What a node has free while pods go onto it."""

    def __init__(self, state: NodeState) -> None:
        self.state = state
        self.free = dict(state.free)
        self.cards = [_FreeCard(each) for each in state.cards]

    def take(self, pod: PodClass, most: int) -> list[Slots]:
        """Place pods of a class, as many as fit and at most so many; the cards of each."""
        count = min(most, capacity(pod, self.free))
        taken: list[Slots] = []
        while len(taken) < count:
            slots = self._slots(pod)
            if slots is None:
                break
            taken.append(slots)
        for resource, amount in pod.requests if taken else ():
            self.free[resource] -= amount * len(taken)
        return taken

    def _slots(self, pod: PodClass) -> Slots | None:
        """The first cards that serve one container after the other; where one gets none, none is taken."""
        if not pod.wants_cards:
            return ()
        before = [each.copy() for each in self.cards]
        slots = []
        for request in pod.cards:
            chosen = self._chosen(request, pod)
            if chosen is None:
                self.cards = before
                return None
            slots.append(tuple(CardShare(card.name, card.take(request)) for card in chosen))
        return tuple(slots)

    def _chosen(self, request: CardRequest, pod: PodClass) -> "list[_FreeCard] | None":
        """As many cards as a container asks for, all of one NUMA node if the pod asks for that."""
        groups: dict[int | None, list[_FreeCard]] = {}
        for card in self.cards:
            if card.serves(request, pod):
                groups.setdefault(card.numa if pod.single_numa else None, []).append(card)
        enough = [group for group in groups.values() if len(group) >= request.count]
        return enough[0][: request.count] if enough else None if request.count else []


class _FreeCard:
    """What a card has free."""

    def __init__(self, state: CardState) -> None:
        self.state = state
        self.name, self.numa = state.card.name, state.card.numa
        self.free = dict(state.free)
        self.tiles = state.tiles

    def copy(self) -> "_FreeCard":
        """The same card, to be changed apart."""
        made = _FreeCard(self.state)
        made.free, made.tiles = dict(self.free), self.tiles
        return made

    def serves(self, request: CardRequest, pod: PodClass) -> bool:
        """Whether a container of the pod may have this card, and finds enough on it."""
        allowed = pod.allowed_cards is None or self.name in pod.allowed_cards
        if self.state.card.disabled or not allowed or self.name in pod.denied_cards:
            return False
        enough = all(self.free.get(resource, 0) >= amount for resource, amount in request.per_card)
        return enough and len(self.tiles) >= request.tiles

    def take(self, request: CardRequest) -> tuple[int, ...]:
        """Take a container's share; the tiles that it gets."""
        for resource, amount in request.per_card:
            self.free[resource] -= amount
        taken, self.tiles = self.tiles[: request.tiles], self.tiles[request.tiles :]
        return taken
