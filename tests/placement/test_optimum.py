"""The solver against trying everything, on random small clusters."""

import random
from dataclasses import replace

import pytest

from tests.placement.brute import agrees
from tests.placement.random_clusters import LEVELS, gang, random_snapshot
from tests.placement.small import pod_class, seeds
from webhook.placement import (
    NoFit,
    Rules,
    check,
    place,
)


@pytest.mark.promise("R3", "D16")
@pytest.mark.parametrize("seed", seeds(10))
def test_identical_pods_get_the_optimum(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(50):
        snapshot = random_snapshot(dice, 12)
        asked = gang([(pod_class(1), dice.randint(1, 6))], dice, snapshot, required_level=dice.choice(LEVELS))
        agrees(asked, snapshot)


@pytest.mark.promise("I19")
@pytest.mark.parametrize("seed", seeds(10))
def test_different_pods_on_fourteen_nodes_of_several_slots_get_the_optimum(seed: int) -> None:
    dice = random.Random(1000 + seed)
    for _ in range(20):
        snapshot = random_snapshot(dice, 14, least=14)
        kinds = [
            pod_class(cpu, memory=memory)
            for cpu, memory in dice.sample([(1, 1), (2, 1), (1, 3), (3, 2), (2, 4), (1, 5)], 6)
        ]
        counts = dice.choice(
            ([3, 3], [4, 2], [5, 1], [2, 2, 2], [3, 2, 1], [4, 1, 1], [3, 1, 1, 1], [2, 1, 1, 1, 1], [1] * 6)
        )
        classes = list(zip(kinds, counts, strict=False))
        if dice.random() < 0.3:
            picky = replace(
                classes[-1][0], rules=Rules(selector=(("cloud.google.com/gce-topology-block", "b1"),))
            )
            classes[-1] = (picky, classes[-1][1])
        agrees(gang(classes, dice, snapshot, required_level=dice.choice(LEVELS)), snapshot)


@pytest.mark.promise("I21")
@pytest.mark.parametrize("seed", seeds(5))
def test_every_assignment_passes_the_checker(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(40):
        snapshot = random_snapshot(dice, 14)
        kinds = [(pod_class(1), dice.randint(1, 6)), (pod_class(2, memory=1), dice.randint(0, 2))]
        asked = gang(kinds, dice, snapshot, required_level=dice.choice(LEVELS))
        found = place(asked, snapshot)
        if not isinstance(found, NoFit):
            assert check(found, asked, snapshot) == []
