"""Questions about cards that are hard to decide: they end, and what they leave open is not called proven.

The sizes are shares of a card in thousandths; steps are counted, not seconds.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import pytest

from labeler.contract import keys
from tests.placement.cards import feasible
from webhook.placement import (
    Assignment,
    Card,
    CardRequest,
    Gang,
    Member,
    NodeInfo,
    NoFit,
    PodClass,
    Snapshot,
    Usage,
    check,
    place,
)
from webhook.placement.cards import packing
from webhook.placement.cards.choose import choose, count_slots, fits
from webhook.placement.cards.state import CardState, card_state

MILLI, PLUGIN, MEMORY = keys.MILLICORES, keys.I915, keys.MEMORY_MAX
CAPACITY = {PLUGIN: 10, MILLI: 1000, MEMORY: 16_000}


def cards(count: int, used: int = 0) -> list[CardState]:
    """Cards of which each has `used` thousandths less free than the one before."""
    return [
        card_state(Card(f"card{n}", CAPACITY), {MILLI: used * n, MEMORY: used * n * 14}, frozenset())
        for n in range(count)
    ]


def pod(sizes: Sequence[int], memory: Sequence[int] = (), count: int = 1) -> PodClass:
    """One container for each size."""
    amounts = [{PLUGIN: 1, MILLI: size} for size in sizes]
    for request, amount in zip(amounts, memory, strict=False):
        request[MEMORY] = amount
    requests = tuple(CardRequest(count, tuple(sorted(each.items()))) for each in amounts)
    sums = {PLUGIN: len(sizes) * count, MILLI: sum(sizes) * count}
    return PodClass((("pods", 1), *sorted(sums.items())), cards=requests)


ABOVE_A_THIRD = pod([334 + 3 * n for n in range(17)])
HONEST = pod([300, 350, 450], [3000, 4000, 6000])


def endless(seed: int = 0) -> PodClass:
    """Twenty-four different shares that nearly fill eight cards."""
    dice = random.Random(seed)
    sizes = [dice.randint(251, 420) for _ in range(24)]
    return pod([size * 7995 // sum(sizes) for size in sizes])


ENDLESS = endless()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of each question that is decided in the test, not known from before."""
    counted: list[int] = []
    decide = packing.pack.__wrapped__

    @lru_cache
    def pack(
        bins: tuple[packing.Bin, ...], classes: tuple[packing.DemandClass, ...], most_steps: int
    ) -> packing.Answer:
        answer = decide(bins, classes, most_steps)
        counted.append(answer.steps)
        return answer

    monkeypatch.setattr(packing, "pack", pack)
    packing.most.cache_clear()
    return counted


@pytest.mark.promise("S49")
@pytest.mark.parametrize("seed", range(6))
def test_a_question_ends_within_its_steps_whatever_is_asked(steps: list[int], seed: int) -> None:
    fits(cards(8), [endless(seed)])
    assert len(steps) == 1
    assert steps[0] <= packing.STEPS + 1


def test_what_is_not_decided_counts_as_not_fitting_and_is_reported_each_time() -> None:
    for _ in range(2):
        assert fits(cards(8), [ENDLESS]) is None
        assert count_slots(cards(8), ENDLESS, 5) == (0, False)
        assert choose(cards(8), [ENDLESS]) == (None, False)


def test_more_containers_above_a_third_of_a_card_than_cards_hold_are_refused_at_once(
    steps: list[int],
) -> None:
    assert fits(cards(8), [ABOVE_A_THIRD]) is False
    assert steps == [1]


@pytest.mark.parametrize(("used", "expected"), [(0, 6), (37, 6), (60, 5)])
def test_how_many_pods_of_a_few_different_containers_fit_is_decided(used: int, expected: int) -> None:
    """One more would exceed the sums where cards are in use. Whole cards hold three containers each, but only
    two beside one of 450: seven of those are on four cards at least, which leaves 8 + 12 places for 21.
    """
    assert count_slots(cards(8, used), HONEST, 100) == (expected, True)


@pytest.mark.parametrize("count", [6, 7], ids=["as many as fit", "one more"])
def test_pods_of_a_few_different_containers_are_decided_together(count: int) -> None:
    assert fits(cards(8), [HONEST] * count) is (count == 6)


