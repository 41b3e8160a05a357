"""Heterogeneous gangs on cards that are hard to pack into nodes: whole cards, linked ones, tiles and shares.

Each node is filled with pods that it holds, so that there is a place for all; what is left free of its cards
is less than what the last pods that were drawn ask for.
"""

import random
from typing import Final

from hack.comparing.hostile import PLUGIN
from labeler.contract import keys
from webhook.placement import Card, CardRequest, Gang, Member, NodeInfo, PodClass, Snapshot, vector

SHARES: Final = 10
"""Pods that may share a card."""

TILES: Final = 2

TRIED: Final = 6
"""Pods in a row that do not fit before a node counts as full."""


class _Full:
    """Cards that are filled: of each the thousandths, shares and tiles that are free."""

    def __init__(self, cards: int) -> None:
        self.free = [[1000, SHARES, TILES] for _ in range(cards)]

    def take(self, request: CardRequest) -> bool:
        """Take cards side by side with enough free, if there are any; each is linked to the next."""
        per_card = dict(request.per_card)
        needs = [per_card["m"], per_card[PLUGIN], request.tiles]
        enough = [all(map(int.__le__, needs, free)) for free in self.free]
        for first in range(len(self.free)):
            chosen = [(first + number) % len(self.free) for number in range(request.count)]
            if len(set(chosen)) == request.count and all(enough[number] for number in chosen):
                for number in chosen:
                    self.free[number] = list(map(int.__sub__, self.free[number], needs))
                return True
        return False


def _kind(dice: random.Random) -> PodClass:
    """Whole cards, two of them linked in a third of the cases; or a tile; or a share of a card."""
    sort = dice.choice(("whole", "whole", "tile", "share", "share"))
    linked = False
    if sort == "whole":
        request = CardRequest(dice.choice((1, 2, 3, 4)), ((PLUGIN, SHARES), ("m", 1000)))
        linked = request.count == 2 and dice.random() < 1 / 3
    elif sort == "tile":
        request = CardRequest(1, ((PLUGIN, 1), ("m", 500)), 1)
    else:
        request = CardRequest(1, ((PLUGIN, 1), ("m", dice.choice((130, 210, 270, 340, 450, 610)))))
    amounts = {name: request.count * amount for name, amount in request.per_card}
    amounts |= {"cpu": dice.randint(1, 16), "memory": dice.randint(1, 32), "pods": 1}
    return PodClass(vector(amounts), cards=(request,), linked=linked)


def planted_cards(nodes: int, kinds: int, slack: int, seed: int) -> tuple[Gang, Snapshot]:
    """Nodes of 4 to 8 cards that pods fill but for at most so much of cpu and memory each."""
    dice = random.Random(f"cards/{nodes}/{kinds}/{slack}/{seed}")
    classes = [_kind(dice) for _ in range(kinds)]
    made: list[NodeInfo] = []
    members: list[Member] = []
    for number in range(nodes):
        count = dice.choice((4, 6, 8))
        node, missed = _Full(count), 0
        free = {resource: dice.randint(0, slack) for resource in ("cpu", "memory")}
        while missed < TRIED:
            pod = dice.choice(classes)
            if not node.take(pod.cards[0]):
                missed += 1
                continue
            missed = 0
            requests = dict(pod.requests)
            free = {resource: amount + requests[resource] for resource, amount in free.items()}
            members.append(Member(f"p{len(members)}", None, pod))
        labels = dict(zip(keys.GCE_TOPOLOGY, ("b0", f"r{number // 16}", f"h{number}"), strict=True))
        amounts = free | {"pods": 110, PLUGIN: SHARES * count, "m": 1000 * count}
        cards = tuple(_card(each, count) for each in range(count))
        made.append(NodeInfo(f"n{number}", labels, allocatable=amounts, cards=cards))
    return Gang("g", tuple(members)), Snapshot.build(made, [])


def _card(number: int, count: int) -> Card:
    """One of so many cards in a ring, each linked to the next."""
    links = tuple((tile, f"card{(number + 1) % count}", tile) for tile in range(TILES))
    return Card(f"card{number}", {PLUGIN: SHARES, "m": 1000}, TILES, links=links)
