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
    Slice,
    check,
    place,
)


@pytest.mark.parametrize("seed", seeds(40))
def test_identical_pods_get_the_optimum(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(25):
        snapshot = random_snapshot(dice, 14)
        asked = gang([(pod_class(1), dice.randint(1, 6))], dice, snapshot, required_level=dice.choice(LEVELS))
        agrees(asked, snapshot)


@pytest.mark.parametrize("seed", seeds(20))
def test_slices_get_the_optimum(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(25):
        snapshot = random_snapshot(dice, 14)
        size = dice.choice((2, 2, 3))
        slices: tuple[Slice, ...] = (Slice(dice.choice(("block", "subblock", "host")), size),)
        if size == 2 and dice.random() < 0.3:
            slices = (Slice("block", 4), Slice("subblock", 2))
            size = 4
        asked = gang([(pod_class(1), size * dice.randint(1, 2))], dice, snapshot)
        agrees(replace(asked, anchors=(), slices=slices), snapshot)


@pytest.mark.parametrize("seed", seeds(30))
def test_leader_and_workers_and_different_pods_get_the_optimum(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(15):
        snapshot = random_snapshot(dice, 14)
        kinds = [
            pod_class(cpu, memory=memory) for cpu, memory in dice.sample([(1, 1), (2, 1), (1, 3), (3, 2)], 3)
        ]
        counts = dice.choice(([1, 3], [2, 2], [1, 1, 1], [3, 1, 1], [1, 4]))
        classes = list(zip(kinds, sorted(counts, reverse=True), strict=False))
        if dice.random() < 0.3:
            picky = replace(
                classes[0][0], rules=Rules(selector=(("cloud.google.com/gce-topology-block", "b1"),))
            )
            classes[0] = (picky, classes[0][1])
        agrees(gang(classes, dice, snapshot, required_level=dice.choice(LEVELS)), snapshot)


@pytest.mark.parametrize("seed", seeds(40))
def test_different_pods_on_fourteen_nodes_of_several_slots_get_the_optimum(seed: int) -> None:
    dice = random.Random(1000 + seed)
    for _ in range(15):
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


@pytest.mark.parametrize("seed", seeds(20))
def test_every_assignment_passes_the_checker(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        snapshot = random_snapshot(dice, 14)
        kinds = [(pod_class(1), dice.randint(1, 6)), (pod_class(2, memory=1), dice.randint(0, 2))]
        asked = gang(kinds, dice, snapshot, required_level=dice.choice(LEVELS))
        found = place(asked, snapshot)
        if not isinstance(found, NoFit):
            assert check(found, asked, snapshot) == []
