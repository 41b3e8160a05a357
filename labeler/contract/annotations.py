"""Codec of the annotations that hand a pod its GPU cards: gas-ts, gas-container-cards, gas-container-tiles.

The format is that of GPU Aware Scheduling 0.5.6, read on the node by the Intel GPU device plugin (0.24 to
0.32): one slot for each of spec.containers, init containers left out::

    gas-ts               1764000000000000000
    gas-container-cards  card0,card1||card2            (slots by "|", cards by ",", "" for no GPU)
    gas-container-tiles  card0:gt0+gt1,card1:gt0||card2:gt3

What is written is narrower than what is read: ascending cards and tiles, because the reader converts
positions into device indices; tiles for all GPU containers of a pod or for none, because it counts tile slots
that are not empty; exactly 19 digits of time, because it compares them as text.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from labeler.contract import keys
from labeler.contract.errors import ContractError

_CARD: Final = re.compile(r"card(0|[1-9][0-9]{0,8})")
_TILE: Final = re.compile(r"gt(0|[1-9][0-9]{0,4})")
_TIMESTAMP: Final = re.compile(r"[1-9][0-9]{18}")
_FIRST_NS: Final = 10**18  # 2001-09-09
_PAST_NS: Final = 10**19  # 2286-11-20


@dataclass(frozen=True)
class SlotCard:
    """One card as a container gets it: its number and, where tiles are handed out, the tiles of it."""

    card: int
    tiles: tuple[int, ...] = ()


Slot = tuple[SlotCard, ...]
"""A container's cards; () is a container without GPU."""

Slots = tuple[Slot, ...]
"""The slots of a pod, in the order of spec.containers."""


@dataclass(frozen=True)
class Allocation:
    """A pod's cards and when they were chosen, in nanoseconds of the Unix clock (None: not known)."""

    slots: Slots
    timestamp_ns: int | None = None


def encode_allocation(slots: Sequence[Slot], timestamp_ns: int) -> dict[str, str]:
    """The annotations for a pod's cards; the tiles' one only when tiles are handed out.

    Raises ContractError for what the node would read otherwise than meant (see the module's text).
    """
    texts = {
        keys.GAS_TIMESTAMP_ANNOTATION: encode_timestamp(timestamp_ns),
        keys.GAS_CARDS_ANNOTATION: encode_card_slots(slots),
    }
    tiles = encode_tile_slots(slots)
    return texts | {keys.GAS_TILES_ANNOTATION: tiles} if tiles else texts


def decode_allocation(annotations: Mapping[str, str], containers: int | None = None) -> Allocation | None:
    """A pod's cards, or None for a pod that was given none.

    Cards and tiles come in the order written. containers, if given, is the pod's number of regular
    containers, which must be the number of slots. Raises ContractError for malformed text.
    """
    value = annotations.get(keys.GAS_CARDS_ANNOTATION)
    if value is None:
        return None
    cards = decode_card_slots(value)
    if containers is not None and len(cards) != containers:
        raise ContractError(
            f"annotation {keys.GAS_CARDS_ANNOTATION}: {value!r} has {len(cards)} slots, "
            f"the pod has {containers} containers"
        )
    tiles = decode_tile_slots(annotations.get(keys.GAS_TILES_ANNOTATION, ""), cards)
    timestamp = annotations.get(keys.GAS_TIMESTAMP_ANNOTATION)
    return Allocation(
        slots=tuple(
            tuple(SlotCard(card, in_slot.get(card, ())) for card in slot)
            for slot, in_slot in zip(cards, tiles, strict=True)
        ),
        timestamp_ns=None if timestamp is None else decode_timestamp(timestamp),
    )


def is_planned(annotations: Mapping[str, str]) -> bool:
    """Whether somebody chose cards for a pod; mere separators are written for pods that get none."""
    return annotations.get(keys.GAS_CARDS_ANNOTATION, "").strip("|") != ""


# --- what others have written ---------------------------------------------------------------------


def annotated_cards(annotations: Mapping[str, str]) -> tuple[tuple[int | None, ...], ...]:
    """The cards of each slot as GPU Aware Scheduling counts them, whichever program wrote the annotation.

    A name that is no card's is None: it books nothing itself, but counts among those that a container's
    amounts are divided by. () for a pod without cards. Tiles and time do not matter, nor does how many
    containers there are. Source: adjustPodResources of GPU Aware Scheduling.
    """
    value = annotations.get(keys.GAS_CARDS_ANNOTATION)
    slots = [] if value is None else value.split("|")
    return tuple(tuple(map(_known_card, slot.split(","))) if slot else () for slot in slots)


def annotated_tiles(annotations: Mapping[str, str]) -> dict[int, frozenset[int]]:
    """Card number -> the tiles of it that a pod uses, whichever program wrote the annotation.

    Pieces without tiles are skipped. Slots, cards and time do not matter. Source: adjustTiles of GPU Aware
    Scheduling.
    """
    found: dict[int, frozenset[int]] = {}
    for text in re.split(r"[|,]", annotations.get(keys.GAS_TILES_ANNOTATION, "")):
        name, _, rest = text.partition(":")
        card = _known_card(name)
        tiles = frozenset(int(tile[1]) for each in rest.split("+") if (tile := _TILE.fullmatch(each)))
        if card is not None and tiles:
            found[card] = found.get(card, frozenset()) | tiles
    return found


