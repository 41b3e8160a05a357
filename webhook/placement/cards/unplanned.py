"""Which cards the pods have for which nobody chose any: as their node tells, else as it gives by default.

The default is that of the node's allocator (labeler.allocator.choose.default_devices): of the cards that have
shares left different ones for a container if possible, from the highest number down. It is a guess, as it
depends on who was there when the pod came; the allocator tells within seconds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from labeler.contract import keys
from webhook.placement.model import CardWish, NodeInfo, Usage
from webhook.placement.names import natural

Amounts = Mapping[str, int]


def unplanned_use(node: NodeInfo, usages: Sequence[Usage]) -> dict[str, dict[str, int]]:
    """What such pods take of each card, by its name; {} without any."""
    without = sorted((usage for usage in usages if usage.unplanned), key=_told_first(node))
    if not without:
        return {}
    taken: dict[str, dict[str, int]] = {}
    for usage in usages:
        for card, amounts in usage.cards.items():
            _add(taken, card, amounts.items())
    found: dict[str, dict[str, int]] = {}
    for usage in without:
        told = list(node.unplanned.get(usage.uid, ()))
        for wish in usage.unplanned:
            own, told = told[: wish.count], told[wish.count :]
            for card in (*own, *_guessed(node, wish, own, taken)):
                _add(found, card, wish.per_card)
                _add(taken, card, wish.per_card)
    return found


def _told_first(node: NodeInfo) -> Callable[[Usage], tuple[bool, str, str]]:
    return lambda usage: (usage.uid not in node.unplanned, usage.name, usage.uid)


def _guessed(
    node: NodeInfo, wish: CardWish, own: Sequence[str], taken: Mapping[str, Amounts]
) -> Iterable[str]:
    """The cards of a container that are not told of. taken: what others have of each."""
    shares = dict(wish.per_card)
    resource = next((each for each in keys.PLUGIN_RESOURCES if shares.get(each)), "")
    left = {
        card.name: card.capacity[resource] - taken.get(card.name, {}).get(resource, 0)
        for card in node.cards
        if card.capacity.get(resource)
    }
    used = list(own)
    names = sorted(left, key=natural, reverse=True)
    for _ in range(wish.count - len(own) if names else 0):
        name = min(names, key=lambda each: (left[each] <= 0, used.count(each)))  # the first of equal ones
        used.append(name)
        left[name] -= shares[resource]
    return used[len(own) :]


def _add(sums: dict[str, dict[str, int]], card: str, amounts: Iterable[tuple[str, int]]) -> None:
    own = sums.setdefault(card, {})
    for resource, amount in amounts:
        own[resource] = own.get(resource, 0) + amount
