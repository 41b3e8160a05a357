"""From a node's facts to its labels: pure, so that every case is a table in the tests.

The gpu.intel.com labels are those of the Intel GPU device plugin's own labeler (0.24 to 0.32), byte for byte;
the gpu.topogate.io ones have model and number of every vendor's GPUs.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from labeler.contract.errors import ContractError
from labeler.contract.label_codecs import encode_cards, encode_numa_map, encode_pci_groups, encode_topology
from labeler.contract.legal_values import legal_value, readable_value
from labeler.facts import NO_CARD, Facts, Gpu, SourceError

INTEL: Final = "intel"
MILLICORES_PER_CARD: Final = 1000
_MEMORY_UNTOLD: Final = 2**63 - 1  # as large or larger: a driver's overflow, not an amount
_MIXED: Final = "mixed"
_LARGEST_NUMA_NODE: Final = 32767
_LONGEST_NAME: Final = 63  # of the part of a key behind the "/"


@dataclass(frozen=True)
class Wanted:
    """What the node should carry: labels and annotations, and key prefixes of which nothing is known now."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    unknown: tuple[str, ...] = ()


def wanted(
    facts: Facts,
    levels: Sequence[str],
    pci_group_level: int = 0,
    unknown: tuple[str, ...] = (),
    *,
    falldio: bool = False,
) -> Wanted:
    """Labels and annotations for facts.

    levels: label keys of the topology, coarsest first; raises SourceError if the place has another depth.
    pci_group_level: how many PCI ancestors two cards must share to be one group, 0 for no groups. falldio:
    whether the model is labelled as falldio.com/gpu as well.
    """
    raw = _topology_labels(facts.topology, levels)
    legal = {key: legal_value(value) for key, value in raw.items()}
    original = {key: value for key, value in raw.items() if legal[key] != value}
    every_gpu = facts.gpus or ()
    gpus = [gpu for gpu in every_gpu if not gpu.skipped]
    labels = legal | intel_labels(every_gpu, pci_group_level) | model_labels(gpus)
    labels |= state_labels(gpus, facts) | broken_vendor_labels(every_gpu)
    if falldio:
        labels |= falldio_label(gpus)
    annotations = dict(facts.identity or {})
    if facts.broken:
        annotations[keys.BROKEN_GPUS_ANNOTATION] = "; ".join(facts.broken)
    if original:
        annotations[keys.ORIGINAL_VALUES_ANNOTATION] = json.dumps(original, sort_keys=True)
    return Wanted(labels, annotations, unknown)


def _topology_labels(topology: Sequence[str] | None, levels: Sequence[str]) -> dict[str, str]:
    if not topology:
        return {}
    try:
        return encode_topology(topology, levels)
    except ContractError as error:
        raise SourceError(f"{error} ({', '.join(levels)})") from error


def intel_labels(gpus: Iterable[Gpu], pci_group_level: int) -> dict[str, str]:
    """The gpu.intel.com labels; where no Intel card can be used, ``tiles: 0`` and nothing else.

    A GPU that is no drm card, as under vfio-pci, has no number by which these labels could name it.
    """
    intel = [gpu for gpu in gpus if gpu.vendor == INTEL]
    used = [gpu for gpu in intel if not gpu.skipped and gpu.card != NO_CARD]
    if not intel:
        return {}
    labels = {keys.TILES: str(sum(gpu.tiles for gpu in used))}
    if not used:
        return labels
    memory = sum(gpu.memory_bytes for gpu in used if gpu.memory_bytes < _MEMORY_UNTOLD)
    labels |= {keys.MILLICORES: str(MILLICORES_PER_CARD * len(used)), keys.MEMORY_MAX: str(memory)}
    labels |= encode_cards(gpu.card for gpu in used)
    labels |= encode_numa_map(_by_numa_node(used))
    return labels | encode_pci_groups(pci_groups(used, pci_group_level))


def _by_numa_node(gpus: Iterable[Gpu]) -> dict[int, list[int]]:
    nodes: dict[int, list[int]] = {}
    for gpu in gpus:
        if gpu.numa_node is not None and 0 <= gpu.numa_node <= _LARGEST_NUMA_NODE:
            nodes.setdefault(gpu.numa_node, []).append(gpu.card)
    return nodes


