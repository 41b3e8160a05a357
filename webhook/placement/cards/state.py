"""The free amounts of a node's cards, and the card requests of containers.

If topogate did not choose the cards of a pod, they are those that the node reports, else the default ones.

The default is that of the node's allocator (labeler.allocator.choose.default_devices): cards with free shares
from the highest number down, different ones for a container if possible. It is a guess, since it depends on
the pods that were there when the pod came. The allocator reports the real cards within seconds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from labeler.contract import keys
from webhook.placement.model import Card, CardRequest, NodeInfo, PodClass, Usage, Vector
from webhook.placement.names import natural


@dataclass(frozen=True, slots=True)
class CardState:
    """A card and its free amounts and tiles."""

    card: Card
    free: Vector
    tiles: tuple[int, ...]

    @property
    def is_unused(self) -> bool:
        """Whether the card is unused."""
        return all(dict(self.free).get(r, 0) == amount for r, amount in self.card.capacity.items())

    def take(self, amounts: Vector, tiles: int) -> "CardState | None":
        """The card after one more demand, or None if it does not fit. The tiles are not chosen yet."""
        free = dict(self.free)
        for resource, amount in amounts:
            left = free.get(resource, 0) - amount
            if left < 0:
                return None
            free[resource] = left
        if tiles > len(self.tiles):
            return None
        return CardState(self.card, tuple(free.items()), without(self.tiles, tile_run(self.tiles, tiles)))


def card_state(card: Card, used: Mapping[str, int], used_tiles: frozenset[int]) -> CardState:
    """The state of a card with this usage; over-committed amounts count as 0 free."""
    free = tuple((r, max(0, amount - used.get(r, 0))) for r, amount in card.capacity.items())
    tiles = tuple(t for t in range(card.tiles) if t not in used_tiles and t not in card.disabled_tiles)
    return CardState(card, free, tiles)


def overbooked_cards(node: NodeInfo, usages: Sequence[Usage]) -> list[str]:
    """Names of the cards that these pods over-commit together, by card number.

    That is more of a resource than the card has, a tile assigned to two pods, or a card that the node does
    not have. card_state cannot detect it, since it shows 0 free in all these cases. Pods for which nobody has
    chosen cards count with those that the node reports; a guess would overbook cards that they may not use.
    """
    reported = [usage for usage in usages if usage.uid in node.unmanaged]
    sums = unmanaged_use(node, reported)
    tiles: dict[str, Counter[int]] = {}
    for usage in usages:
        for name, amounts in usage.cards.items():
            _add(sums, name, amounts.items())
        for name, own in usage.tiles.items():
            tiles.setdefault(name, Counter()).update(own)
    capacity_of = {card.name: card.capacity for card in node.cards}
    over = {name for name, amounts in sums.items() if not _is_within(amounts, capacity_of.get(name, {}))}
    over |= {
        name
        for name, users in tiles.items()
        if users and (name not in capacity_of or max(users.values()) > 1)
    }
    return sorted(over, key=natural)


def tile_run(free: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the free tiles: from the shortest contiguous run that has enough, else the lowest ones."""
    runs: list[list[int]] = []
    for tile in sorted(free):
        if runs and runs[-1][-1] == tile - 1:
            runs[-1].append(tile)
        else:
            runs.append([tile])
    fitting = [run for run in runs if len(run) >= count]
    chosen = min(fitting, key=len) if fitting else sorted(free)
    return tuple(chosen[:count])


def without(tiles: tuple[int, ...], taken: Sequence[int]) -> tuple[int, ...]:
    """The tiles that remain."""
    return tuple(tile for tile in tiles if tile not in taken)


@dataclass(frozen=True, slots=True)
class Demand:
    """The request of one container, or of several containers that share a card."""

    pod: int
    containers: tuple[int, ...]
    request: CardRequest
    pod_class: PodClass


def usable(card: Card, pod: PodClass) -> bool:
    """Whether the pod may use the card, whatever is free on it."""
    if card.disabled or card.name in pod.denied_cards:
        return False
    return pod.allowed_cards is None or card.name in pod.allowed_cards


