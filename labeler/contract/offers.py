"""Codec of what the allocator writes on its Node: which cards it hands out, who has cards without a plan, and
whether it knows which pod it serves.

::

    allocator.topogate.io/cards            card0=gpu.intel.com/i915:10,card1=gpu.intel.com/xe:0
    allocator.topogate.io/unplanned        8f14e45f-ceea-467f-9c1e-6f2b1a9d3c77=card1+card1+card0
    allocator.topogate.io/identifies-pods  true

The sweeper cannot know either by itself: labels name cards that are out of use as well, and no annotation of
a pod says what it was given by default.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from labeler.contract.errors import ContractError

MOST_CHARACTERS: Final = 15 * 1024
"""Of the pods' cards: 250 pods with two cards each. Pods beyond are left out."""

_OFFER: Final = re.compile(r"card(0|[1-9][0-9]{0,8})=([a-z0-9./_-]+):(0|[1-9][0-9]{0,5})")
_CARDS_OF_POD: Final = re.compile(r"([A-Za-z0-9.-]+)=(card[0-9]+(?:\+card[0-9]+)*)")
_CARD: Final = re.compile(r"card(0|[1-9][0-9]{0,8})")


@dataclass(frozen=True)
class CardOffer:
    """How a card is handed out: by which resource, and to how many containers; 0 while it is out of use."""

    resource: str
    shares: int


def encode_offers(offers: Mapping[int, CardOffer]) -> str:
    """The cards of a node, by their numbers."""
    return ",".join(
        f"card{number}={offer.resource}:{offer.shares}" for number, offer in sorted(offers.items())
    )


def decode_offers(annotations: Mapping[str, str]) -> dict[int, CardOffer] | None:
    """The same; None where no allocator has written it. Raises ContractError."""
    text = annotations.get(keys.OFFERED_CARDS_ANNOTATION)
    if text is None:
        return None
    found: dict[int, CardOffer] = {}
    for part in text.split(",") if text else ():
        match = _OFFER.fullmatch(part)
        if match is None or int(match[1]) in found:
            raise ContractError(f"annotation {keys.OFFERED_CARDS_ANNOTATION}: {part!r} is no card's offer")
        found[int(match[1])] = CardOffer(match[2], int(match[3]))
    return found


def identifies_pods(annotations: Mapping[str, str]) -> bool:
    """Whether what hands out a node's cards knows which pod it serves; else it guesses by gas-ts.

    Only this one value counts: a reader that guesses must never be taken for one that knows.
    """
    return annotations.get(keys.IDENTIFIES_PODS_ANNOTATION) == keys.IDENTIFIED


def encode_unmanaged(cards_by_uid: Mapping[str, Sequence[int]]) -> str:
    """The cards of pods by uid, one for each device, in the order of their containers."""
    text = ""
    for uid, cards in sorted(cards_by_uid.items()):
        more = f"{uid}={'+'.join(f'card{card}' for card in cards)}"
        if cards and len(text) + 1 + len(more) <= MOST_CHARACTERS:
            text = f"{text},{more}" if text else more
    return text


def decode_unmanaged(annotations: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """The same; {} where nothing is written. Raises ContractError."""
    text = annotations.get(keys.UNPLANNED_CARDS_ANNOTATION, "")
    found: dict[str, tuple[int, ...]] = {}
    for part in text.split(",") if text else ():
        match = _CARDS_OF_POD.fullmatch(part)
        cards = [_CARD.fullmatch(name) for name in match[2].split("+")] if match else []
        if match is None or not all(cards):
            raise ContractError(
                f"annotation {keys.UNPLANNED_CARDS_ANNOTATION}: {part!r} names no cards of a pod"
            )
        found[match[1]] = tuple(int(card[1]) for card in cards if card)
    return found
