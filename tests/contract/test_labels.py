"""Node labels: what is written is what readers expect byte for byte, and reads back as it was meant."""

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from labeler.contract import keys
from labeler.contract.errors import ContractError
from labeler.contract.label_codecs import (
    NodeTopology,
    XeLink,
    decode_cards,
    decode_numa_map,
    decode_pci_groups,
    decode_topology,
    decode_xe_links,
    encode_cards,
    encode_numa_map,
    encode_pci_groups,
    encode_topology,
    encode_xe_links,
)
from labeler.contract.legal_values import is_legal_value, legal_value, readable_value
from labeler.contract.split import join_label, split_label, split_value

CARD = st.integers(0, 999)
CARDS = st.sets(CARD, max_size=80)
NUMBERS = keys.GPU_NUMBERS_LABEL


# --- splitting ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "chunks"),
    [
        ("", ("",)),
        ("a" * 63, ("a" * 63,)),
        ("a" * 64, ("a" * 63, "Za")),
        ("a" * 62 + ".b", ("a" * 62, "Z.b")),
        ("a" * 63 + "b" * 62, ("a" * 63, "Z" + "b" * 62)),
        ("a" * 63 + "b" * 63, ("a" * 63, "Z" + "b" * 62, "Zb")),
        ("a" * 60 + "....b", ("a" * 60, "Z....b")),
        ("a" * 62 + "_", ("a" * 62 + "_",)),
    ],
    ids=[
        "empty",
        "fits",
        "one too long",
        "cut before the dot",
        "second chunk full",
        "three chunks",
        "several dots at the cut",
        "a value that fits is left as it is",
    ],
)
def test_a_value_is_cut_after_its_last_letter_or_digit(value: str, chunks: tuple[str, ...]) -> None:
    assert split_value(value) == chunks


def test_a_value_without_a_place_to_cut_is_refused() -> None:
    with pytest.raises(ContractError, match="no letter or digit"):
        split_value("." * 64 + "a")


@given(st.text("019aZ._-", max_size=400))
def test_every_value_that_can_be_split_is_read_back_whole(value: str) -> None:
    try:
        labels = split_label("key", value)
    except ContractError:
        assume(False)
    assert join_label(labels, "key") == value
    assert all(len(chunk) <= 63 for chunk in labels.values())


@given(CARDS.filter(bool))
def test_every_chunk_of_card_numbers_is_a_legal_label_value(cards: set[int]) -> None:
    assert all(is_legal_value(value) for value in encode_cards(cards).values())


def test_a_number_that_was_cut_in_two_is_read_as_one() -> None:
    assert join_label({"k": "foo", "k2": "Zbar", "k3": "Zber"}, "k") == "foobarber"
    numbers = ".".join(map(str, range(26)))
    labels = split_label(NUMBERS, numbers)
    assert labels[f"{NUMBERS}2"] == "Z4.25"
    assert decode_cards(labels) == tuple(range(26))


def test_a_continuation_without_its_mark_makes_the_whole_value_unreadable() -> None:
    with pytest.raises(ContractError, match=r"k3.*does not open with 'Z'"):
        join_label({"k": "a", "k2": "Zb", "k3": "c"}, "k")


def test_a_gap_in_the_continuations_ends_the_value() -> None:
    assert join_label({"k": "a", "k3": "Zc"}, "k") == "a"


# --- cards ----------------------------------------------------------------------------------------


def test_twenty_seven_cards_are_written_as_the_device_plugin_writes_them() -> None:
    assert encode_cards(range(27)) == {
        "gpu.intel.com/cards": "card0.card1.card10.card11.card12.card13.card14.card15.card16.ca",
        "gpu.intel.com/gpu-numbers": "0.1.10.11.12.13.14.15.16.17.18.19.2.20.21.22.23.24.25.26.3.4.5",
        "gpu.intel.com/gpu-numbers2": "Z.6.7.8.9",
    }


def test_no_cards_are_no_labels() -> None:
    assert encode_cards([]) == {}
    assert decode_cards({}) == ()


@given(CARDS)
def test_cards_read_back_as_they_were_written_in_ascending_order(cards: set[int]) -> None:
    assert decode_cards(encode_cards(cards)) == tuple(sorted(cards))


