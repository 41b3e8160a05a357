"""Mixes, and nodes with cards, for tests of usable GPUs."""

from collections.abc import Iterable

from tests.placement.small import node
from webhook.placement import Card, Mix, MixClass, NodeInfo, Snapshot, Usage, vector

GPU = "nvidia.com/gpu"
SHARE = "gpu.intel.com/millicores"


def gpu_class(cpu: int, gpus: int, count: int = 1) -> MixClass:
    return MixClass(vector({"cpu": cpu, "pods": 1, GPU: gpus}), 1000 * gpus, count, GPU)


def share_class(cpu: int, share: int, cards: int = 1, count: int = 1) -> MixClass:
    amounts = vector({"cpu": cpu, "pods": 1, SHARE: cards * share})
    return MixClass(amounts, cards * share, count, "", cards, vector({SHARE: share}))


def with_mix(
    nodes: Iterable[NodeInfo], *classes: MixClass, usage: Iterable[tuple[str, Usage]] = ()
) -> Snapshot:
    return Snapshot.build(nodes, usage).with_mix(Mix(classes))


def card_node(name: str, cards: int, cpu: int = 64) -> NodeInfo:
    labels = dict(node(name, ("b", "s", name)).labels)
    every = tuple(Card(f"card{n}", {SHARE: 1000}) for n in range(cards))
    return NodeInfo(
        name, labels, allocatable={"cpu": 1000 * cpu, "pods": 110, SHARE: 1000 * cards}, cards=every
    )


def shared(card: str, share: int) -> Usage:
    return Usage({"cpu": 1000, "pods": 1, SHARE: share}, {card: {SHARE: share}})
