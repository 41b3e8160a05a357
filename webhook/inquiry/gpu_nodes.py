"""Checks of the nodes with GPUs: topology labels, a model label, labels of cards, and no broken GPU."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from labeler.contract import keys
from labeler.contract.errors import ContractError
from labeler.contract.offers import decode_offers
from labeler.contract.quantities import parse
from webhook.configuration.cluster import read_configuration
from webhook.configuration.file import Configuration
from webhook.extensions.known import resource_extensions
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.findings import Finding, State, found, some
from webhook.inquiry.resource_adder import view_of
from webhook.kube.client import Api
from webhook.placement.snapshot import NodeState
from webhook.scheduling.gpu_counts import node_gpus
from webhook.scheduling.gpus import Counting
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.text import counted

_BY_IDS: Final = re.compile(r"(intel|nvidia|amd|pci-[0-9a-f]{4})-[0-9a-f]{4}")
"""The labeler's name of a GPU whose product it does not know."""


def places(api: Api, now: datetime) -> Iterator[Finding]:
    """GPU nodes without topology labels are used last, and never for a gang that requires a level."""
    with_gpus = _gpu_nodes(api, read_configuration(api))
    unplaced = [state.name for state in with_gpus if state.path is None]
    if not with_gpus:
        yield found(
            State.ODD,
            "no node has a GPU in its allocatable resources",
            "Is a device plugin installed, and are its resources listed in gpus.resources?",
        )
    elif unplaced:
        yield found(
            State.ODD,
            f"{len(unplaced)} of {len(with_gpus)} GPU nodes have no topology labels: {some(unplaced)}",
            "Label them as docs/operators/topology.md describes.",
        )
    else:
        yield found(State.WELL, f"all {len(with_gpus)} GPU nodes have topology labels")


def models(api: Api, now: datetime) -> Iterator[Finding]:
    """GPU nodes without a model label match no request for a model."""
    configuration = read_configuration(api)
    with_gpus = _gpu_nodes(api, configuration)
    unnamed = [state.name for state in with_gpus if not _has_model(state.node.labels, configuration)]
    if unnamed:
        yield found(
            State.ODD,
            f"{len(unnamed)} of {len(with_gpus)} GPU nodes have no label for their GPU model, so no pod "
            f"that asks for a model is placed there: {some(unnamed)}",
            "Run the labeler with --dry-run there, as docs/operators/gpu-labels.md describes.",
        )
    else:
        yield found(State.WELL, f"all {len(with_gpus)} GPU nodes have a label for their GPU model")


def card_labels(api: Api, now: datetime) -> Iterator[Finding]:
    """Without labels that number its cards, a node of Intel's plugin serves whole devices alone."""
    offering = [item for item in _nodes(api) if _offers_cards(item)]
    unlabelled = [_name(item) for item in offering if not _has_labels_of_cards(_labels(item))]
    if unlabelled:
        yield found(
            State.ODD,
            f"Intel cards without the label {keys.GPU_NUMBERS_LABEL} on {counted(len(unlabelled), 'node')} "
            f"of {len(offering)} that offer them, so pods that ask for tiles or shares of cards are not "
            f"placed there: {some(unlabelled)}",
            "Run topogate's labeler there: Intel's device plugin writes these labels up to 0.32 only.",
        )
    else:
        yield found(State.WELL, "each node that offers Intel cards has labels with its cards")


def broken(api: Api, now: datetime) -> Iterator[Finding]:
    """GPUs that exist and cannot be used, as the labeler or the device plugin of the node reports."""
    is_well = True
    counting = read_configuration(api).counting
    for item in _nodes(api):
        name = _name(item)
        remedy = (
            f"kubectl cordon {name}; then see its kernel log. "
            f"To empty it: kubectl drain --ignore-daemonsets {name}."
        )
        for sentence in (_by_labeler(item), _by_device_plugin(item, counting)):
            if sentence:
                is_well = False
                yield found(State.ODD, f"node {_name(item)} has {sentence}", remedy)
    if is_well:
        yield found(State.WELL, "no broken GPU was found by a labeler or a device plugin")