def may_serve(card: Card, pod: PodClass, has_numa: bool) -> bool:
    """Whether the card may serve the pod.

    If some cards of the node have a known NUMA node, a card without one cannot serve a pod that asks for a
    single NUMA node.
    """
    return usable(card, pod) and not (pod.single_numa and has_numa and card.numa is None)


def demands_of(number: int, pod: PodClass) -> Iterator[Demand]:
    """The card demands of the pod with that number."""
    if pod.same_card:
        amounts: dict[str, int] = {}
        for index in pod.same_card:
            for resource, amount in pod.cards[index].per_card:
                amounts[resource] = amounts.get(resource, 0) + amount
        yield Demand(number, pod.same_card, CardRequest(1, tuple(sorted(amounts.items()))), pod)
    for index, request in enumerate(pod.cards):
        if request.count and index not in pod.same_card:
            yield Demand(number, (index,), request, pod)


def is_searched(pod: PodClass) -> bool:
    """Whether the combination of cards matters, which packing cannot decide."""
    return pod.linked or (pod.single_numa and any(request.count > 1 for request in pod.cards))


def times(state: CardState, request: CardRequest) -> int:
    """How many such requests the card can serve."""
    free = dict(state.free)
    slot_counts = [free.get(resource, 0) // amount for resource, amount in request.per_card if amount > 0]
    if request.tiles:
        slot_counts.append(len(state.tiles) // request.tiles)
    return min(slot_counts, default=10**9)


Choice = tuple[tuple[int, tuple[int, ...]], ...]
"""The cards that a demand takes, by number, ascending, with the tiles of each."""


Amounts = Mapping[str, int]


def unmanaged_use(node: NodeInfo, usages: Sequence[Usage]) -> dict[str, dict[str, int]]:
    """The usage of each card, by its name, by pods whose cards topogate did not choose; {} if none."""
    without = sorted((usage for usage in usages if usage.unmanaged), key=_known_first(node))
    if not without:
        return {}
    taken: dict[str, dict[str, int]] = {}
    for usage in usages:
        for card, amounts in usage.cards.items():
            _add(taken, card, amounts.items())
    found: dict[str, dict[str, int]] = {}
    for usage in without:
        known = list(node.unmanaged.get(usage.uid, ()))
        for request in usage.unmanaged:
            own, known = known[: request.count], known[request.count :]
            for card in (*own, *_guessed(node, request, own, taken)):
                _add(found, card, request.per_card)
                _add(taken, card, request.per_card)
    return found


def _known_first(node: NodeInfo) -> Callable[[Usage], tuple[bool, str, str]]:
    return lambda usage: (usage.uid not in node.unmanaged, usage.name, usage.uid)


def _guessed(
    node: NodeInfo, request: CardRequest, own: Sequence[str], taken: Mapping[str, Amounts]
) -> Iterable[str]:
    """The guessed cards of a container whose cards are not reported, no more than the node has devices.

    taken: the usage of others by card.
    """
    shares = dict(request.per_card)
    resource = next((each for each in keys.PLUGIN_RESOURCES if shares.get(each)), "")
    left = {
        card.name: card.capacity[resource] - taken.get(card.name, {}).get(resource, 0)
        for card in node.cards
        if card.capacity.get(resource)
    }
    used = list(own)
    names = sorted(left, key=natural, reverse=True)
    devices = sum(card.capacity[resource] for card in node.cards if card.name in left)
    for _ in range(min(request.count - len(own), devices)):
        name = min(names, key=lambda each: (left[each] <= 0, used.count(each)))  # ties go to the first
        used.append(name)
        left[name] -= shares[resource]
    return used[len(own) :]


def _is_within(amounts: Amounts, capacity: Amounts) -> bool:
    return all(amount <= capacity.get(resource, 0) for resource, amount in amounts.items())


def _add(sums: dict[str, dict[str, int]], card: str, amounts: Iterable[tuple[str, int]]) -> None:
    own = sums.setdefault(card, {})
    for resource, amount in amounts:
        own[resource] = own.get(resource, 0) + amount
