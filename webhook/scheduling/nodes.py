"""Converts Kubernetes nodes to the input of placement.

A node with contradictory labels is no error here. With unreadable card numbers it takes no GPU pods, and has
the reason as a sentence. Without any it takes requests for whole devices, which it counts. An unreadable
label with details about cards is ignored on its own. Cards follow the formats and the counting of GPU Aware
Scheduling: a card has an equal share, rounded down, of each gpu.intel.com/ amount of the node. Reports of
topogate's allocator (annotations of the Node) take precedence: the cards that are out of use, and the
resource that offers each card.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from labeler.contract import keys
from labeler.contract.errors import ContractError
from labeler.contract.label_codecs import (
    XeLink,
    decode_cards,
    decode_numa_map,
    decode_pci_groups,
    decode_xe_links,
)
from labeler.contract.offers import CardOffer, decode_offers, decode_unmanaged
from labeler.contract.quantities import QuantityError, in_units, parse, parse_all
from webhook.kube import objects
from webhook.placement.eligibility import Taint
from webhook.placement.model import Card, NodeInfo

_TILE_NAME: Final = re.compile(r"card(0|[1-9][0-9]*)_gt(0|[1-9][0-9]*)")

LEAVING_TAINTS: Final = frozenset(
    {"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"}
)
"""The taints by which autoscalers mark a node before they remove it."""

_NO_CARD_LEFT: Final = "0"
"""The label of tiles on a node all of whose cards are broken or divided. A plugin may still offer them."""

Labels = Mapping[str, str]
Offers = Mapping[int, CardOffer] | None
"""The allocator's report on the cards, by card number; None without an allocator."""
T = TypeVar("T")


def node_of(node: objects.Node) -> NodeInfo:
    """A node with its cards. If their numbers or amounts are unreadable, it has a `problem` and no cards."""
    problem = ""
    cards: tuple[Card, ...] = ()
    allocatable: dict[str, int] = {}
    notes = node.metadata.annotations
    try:
        allocatable = in_units(parse_all(node.status.allocatable))
        cards = _cards(node.metadata.labels, notes, allocatable)
        if node.metadata.labels.get(keys.TILES) == _NO_CARD_LEFT:
            allocatable = {name: n for name, n in allocatable.items() if name not in keys.PLUGIN_RESOURCES}
    except (ContractError, QuantityError) as error:
        problem = f"unreadable node ({error})"
    if is_leaving(node):
        problem = "about to be removed"
    if node.metadata.deletion_timestamp is not None:
        problem = "being deleted"
    return NodeInfo(
        name=node.metadata.name,
        labels=node.metadata.labels,
        taints=taints_of(node),
        unschedulable=node.spec.unschedulable,
        ready=all(c.status == "True" for c in node.status.conditions if c.type == "Ready"),
        allocatable=allocatable,
        cards=cards,
        problem=problem,
        unmanaged=_unmanaged(notes),
        without_cards="" if cards else _without_cards(allocatable),
    )


def _without_cards(allocatable: Mapping[str, int]) -> str:
    """Why the cards that a node offers are not known.

    Intel's plugin labels them up to 0.32, and no later one does. Such a node serves whole devices.
    """
    if not any(allocatable.get(resource, 0) for resource in keys.PLUGIN_RESOURCES):
        return ""
    return f"no label {keys.GPU_NUMBERS_LABEL} or {keys.CARDS_LABEL} (run topogate's labeler there)"


def taints_of(node: objects.Node) -> tuple[Taint, ...]:
    """The taints of a node."""
    return tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints)


def is_leaving(node: objects.Node) -> bool:
    """Whether an autoscaler is about to remove the node, even if its pods tolerate every taint."""
    return any(taint.key in LEAVING_TAINTS for taint in node.spec.taints)


def left_out(node: objects.Node) -> list[str]:
    """Sentences on unreadable labels with details about cards; the node is used without them."""
    found = []
    for decode, meaning in _OPTIONAL.items():
        is_from_allocator = meaning.startswith("what its allocator reports")
        try:
            decode(node.metadata.annotations if is_from_allocator else node.metadata.labels)
        except ContractError as error:
            found.append(f"node {node.metadata.name} is used without {meaning}: {error}")
    return found


def _cards(labels: Labels, notes: Mapping[str, str], allocatable: Mapping[str, int]) -> tuple[Card, ...]:
    numbers = decode_cards(labels)
    if not numbers:
        return ()
    labelled = _labelled_amounts(labels)
    equal = {
        resource: min(amount, labelled.get(resource, amount)) // len(numbers)
        for resource, amount in allocatable.items()
        if resource.startswith(keys.INTEL_PREFIX) and resource not in keys.MONITORING_RESOURCES
    }
    offers: Offers = _if_readable(decode_offers, notes, None)
    capacities = {number: _capacity(number, equal, offers, allocatable) for number in numbers}
    numa_map: Mapping[int, tuple[int, ...]] = _if_readable(decode_numa_map, labels, {})
    numa = {card: node for node, members in numa_map.items() for card in members}
    disabled, disabled_tiles = _disabled(labels)
    links = _links(labels, numbers)
    return tuple(
        Card(
            name=f"card{number}",
            capacity=capacities[number],
            tiles=equal.get(keys.TILES, 0),
            numa=numa.get(number),
            disabled=number in disabled or _is_out_of_use(number, offers),
            disabled_tiles=frozenset(disabled_tiles.get(number, ())),
            links=tuple(links.get(number, ())),
        )
        for number in numbers
    )


