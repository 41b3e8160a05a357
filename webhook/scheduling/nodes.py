"""From Kubernetes' nodes to the values that placement computes with.

A node whose labels contradict is no error here: it becomes a node that takes no GPU pods, with the sentence
that says why. Cards follow the formats and the counting of GPU Aware Scheduling: one card holds its share,
rounded down, of each gpu.intel.com/ amount of the node.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from labeler.contract import keys
from labeler.contract.errors import ContractError
from labeler.contract.labels import decode_cards, decode_numa_map, decode_pci_groups, decode_xe_links
from labeler.contract.quantities import QuantityError, in_units, parse_all
from webhook.kube import objects
from webhook.placement.eligibility import Taint
from webhook.placement.model import Card, Node

_TILE_NAME: Final = re.compile(r"card(0|[1-9][0-9]*)_gt(0|[1-9][0-9]*)")


def node_of(node: objects.Node) -> Node:
    """A node with its cards; one whose labels cannot be read has a `problem` and no cards."""
    problem = ""
    cards: tuple[Card, ...] = ()
    allocatable: dict[str, int] = {}
    try:
        allocatable = in_units(parse_all(node.status.allocatable))
        cards = _cards(node.metadata.labels, allocatable)
    except (ContractError, QuantityError) as error:
        problem = f"unreadable node ({error})"
    if node.metadata.deletion_timestamp is not None:
        problem = "being deleted"
    return Node(
        name=node.metadata.name,
        labels=node.metadata.labels,
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints),
        unschedulable=node.spec.unschedulable,
        ready=all(c.status == "True" for c in node.status.conditions if c.type == "Ready"),
        allocatable=allocatable,
        cards=cards,
        problem=problem,
    )


def _cards(labels: Mapping[str, str], allocatable: Mapping[str, int]) -> tuple[Card, ...]:
    numbers = decode_cards(labels)
    if not numbers:
        return ()
    capacity = {
        resource: amount // len(numbers)
        for resource, amount in allocatable.items()
        if resource.startswith(keys.INTEL_PREFIX)
    }
    numa = {card: node for node, members in decode_numa_map(labels).items() for card in members}
    disabled, disabled_tiles = _disabled(labels)
    links = _links(labels, numbers)
    return tuple(
        Card(
            name=f"card{number}",
            capacity=capacity,
            tiles=capacity.get(keys.TILES, 0),
            numa=numa.get(number),
            disabled=number in disabled,
            disabled_tiles=frozenset(disabled_tiles.get(number, ())),
            links=tuple(links.get(number, ())),
        )
        for number in numbers
    )


def _links(labels: Mapping[str, str], numbers: Sequence[int]) -> dict[int, list[tuple[int, str, int]]]:
    """Card number -> (own tile, other card's name, its tile); links count devices, not card numbers."""
    links: dict[int, list[tuple[int, str, int]]] = {}
    for link in decode_xe_links(labels):
        if link.device < len(numbers) and link.other_device < len(numbers):
            other = f"card{numbers[link.other_device]}"
            links.setdefault(numbers[link.device], []).append((link.tile, other, link.other_tile))
    return links


def _disabled(labels: Mapping[str, str]) -> tuple[set[int], dict[int, set[int]]]:
    """Cards and tiles that a telemetry policy takes out of use."""
    cards: set[int] = set()
    tiles: dict[int, set[int]] = {}
    groups: tuple[tuple[int, ...], ...] | None = None
    for key, value in labels.items():
        if not key.startswith(keys.TAS_LABEL_PREFIX) or key.count("/") != 1:
            continue
        word = key.partition("/")[2]
        number = _card_number(word.removeprefix(keys.TAS_DISABLE_CARD))
        if word.startswith(keys.TAS_DISABLE_CARD) and number is not None:
            cards.add(number)
            if value == keys.TAS_PCI_GROUP:
                groups = decode_pci_groups(labels) if groups is None else groups
                cards |= {card for group in groups if number in group for card in group}
        for prefix in (keys.TAS_DISABLE_TILE, keys.TAS_DESCHEDULE_TILE):
            match = _TILE_NAME.fullmatch(word.removeprefix(prefix))
            if word.startswith(prefix) and match:
                tiles.setdefault(int(match[1]), set()).add(int(match[2]))
    return cards, tiles


def _card_number(name: str) -> int | None:
    match = re.fullmatch(r"card(0|[1-9][0-9]*)", name)
    return int(match[1]) if match else None
