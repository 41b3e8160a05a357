"""Whose turn it is: by decayed use and weights, with nobody kept waiting for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.extensions.fair_order.account_use import Book
from webhook.extensions.fair_order.scores import (
    FREE_ATTEMPTS,
    PROJECTED,
    Waiter,
    account_scores,
    sorted_waiters,
)
from webhook.policy.fair import FairOrder

FAIR = FairOrder(weights={"b": 3.0})


def waiter(
    name: str, *, cost: float = 8, tier: int = 0, created: int = 0, no_fit: bool = False, waited: float = 0
) -> Waiter[str]:
    """A gang of the account that its name begins with."""
    return Waiter(name, tier, name[0], f"{created:06}", name, cost, round(cost), no_fit, waited)


def order(
    *waiters: Waiter[str], use: dict[str, float] | None = None, fair: FairOrder = FAIR, free: int = 0
) -> list[str]:
    by_model = {account: {"m": amount} for account, amount in (use or {}).items()}
    known = account_scores(by_model, {}, {each.account for each in waiters}, fair)
    return [each.gang for each in sorted_waiters(waiters, known, fair, free)[0]]


@pytest.mark.promise("O60")
def test_who_has_used_less_for_its_weight_comes_first() -> None:
    waiters = waiter("a1"), waiter("b1", created=5), waiter("c1", created=9)
    assert order(*waiters, use={"a": 200, "b": 300, "c": 150}) == ["b1", "c1", "a1"]


@pytest.mark.promise("O60")
def test_priority_comes_before_any_use() -> None:
    assert order(waiter("a1", tier=1), waiter("b1"), use={"a": 1e9}) == ["a1", "b1"]


@pytest.mark.promise("R178", "O60")
def test_of_one_account_the_oldest_comes_first() -> None:
    assert order(waiter("a2", created=2), waiter("a1", created=1), waiter("a3", created=3)) == [
        "a1",
        "a2",
        "a3",
    ]


def test_without_any_use_gangs_of_weights_1_and_3_alternate_1_to_3() -> None:
    waiters = [waiter(f"{account}{number:02}", created=number) for number in range(12) for account in "ab"]
    first = [name[0] for name in order(*waiters)[:12]]
    assert (first.count("a"), first.count("b")) == (3, 9)


@pytest.mark.promise("O60")
def test_a_gang_of_many_gpus_moves_its_account_s_position_back_by_as_much() -> None:
    waiters = [
        waiter("a1", cost=64),
        waiter("a2", created=1),
        waiter("c1", created=2),
        waiter("c2", created=3),
    ]
    assert order(*waiters) == ["a1", "c1", "c2", "a2"]


@pytest.mark.promise("O65")
def test_what_an_account_has_now_counts_before_it_is_used() -> None:
    known = account_scores({}, {"a": {"m": 8}}, {"c"}, FAIR)
    assert known["a"].score == PROJECTED * FAIR.half_life_seconds * 8
    assert [
        each.gang for each in sorted_waiters([waiter("a1"), waiter("c1", created=9)], known, FAIR, 0)[0]
    ] == [
        "c1",
        "a1",
    ]


def test_a_gang_that_did_not_fit_does_not_move_its_account_back() -> None:
    large = waiter("a1", cost=512, no_fit=True)
    assert order(large, waiter("a2", created=1), waiter("c1", created=2)) == ["a1", "a2", "c1"]


def test_where_there_is_free_capacity_again_those_that_found_none_before_alternate() -> None:
    waiters = [waiter(f"{account}{number}", no_fit=True) for account in "ac" for number in range(3)]
    assert order(*waiters, free=8) == ["a0", "c0", "a1", "c1", "a2", "c2"]
    assert order(*waiters, free=7) == ["a0", "a1", "a2", "c0", "c1", "c2"]


def test_hundreds_of_gangs_that_never_fit_do_not_keep_others_behind_them() -> None:
    flood = [waiter(f"a{number:03}", cost=512, no_fit=True) for number in range(500)]
    assert order(*flood, waiter("c1", created=9)).index("c1") == FREE_ATTEMPTS + 1


def test_hundreds_of_gangs_without_gpus_do_not_keep_others_behind_them() -> None:
    flood = [waiter(f"a{number:03}", cost=0) for number in range(500)]
    assert order(*flood, waiter("c1", created=9)).index("c1") == 1


@pytest.mark.promise("O62")
def test_models_count_by_their_costs() -> None:
    fair = FairOrder(model_costs={"H100": 4.0})
    known = account_scores({"a": {"H100": 100.0}, "b": {"T4": 300.0}}, {}, (), fair)
    assert (known["a"].used, known["b"].used) == (400, 300)


LATE = FAIR.maximum_wait_seconds


@pytest.mark.promise("O74")
def test_the_oldest_that_did_not_fit_for_the_longest_wait_comes_before_all_positions() -> None:
    late = waiter("a1", no_fit=True, waited=LATE)
    assert order(waiter("c1"), late, waiter("a0", created=7), use={"a": 1e9}) == ["a1", "c1", "a0"]


def test_one_that_was_not_asked_about_or_does_not_wait_for_capacity_is_not_overdue() -> None:
    assert order(waiter("c1"), waiter("a1", waited=LATE), use={"a": 1e9}) == ["c1", "a1"]


@pytest.mark.promise("O74")
def test_an_account_that_was_served_as_overdue_waits_as_long_for_the_next() -> None:
    book = Book()
    late = [waiter(f"a{number}", no_fit=True, waited=LATE, created=number) for number in range(3)]

    def overdue(now: float) -> list[str]:
        known, served = account_scores({}, {}, {"a"}, FAIR), book.served_lately(now, FAIR)
        return [each.gang for each in sorted_waiters(late, known, FAIR, 0, served)[1]]

    assert overdue(0) == ["a0"]
    book = book.with_served("a", 0, FAIR)
    del late[0]
    assert overdue(LATE - 1) == []
    assert overdue(LATE) == ["a1"]


@st.composite
def crowds(draw: st.DrawFn) -> list[Waiter[str]]:
    return [
        waiter(
            f"{draw(st.sampled_from('abcde'))}{number}",
            cost=draw(st.sampled_from((0, 1, 8, 64))),
            tier=draw(st.integers(0, 2)),
            created=draw(st.integers(0, 9)),
            no_fit=draw(st.booleans()),
            waited=draw(st.sampled_from((0.0, LATE))),
        )
        for number in range(draw(st.integers(0, 30)))
    ]


@given(crowds(), st.dictionaries(st.sampled_from("abcde"), st.floats(0, 1e15)))
def test_every_gang_has_one_position_and_no_lower_priority_comes_before_a_higher(
    crowd: list[Waiter[str]], use: dict[str, float]
) -> None:
    names = order(*crowd, use=use)
    assert sorted(names) == sorted(each.gang for each in crowd)
    tiers = {each.gang: each.tier for each in crowd}
    assert [tiers[name] for name in names] == sorted(tiers.values(), reverse=True)
    assert names == order(*reversed(crowd), use=use), "whatever order they came in"


@pytest.mark.parametrize("account", ["a", "b"])
def test_more_use_never_brings_an_account_s_gang_forward(account: str) -> None:
    waiters = [waiter("a1"), waiter("b1"), waiter("c1")]
    places = [order(*waiters, use={account: 1000.0 * step}).index(f"{account}1") for step in range(6)]
    assert places == sorted(places)
