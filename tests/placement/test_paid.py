"""Where all domains are paid for by anchors, the nodes with the least value are found without a search."""

import random
from dataclasses import replace

import numpy as np
import pytest

from hack.benchmarks.placing import instances
from tests.placement.brute import agrees
from tests.placement.small import gang_of, pod_class, seeds
from tests.placement.test_mixed import asked_of, cluster, snapshot_with
from webhook.placement import Anchor, Assignment, Slice, Snapshot, check, place
from webhook.placement.homogeneous.min_plus import with_part

NEVER = 1 << 62


@pytest.mark.parametrize("dtype", [np.int64, object], ids=["machine words", "integers of any size"])
@pytest.mark.parametrize("seed", seeds(100))
def test_what_a_part_adds_is_the_least_of_all_pairs(seed: int, dtype: type) -> None:
    dice = random.Random(seed)
    row = [dice.choice((NEVER, dice.randint(0, 50))) for _ in range(dice.randint(1, 12))]
    step = dice.choice((1, 1, 2, 3))
    even = list(range(dice.randint(0, 3), dice.randint(4, 12), step))
    amounts = dice.choice((even, sorted(dice.sample(range(15), dice.randint(1, 6)))))
    values = [dice.randint(0, 30) for _ in amounts]
    least = [NEVER] * len(row)
    for held, value in enumerate(row):
        for amount, more in zip(amounts, values, strict=True):
            end = min(held + amount, len(row) - 1)
            least[end] = min(least[end], value + more)
    found = with_part(np.array(row, dtype=dtype), amounts, values, NEVER)
    assert found.tolist() == least


@pytest.mark.parametrize("seed", seeds(60))
def test_beside_anchors_nearly_everywhere_gangs_get_the_optimum_of_trying_everything(seed: int) -> None:
    dice = random.Random(seed + 77)
    for _ in range(3):
        nodes = cluster(dice, 2, (0, 1, 2, 3))[:8]
        anchors = tuple(Anchor(each.name) for each in nodes if dice.random() < 0.85)
        asked = replace(asked_of(dice, 4), anchors=anchors)
        if dice.random() < 0.3:
            asked = replace(gang_of(dice.randint(1, 6), pod_class(memory=1)), anchors=anchors)
        agrees(asked, snapshot_with(dice, nodes))


@pytest.mark.parametrize("slots", [8, 1])
@pytest.mark.parametrize("rule", ["none", "slices", "odd pods"])
def test_a_gang_that_grows_by_4000_pods_beside_4000_is_proven(rule: str, slots: int) -> None:
    made = instances.cluster(5000, slots)
    anchors = tuple(Anchor(made[number].name) for number in range(4000))
    pods = 4000 if slots == 8 else 1000
    asked = instances.gang(pods, slots, instances.ODD if rule == "odd pods" else ())
    slices = (Slice("subblock", 2),) if rule == "slices" else ()
    asked, snapshot = replace(asked, anchors=anchors, slices=slices), Snapshot.build(made, [])
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert check(found, asked, snapshot) == []
