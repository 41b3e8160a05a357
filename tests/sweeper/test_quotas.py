"""Pods shared among domains: what a spread rule allows, and nothing is called impossible that is not."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from webhook.sweeper.decide.limits import cap, shares

DOMAINS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3)
"""Of each domain what it holds, and for how many more there is capacity."""


def is_allowed(counts: dict[str, int], gained: dict[str, int], skew: int, *, floor_is_zero: bool) -> bool:
    ends = {name: count + gained.get(name, 0) for name, count in counts.items()}
    floor = 0 if floor_is_zero else min(ends.values())
    return all(ends[name] - floor <= skew for name, more in gained.items() if more)


@given(DOMAINS, st.integers(1, 6), st.integers(1, 2), st.booleans())
def test_shares_keep_the_rule_and_are_found_where_there_are_any(
    domains: list[tuple[int, int]], wanted: int, skew: int, floor_is_zero: bool
) -> None:
    counts = {str(number): count for number, (count, _) in enumerate(domains)}
    limits = {str(number): most for number, (_, most) in enumerate(domains)}
    found = shares(counts, limits, wanted, skew, floor_is_zero=floor_is_zero)
    ways = [
        dict(zip(counts, each, strict=True))
        for each in itertools.product(*(range(most + 1) for most in limits.values()))
        if sum(each) == wanted
    ]
    allowed = [each for each in ways if is_allowed(counts, each, skew, floor_is_zero=floor_is_zero)]
    assert (found is None) == (not allowed)
    if found is not None:
        assert sum(found.values()) == wanted
        assert all(found[name] <= limits[name] for name in found)
        assert is_allowed(counts, found, skew, floor_is_zero=floor_is_zero)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.integers(1, 9), st.integers(1, 3))
def test_no_domain_needs_more_than_the_cap(counts: list[int], wanted: int, skew: int) -> None:
    there = {str(number): count for number, count in enumerate(counts)}
    most = cap(there, wanted, skew, floor_is_zero=False)
    found = shares(there, dict.fromkeys(there, wanted), wanted, skew, floor_is_zero=False)
    assert found is not None
    assert max(there[name] + count for name, count in found.items()) <= most
