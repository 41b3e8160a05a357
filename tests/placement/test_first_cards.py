"""The first cards that serve each pod: what is given is there, and what fits in this way is counted."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.placement.small import pod_class
from webhook.placement import Card, CardRequest, NodeInfo, PodClass, Slots, Snapshot, vector
from webhook.placement.capacity import card_steps
from webhook.placement.cards.choose import count_slots, fits
from webhook.placement.cards.first_cards import FirstCards, first_found, most_by_first_cards
from webhook.placement.cards.state import CardState, without

M = "m"


def drawn_cards(dice: random.Random, count: int) -> list[CardState]:
    """Cards in pairs of one NUMA node; some have tiles."""
    cards = tuple(
        Card(f"card{n}", {M: dice.choice((4, 10))}, tiles=dice.choice((0, 2)), numa=n // 2)
        for n in range(count)
    )
    node = NodeInfo("n", allocatable={M: 100}, cards=cards)
    return list(Snapshot.build([node], []).nodes["n"].cards)


def drawn_pod(dice: random.Random) -> PodClass:
    requests = [
        CardRequest(dice.choice((1, 1, 2)), vector({M: dice.choice((2, 3, 5))}), dice.choice((0, 0, 1)))
        for _ in range(dice.choice((1, 1, 2)))
    ]
    return replace(pod_class(1), cards=tuple(requests), single_numa=dice.random() < 0.5)


def left_by(states: Sequence[CardState], pods: Sequence[PodClass], slots: Sequence[Slots]) -> list[CardState]:
    """The cards once these pods have theirs."""
    taken: dict[str, Counter[str]] = {}
    tiles: dict[str, set[int]] = {}
    for pod, of_pod in zip(pods, slots, strict=True):
        for request, shares in zip(pod.cards, of_pod, strict=True):
            for share in shares:
                taken.setdefault(share.card, Counter()).update(dict(request.per_card))
                tiles.setdefault(share.card, set()).update(share.tiles)
    return [
        CardState(
            state.card,
            tuple((r, amount - taken[state.card.name][r]) for r, amount in state.free),
            without(state.tiles, tuple(tiles[state.card.name])),
        )
        if state.card.name in taken
        else state
        for state in states
    ]


@pytest.mark.parametrize("seed", range(100))
def test_pods_that_get_the_first_cards_have_cards_together(seed: int) -> None:
    dice = random.Random(seed)
    states, kinds = drawn_cards(dice, 4), [drawn_pod(dice) for _ in range(2)]
    cards, served = FirstCards(states), []
    for _ in range(6):
        pod = dice.choice(kinds)
        if (slots := cards.take(pod)) is not None:
            served.append((pod, slots))
    pods = [pod for pod, _ in served]
    assert fits(states, pods)
    left = left_by(states, pods, [slots for _, slots in served])
    assert all(amount >= 0 for state in left for _, amount in state.free)
    assert [state.tiles for state in left] == [state.tiles for state in cards.cards]
    found = first_found(states, pods)
    assert found is None or all(
        amount >= 0 for state in left_by(states, pods, found) for _, amount in state.free
    )


@pytest.mark.parametrize("seed", range(50))
def test_the_first_cards_serve_no_more_pods_than_fit(seed: int) -> None:
    dice = random.Random(seed)
    states, pod = drawn_cards(dice, 4), drawn_pod(dice)
    assert most_by_first_cards(states, pod, 20) <= count_slots(states, pod, 20).pods


def test_a_pod_that_finds_no_cards_takes_none() -> None:
    states = drawn_cards(random.Random(0), 2)
    cards = FirstCards(states)
    requests = (CardRequest(1, vector({M: 2})), CardRequest(1, vector({M: 99})))
    assert cards.take(replace(pod_class(1), cards=requests)) is None
    assert cards.cards == states


def test_pods_find_cards_in_one_order_of_their_classes_where_they_do_not_in_another() -> None:
    node = NodeInfo("n", allocatable={M: 12}, cards=(Card("a", {M: 4}), Card("b", {M: 8})))
    states = list(Snapshot.build([node], []).nodes["n"].cards)
    small, large = (replace(pod_class(1), cards=(CardRequest(1, vector({M: amount})),)) for amount in (4, 8))
    assert first_found(states, [small, large]) is not None
    large_first = NodeInfo("n", allocatable={M: 12}, cards=(Card("a", {M: 8}), Card("b", {M: 4})))
    states = list(Snapshot.build([large_first], []).nodes["n"].cards)
    assert FirstCards(states).take(small) is not None
    assert first_found(states, [small, large]) is not None


def test_a_node_whose_budget_ended_has_capacity_for_what_the_first_cards_serve() -> None:
    """Each node has its share of the steps where nodes differ in their cards; see capacity.card_steps."""
    states = drawn_cards(random.Random(3), 8)
    pod = replace(pod_class(1), cards=(CardRequest(2, vector({M: 2})),) * 2, single_numa=True)
    found = count_slots(states, pod, 20, longest=1)
    assert found.pods == most_by_first_cards(states, pod, 20) > 0
    assert not found.exact


def test_a_node_keeps_its_share_of_the_steps_when_one_more_node_differs_in_its_cards() -> None:
    """Capacities are cached by that share, so that those of other nodes stay valid."""
    pod = replace(pod_class(1), cards=(CardRequest(2, vector({M: 2})),) * 2, single_numa=True)

    def share(count: int) -> int:
        nodes = [NodeInfo(f"n{n}", cards=(Card("a", {M: n}), Card("b", {M: n}))) for n in range(count)]
        return card_steps([pod], Snapshot.build(nodes, []).blocks.values(), 500_000)

    assert share(300) == share(301)
