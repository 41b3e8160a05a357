"""Gangs of pods no two of which are equal: never placed worse than by first-fit, and never refused for their
number."""

import random
from dataclasses import replace
from functools import cached_property

import pytest

from hack.benchmarks.placement_rows import instances
from hack.comparing.different_pods import different_pods
from hack.comparing.first_fit import FirstFit
from hack.comparing.losses import compare
from hack.comparing.realistic_gangs import DrawnQuestion
from tests.placement.small import gang_of, placed, pod_class, seeds, snapshot_of
from webhook.placement import (
    Assignment,
    Gang,
    Member,
    NodeInfo,
    NoFit,
    PodClass,
    Rules,
    Snapshot,
    Taint,
    Toleration,
    place,
    vector,
)

GIB = 2**30


def cluster(dice: random.Random, count: int) -> Snapshot:
    """Nodes of two pools, one of them tainted, with GPUs, cpus and memory in use."""
    nodes = []
    for number in range(count):
        subblock = number // 8
        is_large = subblock % 3 > 0
        free = dice.choice((1.0, 1.0, 0.5, dice.random()))
        amounts = {"cpu": 192_000, "memory": 2048 * GIB, instances.GPU: 8 if is_large else 4}
        amounts = {name: int(amount * free) for name, amount in amounts.items()} | {"pods": 110}
        labels = instances.node(number, f"b{number // 48}", f"s{subblock}", 1, 1).labels
        taints = () if is_large else (Taint("small", "yes", "NoSchedule"),)
        pool = {"pool": "large" if is_large else "small"}
        nodes.append(NodeInfo(f"n{number}", {**labels, **pool}, taints, allocatable=amounts))
    return Snapshot.build(nodes, [])


def with_rules(dice: random.Random, gang: Gang) -> Gang:
    """Some of the pods tolerate the small nodes, and some of these ask for them."""
    choices = (
        Rules(),
        Rules(tolerations=(Toleration("small", "Exists"),)),
        Rules(selector=(("pool", "large"),)),
    )
    members = [
        replace(each, pod_class=replace(each.pod_class, rules=dice.choice(choices))) for each in gang.members
    ]
    return replace(gang, members=tuple(members))


@pytest.mark.parametrize("seed", seeds(4))
@pytest.mark.parametrize("count", [30, 64, 65, 140])
def test_different_pods_are_placed_no_worse_than_by_first_fit_and_keep_all_rules(
    count: int, seed: int
) -> None:
    dice = random.Random(f"{count}/{seed}")
    snapshot = cluster(dice, dice.choice((60, 150, 300)))
    gang = with_rules(dice, different_pods(count, seed, dice.choice((None, None, "block"))))
    if dice.random() < 0.5:
        gang = replace(gang, excluded_nodes=frozenset(f"n{number}" for number in range(0, 60, 7)))
    assert compare(DrawnQuestion(f"{count} pods", gang, snapshot)).loss == ""


class BySum(FirstFit):
    """First-fit with the pods ordered by the sum of their shares of the largest node."""

    @cached_property
    def _largest_first(self) -> list[PodClass]:
        largest = self.states[0].node.allocatable
        shares = {
            pod: sum(amount / largest[name] for name, amount in pod.requests if name != "pods")
            for pod in self.members
        }
        return sorted(self.members, key=shares.__getitem__, reverse=True)


@pytest.mark.parametrize("seed", seeds(3))
def test_different_pods_are_placed_no_worse_than_by_first_fit_in_another_order(seed: int) -> None:
    dice = random.Random(seed + 9)
    nodes = [instances.node(number, f"b{number // 48}", f"s{number // 8}", 8, 8) for number in range(96)]
    amounts = {"cpu": 96_000, "memory": 1024 * GIB, "pods": 110, instances.GPU: 8}
    snapshot = Snapshot.build([replace(node, allocatable=amounts) for node in nodes], [])
    members = []
    for rank in range(120):
        asked = {"cpu": dice.randint(1000, 48_000), "memory": dice.randint(4, 256) * GIB, "pods": 1}
        asked |= {instances.GPU: dice.choice((1, 2, 4))} if dice.random() < 0.5 else {}
        members.append(Member(f"p{rank}", rank, PodClass(vector(asked))))
    gang = Gang("g", tuple(members))
    baseline = BySum(gang, snapshot)
    answer, found = baseline.place(), place(gang, snapshot)
    assert answer is not None
    assert isinstance(found, Assignment)
    assert found.objective.domains <= baseline.value(answer)[0]


def test_hundreds_of_different_pods_are_placed_on_thousands_of_nodes() -> None:
    snapshot = Snapshot.build(instances.cluster(5000, 8), [])
    found = placed(different_pods(400, 1, None), snapshot)
    assert found.objective.domains[:2] <= (3, 45)


def test_of_more_than_64_different_pods_that_do_not_fit_the_one_that_fits_nowhere_is_the_reason() -> None:
    kinds = [pod_class(1, memory=number) for number in range(70)]
    members = tuple(Member(f"p{number}", number, kind) for number, kind in enumerate(kinds))
    snapshot = snapshot_of({"b": {"r": {"a": 40, "c": 40}}})
    found = place(replace(gang_of(1), members=members), snapshot)
    assert isinstance(found, NoFit)
    assert found.proven
    assert "memory" in found.sentence
