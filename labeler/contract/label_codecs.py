"""Codecs of a node's labels: its place in the topology, its GPU cards, their NUMA nodes and links.

Encoder and decoder of each label stand together. Formats: the labeler of the Intel GPU device plugin
(0.24 to 0.32) and XPU Manager for the cards, GKE for the topology. Decoders raise ContractError for text
that the format does not allow; a label that is absent is an empty result.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from labeler.contract.errors import ContractError
from labeler.contract.split import MAX_VALUE, join_label, split_label

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,8}")
_CARD_NAME: Final = re.compile(r"card(0|[1-9][0-9]{0,8})")
_LINK: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})-([0-9]{1,9})\.([0-9]{1,9})")


# --- topology -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NodeTopology:
    """A node's place: the label keys of one family and their values, coarsest level first."""

    family: tuple[str, ...]
    values: tuple[str, ...]


def encode_topology(
    values: Sequence[str], family: Sequence[str] = keys.PRERELEASE_TOPOLOGY
) -> dict[str, str]:
    """Labels for a place given coarsest level first: one value for each key of the family.

    Raises ContractError when values and keys differ in number, or a value is empty.
    """
    if len(values) != len(family):
        raise ContractError(f"a place of {len(values)} levels {tuple(values)} for {len(family)} labels")
    if not all(values):
        raise ContractError(f"a place with an empty level: {tuple(values)}")
    return dict(zip(family, values, strict=True))


def decode_topology(
    labels: Mapping[str, str], families: Sequence[tuple[str, ...]] = keys.TOPOLOGY_FAMILIES
) -> NodeTopology | None:
    """The place by the first family whose labels are all there and not empty; None if no family is.

    A node with a gap has no place at all: a guess would make it look close to nodes that it is not near.
    """
    for family in families:
        values = tuple(labels.get(key, "") for key in family)
        if all(values):
            return NodeTopology(family, values)
    return None


# --- cards ----------------------------------------------------------------------------------------


def in_scan_order(cards: Iterable[int]) -> list[int]:
    """Card numbers as a directory listing gives ``cardN``: 0, 1, 10, 11, 2. Labels keep this order."""
    return sorted(cards, key=str)


def encode_cards(cards: Iterable[int]) -> dict[str, str]:
    """Labels ``gpu-numbers`` (with continuations) and ``cards`` for a set of card numbers; none for none.

    ``cards`` is for readers older than plugin 0.24 and holds the first 63 characters at most.
    """
    numbers = in_scan_order(set(cards))
    if not numbers:
        return {}
    if min(numbers) < 0:
        raise ContractError(f"a card number below 0: {min(numbers)}")
    names = ".".join(f"card{number}" for number in numbers)
    return split_label(keys.GPU_NUMBERS_LABEL, ".".join(map(str, numbers))) | {
        keys.CARDS_LABEL: split_label(keys.CARDS_LABEL, names)[keys.CARDS_LABEL]
    }


def decode_cards(labels: Mapping[str, str]) -> tuple[int, ...]:
    """A node's card numbers, ascending; () for a node without cards.

    Reads ``gpu-numbers`` with its continuations, or ``cards`` where that is missing or its chain is broken.
    Raises ContractError for a text that is neither.
    """
    try:
        numbers = join_label(labels, keys.GPU_NUMBERS_LABEL)
    except ContractError:
        if keys.CARDS_LABEL not in labels:
            raise
        numbers = None
    if numbers:
        return tuple(sorted(_numbers(keys.GPU_NUMBERS_LABEL, numbers)))
    if labels.get(keys.CARDS_LABEL):
        return _decode_card_names(labels[keys.CARDS_LABEL])
    return ()


def _decode_card_names(value: str) -> tuple[int, ...]:
    names = value.split(".")
    if len(value) == MAX_VALUE:
        names.pop()  # a full label can end inside a name: "card1" may be the beginning of "card16"
    matches = [_CARD_NAME.fullmatch(name) for name in names]
    for name, match in zip(names, matches, strict=True):
        if match is None:
            raise ContractError(f"label {keys.CARDS_LABEL}: {name!r} in {value!r} is no card name")
    return tuple(sorted(_distinct(keys.CARDS_LABEL, value, [int(m[1]) for m in matches if m])))


