"""Sets of cards that sit close together, found with bounded work."""

import sys
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.allocator.neighbours import Closeness, closest

NODE = [f"c{number:02}" for number in range(24)]
"""More cards than a server has today: two processors with twelve each."""


def below(a: str, b: str, size: int) -> bool:
    """Whether two cards hang on one part of the node that has so many."""
    return int(a[1:]) // size == int(b[1:]) // size


def on_switches(a: str, b: str) -> int:
    return below(a, b, 12) + 2 * below(a, b, 4)


def in_pairs(a: str, b: str) -> int:
    return on_switches(a, b) + 3 * below(a, b, 2)


def all_different(a: str, b: str) -> int:
    """Near cards are closer than far ones, each two by another amount."""
    one, other = sorted((int(a[1:]), int(b[1:])))
    return 1000 * below(a, b, 12) + (one * 37 + other * 11) % 97


@pytest.mark.parametrize("close", [on_switches, in_pairs, all_different])
def test_twelve_of_24_cards_are_those_of_one_processor_and_found_with_little_work(close: Closeness) -> None:
    calls = 0

    def count(frame: object, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        chosen = closest(NODE, [], 12, close)
    finally:
        sys.setprofile(None)
    assert chosen in (NODE[:12], NODE[12:])
    assert calls < 1_000_000  # to look at all 2,704,156 sets takes 78 million


def test_cards_that_must_be_included_draw_the_others_to_their_processor() -> None:
    assert closest(NODE, ["c23"], 12, in_pairs) == NODE[12:]
    assert closest(NODE, ["c23"], 12, all_different) == NODE[12:]


@given(st.integers(1, 7), st.data())
def test_however_close_cards_are_a_small_node_gets_the_best_set(count: int, data: st.DataObject) -> None:
    cards = NODE[:count]
    pairs = [frozenset(pair) for pair in combinations(cards, 2)]
    amounts = data.draw(st.lists(st.integers(0, 3), min_size=len(pairs), max_size=len(pairs)))
    between = dict(zip(pairs, amounts, strict=True))
    must = data.draw(st.sets(st.sampled_from(cards), max_size=2))
    size = data.draw(st.integers(len(must), count))

    def together(group: tuple[str, ...]) -> int:
        return sum(between[frozenset(pair)] for pair in combinations(group, 2))

    def value(chosen: tuple[str, ...]) -> tuple[int, int]:
        return together(chosen), together(tuple(set(cards) - must - set(chosen)))

    chosen = closest(cards, must, size, lambda a, b: between[frozenset((a, b))])
    others = [other for other in combinations(cards, size) if must <= set(other)]
    best = max(map(value, others))
    assert chosen == list(min(other for other in others if value(other) == best))
