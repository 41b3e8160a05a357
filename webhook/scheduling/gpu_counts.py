"""How many GPUs a node has and how many are in use, by resource and model. Pure.

A card that is handed out in shares (Intel's plugins, NVIDIA's time-slicing and MPS) counts as that card, in
use when any share of it is. A MIG instance counts as one, of a model of its own; a device of a claim as a
device. The command line, the page and the metrics count by these functions alone.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.placement import NodeInfo
from webhook.placement.snapshot import NodeState
from webhook.scheduling.gpus import DEVICES, Counting

_NUMBER: Final = re.compile(r"[1-9][0-9]{0,8}")
_REPLICAS: Final = ".replicas"
_SHARED: Final = ".shared"
_MIG: Final = "nvidia.com/mig-"
_INTEL_COUNT: Final = keys.GPU_VENDOR_COUNT_PREFIX + "intel"


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """GPUs of a node that its resources hand out together.

    shares: as how many units of the resources each GPU is handed out. of_cards: whether the node's cards are
    these GPUs, so that each tells whether it is in use.
    """

    model: str
    resources: tuple[str, ...]
    gpus: int
    shares: int = 1
    of_cards: bool = False


def gpus_of(pod: Pod, counting: Counting) -> int:
    """The GPUs that its containers ask for, and its claims on devices."""
    return len(pod.spec.resource_claims) + sum(
        int(amount)
        for container in pod.spec.containers
        for name, amount in {**container.resources.limits, **container.resources.requests}.items()
        if counting.names((name,)) and str(amount).isdecimal()
    )


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
    """How many of these GPUs of a node are in use, wholly or in part."""
    if found.of_cards:
        return sum(_is_used(card.card.capacity, dict(card.free), found.resources) for card in state.cards)
    units = sum(state.node.allocatable[name] - state.free.get(name, 0) for name in found.resources)
    return min(found.gpus, max(0, -(-units // found.shares)))


def count_gpus(node: NodeInfo, counting: Counting) -> int:
    """All GPUs of a node."""
    return sum(each.gpus for each in node_gpus(node, counting))


def count_used(state: NodeState, counting: Counting) -> int:
    """Those of a node's GPUs that are in use."""
    return sum(used_gpus(state, each) for each in node_gpus(state.node, counting))


def _is_used(capacity: Mapping[str, int], free: Mapping[str, int], resources: Iterable[str]) -> bool:
    return any(free.get(name, 0) < capacity.get(name, 0) for name in resources)


def _of_cards(node: NodeInfo, model: str, names: tuple[str, ...]) -> NodeGpus:
    """Intel's GPUs: as many as the node names cards, else as the labeler counts, else one for each unit."""
    units = sum(node.allocatable[name] for name in names)
    cards = sum(any(card.capacity.get(name) for name in names) for card in node.cards)
    if cards:
        return NodeGpus(model, names, cards, max(1, units // cards), of_cards=True)
    count = min(units, _number(node.labels.get(_INTEL_COUNT), units))
    return NodeGpus(model, names, count, -(-units // count))


def _of_resource(node: NodeInfo, model: str, name: str) -> NodeGpus:
    """NVIDIA's feature discovery tells in how many replicas a GPU, or a MIG instance, is handed out."""
    units = node.allocatable[name]
    shares = 1 if name == DEVICES else _replicas(node, name)
    if name.startswith(_MIG):
        profile = "MIG-" + name.removeprefix(_MIG).removesuffix(_SHARED)
        model = f"{model}-{profile}" if model else profile
    return NodeGpus(model, (name,), -(-units // shares), shares)


def _replicas(node: NodeInfo, name: str) -> int:
    """Where whole GPUs are handed out beside shared ones, the label is about the shared ones."""
    resource = name.removesuffix(_SHARED)
    if name == resource and node.allocatable.get(name + _SHARED, 0):
        return 1
    return _number(node.labels.get(resource + _REPLICAS), 1)


def _number(text: str | None, otherwise: int) -> int:
    return int(text) if text is not None and _NUMBER.fullmatch(text) else otherwise