def _by_labeler(node: dict[str, Any]) -> str:
    """What the labeler found, "" for nothing; it does not count such GPUs."""
    count = _labels(node).get(keys.GPU_BROKEN_LABEL)
    which = (node["metadata"].get("annotations") or {}).get(keys.BROKEN_GPUS_ANNOTATION, "")
    if not count:
        return ""
    return f"{count} broken GPU{'' if count == '1' else 's'}" + (f": {which}" if which else "")


def _by_device_plugin(node: dict[str, Any], counting: Counting) -> str:
    """Unhealthy devices: the kubelet keeps them in the capacity but not in the allocatable resources.

    Resources that count as no GPUs, but are named so, are looked at too. A shared card counts once for each
    share. With topogate's allocator an annotation names the cards.
    """
    status = node.get("status") or {}
    capacity, allocatable = status.get("capacity") or {}, status.get("allocatable") or {}
    devices = []
    for name in sorted({*counting.names(capacity), *filter(_is_gpu, capacity)}):
        in_all, usable = (parse(amounts.get(name, "0")) // 1000 for amounts in (capacity, allocatable))
        if usable < in_all:
            devices.append(f"{in_all - usable} of {in_all} devices of {name}")
    if not devices:
        return ""
    cards = _out_of_use(node["metadata"].get("annotations") or {})
    return f"{', '.join(devices)} unusable" + (f": {cards}" if cards else "")


def _out_of_use(annotations: dict[str, str]) -> str:
    """The cards that topogate's allocator does not hand out; "" where it does not report them."""
    try:
        offers = decode_offers(annotations) or {}
    except ContractError:
        return ""  # the sweeper logs it
    return ", ".join(f"card{number}" for number, offer in sorted(offers.items()) if not offer.shares)


def _nodes(api: Api) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.json("GET", "/api/v1/nodes", timeout_seconds=60)["items"]
    return items


def _name(node: dict[str, Any]) -> str:
    return str(node["metadata"]["name"])


def _labels(node: dict[str, Any]) -> dict[str, str]:
    return node["metadata"].get("labels") or {}


def _offers_cards(node: dict[str, Any]) -> bool:
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return any(amounts.get(name, "0") != "0" for name in keys.PLUGIN_RESOURCES)


def _has_labels_of_cards(labels: dict[str, str]) -> bool:
    """Whether they name cards, or say that all are out of use: no tiles, and nothing else."""
    names_cards = labels.get(keys.GPU_NUMBERS_LABEL) or labels.get(keys.CARDS_LABEL)
    return bool(names_cards) or labels.get(keys.TILES) == "0"


def _is_gpu(resource: str) -> bool:
    return "gpu" in resource and "/" in resource


def _has_model(labels: Mapping[str, str], configuration: Configuration) -> bool:
    """Whether a node has the labels of a model, or a label that names the model, or models, of its GPUs."""
    if configuration.policy.model_of_node(labels):
        return True
    prefix = keys.GPU_HAS_MODEL_PREFIX
    names = [labels[key] for key in configuration.settings.counting.model_labels if labels.get(key)]
    names += [key.removeprefix(prefix) for key in labels if key.startswith(prefix)]
    return any(not _BY_IDS.fullmatch(name) for name in names)


def _gpu_nodes(api: Api, configuration: Configuration) -> list[NodeState]:
    """The nodes with GPUs as the sweeper sees them, in order: its topology, resources and claims' devices."""
    settings = configuration.settings
    if any(key.startswith(keys.DEVICE_ATTRIBUTE) for family in settings.topology.families for key in family):
        _check_rights(api)
    cluster = ClusterReading.read_nodes(api)
    snapshotter = Snapshotter(cluster, settings)
    snapshot = snapshotter.snapshot(view_of(snapshotter, cluster, settings))
    states = sorted(snapshot.nodes.values(), key=lambda state: state.name)
    return [state for state in states if node_gpus(state.node, settings.counting)]


def _check_rights(api: Api) -> None:
    """Raise ApiError if the devices of nodes may not be read: no node would seem to have a level of them."""
    for extension in resource_extensions():
        for collection in extension.collections:
            api.json("GET", collection.path, query={"limit": "1"})