def _numbers(key: str, value: str) -> list[int]:
    """Dot-separated card numbers."""
    texts = value.split(".")
    for text in texts:
        if not _NUMBER.fullmatch(text):
            raise ContractError(f"label {key}: {text!r} in {value!r} is no card number")
    return _distinct(key, value, [int(text) for text in texts])


def _distinct(key: str, value: str, numbers: list[int]) -> list[int]:
    if len(set(numbers)) != len(numbers):
        raise ContractError(f"label {key}: {value!r} names a card twice")
    return numbers


# --- where the cards sit --------------------------------------------------------------------------


def encode_numa_map(cards_of_numa_node: Mapping[int, Iterable[int]]) -> dict[str, str]:
    """Label ``numa-gpu-map``: ``<numa>-<card>.<card>_<numa>-<card>``, NUMA nodes ascending; none for none."""
    groups = [
        f"{numa_node}-" + ".".join(map(str, in_scan_order(set(cards))))
        for numa_node, cards in sorted((node, tuple(cards)) for node, cards in cards_of_numa_node.items())
        if cards
    ]
    return split_label(keys.NUMA_MAP_LABEL, "_".join(groups)) if groups else {}


def decode_numa_map(labels: Mapping[str, str]) -> dict[int, tuple[int, ...]]:
    """NUMA node -> its cards, both ascending; cards without a known NUMA node are in no entry."""
    value = join_label(labels, keys.NUMA_MAP_LABEL)
    if not value:
        return {}
    groups: dict[int, tuple[int, ...]] = {}
    for group in value.split("_"):
        node, dash, cards = group.partition("-")
        if not dash or not _NUMBER.fullmatch(node) or int(node) in groups:
            raise ContractError(
                f"label {keys.NUMA_MAP_LABEL}: {group!r} in {value!r} is no NUMA node's cards"
            )
        groups[int(node)] = tuple(sorted(_numbers(keys.NUMA_MAP_LABEL, cards)))
    _distinct(keys.NUMA_MAP_LABEL, value, [card for cards_ in groups.values() for card in cards_])
    return dict(sorted(groups.items()))


def encode_pci_groups(groups: Iterable[Iterable[int]]) -> dict[str, str]:
    """Label ``pci-groups``: groups of cards in the order given, ``0.1_2.3.4``; none for none."""
    texts = [".".join(map(str, in_scan_order(set(group)))) for group in groups]
    return split_label(keys.PCI_GROUPS_LABEL, "_".join(filter(None, texts))) if any(texts) else {}


def decode_pci_groups(labels: Mapping[str, str]) -> tuple[tuple[int, ...], ...]:
    """Cards that share a PCI ancestor, each group ascending; () when the node has no such label."""
    value = join_label(labels, keys.PCI_GROUPS_LABEL)
    if not value:
        return ()
    groups = [tuple(sorted(_numbers(keys.PCI_GROUPS_LABEL, group))) for group in value.split("_")]
    _distinct(keys.PCI_GROUPS_LABEL, value, [card for group in groups for card in group])
    return tuple(groups)


@dataclass(frozen=True, order=True)
class XeLink:
    """A direct link between two tiles; devices count from 0 in ascending card number, not by card number."""

    device: int
    tile: int
    other_device: int
    other_tile: int


def encode_xe_links(links: Iterable[XeLink]) -> dict[str, str]:
    """Label ``xe-links``: ``0.0-1.0_0.1-1.1``, the lower device first, without repetition, sorted."""
    ordered = {
        link
        if (link.device, link.tile) <= (link.other_device, link.other_tile)
        else XeLink(link.other_device, link.other_tile, link.device, link.tile)
        for link in links
    }
    texts = [f"{link.device}.{link.tile}-{link.other_device}.{link.other_tile}" for link in sorted(ordered)]
    return split_label(keys.XE_LINKS_LABEL, "_".join(texts))


def decode_xe_links(labels: Mapping[str, str]) -> tuple[XeLink, ...]:
    """Links between tiles, sorted; () when there are none or the node has no such label."""
    value = join_label(labels, keys.XE_LINKS_LABEL)
    if not value:
        return ()
    links = []
    for text in value.split("_"):
        match = _LINK.fullmatch(text)
        if match is None:
            raise ContractError(f"label {keys.XE_LINKS_LABEL}: {text!r} in {value!r} is no link of two tiles")
        links.append(XeLink(*map(int, match.groups())))
    return tuple(sorted(links))
