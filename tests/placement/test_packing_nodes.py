"""Unlike pods that fill their nodes: found, or known not to fit, though the search for the best was cut."""

import pytest

from hack.benchmarks.packing import ours
from hack.comparing.packings import planted


@pytest.mark.parametrize(("nodes", "kinds"), [(6, 3), (10, 4), (20, 6)])
@pytest.mark.parametrize("seed", range(4))
def test_pods_that_fill_up_to_twenty_nodes_are_packed(nodes: int, kinds: int, seed: int) -> None:
    assert ours(planted(nodes, kinds, 0, seed)) is True


@pytest.mark.parametrize("seed", range(4))
def test_one_cpu_too_few_on_twenty_nodes_is_known(seed: int) -> None:
    assert ours(planted(20, 6, -1, seed)) is False


@pytest.mark.parametrize(("slack", "fits"), [(0, True), (-1, False)], ids=["full", "one cpu too few"])
def test_thousands_of_pods_that_fill_hundreds_of_nodes_are_decided(slack: int, fits: bool) -> None:
    assert ours(planted(500, 3, slack, 0)) is fits
