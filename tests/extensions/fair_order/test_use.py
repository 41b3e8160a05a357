"""Decayed use: exact in any steps, and bounded whatever a clock does."""

from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webhook.extensions.fair_order.account_use import Book, Ran, Use, advanced, gained, window
from webhook.policy.fair import FairOrder

HOUR = 3600.0
FAIR = FairOrder(half_life_seconds=HOUR)


@pytest.mark.promise("O65")
def test_after_a_half_life_50_percent_is_left() -> None:
    assert advanced({"a": {"m": 1000.0}}, HOUR, {}, HOUR) == {"a": {"m": 500.0}}


def test_what_is_less_than_a_gpu_second_is_forgotten() -> None:
    assert advanced({"a": {"m": 1.9}, "b": {"m": 9.0}}, HOUR, {}, HOUR) == {"b": {"m": 4.5}}


@pytest.mark.promise("O79")
@given(st.lists(st.floats(0.1, 1e5), min_size=1, max_size=20), st.integers(1, 1000), st.floats(1, 1e6))
def test_steps_of_any_length_come_to_what_one_step_does(
    steps: list[float], gpus: int, half_life: float
) -> None:
    rates = {"a": {"m": gpus}}
    use: Use = {}
    for step in steps:
        use = advanced(use, step, rates, half_life)
    assert isclose(use["a"]["m"], gained(gpus, sum(steps), half_life), rel_tol=1e-9)


@pytest.mark.promise("O79")
@pytest.mark.parametrize("seconds", [1e4, 1e9, 1e18])
def test_in_all_eternity_use_comes_to_no_more_than_the_window(seconds: float) -> None:
    assert advanced({}, seconds, {"a": {"m": 8}}, HOUR)["a"]["m"] <= 8 * window(HOUR)


@pytest.mark.promise("O79")
@pytest.mark.parametrize("back", [-1.0, -1e9])
def test_a_clock_that_jumps_back_changes_nothing(back: float) -> None:
    book = Book({"a": {"m": 100.0}}, {"a": {"m": 8}}, at=50.0)
    book = book.with_rates(50.0 + back, {"a": {"m": 8}}, FAIR)
    assert book.use == {"a": {"m": 100.0}}
    book = book.begun({"a": {"m": 100.0}}, back, [Ran("a", "m", 8, 1e9)], 0.0, FAIR)
    assert book.use == {"a": {"m": 100.0}}


def test_the_next_leader_comes_to_the_same_for_all_that_still_runs() -> None:
    rates = {"a": {"m": 8}, "b": {"m": 2}}
    first = Book().with_rates(0.0, rates, FAIR).with_rates(600.0, rates, FAIR)
    written = {account: dict(models) for account, models in first.use.items()}
    first = first.with_rates(900.0, rates, FAIR)
    running = [Ran("a", "m", 8, 900.0), Ran("b", "m", 2, 900.0)]
    second = Book().begun(written, 300.0, running, 5.0, FAIR)
    for account in rates:
        assert isclose(second.use[account]["m"], first.use[account]["m"], rel_tol=1e-9)


def test_what_began_after_the_last_writing_counts_from_then_on() -> None:
    book = Book().begun({}, 300.0, [Ran("a", "m", 8, 100.0)], 0.0, FAIR)
    assert book.use == {"a": {"m": gained(8, 100.0, HOUR)}}