def _known_card(name: str) -> int | None:
    match = _CARD.fullmatch(name)
    return None if match is None else int(match[1])


# --- the three texts ------------------------------------------------------------------------------


def encode_timestamp(timestamp_ns: int) -> str:
    """gas-ts of a time in nanoseconds since 1970: 19 digits, so that order as text is order in time."""
    if not _FIRST_NS <= timestamp_ns < _PAST_NS:
        raise ContractError(f"time {timestamp_ns} is not 19 digits of nanoseconds since 1970")
    return str(timestamp_ns)


def decode_timestamp(value: str) -> int:
    """Nanoseconds since 1970."""
    if not _TIMESTAMP.fullmatch(value):
        raise ContractError(f"annotation {keys.GAS_TIMESTAMP_ANNOTATION}: {value!r} is not 19 digits")
    return int(value)


def encode_card_slots(slots: Sequence[Slot]) -> str:
    """gas-container-cards of a pod's slots."""
    if not slots:
        raise ContractError("a pod without containers has no card slots")
    for slot in slots:
        _check_ascending([share.card for share in slot], "cards")
    return "|".join(",".join(f"card{share.card}" for share in slot) for slot in slots)


def decode_card_slots(value: str) -> tuple[tuple[int, ...], ...]:
    """The card numbers of each container, as written."""
    return tuple(
        tuple(_card_number(name, value) for name in slot.split(",")) if slot else ()
        for slot in _distinct_slots(value)
    )


def encode_tile_slots(slots: Sequence[Slot]) -> str:
    """gas-container-tiles of a pod's slots; "" when no tiles are handed out."""
    shares = [share for slot in slots for share in slot]
    if not any(share.tiles for share in shares):
        return ""
    for share in shares:
        if not share.tiles:
            raise ContractError(
                f"card{share.card} has no tiles while other cards of the pod have: "
                "the node would give the tiles to the wrong container"
            )
        _check_ascending(share.tiles, f"tiles of card{share.card}")
    return "|".join(",".join(map(_tile_text, slot)) for slot in slots)


def decode_tile_slots(value: str, cards: Sequence[Sequence[int]]) -> tuple[dict[int, tuple[int, ...]], ...]:
    """Card number -> its tiles, for each container, given the cards of each.

    An empty text and mere separators, which GPU Aware Scheduling writes for pods without tiles, mean none.
    """
    if not value.strip("|"):
        return tuple({} for _ in cards)
    slots = value.split("|")
    if len(slots) != len(cards):
        raise ContractError(
            f"annotation {keys.GAS_TILES_ANNOTATION}: {value!r} has {len(slots)} slots, "
            f"{keys.GAS_CARDS_ANNOTATION} has {len(cards)}"
        )
    return tuple(_decode_tile_slot(slot, own, value) for slot, own in zip(slots, cards, strict=True))


# --- pieces ---------------------------------------------------------------------------------------


def _tile_text(share: SlotCard) -> str:
    return f"card{share.card}:" + "+".join(f"gt{tile}" for tile in share.tiles)


def _check_ascending(numbers: Sequence[int], what: str) -> None:
    if any(number < 0 for number in numbers):
        raise ContractError(f"{what} {tuple(numbers)}: a number below 0")
    if any(a >= b for a, b in pairwise(numbers)):
        raise ContractError(f"{what} {tuple(numbers)} are not in ascending order without repetition")


def _card_number(name: str, value: str) -> int:
    match = _CARD.fullmatch(name)
    if match is None:
        raise ContractError(f"annotation {keys.GAS_CARDS_ANNOTATION}: {name!r} in {value!r} is no card name")
    return int(match[1])


def _distinct_slots(value: str) -> list[str]:
    slots = value.split("|")
    for slot in slots:
        names = slot.split(",")
        if len(set(names)) != len(names):
            raise ContractError(
                f"annotation {keys.GAS_CARDS_ANNOTATION}: a container of {value!r} has a card twice"
            )
    return slots


def _decode_tile_slot(slot: str, cards: Sequence[int], value: str) -> dict[int, tuple[int, ...]]:
    where = f"annotation {keys.GAS_TILES_ANNOTATION}: "
    found: dict[int, tuple[int, ...]] = {}
    for text in slot.split(",") if slot else ():
        name, colon, rest = text.partition(":")
        card = _CARD.fullmatch(name)
        tiles = [_TILE.fullmatch(tile) for tile in rest.split("+")]
        if card is None or not colon or not all(tiles):
            raise ContractError(f"{where}{text!r} in {value!r} is no card with tiles")
        number, numbers = int(card[1]), tuple(int(tile[1]) for tile in tiles if tile)
        if number in found or number not in cards or len(set(numbers)) != len(numbers):
            raise ContractError(
                f"{where}{text!r} in {value!r} does not match the container's cards {tuple(cards)}"
            )
        found[number] = numbers
    return found
