"""What falls to each node of unlike pods on average, and the ways to fill nodes that are kept for it."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from webhook.placement import Budget
from webhook.placement.unlike.quarters import Filler, Quarter
from webhook.placement.unlike.takes import Array, Takes
from webhook.placement.unlike.tilting import NEAR, UNIT, tilt

STEPS = 10**9
RESOURCES = 1
tables = st.lists(
    st.lists(st.tuples(*[st.integers(0, 3)] * 2), min_size=1, max_size=6, unique=True), min_size=1, max_size=4
)


def takes(table: Sequence[tuple[int, ...]]) -> Takes:
    """The sets of one node, which leave nothing over."""
    return Takes(np.array(table), np.zeros((len(table), RESOURCES), dtype=np.int64))


def sums(sets: list[list[tuple[int, ...]]]) -> set[tuple[int, ...]]:
    """What all nodes hold together, in every way."""
    return {tuple(map(sum, zip(*way, strict=True))) for way in product(*sets)}


def filler(sets: list[Takes], counts: Array) -> Filler:
    tilted = tilt(sets, counts, Budget(STEPS))
    assert tilted is not None
    weights = np.array([1, 1000], dtype=np.uint64)
    return Filler(sets, tilted, (counts, np.zeros(RESOURCES, dtype=np.int64)), weights, Budget(STEPS))


def filled(sets: list[Takes], counts: Array, ways: int) -> Quarter:
    found = filler(sets, counts).filled(range(len(sets)), ways)
    assert found is not None
    return found


@given(tables, st.tuples(st.integers(0, 12), st.integers(0, 12)))
def test_only_pods_that_no_sets_hold_together_are_said_to_have_no_average(
    sets: list[list[tuple[int, ...]]], counts: tuple[int, int]
) -> None:
    if tilt([takes(each) for each in sets], np.array(counts), Budget(STEPS)) is None:
        assert counts not in sums(sets)


def test_pods_that_sets_hold_only_too_many_of_have_no_average() -> None:
    assert tilt([takes([(1, 2), (2, 1)])] * 3, np.array([2, 2]), Budget(STEPS)) is None


@pytest.mark.parametrize("counts", [(2, 9), (6, 6), (7, 3)])
def test_averages_of_the_nodes_add_up_to_the_pods_there_are(counts: tuple[int, int]) -> None:
    sets = [takes([(a, b) for a in range(4) for b in range(4)])] * 4
    tilted = tilt(sets, np.array(counts), Budget(STEPS))
    assert tilted is not None
    assert np.abs(tilted.middles.sum(axis=0) / UNIT - counts).max() < NEAR + len(sets) / UNIT


@pytest.mark.parametrize("digit", [-1e-15, 1e-15])
def test_machines_that_round_otherwise_in_the_last_digit_work_out_the_same(
    monkeypatch: pytest.MonkeyPatch, digit: float
) -> None:
    sets = [takes([(a, b) for a in range(7) for b in range(7) if 2 * a + b <= 4 + n]) for n in range(8)]
    expected = tilt(sets, np.array([9, 14]), Budget(STEPS))
    exp, solve = np.exp, np.linalg.solve
    monkeypatch.setattr(np, "exp", lambda values: exp(values) * (1 + digit * (np.arange(len(values)) % 3)))
    monkeypatch.setattr(np.linalg, "solve", lambda left, right: solve(left, right) * (1 - digit))
    found = tilt(sets, np.array([9, 14]), Budget(STEPS))
    assert expected is not None
    assert found is not None
    assert (found.middles == expected.middles).all()
    assert (found.scale == expected.scale).all()


@given(tables, st.data())
def test_all_ways_to_fill_nodes_are_kept_where_they_are_few(
    sets: list[list[tuple[int, ...]]], data: st.DataObject
) -> None:
    ways = sums(sets)
    counts = data.draw(st.sampled_from(sorted(ways)))
    found = filled([takes(each) for each in sets], np.array(counts), 10**4)
    assert found.every
    assert sorted(map(tuple, found.held.tolist())) == sorted(
        way for way in ways if all(held <= count for held, count in zip(way, counts, strict=True))
    )


@given(tables, st.data())
def test_a_way_is_traced_to_sets_that_hold_what_it_holds(
    sets: list[list[tuple[int, ...]]], data: st.DataObject
) -> None:
    counts = data.draw(st.sampled_from(sorted(sums(sets))))
    found = filler([takes(each) for each in sets], np.array(counts)).filled(range(len(sets)), 3)
    assume(found is not None)  # of three ways none may be left
    assert found is not None
    for way, held in enumerate(found.held.tolist()):
        chosen = found.traced(way)
        pods = [sets[node][number] for node, number in chosen.items()]
        assert [sum(each) for each in zip(*pods, strict=True)] == held


def test_of_many_ways_those_nearest_to_the_average_are_kept() -> None:
    every = [(a, b) for a in range(9) for b in range(9)]
    found = filled([takes(every)], np.array([4, 4]), 5)
    assert not found.every
    assert len(found.held) == 5
    assert {(4, 4), (3, 4), (4, 3), (3, 3)} < set(map(tuple, found.held.tolist()))


def test_what_quarters_hold_more_on_average_than_there_is_the_next_aim_below() -> None:
    sets = [takes([(a, b) for a in range(9) for b in range(9)])] * 4
    each = filler(sets, np.array([16, 16]))
    before = each.tilted.middles.sum(axis=0)
    held = np.array([[20, 15], [22, 15]])
    each.lean([Quarter(range(4), held, np.zeros(2, dtype=np.uint64), [], False)])
    assert ((before - each.tilted.middles.sum(axis=0)) / UNIT).round().tolist() == [5, -1]