def pci_groups(gpus: Iterable[Gpu], level: int) -> list[list[int]]:
    """Cards by their first ``level`` PCI ancestors, in order of that path; cards with fewer are left out."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for gpu in gpus:
        if 0 < level <= len(gpu.pci_path):
            groups.setdefault(gpu.pci_path[:level], []).append(gpu.card)
    return [cards for _, cards in sorted(groups.items())]


def model_labels(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The gpu.topogate.io labels of the GPUs in use, their number and models; none for none.

    An integrated GPU counts beside discrete ones only where they are of its vendor, whose device plugin hands
    out both: beside another vendor's it is the processor's screen.
    """
    if not gpus:
        return {}
    counted = _discrete(gpus)
    handed_out = {gpu.vendor for gpu in counted}
    labels = {keys.GPU_COUNT_LABEL: str(sum(gpu.vendor in handed_out for gpu in gpus))}
    for vendor, count in Counter(gpu.vendor for gpu in gpus).items():
        labels[keys.GPU_VENDOR_COUNT_PREFIX + vendor] = str(count)
    for model in {name for gpu in gpus for name in (gpu.model, gpu.former_model) if name}:
        labels[_has_model_key(model)] = "true"
    models = {gpu.model for gpu in counted}
    if len(models) == 1 and (model := models.pop()):
        labels[keys.GPU_MODEL_LABEL] = readable_value(model)
    return labels


def state_labels(gpus: Sequence[Gpu], facts: Facts) -> dict[str, str]:
    """The gpu.topogate.io labels for split GPUs, broken GPUs and other accelerators."""
    labels = {}
    for key, modes in (
        (keys.GPU_COMPUTE_PARTITION_LABEL, {gpu.compute_partition for gpu in gpus if gpu.compute_partition}),
        (keys.GPU_MEMORY_PARTITION_LABEL, {gpu.memory_partition for gpu in gpus if gpu.memory_partition}),
    ):
        if modes:
            labels[key] = readable_value(modes.pop()) if len(modes) == 1 else _MIXED
    if split := sum(gpu.split_by_mig for gpu in gpus):
        labels[keys.GPU_MIG_LABEL] = str(split)
    if facts.broken:
        labels[keys.GPU_BROKEN_LABEL] = str(len(facts.broken))
    for name, count in (facts.accelerators or {}).items():
        labels[keys.GPU_ACCELERATOR_PREFIX + name] = str(count)
    return labels


def broken_vendor_labels(gpus: Sequence[Gpu]) -> dict[str, str]:
    """``vendor.VENDOR: 0`` for each vendor of which a node has no other GPUs than broken ones.

    The vendor's device plugin, which that label selects, must run there: it lists the GPUs as unhealthy.
    """
    used = {gpu.vendor for gpu in gpus if not gpu.skipped}
    broken = {gpu.vendor for gpu in gpus if gpu.broken}
    return dict.fromkeys((keys.GPU_VENDOR_COUNT_PREFIX + vendor for vendor in broken - used), "0")


def _discrete(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """The GPUs that decide the model of a node: the discrete ones, or all where there are none."""
    return [gpu for gpu in gpus if not gpu.integrated] or gpus


def falldio_label(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The model as GPUTask's manifests have always named it ("GeForce RTX 4090" -> "rtx4090"); none where a
    node has several models."""
    models = {gpu.model for gpu in _discrete(gpus)}
    if len(models) != 1 or not (model := models.pop()):
        return {}
    compact = "".join(char for char in model.casefold().removeprefix("geforce") if char.isalnum())
    return {keys.FALLDIO_GPU: readable_value(compact)} if compact else {}


def _has_model_key(model: str) -> str:
    in_name = keys.GPU_HAS_MODEL_PREFIX.partition("/")[2]
    return keys.GPU_HAS_MODEL_PREFIX + readable_value(model, _LONGEST_NAME - len(in_name))
