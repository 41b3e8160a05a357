"""ZE_AFFINITY_MASK: which tiles a container may use, in the numbers by which Level Zero counts. Pure.

Level Zero numbers the GPUs that it finds in the container by PCI address (domain, bus, device, function),
not by card number and not in the annotation's order: if it is set by ZE_ENABLE_PCI_ID_DEVICE_ORDER.
Otherwise Intel's compute-runtime puts integrated GPUs last, or keeps the order in which it found them.

In the hierarchy COMPOSITE a tile is ``device.tile``; in FLAT and COMBINED all tiles of all GPUs are numbered
through. ZE_FLAT_DEVICE_HIERARCHY decides which one applies; its default differs between GPUs; so it is
set together with the mask.
https://oneapi-src.github.io/level-zero-spec/level-zero/latest/core/PROG.html#affinity-mask
"""

from collections.abc import Iterable, Mapping
from typing import Final

from labeler.allocator.values import LocalCard, Refusal

AFFINITY_MASK: Final = "ZE_AFFINITY_MASK"
PCI_ORDER: Final = "ZE_ENABLE_PCI_ID_DEVICE_ORDER"
HIERARCHY: Final = "ZE_FLAT_DEVICE_HIERARCHY"
COMPOSITE: Final = "COMPOSITE"
FLAT: Final = "FLAT"
HIERARCHIES: Final = (COMPOSITE, FLAT, "COMBINED")
UNKNOWN: Final = "?"
"""A hierarchy that the container's spec takes from elsewhere."""


def environment(
    given: Mapping[LocalCard, tuple[int, ...]],
    visible: Iterable[LocalCard],
    hierarchy: str | None,
    masked: bool = False,
) -> dict[str, str]:
    """The environment that Level Zero needs; none where the container sees just its cards, and all of each.

    given: card -> its tiles, () for all of them. visible: the cards whose device files the container has.
    hierarchy: the value in the container's own spec, which overrides what is set here. masked: it sets a mask
    of its own. Raises Refusal for that, and where the spec takes the hierarchy from elsewhere, because a mask
    could then mean either.
    """
    shown = in_level_zero_order({*visible, *given})
    tiled = any(tiles and card.tiles > 1 for card, tiles in given.items())
    if not tiled and set(shown) == set(given):
        return {}
    if hierarchy == UNKNOWN:
        raise Refusal(
            f"its variable {HIERARCHY} may come from elsewhere (valueFrom, envFrom, another variable), so "
            "that a mask of tiles could mean others than were chosen; write its value into the spec"
        )
    if masked:
        raise Refusal(
            f"its spec sets {AFFINITY_MASK} itself, which goes before what was chosen; leave it out"
        )
    mode = hierarchy if hierarchy in HIERARCHIES else FLAT
    return {AFFINITY_MASK: mask(given, shown, mode), HIERARCHY: mode, PCI_ORDER: "1"}


def mask(given: Mapping[LocalCard, tuple[int, ...]], shown: list[LocalCard], mode: str) -> str:
    """The mask's text; shown: the cards in the order in which Level Zero numbers them."""
    entries: list[str] = []
    before = 0
    for position, card in enumerate(shown):
        if card in given:
            tiles = sorted(given[card])
            if mode != COMPOSITE:
                entries += [str(before + tile) for tile in tiles or range(card.tiles)]
            elif tiles and card.tiles > 1:
                entries += [f"{position}.{tile}" for tile in tiles]
            else:
                entries.append(str(position))
        before += card.tiles
    return ",".join(entries)


def in_level_zero_order(cards: Iterable[LocalCard]) -> list[LocalCard]:
    """The cards as Level Zero numbers them; cards of unknown address by their numbers, last."""
    return sorted(cards, key=lambda card: (not card.pci_address, _address(card.pci_address), card.number))


def _address(text: str) -> tuple[int, ...]:
    """0000:3a:00.1 as numbers."""
    return tuple(int(part, 16) for part in text.replace(".", ":").split(":")) if text else ()
