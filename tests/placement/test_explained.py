"""Each node is counted under the cause that it has by itself, however many nodes are equal."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from tests.placement.small import node
from webhook.placement import Gang, Member, NodeInfo, NoFit, PodClass, Slice, Snapshot, place, vector


def some_nodes(dice: random.Random) -> list[NodeInfo]:
    found = []
    for number in range(24):
        made = node(
            f"n{number}", ("b", "r", f"n{number}"), dice.choice((0, 1, 9)), gpus=dice.choice((0, 1, 2))
        )
        if dice.random() < 0.2:
            made = replace(made, unschedulable=True)
        if dice.random() < 0.2:
            made = replace(made, ready=False)
        found.append(made)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_nodes_are_counted_by_the_causes_that_they_have_alone(seed: int) -> None:
    dice = random.Random(seed)
    nodes = some_nodes(dice)
    classes = [PodClass(vector({"cpu": 2000 * (1 + number), "pods": 1, "gpus": 3})) for number in range(2)]
    members = [Member(f"p{number}", number, dice.choice(classes)) for number in range(3)]
    gang = Gang("g", tuple(members))

    def causes(of: list[NodeInfo]) -> Counter[str]:
        found = place(gang, Snapshot.build(of, []))
        assert isinstance(found, NoFit)
        return Counter(found.causes)

    assert causes(nodes) == sum((causes([each]) for each in nodes), Counter())


def test_workers_that_are_short_are_not_called_by_their_leader_s_name_though_it_asks_the_same() -> None:
    nodes = [node("n0", ("b", "r", "n0"), 3), node("n1", ("b", "r", "n1"), 1)]
    kind = PodClass(vector({"cpu": 1000, "pods": 1}))
    workers = tuple(Member(f"worker-{rank}", rank, kind) for rank in range(8))
    gang = Gang("g", (Member("leader", -1, kind), *workers), slices=(Slice("host", 2),))
    found = place(gang, Snapshot.build(nodes, []))
    assert isinstance(found, NoFit)
    assert "for 8 pods like worker-0 alone: capacity for 4" in found.sentence
    assert "like leader alone" not in found.sentence
