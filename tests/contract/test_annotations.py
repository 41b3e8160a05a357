"""A pod's cards in annotations: what the node's device plugin reads is what was meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from labeler.contract.annotations import (
    Allocation,
    SlotCard,
    Slots,
    decode_allocation,
    decode_card_slots,
    decode_tile_slots,
    decode_timestamp,
    encode_allocation,
    encode_card_slots,
    encode_tile_slots,
    encode_timestamp,
)
from labeler.contract.errors import ContractError

NOW = 1_764_000_000_000_000_000
TIMES = st.integers(10**18, 10**19 - 1)
NUMBERS = st.sets(st.integers(0, 40), min_size=1, max_size=6).map(sorted).map(tuple)


def slots_with(tiles: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[Slots]:
    slot = st.sets(st.integers(0, 40), max_size=6).flatmap(
        lambda cards: st.tuples(*(st.builds(SlotCard, st.just(card), tiles) for card in sorted(cards)))
    )
    return st.lists(slot, min_size=1, max_size=5).map(tuple)


@given(st.one_of(slots_with(st.just(())), slots_with(NUMBERS)), TIMES)
def test_an_allocation_reads_back_as_it_was_written(slots: Slots, time: int) -> None:
    written = encode_allocation(slots, time)
    assert decode_allocation(written, containers=len(slots)) == Allocation(slots, time)


@pytest.mark.promise("W24")
@pytest.mark.parametrize(
    ("slots", "cards", "tiles"),
    [
        (((SlotCard(0),),), "card0", ""),
        (((SlotCard(0), SlotCard(1)),), "card0,card1", ""),
        (((), (SlotCard(0),)), "|card0", ""),
        (((SlotCard(0),), (), (SlotCard(1),)), "card0||card1", ""),
        (((),), "", ""),
        (((), ()), "|", ""),
        (((SlotCard(0, (0, 1)),),), "card0", "card0:gt0+gt1"),
        (
            ((SlotCard(1, (3,)), SlotCard(5, (1,))), (), (SlotCard(10, (0,)),)),
            "card1,card5||card10",
            "card1:gt3,card5:gt1||card10:gt0",
        ),
    ],
    ids=["one", "two", "second", "gap", "none", "none of two", "tiles", "tiles with a gap"],
)
def test_slots_are_written_one_a_container(slots: Slots, cards: str, tiles: str) -> None:
    assert encode_card_slots(slots) == cards
    assert encode_tile_slots(slots) == tiles
    expected = {"gas-ts": str(NOW), "gas-container-cards": cards}
    assert encode_allocation(slots, NOW) == expected | ({"gas-container-tiles": tiles} if tiles else {})


@pytest.mark.parametrize(
    ("slots", "sentence"),
    [
        (((SlotCard(2), SlotCard(1)),), "ascending"),
        (((SlotCard(1), SlotCard(1)),), "ascending"),
        (((SlotCard(1, (1, 0)),),), "ascending"),
        (((SlotCard(1, (0,)),), (SlotCard(2),)), "card2 has no tiles"),
        (((SlotCard(1, (0,)), SlotCard(2)),), "card2 has no tiles"),
        (((SlotCard(-1),),), "below 0"),
        ((), "without containers"),
    ],
    ids=[
        "cards down",
        "card twice",
        "tiles down",
        "tiles in one slot only",
        "tiles on one card only",
        "negative",
        "empty",
    ],
)
def test_what_the_node_would_misread_is_not_written(slots: Slots, sentence: str) -> None:
    with pytest.raises(ContractError, match=sentence):
        encode_allocation(slots, NOW)


@pytest.mark.promise("W24")
@given(TIMES, TIMES)
def test_times_compare_as_texts_as_they_do_as_numbers(a: int, b: int) -> None:
    assert (encode_timestamp(a) < encode_timestamp(b)) == (a < b)
    assert decode_timestamp(encode_timestamp(a)) == a


@pytest.mark.promise("W24")
@pytest.mark.parametrize(
    "time", [0, -1, 10**18 - 1, 10**19], ids=["1970", "before", "18 digits", "20 digits"]
)
def test_a_time_of_another_width_is_not_written(time: int) -> None:
    with pytest.raises(ContractError, match="19 digits"):
        encode_timestamp(time)


@pytest.mark.parametrize("value", ["", "1", "0" * 19, "1" * 18, "1" * 20, " " + "1" * 18, "x" * 19, "١" * 19])
def test_a_time_of_another_width_is_not_read(value: str) -> None:
    with pytest.raises(ContractError, match="gas-ts"):
        decode_timestamp(value)


def test_a_pod_without_the_cards_annotation_has_no_allocation() -> None:
    assert decode_allocation({keys.GAS_TIMESTAMP_ANNOTATION: str(NOW)}) is None


def test_an_allocation_without_a_time_is_read() -> None:
    assert decode_allocation({keys.GAS_CARDS_ANNOTATION: "card3"}) == Allocation(((SlotCard(3),),), None)


@pytest.mark.parametrize("tiles", ["", "|", "||"])
def test_mere_separators_of_tiles_have_no_meaning(tiles: str) -> None:
    annotations = {keys.GAS_CARDS_ANNOTATION: "card0||card1", keys.GAS_TILES_ANNOTATION: tiles}
    assert decode_allocation(annotations) == Allocation(((SlotCard(0),), (), (SlotCard(1),)))


def test_cards_and_tiles_are_read_in_the_order_written_also_interleaved() -> None:
    annotations = {
        keys.GAS_CARDS_ANNOTATION: "card2,card1|card0",
        keys.GAS_TILES_ANNOTATION: "|card0:gt3+gt0",
    }
    assert decode_allocation(annotations) == Allocation(
        ((SlotCard(2), SlotCard(1)), (SlotCard(0, (3, 0)),)), None
    )


def test_tiles_of_several_slots_are_read_as_upstream_tests_have_them() -> None:
    value = "card0:gt1+gt4|card1:gt2||card4:gt0,card6:gt99"
    assert decode_tile_slots(value, [[0], [1], [], [4, 6]]) == (
        {0: (1, 4)}, {1: (2,)}, {}, {4: (0,), 6: (99,)},
    )  # fmt: skip


@pytest.mark.parametrize(
    "value",
    ["card0, card1", " card0", "card", "0", "card0,", ",", "card00", "card0,card0", "cardx", "card0|card1|x"],
)
def test_text_that_names_no_cards_is_an_error_that_quotes_it(value: str) -> None:
    with pytest.raises(ContractError, match="gas-container-cards") as error:
        decode_card_slots(value)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize(
    "value",
    [
        "card1",
        "card1:gtX",
        "card1:6:gt4",
        "card1:",
        ",",
        "card1:gt1,",
        "card2:gt0",
        "card1:gt0+gt0",
        "card1:gt0|",
    ],
)
def test_text_that_names_no_tiles_of_the_cards_is_an_error_that_quotes_it(value: str) -> None:
    with pytest.raises(ContractError, match="gas-container-tiles") as error:
        decode_tile_slots(value, [[1]])
    assert repr(value) in str(error.value)


def test_a_number_of_slots_other_than_that_of_containers_is_an_error() -> None:
    with pytest.raises(ContractError, match="has 2 slots, the pod has 1 containers"):
        decode_allocation({keys.GAS_CARDS_ANNOTATION: "card0|card1"}, containers=1)
