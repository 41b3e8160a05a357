"""ZE_AFFINITY_MASK, read as Level Zero reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.allocator.masks import environment
from labeler.allocator.values import LocalCard, Refusal


def card(number: int, tiles: int, bus: int | None = None) -> LocalCard:
    address = f"0000:{(bus if bus is not None else 0x10 + number):02x}:00.0"
    return LocalCard(
        number, "gpu.intel.com/i915", (f"/dev/dri/card{number}",), pci_address=address, tiles=tiles
    )


def mask(given_: dict[LocalCard, tuple[int, ...]], hierarchy: str | None) -> str:
    return environment(given_, (), hierarchy).get("ZE_AFFINITY_MASK", "")


# The table of Intel's device plugin (R9), its annotations as values.
@pytest.mark.parametrize(
    ("tiles", "given_", "hierarchy", "expected"),
    [
        (2, {0: (0, 1)}, "COMPOSITE", "0.0,0.1"),
        (5, {1: (3,), 2: (4,)}, "COMPOSITE", "0.3,1.4"),
        (4, {0: (0, 1), 1: (2, 3), 2: (2, 3)}, "COMPOSITE", "0.0,0.1,1.2,1.3,2.2,2.3"),
        (8, {1: (3,), 5: (1,)}, "FLAT", "3,9"),
        (2, {1: (1,), 2: (1,)}, "COMBINED", "1,3"),
        (5, {2: (4,)}, None, "4"),
        (3, {1: (1, 2), 2: (0,)}, "FLAT", "1,2,3"),
        (3, {1: (1, 2), 2: (0,)}, "sideways", "1,2,3"),
        (1, {1: (0,)}, None, ""),
    ],
)
def test_the_masks_of_intels_plugin(
    tiles: int, given_: dict[int, tuple[int, ...]], hierarchy: str | None, expected: str
) -> None:
    assert mask({card(number, tiles): of for number, of in given_.items()}, hierarchy) == expected


def test_a_container_that_sees_just_its_whole_cards_needs_no_mask() -> None:
    assert environment({card(0, 2): ()}, (), None) == {}


def test_the_hierarchy_is_set_with_the_mask_because_its_default_differs_between_gpus() -> None:
    assert environment({card(0, 2): (1,)}, (), None) == {
        "ZE_AFFINITY_MASK": "1",
        "ZE_FLAT_DEVICE_HIERARCHY": "FLAT",
        "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
    }


def test_positions_follow_pci_addresses_and_neither_card_numbers_nor_the_annotation() -> None:
    first, second = card(7, 2, bus=0x3A), card(1, 2, bus=0x9A)
    assert mask({second: (1,), first: (0,)}, "COMPOSITE") == "0.0,1.1"


def test_a_pci_domain_counts_before_the_bus() -> None:
    low = LocalCard(3, "gpu.intel.com/xe", (), pci_address="0000:ff:00.0", tiles=2)
    high = LocalCard(0, "gpu.intel.com/xe", (), pci_address="0001:01:00.0", tiles=2)
    assert mask({high: (1,), low: (0,)}, "COMPOSITE") == "0.0,1.1"


def test_a_card_without_tiles_beside_one_with_is_given_whole() -> None:
    assert mask({card(0, 2): (1,), card(1, 2): ()}, "COMPOSITE") == "0.1,1"
    assert mask({card(0, 2): (1,), card(1, 2): ()}, "FLAT") == "1,2,3"


def test_a_container_that_also_monitors_is_masked_to_its_own_cards() -> None:
    own, other = card(1, 2), card(0, 2)
    assert environment({own: ()}, [own, other], "COMPOSITE")["ZE_AFFINITY_MASK"] == "1"


@pytest.mark.promise("O45")
def test_a_hierarchy_from_elsewhere_is_refused_where_it_decides_which_tiles_are_meant() -> None:
    with pytest.raises(Refusal, match="ZE_FLAT_DEVICE_HIERARCHY may come from elsewhere"):
        environment({card(0, 2): (1,)}, (), "?")
    assert environment({card(0, 2): ()}, (), "?") == {}


def test_a_mask_of_the_containers_own_is_refused_where_it_would_replace_one_that_is_needed() -> None:
    with pytest.raises(Refusal, match="its spec sets ZE_AFFINITY_MASK itself"):
        environment({card(0, 2): (1,)}, (), None, masked=True)
    assert environment({card(0, 2): ()}, (), None, masked=True) == {}


@st.composite
def machines(draw: st.DrawFn) -> tuple[list[LocalCard], dict[LocalCard, tuple[int, ...]]]:
    """Cards on distinct buses in any order, and some of them given with some tiles."""
    buses = draw(st.lists(st.integers(0, 255), min_size=1, max_size=5, unique=True))
    cards = [card(number, draw(st.integers(1, 4)), bus) for number, bus in enumerate(buses)]
    chosen = draw(st.sets(st.sampled_from(cards), min_size=1))
    given_ = {
        each: tuple(sorted(draw(st.sets(st.integers(0, each.tiles - 1)))))
        for each in sorted(chosen, key=lambda each: each.number)
    }
    return cards, given_


def level_zero(shown: list[LocalCard], text: str, mode: str) -> set[tuple[int, int]]:
    """A plain reading of the mask: which (card, tile) remain visible, all of them without a mask."""
    devices = sorted(shown, key=lambda each: each.pci_address)
    every = [(each.number, tile) for each in devices for tile in range(each.tiles)]
    if not text:
        return set(every)
    found: set[tuple[int, int]] = set()
    for entry in text.split(","):
        if mode != "COMPOSITE":
            found.add(every[int(entry)])
        elif "." in entry:
            device, tile = entry.split(".")
            found.add((devices[int(device)].number, int(tile)))
        else:
            found |= {(devices[int(entry)].number, tile) for tile in range(devices[int(entry)].tiles)}
    return found


@given(machines(), st.sampled_from(["COMPOSITE", "FLAT", "COMBINED", None]), st.booleans())
def test_level_zero_shows_exactly_the_tiles_given(
    machine: tuple[list[LocalCard], dict[LocalCard, tuple[int, ...]]], hierarchy: str | None, monitors: bool
) -> None:
    cards, given_ = machine
    shown = cards if monitors else list(given_)
    found = environment(given_, shown, hierarchy)
    mode = found.get("ZE_FLAT_DEVICE_HIERARCHY", hierarchy or "FLAT")
    expected = {(each.number, tile) for each, tiles in given_.items() for tile in tiles or range(each.tiles)}
    assert level_zero(shown, found.get("ZE_AFFINITY_MASK", ""), mode) == expected