@pytest.mark.parametrize("seed", range(40))
def test_packing_agrees_with_trying_everything(seed: int) -> None:
    dice = random.Random(seed)
    states = [
        card_state(Card(f"card{n}", CAPACITY), {MILLI: dice.randrange(0, 500, 50)}, frozenset())
        for n in range(3)
    ]
    pods = [
        PodClass(
            (),
            cards=tuple(
                CardRequest(dice.choice((1, 1, 2, 3)), ((PLUGIN, 1), (MILLI, dice.randrange(50, 500, 50))))
                for _ in range(dice.randint(1, 3))
            ),
            denied_cards=dice.choice(((), ("card1",))),
        )
        for _ in range(2)
    ]
    assert fits(states, pods) is feasible(states, pods)


@pytest.mark.parametrize(("limit", "exact"), [(1, True), (2, False)])
def test_a_count_that_ends_early_is_exact_only_where_it_reached_its_limit(limit: int, exact: bool) -> None:
    card, demand = packing.Bin((10,), (True,)), packing.DemandClass((1,), 1, 1)
    assert packing.most((card,), (demand,), limit, longest=0)[:2] == (1, exact)


def test_nodes_with_the_same_cards_free_are_decided_once(steps: list[int]) -> None:
    for order in (cards(8, 37), cards(8, 37)[::-1]):
        assert count_slots(order, HONEST, 3).pods == 3
    assert len(steps) == 3


def test_a_search_for_linked_cards_ends_too() -> None:
    """Each container takes two linked cards, and all are linked."""
    links = {n: tuple((0, f"card{other}", 0) for other in range(n + 1, 16)) for n in range(16)}
    states = [card_state(Card(f"card{n}", CAPACITY, 2, links=links[n]), {}, frozenset()) for n in range(16)]
    pairs = tuple(replace(request, count=2) for request in ENDLESS.cards)
    assert fits(states, [PodClass((), cards=pairs, linked=True)]) is None


def test_more_different_containers_than_are_looked_into_count_as_not_fitting() -> None:
    states = [card_state(Card(f"card{n}", {PLUGIN: 100, MILLI: 10**6}), {}, frozenset()) for n in range(16)]
    assert fits(states, [pod(range(1, 1200))]) is None


def test_more_demands_than_python_may_descend_for_are_placed_all_the_same() -> None:
    states = [card_state(Card(f"card{n}", {PLUGIN: 500}), {}, frozenset()) for n in range(4)]
    many = PodClass((), cards=(CardRequest(1, ((PLUGIN, 1),)),) * 10)
    assert choose(states, [many] * 200).slots is not None
    assert count_slots(states, many, 300) == (200, True)


# --- what place makes of it --------------------------------------------------------------------------


def snapshot(*free: int) -> Snapshot:
    """Nodes of so many cards."""
    nodes = [
        NodeInfo(
            f"n{number}",
            allocatable={"pods": 110, PLUGIN: 10 * count, MILLI: 1000 * count},
            cards=tuple(Card(f"card{n}", CAPACITY) for n in range(count)),
        )
        for number, count in enumerate(free)
    ]
    return Snapshot.build(nodes, [("n0", Usage({}))])


def one(pod_class: PodClass) -> Gang:
    return Gang("g", (Member("p", None, pod_class),))


@pytest.mark.parametrize("again", [False, True], ids=["at first", "from what is known of the block"])
def test_that_a_gang_does_not_fit_is_not_proven_by_a_question_left_open(again: bool) -> None:
    cluster = snapshot(8, 8)
    for _ in range(1 + again):
        answer = place(one(ENDLESS), cluster)
    assert isinstance(answer, NoFit)
    assert not answer.proven
    assert "does not prove that none exists" in answer.sentence


def test_that_a_place_is_the_best_is_not_proven_by_a_question_left_open() -> None:
    cluster = snapshot(8, 16)
    answer = place(one(ENDLESS), cluster)
    assert isinstance(answer, Assignment)
    assert (answer.nodes, answer.proven) == ({"p": "n1"}, False)
    assert check(answer, one(ENDLESS), cluster) == []


@pytest.mark.parametrize("pod_class", [ABOVE_A_THIRD, HONEST], ids=["refused", "placed"])
def test_an_answer_whose_questions_were_all_decided_is_proven(pod_class: PodClass) -> None:
    assert place(one(pod_class), snapshot(8)).proven
