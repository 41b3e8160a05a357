"""The trace of `hack/bench trace` placed by topogate's own core, on its snapshots."""

from collections.abc import Iterator
from typing import Final

from hack.comparing.trace import WHOLE, TraceNode, TracePod
from labeler.contract import keys
from webhook.placement import (
    Assignment,
    Card,
    CardRequest,
    Gang,
    Member,
    NodeInfo,
    PodClass,
    Requirement,
    Rules,
    Snapshot,
    Term,
    place,
    vector,
)  # fmt: skip
from webhook.scheduling.gpus import Counting
from webhook.scheduling.pod_mix import counts_of, mix_of

PASS: Final = 50
"""Pods that arrive between two passes of the sweeper."""

BLOCK: Final = 256
SUBBLOCK: Final = 16
"""Nodes of a block and of a subblock: the trace names no places."""

SHARES: Final = WHOLE
"""How often the device plugin offers a card."""


def placed_by_topogate(arriving: list[TracePod], nodes: list[TraceNode]) -> Iterator[bool]:
    """Whether each pod is placed, in order of arrival."""
    snapshot = Snapshot.build([_node(number, node) for number, node in enumerate(nodes)], [])
    classes = {pod: _pod_class(pod) for pod in set(arriving)}
    asked = [classes[pod] for pod in arriving]
    for start in range(0, len(asked), PASS):
        snapshot = with_mix(snapshot, asked[start : start + PASS])
        for number, pod_class in enumerate(asked[start : start + PASS], start):
            gang = Gang(f"g{number}", (Member(f"p{number}", None, pod_class),))
            found = place(gang, snapshot, explained=False)
            if isinstance(found, Assignment):
                snapshot = snapshot.assume(found, gang)
            yield isinstance(found, Assignment)


def with_mix(snapshot: Snapshot, waiting: list[PodClass]) -> Snapshot:
    """The snapshot with the mix of its pods and the waiting ones."""
    counting = Counting((keys.I915, keys.NVIDIA_GPU))
    return snapshot.with_mix(mix_of(snapshot, counts_of(waiting, counting), counting))


def _node(number: int, node: TraceNode) -> NodeInfo:
    place_of = (f"b{number // BLOCK}", f"s{number // SUBBLOCK}", f"h{number}")
    labels = {**dict(zip(keys.GCE_TOPOLOGY, place_of, strict=True)), keys.GPU_MODEL_LABEL: node.model}
    amounts = {keys.I915: SHARES, keys.MILLICORES: WHOLE}
    cards = tuple(Card(f"card{card}", amounts) for card in range(len(node.cards)))
    allocatable = {"cpu": node.cpu, "memory": node.memory << 20, "pods": 1000}
    allocatable |= {resource: amount * len(cards) for resource, amount in amounts.items()}
    return NodeInfo(f"n{number:04}", labels, allocatable=allocatable, cards=cards)


def _pod_class(pod: TracePod) -> PodClass:
    amounts = {"cpu": pod.cpu, "memory": pod.memory << 20, "pods": 1}
    models = Requirement(keys.GPU_MODEL_LABEL, "In", pod.models)
    rules = Rules(affinity=(Term((models,)),)) if pod.models else Rules()
    if not pod.cards:
        return PodClass(vector(amounts), rules)
    of_card = {keys.I915: 1, keys.MILLICORES: pod.share}
    amounts |= {resource: amount * pod.cards for resource, amount in of_card.items()}
    return PodClass(vector(amounts), rules, (CardRequest(pod.cards, vector(of_card)),))