@pytest.mark.parametrize(
    ("labels", "cards"),
    [
        ({NUMBERS: "0.1.2", f"{NUMBERS}2": "Z.5.8.9", f"{NUMBERS}3": "Z.10"}, (0, 1, 2, 5, 8, 9, 10)),
        ({NUMBERS: "0.1.10.2"}, (0, 1, 2, 10)),
        ({keys.CARDS_LABEL: "card1.card3"}, (1, 3)),
        ({NUMBERS: "", keys.CARDS_LABEL: "card1"}, (1,)),
        ({NUMBERS: "0.1", f"{NUMBERS}2": ".2", keys.CARDS_LABEL: "card0.card1.card2"}, (0, 1, 2)),
        ({NUMBERS: "0", keys.CARDS_LABEL: "card7"}, (0,)),
    ],
    ids=["continued", "directory order", "old label alone", "empty numbers", "broken chain", "numbers win"],
)
def test_cards_are_found_in_every_form_that_they_are_written(
    labels: dict[str, str], cards: tuple[int, ...]
) -> None:
    assert decode_cards(labels) == cards


def test_a_full_old_label_never_yields_a_card_cut_out_of_another_one() -> None:
    names = [f"card{number}" for number in range(100, 120)]
    full = ".".join(names)[:63]
    assert full.endswith("card107")  # happens to be whole, which its reader cannot know
    assert decode_cards({keys.CARDS_LABEL: full}) == tuple(range(100, 107))
    cut_short = {keys.CARDS_LABEL: encode_cards(range(27))[keys.CARDS_LABEL]}
    assert decode_cards(cut_short) == (0, 1, *range(10, 17))


@pytest.mark.parametrize(
    "labels",
    [
        {NUMBERS: "0.x"},
        {NUMBERS: "0..1"},
        {NUMBERS: "0.1."},
        {NUMBERS: "00"},
        {NUMBERS: "1.1"},
        {NUMBERS: "-1"},
        {NUMBERS: "٣"},
        {NUMBERS: "0", f"{NUMBERS}2": ".1"},
        {keys.CARDS_LABEL: "card0.gpu1"},
        {keys.CARDS_LABEL: "card0.card"},
        {keys.CARDS_LABEL: "card0.card0"},
    ],
    ids=lambda labels: " ".join(labels.values()),
)
def test_text_that_names_no_cards_is_an_error_that_quotes_it(labels: dict[str, str]) -> None:
    with pytest.raises(ContractError, match=r"label gpu\.intel\.com/.*") as error:
        decode_cards(labels)
    assert any(value in str(error.value) for value in labels.values())


# --- where the cards sit --------------------------------------------------------------------------


@given(st.dictionaries(CARD, st.integers(0, 40), max_size=60))
def test_a_numa_map_reads_back_as_it_was_written(node_of_card: dict[int, int]) -> None:
    groups: dict[int, list[int]] = {}
    for card, node in node_of_card.items():
        groups.setdefault(node, []).append(card)
    expected = {node: tuple(sorted(cards)) for node, cards in groups.items()}
    assert decode_numa_map(encode_numa_map(groups)) == expected


def test_a_numa_map_orders_nodes_by_number_and_cards_as_a_directory() -> None:
    assert encode_numa_map({10: [3], 2: [4], 0: [10, 1, 0]}) == {keys.NUMA_MAP_LABEL: "0-0.1.10_2-4_10-3"}


@pytest.mark.parametrize("value", ["0-0_1", "0", "-0", "0-0_0-1", "0-0_1-0", "0-", "a-1", "0-0__1-1"])
def test_a_malformed_numa_map_is_an_error(value: str) -> None:
    with pytest.raises(ContractError, match="numa-gpu-map"):
        decode_numa_map({keys.NUMA_MAP_LABEL: value})


@given(st.lists(CARD, unique=True, max_size=60), st.data())
def test_pci_groups_read_back_as_they_were_written(cards: list[int], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(cards)), max_size=8)) | {0, len(cards)})
    groups = [cards[a:b] for a, b in pairwise(cuts) if cards[a:b]]
    assert decode_pci_groups(encode_pci_groups(groups)) == tuple(tuple(sorted(group)) for group in groups)


def test_continued_pci_groups_are_read_as_upstream_tests_have_them() -> None:
    key = keys.PCI_GROUPS_LABEL
    labels = {key: "0.1_2.3.4", f"{key}2": "Z_5.6_7.8_11.12", f"{key}3": "Z_9.10"}
    assert decode_pci_groups(labels) == ((0, 1), (2, 3, 4), (5, 6), (7, 8), (11, 12), (9, 10))


@pytest.mark.parametrize("value", ["0.1_1", "foobar", "0__1", "_0"])
def test_malformed_pci_groups_are_an_error(value: str) -> None:
    with pytest.raises(ContractError, match="pci-groups"):
        decode_pci_groups({keys.PCI_GROUPS_LABEL: value})


