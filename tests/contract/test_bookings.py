"""What a pod's card annotations book, whichever program wrote them: cards, tiles and time each for itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from labeler.contract.annotations import SlotCard, Slots, annotated_cards, annotated_tiles, encode_allocation

CARDS, TILES, TIME = keys.GAS_CARDS_ANNOTATION, keys.GAS_TILES_ANNOTATION, keys.GAS_TIMESTAMP_ANNOTATION
NOW = 1_764_000_000_000_000_000


def tiled(slots: list[dict[int, set[int]]]) -> Slots:
    return tuple(tuple(SlotCard(card, tuple(sorted(slot[card]))) for card in sorted(slot)) for slot in slots)


_slot = st.dictionaries(st.integers(0, 20), st.sets(st.integers(0, 8), min_size=1), max_size=4)


@given(st.lists(_slot, min_size=1, max_size=4))
def test_what_we_write_reserves_what_it_names(slots: list[dict[int, set[int]]]) -> None:
    texts = encode_allocation(tiled(slots), NOW)
    assert annotated_cards(texts) == tuple(tuple(sorted(slot)) for slot in slots)
    tiles: dict[int, frozenset[int]] = {}
    for slot in slots:
        for card, own in slot.items():
            tiles[card] = tiles.get(card, frozenset()) | frozenset(own)
    assert annotated_tiles(texts) == tiles


@given(st.text(alphabet="card:gt0123456789+|, x", max_size=40), st.text(max_size=20))
def test_no_tiles_and_no_time_unbook_cards(tiles: str, time: str) -> None:
    assert annotated_cards({CARDS: "card0||card1,card2", TILES: tiles, TIME: time}) == ((0,), (), (1, 2))


@given(st.text(alphabet="card,|0123456789 x", max_size=40), st.text(max_size=20))
def test_no_cards_and_no_time_unbook_tiles(cards: str, time: str) -> None:
    assert annotated_tiles({TILES: "card1:gt0+gt2", CARDS: cards, TIME: time}) == {1: {0, 2}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("card0,card1", ((0, 1),)),
        ("|card0|", ((), (0,), ())),
        ("card2,card1", ((2, 1),)),
        ("card0, card1", ((0, None),)),
        ("card0,", ((0, None),)),
        ("card0,card0", ((0, 0),)),
        ("card00", ((None,),)),
        ("card0", ((0,),)),
        ("card0|card1", ((0,), (1,))),
    ],
)
def test_cards_are_read_name_by_name(value: str, expected: tuple[tuple[int | None, ...], ...]) -> None:
    assert annotated_cards({CARDS: value}) == expected


def test_without_the_annotation_no_card_is_reserved() -> None:
    assert annotated_cards({TILES: "card0:gt0", TIME: str(NOW)}) == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("|", {}),
        (",", {}),
        ("card0:gt1,", {0: {1}}),
        ("card0:", {}),
        ("card0:gt0+gtX+gt3", {0: {0, 3}}),
        ("card0:gt1+gt4|card1:gt2||card4:gt0,card6:gt99", {0: {1, 4}, 1: {2}, 4: {0}, 6: {99}}),
        ("card0:gt1|card0:gt2", {0: {1, 2}}),
        ("cardX:gt1,card1:gt0", {1: {0}}),
        ("card1:6:gt4", {}),
        ("card3", {}),
    ],
)
def test_tiles_are_read_piece_by_piece(value: str, expected: dict[int, set[int]]) -> None:
    assert annotated_tiles({TILES: value}) == expected
