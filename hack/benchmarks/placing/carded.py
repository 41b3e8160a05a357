"""Pods that want particular cards: of one NUMA node, linked in pairs, with tiles, of many kinds at once."""

import random
from collections.abc import Iterator
from typing import Final

from hack.benchmarks.placing.row import Row, answered, placed
from labeler.contract import keys
from webhook.placement import Card, CardRequest, Gang, Member, NodeInfo, PodClass, Usage, vector

PLUGIN: Final = "gpu.intel.com/i915"


def rows(repeats: int, quick: bool) -> Iterator[Row]:
    """Eight cards a node on two NUMA nodes, in a ring of links."""
    kinds = [_kind(1, 5), _kind(2, 3, single_numa=True)]
    linked = _kind(2, 4, tiles=1, linked=True)
    six = [_kind(count, amount) for count, amount in ((1, 3), (1, 7), (2, 4), (2, 5), (3, 2), (4, 1))]
    for what, count, pods, classes in (
        ("one card each, in parts", 500, 1000, kinds[:1]),
        ("two cards of one NUMA node", 500, 500, kinds[1:]),
        ("the same and as many of one card", 500, 500, kinds),
        ("two linked cards, a tile of each", 500, 300, [linked]),
        ("6 kinds", 4, 60, six),
        ("6 kinds", 500, 300, six),
    ):
        members = tuple(Member(f"p{n}", n, classes[n * len(classes) // pods]) for n in range(pods))
        nodes, usage = _cluster(count)
        seconds, found = placed(Gang("g", members), nodes, repeats, usage=usage)
        yield Row("cards", f"{pods} pods, {count} nodes, {what}", seconds, answer=answered(found))


def _kind(
    count: int, amount: int, tiles: int = 0, *, single_numa: bool = False, linked: bool = False
) -> PodClass:
    wish = CardRequest(count, ((PLUGIN, amount),), tiles)
    requests = vector({"cpu": 500, "pods": 1, PLUGIN: count * amount})
    return PodClass(requests, cards=(wish,), single_numa=single_numa, linked=linked)


def _cluster(count: int) -> tuple[list[NodeInfo], list[tuple[str, Usage]]]:
    """Of a third of the nodes' cards some is used."""
    dice = random.Random(count)
    cards = tuple(
        Card(f"card{n}", {PLUGIN: 10}, 2, numa=n // 4, links=((0, f"card{(n + 1) % 8}", 1),))
        for n in range(8)
    )
    nodes, usage = [], []
    for number in range(count):
        place = (f"b{number // 160}", f"r{number // 16}", f"h{number}")
        labels = dict(zip(keys.GCE_TOPOLOGY, place, strict=True))
        amounts = {"cpu": 96_000, "memory": 2**40, "pods": 110, PLUGIN: 80}
        nodes.append(NodeInfo(f"n{number}", labels, allocatable=amounts, cards=cards))
        if count > 100 and dice.random() < 1 / 3:
            taken = {card.name: {PLUGIN: dice.randint(0, 9)} for card in cards}
            total = sum(each[PLUGIN] for each in taken.values())
            usage.append(
                (f"n{number}", Usage({"cpu": 1000, "pods": 8, PLUGIN: total}, taken, name=f"u{number}"))
            )
    return nodes, usage
