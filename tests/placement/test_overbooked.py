"""Cards on which running pods take more than there is."""

from dataclasses import replace

import pytest

from labeler.contract import keys
from webhook.placement.cards.state import overbooked_cards
from webhook.placement.model import Card, CardRequest, NodeInfo, Usage

MILLI, PLUGIN = keys.MILLICORES, keys.I915

NODE = NodeInfo(
    "n", cards=tuple(Card(f"card{number}", {PLUGIN: 2, MILLI: 1000}, tiles=2) for number in (0, 2, 10))
)


def use(card: str, milli: int, *tiles: int) -> Usage:
    return Usage({}, {card: {PLUGIN: 1, MILLI: milli}}, {card: frozenset(tiles)})


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        ([], []),
        ([use("card0", 600), use("card0", 400)], []),
        ([use("card0", 600), use("card0", 401)], ["card0"]),
        ([use("card0", 100)] * 3, ["card0"]),
        ([use("card0", 100, 0), use("card0", 100, 1)], []),
        ([use("card0", 100, 0), use("card0", 100, 0)], ["card0"]),
        ([use("card2", 100, 0), use("card0", 100, 0)], []),
        ([use("card1", 100)], ["card1"]),
        ([Usage({}, {}, {"card1": frozenset({0})})], ["card1"]),
        ([Usage({}, {"card0": {keys.MEMORY_MAX: 1}})], ["card0"]),
        ([use("card10", 1001), use("card2", 1001)], ["card2", "card10"]),
    ],
    ids=[
        "no pods",
        "a full card",
        "more than the card holds",
        "more pods than shares",
        "tiles of their own",
        "a tile taken twice",
        "the same tile number of two cards",
        "a card that is gone",
        "a tile of a card that is gone",
        "a resource that the card does not have",
        "in the order of numbers",
    ],
)
def test_cards_that_are_taken_beyond_what_they_hold_are_named(
    usages: list[Usage], expected: list[str]
) -> None:
    assert overbooked_cards(NODE, usages) == expected


@pytest.mark.parametrize(
    "usage",
    [Usage({}, {"card9": {}}, {"card9": frozenset()}), Usage({}, {"card9": {PLUGIN: 0}})],
    ids=["an empty entry", "nothing of it"],
)
def test_a_pod_that_names_a_card_but_takes_nothing_of_it_overbooks_nothing(usage: Usage) -> None:
    assert overbooked_cards(NODE, [usage]) == []


@pytest.mark.parametrize(
    ("reported", "expected"),
    [({"u": ("card2",)}, ["card2"]), ({"u": ("card0",)}, []), ({}, [])],
    ids=["on the card of another", "on a card of its own", "on a card that is not known"],
)
def test_a_pod_for_which_nobody_chose_a_card_counts_on_the_card_that_the_node_reports(
    reported: dict[str, tuple[str, ...]], expected: list[str]
) -> None:
    other = Usage({}, uid="u", unmanaged=(CardRequest(1, ((PLUGIN, 1), (MILLI, 600))),))
    assert overbooked_cards(replace(NODE, unmanaged=reported), [other, use("card2", 600)]) == expected
