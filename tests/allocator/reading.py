"""An own, plain reading of what containers were started with and of what refusals say."""

from collections.abc import Mapping

from tests.allocator.site import CARDS


def visible(cards: set[int], environment: Mapping[str, str]) -> set[tuple[int, int]]:
    """Which tiles of these cards Level Zero shows, read plainly: devices by bus, then the mask."""
    devices = sorted((CARDS[number] for number in cards), key=lambda card: card.bus)
    every = [(card.number, tile) for card in devices for tile in range(card.tiles)]
    text = environment.get("ZE_AFFINITY_MASK", "")
    if not text:
        return set(every)
    if environment["ZE_FLAT_DEVICE_HIERARCHY"] != "COMPOSITE":
        return {every[int(entry)] for entry in text.split(",")}
    found: set[tuple[int, int]] = set()
    for entry in text.split(","):
        device, dot, tile = entry.partition(".")
        card = devices[int(device)]
        found |= {(card.number, int(tile))} if dot else {(card.number, t) for t in range(card.tiles)}
    return found


def kind_of(error: str) -> str:
    """What kind of refusal an error is, without names and numbers."""
    for words in (
        "none of them is guessed",
        "no device is free",
        "no healthy devices",
        "unregistered",
        "stopped",
    ):
        if words in error:
            return words
    return error[:160]