def _labelled_amounts(labels: Labels) -> dict[str, int]:
    """The amounts of the cards that are labelled now; unreadable ones and 0 are left out.

    The labeler writes 0 for an amount that it cannot read, as the memory of some drivers. A card that breaks
    leaves the labels at once. The Node's allocatable amounts still contain its part until the kubelet has
    copied the new capacity, and another card must not get that part.
    """
    found: dict[str, int] = {}
    for key in keys.CARD_AMOUNTS:
        with suppress(KeyError, QuantityError):
            found |= in_units({key: parse(labels[key])})
    return {key: amount for key, amount in found.items() if amount}


def _capacity(
    number: int, equal: Mapping[str, int], offers: Offers, allocatable: Mapping[str, int]
) -> Mapping[str, int]:
    """The capacity of a card: an equal part of each amount, but its own devices if an allocator reports them.

    The smaller of the allocator's report and the Node's status counts, since they change one after the other.
    """
    if offers is None:
        return equal
    others = {resource: amount for resource, amount in equal.items() if resource not in keys.PLUGIN_RESOURCES}
    own = offers.get(number)
    if own is None or not own.shares:
        return others
    offered = sum(1 for each in offers.values() if each.resource == own.resource and each.shares)
    part = -(
        -allocatable.get(own.resource, 0) // offered
    )  # else one card less in the status leaves none at all
    return others | {own.resource: min(own.shares, part)}


def _unmanaged(notes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    found: Mapping[str, tuple[int, ...]] = _if_readable(decode_unmanaged, notes, {})
    return {uid: tuple(f"card{number}" for number in cards) for uid, cards in found.items()}


def _is_out_of_use(number: int, offers: Offers) -> bool:
    return offers is not None and (number not in offers or not offers[number].shares)


def _if_readable(decode: Callable[[Labels], T], labels: Labels, otherwise: T) -> T:
    try:
        return decode(labels)
    except ContractError:
        return otherwise  # left_out reports it


def _links(labels: Labels, numbers: Sequence[int]) -> dict[int, list[tuple[int, str, int]]]:
    """Card number -> (own tile, other card's name, its tile); links count devices, not card numbers."""
    links: dict[int, list[tuple[int, str, int]]] = {}
    readable: tuple[XeLink, ...] = _if_readable(decode_xe_links, labels, ())
    for link in readable:
        if link.device < len(numbers) and link.other_device < len(numbers):
            other = f"card{numbers[link.other_device]}"
            links.setdefault(numbers[link.device], []).append((link.tile, other, link.other_tile))
    return links


def _disabled(labels: Labels) -> tuple[set[int], dict[int, set[int]]]:
    """Cards and tiles that a telemetry policy disables, or from which it deschedules pods.

    GPU Aware Scheduling still uses a card whose pods are descheduled. A new pod there would be descheduled
    next, so topogate does not use it.
    """
    cards: set[int] = set()
    tiles: dict[int, set[int]] = {}
    for mark, value in _telemetry_marks(labels):
        for prefix in (keys.TAS_DISABLE_CARD, keys.TAS_DESCHEDULE_CARD):
            number = _card_number(mark.removeprefix(prefix)) if mark.startswith(prefix) else None
            if number is not None:
                cards |= {number, *_pci_group(number, labels)} if value == keys.TAS_PCI_GROUP else {number}
        for prefix in (keys.TAS_DISABLE_TILE, keys.TAS_DESCHEDULE_TILE):
            match = _TILE_NAME.fullmatch(mark.removeprefix(prefix))
            if mark.startswith(prefix) and match:
                tiles.setdefault(int(match[1]), set()).add(int(match[2]))
    return cards, tiles


def _telemetry_marks(labels: Labels) -> Iterator[tuple[str, str]]:
    """The labels that telemetry policies set: each name after the policy's prefix, and its value."""
    for key, value in labels.items():
        if key.startswith(keys.TAS_LABEL_PREFIX) and key.count("/") == 1:
            yield key.partition("/")[2], value


def _pci_group(number: int, labels: Labels) -> tuple[int, ...]:
    groups: tuple[tuple[int, ...], ...] = _if_readable(decode_pci_groups, labels, ())
    return next((group for group in groups if number in group), ())


def _card_number(name: str) -> int | None:
    match = re.fullmatch(r"card(0|[1-9][0-9]*)", name)
    return int(match[1]) if match else None


_OPTIONAL: Final[dict[Callable[[Labels], object], str]] = {
    decode_numa_map: "the NUMA nodes of its cards",
    decode_xe_links: "the links between its cards",
    decode_pci_groups: "the PCI groups of its cards",
    decode_offers: "what its allocator reports of its cards",
    decode_unmanaged: "what its allocator reports of its pods",
}
