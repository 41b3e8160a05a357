"""The allocator and the kubelet's own device manager, each killed at random."""

import pytest

from tests.allocator import allocations
from tests.allocator.machine import lacking


@pytest.fixture(scope="module")
def count(tmp_path_factory: pytest.TempPathFactory) -> allocations.Count:
    if reason := lacking():
        pytest.skip(reason)
    return allocations.measure(tmp_path_factory.mktemp("bare"), 150, kill_every=12, seed=3)


pytestmark = pytest.mark.cluster


@pytest.mark.promise("O31")
def test_no_container_gets_another_card_or_tile_whoever_is_killed(count: allocations.Count) -> None:
    assert count.wrong == []
    assert count.planned > 100
    assert count.without_plan > 0
    assert count.kills["allocator"] > 0
    assert count.kills["manager"] > 0


@pytest.mark.promise("O27")
def test_pods_that_cannot_be_distinguished_are_refused(count: allocations.Count) -> None:
    assert count.ambiguous_refused > 0
    assert count.reasons["none of them is guessed"] == count.ambiguous_refused


def test_refusals_stay_with_those_that_could_not_be_distinguished_or_were_in_the_middle(
    count: allocations.Count,
) -> None:
    """Until a plugin has registered after a kill, longer under load, the kubelet refuses by itself."""
    by_plugin = count.refused - count.reasons["no healthy devices"]
    assert by_plugin <= count.ambiguous_refused + sum(count.kills.values())


def test_it_stays_small(count: allocations.Count) -> None:
    assert count.peak_bytes < 60 * 10**6
