"""What the allocator writes on its Node reads back as it was written, and nothing else reads as that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from labeler.contract.errors import ContractError
from labeler.contract.offers import (
    MOST_CHARACTERS,
    CardOffer,
    decode_offers,
    decode_unmanaged,
    encode_offers,
    encode_unmanaged,
    identifies_pods,
)

OFFERS = st.builds(CardOffer, st.sampled_from([keys.I915, keys.XE]), st.integers(0, 1000))
CARDS = st.integers(0, 10**9 - 1)


@pytest.mark.promise("O46")
@given(st.dictionaries(CARDS, OFFERS, max_size=20))
def test_the_cards_that_are_offered_read_back_as_they_were_written(offers: dict[int, CardOffer]) -> None:
    assert decode_offers({keys.OFFERED_CARDS_ANNOTATION: encode_offers(offers)}) == offers


@given(st.dictionaries(st.uuids().map(str), st.lists(CARDS, max_size=5).map(tuple), max_size=20))
def test_the_cards_of_pods_read_back_in_their_order(allocated: dict[str, tuple[int, ...]]) -> None:
    read = decode_unmanaged({keys.UNPLANNED_CARDS_ANNOTATION: encode_unmanaged(allocated)})
    assert read == {uid: cards for uid, cards in allocated.items() if cards}


def test_no_more_is_written_than_the_sweeper_reads() -> None:
    text = encode_unmanaged({f"{number:036}": (1, 2, 3) for number in range(1000)})
    assert MOST_CHARACTERS - 100 < len(text) <= MOST_CHARACTERS
    assert len(decode_unmanaged({keys.UNPLANNED_CARDS_ANNOTATION: text})) > 200


def test_no_allocator_is_something_else_than_one_without_cards() -> None:
    assert decode_offers({}) is None
    assert decode_offers({keys.OFFERED_CARDS_ANNOTATION: ""}) == {}
    assert decode_unmanaged({}) == {}


@pytest.mark.parametrize("text", ["", "false", "True", "1", " true", "yes"])
def test_only_one_value_means_that_the_allocator_identifies_pods(text: str) -> None:
    """A reader that guesses must never be taken for one that knows."""
    assert identifies_pods({keys.IDENTIFIES_PODS_ANNOTATION: keys.IDENTIFIED})
    assert not identifies_pods({keys.IDENTIFIES_PODS_ANNOTATION: text})
    assert not identifies_pods({})


@pytest.mark.parametrize("text", ["card0", "card0=x", "card00=x:1", "card0=x:1,card0=x:1", "card0=x:-1", ","])
def test_an_ambiguous_offer_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match=keys.OFFERED_CARDS_ANNOTATION):
        decode_offers({keys.OFFERED_CARDS_ANNOTATION: text})


@pytest.mark.parametrize("text", ["u", "u=", "u=card", "u=card00", "u=card0+", "u=card0,,v=card1"])
def test_ambiguous_cards_of_pods_are_refused(text: str) -> None:
    with pytest.raises(ContractError, match=keys.UNPLANNED_CARDS_ANNOTATION):
        decode_unmanaged({keys.UNPLANNED_CARDS_ANNOTATION: text})