LINKS = st.builds(XeLink, *[st.integers(0, 20)] * 4).filter(
    lambda link: (link.device, link.tile) < (link.other_device, link.other_tile)
)


@given(st.sets(LINKS, max_size=40))
def test_links_read_back_as_they_were_written(links: set[XeLink]) -> None:
    assert decode_xe_links(encode_xe_links(links)) == tuple(sorted(links))


def test_a_link_is_written_once_with_the_lower_device_first() -> None:
    links = [XeLink(1, 0, 0, 0), XeLink(0, 0, 1, 0), XeLink(0, 1, 1, 1)]
    assert encode_xe_links(links) == {keys.XE_LINKS_LABEL: "0.0-1.0_0.1-1.1"}


def test_a_node_without_links_has_an_empty_label() -> None:
    assert encode_xe_links([]) == {keys.XE_LINKS_LABEL: ""}
    assert decode_xe_links({keys.XE_LINKS_LABEL: ""}) == decode_xe_links({}) == ()


@pytest.mark.parametrize("value", ["0.0-1", "0.0_1.0", "foobar", "0.0-1.0_", "0.0-1.0-2.0"])
def test_a_malformed_link_is_an_error(value: str) -> None:
    with pytest.raises(ContractError, match="xe-links"):
        decode_xe_links({keys.XE_LINKS_LABEL: value})


# --- topology -------------------------------------------------------------------------------------


def test_a_place_reads_back_as_it_was_written() -> None:
    labels = encode_topology(("c", "r", "h"))
    assert labels == {
        "topology.gke.io/cluster": "c",
        "topology.gke.io/rack": "r",
        "topology.gke.io/host": "h",
    }
    assert decode_topology(labels) == NodeTopology(keys.PRERELEASE_TOPOLOGY, ("c", "r", "h"))


@pytest.mark.promise("W14")
def test_the_first_complete_family_has_a_nodes_place() -> None:
    both = encode_topology(("c", "r", "h")) | encode_topology(("b", "s", "x"), keys.GCE_TOPOLOGY)
    assert decode_topology(both) == NodeTopology(keys.GCE_TOPOLOGY, ("b", "s", "x"))
    del both[keys.GCE_TOPOLOGY[1]]
    assert decode_topology(both) == NodeTopology(keys.PRERELEASE_TOPOLOGY, ("c", "r", "h"))


@pytest.mark.parametrize("level", range(3), ids=keys.LEVEL_NAMES)
@pytest.mark.parametrize("value", [None, ""], ids=["missing", "empty"])
def test_a_node_with_a_gap_has_no_place(level: int, value: str | None) -> None:
    labels = encode_topology(("c", "r", "h"))
    key = keys.PRERELEASE_TOPOLOGY[level]
    labels.pop(key)
    assert decode_topology(labels if value is None else labels | {key: value}) is None


@pytest.mark.parametrize("values", [("a", "b"), ("a", "b", "c", "d"), (), ("a", "", "c")], ids=str)
def test_a_place_of_another_depth_or_with_a_gap_is_not_written(values: tuple[str, ...]) -> None:
    with pytest.raises(ContractError):
        encode_topology(values)


# --- values ---------------------------------------------------------------------------------------


@given(st.text(max_size=120))
def test_any_text_becomes_a_legal_value_that_stays_the_same(text: str) -> None:
    for value in (legal_value(text), readable_value(text), readable_value(text, 20)):
        assert is_legal_value(value)
    assert legal_value(legal_value(text)) == legal_value(text)
    assert len(readable_value(text, 20)) <= 20
    assert readable_value(text) != ""


def test_a_legal_text_is_its_own_value_and_others_keep_apart() -> None:
    assert legal_value("4tjxbt4s6ua") == "4tjxbt4s6ua"
    assert len({legal_value(text) for text in ("rack 1", "rack.1", "rack/1", "rack 1 ")}) == 4


def test_an_illegal_text_becomes_the_beginning_of_its_digest() -> None:
    # printf 'rack 1' | sha256sum
    assert legal_value("rack 1") == "xde7370008042b60817acb1ccffc63b1d"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NVIDIA A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB"),
        ("Intel(R) Arc(TM) A770 Graphics", "Intel-R-Arc-TM-A770-Graphics"),
        ("[Max 1550]", "Max-1550"),
        ("Max_1550", "Max_1550"),
    ],
)
def test_a_model_keeps_a_name_that_people_can_type(name: str, value: str) -> None:
    assert readable_value(name) == value
