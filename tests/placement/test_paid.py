"""Where all domains are paid for by anchors, the nodes with the least value are found without a search."""

import random
from dataclasses import replace

import pytest

from hack.benchmarks.placement_rows import instances
from tests.placement.brute import agrees
from tests.placement.heterogeneous import asked_of, cluster, snapshot_with
from tests.placement.small import gang_of, pod_class, seeds
from webhook.placement import Anchor, Assignment, Slice, Snapshot, check, place


@pytest.mark.promise("I19")
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


@pytest.mark.promise("I19")
@pytest.mark.parametrize(
    ("rule", "slots"), [(rule, slots) for rule in ("none", "slices", "odd pods") for slots in (8, 1)]
)
def test_a_gang_that_grows_by_4000_pods_beside_4000_is_proven(rule: str, slots: int) -> None:
    made = instances.cluster(5000, slots)
    anchors = tuple(Anchor(made[number].name) for number in range(4000))
    pods = (4000 if slots == 8 else 1000) - (8 if rule == "odd pods" else 0)
    asked = instances.gang(pods, slots, instances.MINORITY if rule == "odd pods" else ())
    slices = (Slice("subblock", 2),) if rule == "slices" else ()
    asked, snapshot = replace(asked, anchors=anchors, slices=slices), Snapshot.build(made, [])
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert check(found, asked, snapshot) == []
