"""Random heterogeneous gangs and clusters for them."""

import random

from tests.placement.small import node, pod_class
from webhook.placement import (
    Gang,
    Member,
    NodeInfo,
    Slice,
    Snapshot,
    Usage,
)

LEVELS = ("block", "subblock", "host", "node")


def cluster(dice: random.Random, hosts: int, free: tuple[int, ...]) -> list[NodeInfo]:
    made: list[NodeInfo] = []
    for block in range(dice.randint(1, 3)):
        for rack in range(dice.randint(1, 3)):
            for host in range(dice.randint(1, hosts)):
                for _ in range(dice.choice((1, 1, 2))):
                    place = (f"b{block}", f"r{rack}", f"h{host}") if dice.random() > 0.04 else None
                    made.append(node(f"n{len(made)}", place, dice.choice(free), memory=dice.randint(0, 9)))
    return made


def slices_of(dice: random.Random) -> tuple[Slice, ...]:
    if dice.random() < 0.4:
        return ()
    size, (upper, lower) = dice.choice((1, 2, 2, 3)), sorted(dice.sample(range(4), 2))
    if dice.random() < 0.6:
        return (Slice(LEVELS[upper], size),)
    return (Slice(LEVELS[upper], size * dice.choice((2, 3))), Slice(LEVELS[lower], size))


def asked_of(dice: random.Random, most: int) -> Gang:
    slices = slices_of(dice)
    size = slices[0].size if slices else 1
    worker = pod_class(dice.choice((1, 1, 2)), memory=dice.choice((0, 1, 1)))
    kinds = []
    for _ in range(dice.choice((0, 1, 1, 2))):
        kind = pod_class(dice.choice((1, 2, 3)), memory=dice.randint(0, 4))
        kinds += [kind] * dice.choice((1, 1, 2))
    workers = size * dice.randint(1, max(1, most // size))
    minority = [kind for kind in kinds if kind != worker][: workers - 1]
    members = [Member(f"w{rank}", rank, worker) for rank in range(workers)]
    members += [Member(f"o{rank}", workers + rank, kind) for rank, kind in enumerate(minority)]
    above = LEVELS.index(slices[0].level) if slices else 3
    required = dice.choice((None, None, *LEVELS[: above + 1][:2]))
    return Gang("g", tuple(members), required_level=required, slices=slices)


def snapshot_with(dice: random.Random, nodes: list[NodeInfo]) -> Snapshot:
    busy = [each.name for each in nodes if dice.random() < 0.3]
    usage = [(name, Usage({"memory": dice.randint(0, 3), "pods": 1})) for name in busy]
    return Snapshot.build(nodes, usage)
