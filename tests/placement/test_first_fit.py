"""Sets of pods tried on a node's cards at once: what fits by first-fit fits, and it misses few that do."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from tests.placement.test_cards import feasible, pod_of, states_of
from webhook.placement import Card, CardWish, PodClass
from webhook.placement.cards.choose import choose, fits
from webhook.placement.cards.first_fit import first_fit
from webhook.placement.cards.state import CardState, card_state, is_searched, left_by
from webhook.placement.model import CardShare

MILLI, PLUGIN = keys.MILLICORES, keys.I915


def cards(count: int, numa: Sequence[int | None] = (), tiles: int = 0) -> list[CardState]:
    """Whole cards of a thousand."""
    places = list(numa) or [None] * count
    made = [Card(f"card{n}", {PLUGIN: 10, MILLI: 1000}, tiles, places[n]) for n in range(count)]
    return [card_state(card, {}, frozenset()) for card in made]


def share(amount: int, count: int = 1, tiles: int = 0, *, single_numa: bool = False) -> PodClass:
    wish = CardWish(count, ((PLUGIN, 1), (MILLI, amount)), tiles)
    return PodClass((), cards=(wish,), single_numa=single_numa)


def tried(states: Sequence[CardState], classes: Sequence[PodClass], *sets: tuple[int, ...]) -> list[bool]:
    found: list[bool] = first_fit(states, classes, np.array(sets)).tolist()
    return found


@given(st.integers(0, 10**9))
def test_what_fits_so_fits(seed: int) -> None:
    dice = random.Random(seed)
    states = states_of(dice)
    classes = [pod for pod in (pod_of(dice) for _ in range(3)) if not is_searched(pod)]
    sets = [tuple(dice.randint(0, 2) for _ in classes) for _ in range(4)]
    for counts, answer in zip(sets, tried(states, classes, *sets), strict=True):
        pods = [pod for pod, count in zip(classes, counts, strict=True) for _ in range(count)]
        assert feasible(states, pods) or not answer


def test_hardly_any_set_that_fits_is_missed() -> None:
    """Of sets drawn at random, on two to four cards in use, of up to four kinds."""
    dice = random.Random(0)
    missed = fitting = 0
    for _ in range(60):
        states = [card_state(s.card, {MILLI: dice.randint(0, 500)}, frozenset()) for s in cards(4)]
        classes = [share(dice.choice((130, 210, 270, 340, 450, 610))) for _ in range(4)]
        sets = [tuple(dice.randint(0, 4) for _ in classes) for _ in range(10)]
        for counts, answer in zip(sets, tried(states, classes, *sets), strict=True):
            pods = [pod for pod, count in zip(classes, counts, strict=True) for _ in range(count)]
            if fits(states, pods):
                fitting += 1
                missed += not answer
    assert fitting > 100
    assert missed <= fitting // 20


def test_large_shares_are_spread_where_side_by_side_they_leave_holes() -> None:
    """Two of 450 on one card leave 100 that nobody wants; each beside two of 270 fills its card."""
    assert tried(cards(2), [share(450), share(270)], (2, 4), (2, 5)) == [True, False]


@pytest.mark.parametrize(("pods", "expected"), [(2, True), (3, False)])
def test_a_pod_gets_different_cards(pods: int, expected: bool) -> None:
    """Three cards with room for two each hold six shares, but the third pod would get one card twice."""
    states = [*cards(2), *[card_state(cards(3)[2].card, {MILLI: 600}, frozenset())]]
    assert tried(states, [share(400, count=2)], (pods,)) == [expected]


def test_pods_of_a_single_numa_node_get_no_card_that_tells_none() -> None:
    pod = share(1000, single_numa=True)
    assert tried(cards(2, (0, None)), [pod], (1,), (2,)) == [True, False]
    assert tried(cards(2), [pod], (2,)) == [True]


def test_tiles_are_counted() -> None:
    assert tried(cards(1, tiles=2), [share(100, tiles=1)], (2,), (3,)) == [True, False]


def test_sets_without_pods_or_on_a_node_without_cards_are_told_apart() -> None:
    assert tried([], [share(100)], (0,), (1,)) == [True, False]
    assert tried(cards(1), [], ()) == [True]


def test_what_is_left_by_pods_with_cards_is_what_others_may_have() -> None:
    states = cards(2, tiles=2)
    pods = [share(300, tiles=1), share(1000)]
    slots = choose(states, pods).slots
    assert slots is not None
    left = left_by(states, pods, slots)
    assert sorted(dict(state.free)[MILLI] for state in left) == [0, 700]
    assert sum(len(state.tiles) for state in left) == 3
    assert [len(state.tiles) for state in states] == [2, 2]


def test_containers_that_share_a_card_are_both_taken_off_it() -> None:
    wishes = tuple(CardWish(1, ((MILLI, amount),)) for amount in (200, 300))
    pod = PodClass((), cards=wishes, same_card=(0, 1))
    slots = ((CardShare("card1"),), (CardShare("card1"),))
    left = left_by(cards(2), [pod], [slots])
    assert [dict(state.free)[MILLI] for state in left] == [1000, 500]
