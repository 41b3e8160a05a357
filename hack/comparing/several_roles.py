"""Known gangs of two and more roles, and clusters for them: see hack/bench roles."""

import random
from collections.abc import Mapping
from typing import Final

from labeler.contract import keys
from webhook.placement import Card, CardRequest, Gang, Member, NodeInfo, PodClass, Snapshot, Usage, vector

GPU: Final = "nvidia.com/gpu"
GIB: Final = 2**30

_PODS: Final[Mapping[str, Mapping[str, int]]] = {
    "A": {"cpu": 8000, "memory": 32 * GIB, GPU: 1},
    "B": {"cpu": 16_000, "memory": 64 * GIB, GPU: 4},
    "C": {"cpu": 32_000, "memory": 128 * GIB},
    "D": {"cpu": 4000, "memory": 16 * GIB, GPU: 8},
    "E": {"cpu": 2000, GPU: 2},
    "F": {"cpu": 48_000, "memory": 256 * GIB, GPU: 1},
    "H": {"cpu": 24_000, "memory": 256 * GIB, GPU: 2},
}
"""What a pod of each role asks for."""


def _of(text: str) -> Gang:
    """The gang of a text as "128 A + 32 B"."""
    kinds: list[PodClass] = []
    for part in text.split(" + "):
        count, name = part.split()
        kinds += [PodClass(vector({"pods": 1, **_PODS[name]}))] * int(count)
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))


ROLES: Final = {
    text: _of(text)
    for text in (
        "1 C + 64 A + 16 B", "128 A + 32 B", "32 D + 32 B + 32 A", "16 A + 16 B + 16 C + 16 D + 16 E",
        "256 D + 16 A", "40 F + 40 E", "64 H + 64 A + 12 C", "500 A + 100 B", "1000 E + 300 F + 50 D",
    )
}  # fmt: skip


def different_pods(count: int, seed: int, level: str | None) -> Gang:
    """Pods no two of which ask for the same."""
    dice = random.Random(1000 * seed + count)
    members = []
    for rank in range(count):
        amounts = {GPU: dice.choice((1, 2, 3, 5, 7)), "cpu": dice.randint(5000, 60_000), "pods": 1}
        amounts["memory"] = dice.randint(10, 600) * GIB
        members.append(Member(f"p{rank}", None, PodClass(vector(amounts))))
    return Gang("g", tuple(members), required_level=level)


def empty(count: int) -> Snapshot:
    """Free nodes of 8 GPUs: 50 in a subblock, 100 in a block."""
    amounts = {"cpu": 96_000, "memory": 1024 * GIB, "pods": 110, GPU: 8}
    places = [(f"b{number // 100}", f"r{number // 50}", f"h{number}") for number in range(count)]
    return Snapshot.build([_node(number, place, amounts) for number, place in enumerate(places)], [])


def _node(
    number: int, place: tuple[str, ...], amounts: Mapping[str, int], cards: tuple[Card, ...] = ()
) -> NodeInfo:
    labels = dict(zip(keys.GCE_TOPOLOGY, place, strict=True))
    return NodeInfo(f"n{number:05}", labels, allocatable=amounts, cards=cards)


_MILLICORES, _MEMORY, _SHARES = "gpu.intel.com/millicores", "gpu.intel.com/memory.max", "gpu.intel.com/i915"
_CARD: Final = {_MILLICORES: 1000, _MEMORY: 16_384}
_CARDS: Final = 8


def different_cards(count: int, seed: int = 1) -> Snapshot:
    """Nodes of eight cards on two NUMA nodes, no two nodes with the same free on their cards."""
    dice = random.Random(seed)
    amounts = {"cpu": 192_000, "memory": 1024 * GIB, "pods": 110, _SHARES: 50 * _CARDS}
    amounts |= {resource: _CARDS * amount for resource, amount in _CARD.items()}
    cards = tuple(Card(f"card{number}", _CARD, 4, numa=number // 4) for number in range(_CARDS))
    made, usage = [], []
    for number in range(count):
        made.append(_node(number, (f"b{number // 160}", f"r{number // 16}", f"h{number}"), amounts, cards))
        for card in cards:
            used = {_MILLICORES: dice.randint(0, 700), _MEMORY: dice.randint(0, 11_000)}
            tiles = frozenset(dice.sample(range(4), dice.randint(0, 3)))
            usage.append((made[-1].name, Usage(used, {card.name: used}, {card.name: tiles})))
    return Snapshot.build(made, usage)


def numa_pods(count: int) -> Gang:
    """Pods of two containers, of three and of two cards, each of one NUMA node."""
    requests = tuple(
        CardRequest(cards, vector({_MILLICORES: share, _MEMORY: memory}))
        for cards, share, memory in ((3, 137, 1009), (2, 111, 2003))
    )
    amounts = {"cpu": 1000, "pods": 1, _SHARES: sum(request.count for request in requests)}
    for request in requests:
        for resource, amount in request.per_card:
            amounts[resource] = amounts.get(resource, 0) + request.count * amount
    kind = PodClass(vector(amounts), cards=requests, single_numa=True)
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank in range(count)))
