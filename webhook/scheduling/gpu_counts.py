"""The GPUs of a node and how many are in use, by resource and model. Pure.

A card that is offered in shares (Intel's plugins, NVIDIA's time-slicing and MPS) counts as one card, which is
in use if any share is. A MIG instance counts as one GPU, of a model of its own. A device of a claim counts as
one device. The command line, the page and the metrics all use these functions.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from webhook.durations import HOUR
from webhook.kube.objects import Pod
from webhook.kube.times import since_1970
from webhook.placement import NodeInfo
from webhook.placement.snapshot import NodeState
from webhook.scheduling.gpus import DEVICES, Counting

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
_AMOUNT: Final = re.compile(r"[0-9]{1,9}")
_REPLICAS: Final = ".replicas"
_SHARED: Final = ".shared"
_MIG: Final = "nvidia.com/mig-"
_INTEL_COUNT: Final = keys.GPU_VENDOR_COUNT_PREFIX + "intel"


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """GPUs of a node that the same resources offer.

    shares: units of the resources per GPU. of_cards: whether the node's cards are these GPUs, so that the use
    of each GPU is known.
    """

    model: str
    resources: tuple[str, ...]
    gpus: int
    shares: int = 1
    of_cards: bool = False


def gpus_of(pod: Pod, counting: Counting) -> int:
    """The GPUs that a pod requests, by its containers and its claims on devices."""
    return len(pod.spec.resource_claims) + sum(
        int(amount)
        for container in pod.spec.containers
        for name, amount in {**container.resources.limits, **container.resources.requests}.items()
        if counting.names((name,)) and _AMOUNT.fullmatch(str(amount))
    )


def started_at(pod: Pod) -> float:
    """When a pod was started, or else created, in seconds since 1970."""
    return since_1970(pod.status.start_time) or since_1970(pod.metadata.creation_timestamp) or 0.0


def gpu_hours(pods: Iterable[Pod], counting: Counting, at: float) -> float:
    """The GPU hours of pods since their start. at: now, in seconds since 1970."""
    return sum(max(0.0, at - started_at(pod)) / HOUR * gpus_of(pod, counting) for pod in pods)


def node_gpus(node: NodeInfo, counting: Counting) -> tuple[NodeGpus, ...]:
    """The GPUs of a node, whole GPUs before MIG instances; empty for a node without."""
    names = [name for name in counting.names(node.allocatable) if node.allocatable[name] > 0]
    if not names:
        return ()
    model = counting.model(node.labels)
    intel = tuple(name for name in names if name in keys.PLUGIN_RESOURCES)
    found = [_of_cards(node, model, intel)] if intel else []
    for name in names:
        if name not in intel:
            found.append(_of_resource(node, model, name))
    return tuple(sorted(found, key=lambda each: each.resources[0].startswith(_MIG)))


def used_gpus(state: NodeState, found: NodeGpus) -> int:
    """The number of these GPUs that are in use, completely or in part."""
    if found.of_cards:
        return sum(_is_used(card.card.capacity, dict(card.free), found.resources) for card in state.cards)
    units = sum(state.node.allocatable[name] - state.free.get(name, 0) for name in found.resources)
    return min(found.gpus, max(0, -(-units // found.shares)))


def units_per_gpu(node: NodeInfo, resource: str, counting: Counting) -> int:
    """The units of a resource that are one GPU on a node, such as the replicas of time-slicing."""
    return next((each.shares for each in node_gpus(node, counting) if resource in each.resources), 1)


def count_gpus(node: NodeInfo, counting: Counting) -> int:
    """The number of all GPUs of a node."""
    return sum(each.gpus for each in node_gpus(node, counting))


def count_used(state: NodeState, counting: Counting) -> int:
    """The number of a node's GPUs that are in use."""
    return sum(used_gpus(state, each) for each in node_gpus(state.node, counting))


def _is_used(capacity: Mapping[str, int], free: Mapping[str, int], resources: Iterable[str]) -> bool:
    return any(free.get(name, 0) < capacity.get(name, 0) for name in resources)


def _of_cards(node: NodeInfo, model: str, names: tuple[str, ...]) -> NodeGpus:
    """Intel GPUs: the cards that the node names, else the labeler's count, else one per unit."""
    units = sum(node.allocatable[name] for name in names)
    cards = sum(any(card.capacity.get(name) for name in names) for card in node.cards)
    if cards:
        return NodeGpus(model, names, cards, max(1, units // cards), of_cards=True)
    count = min(units, _number(node.labels.get(_INTEL_COUNT), units))
    return NodeGpus(model, names, count, -(-units // count))


def _of_resource(node: NodeInfo, model: str, name: str) -> NodeGpus:
    """GPUs of a resource. NVIDIA's feature discovery labels the replicas of a GPU or a MIG instance."""
    units = node.allocatable[name]
    shares = 1 if name == DEVICES else _replicas(node, name)
    if name.startswith(_MIG):
        profile = "MIG-" + name.removeprefix(_MIG).removesuffix(_SHARED)
        model = f"{model}-{profile}" if model else profile
    return NodeGpus(model, (name,), -(-units // shares), shares)


def _replicas(node: NodeInfo, name: str) -> int:
    """The replicas per GPU. If whole GPUs are offered beside shared ones, the label means the shared ones."""
    resource = name.removesuffix(_SHARED)
    if name == resource and node.allocatable.get(name + _SHARED, 0):
        return 1
    return _number(node.labels.get(resource + _REPLICAS), 1)


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else otherwise
