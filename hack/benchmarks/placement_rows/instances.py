"""Clusters and gangs of the rows."""

import itertools
import random
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from hack.comparing.clusters import fragmented
from labeler.contract import keys
from webhook.placement import Gang, Member, NodeInfo, PodClass, vector

GPU: Final = "nvidia.com/gpu"
LEADER: Final = PodClass(vector({"cpu": 4000, "pods": 1, GPU: 2}))
LAUNCHER: Final = PodClass(vector({"cpu": 8000, "pods": 1}))
SERVER: Final = PodClass(vector({"cpu": 64_000, "pods": 1, GPU: 1}))
MINORITY: Final = (LEADER, *[LAUNCHER] * 3, *[SERVER] * 4)


@lru_cache(maxsize=4)
def cluster(nodes: int, slots: int) -> tuple[NodeInfo, ...]:
    """Nodes in blocks of 8-24 subblocks of 8-24 nodes; four subblocks in ten are partly busy."""
    dice = random.Random(nodes + slots)
    spots = fragmented(dice, nodes, slots, subblocks=(8, 24), nodes=(8, 24), whole=0.9)
    return tuple(
        node(number, f"b{spot.block}", f"r{spot.subblock}", spot.free, slots)
        for number, spot in enumerate(itertools.islice(spots, nodes))
    )


def node(number: int, block: str, rack: str, free: int, slots: int) -> NodeInfo:
    """A node with eight GPUs, of which the free slots' share is allocatable."""
    labels = dict(zip(keys.GCE_TOPOLOGY, (block, rack, f"h{number}"), strict=True))
    amounts = {"cpu": 96_000, "memory": 2**40, "pods": 110, GPU: 8 * free // slots}
    return NodeInfo(f"n{number}", labels, allocatable=amounts)


def worker(slots: int) -> PodClass:
    """A pod that takes one slot."""
    return PodClass(vector({"cpu": 1000, "pods": 1, GPU: 8 // slots}))


def gang(pods: int, slots: int, minority: Sequence[PodClass] = (), name: str = "g") -> Gang:
    """Pods that take one slot each, and odd ones of higher ranks."""
    kinds = [*[worker(slots)] * pods, *minority]
    return Gang(name, tuple(Member(f"{name}-{rank}", rank, kind) for rank, kind in enumerate(kinds)))
