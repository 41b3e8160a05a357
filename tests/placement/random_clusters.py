"""Random clusters and gangs."""

import random

from tests.placement.small import node
from webhook.placement import (
    Anchor,
    Gang,
    Member,
    NodeInfo,
    PodClass,
    Snapshot,
    Usage,
)

LEVELS = (None, "block", "subblock", "host", "node")


def random_nodes(dice: random.Random, most: int, least: int) -> list[NodeInfo]:
    nodes = []
    for number in range(dice.randint(least, most)):
        place = tuple(f"{level}{dice.randint(0, top)}" for level, top in (("b", 2), ("s", 2), ("h", 4)))
        cpu = dice.choice((0, 1, 1, 2, 3, 4))
        nodes.append(
            node(f"n{number}", None if dice.random() < 0.1 else place, cpu, memory=dice.randint(0, 8))
        )
    return nodes


def random_snapshot(dice: random.Random, most: int, least: int = 1) -> Snapshot:
    nodes = random_nodes(dice, most, least)
    usage = [(n.name, Usage({"memory": 1, "pods": 1})) for n in nodes if dice.random() < 0.2]
    return Snapshot.build(nodes, usage)


def gang(
    counts: list[tuple[PodClass, int]], dice: random.Random, snapshot: Snapshot, **rules: object
) -> Gang:
    pods = [kind for kind, count in counts for _ in range(count)]
    anchors = tuple(
        Anchor(name)
        for name in dice.sample(
            sorted(snapshot.nodes), min(len(snapshot.nodes), dice.choice((0, 0, 0, 1, 2)))
        )
    )
    members = tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(pods))
    return Gang("g", members, anchors=anchors, **rules)  # type: ignore[arg-type]
