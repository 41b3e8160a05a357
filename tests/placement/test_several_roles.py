"""Gangs of several large classes of pods: as few domains as first-fit in single domains uses, or fewer."""

import random
from collections.abc import Mapping

import pytest

from hack.benchmarks.placing.instances import GPU, cluster
from tests.placement.small import node, placed
from webhook.placement import (
    Card,
    CardWish,
    Gang,
    Member,
    NodeInfo,
    PodClass,
    Snapshot,
    Usage,
    vector,
)

Amounts = Mapping[str, int]
GIB = 2**30
WORKER = {"cpu": 8000, "memory": 32 * GIB, "pods": 1, GPU: 1}
SERVER = {"cpu": 16_000, "memory": 64 * GIB, "pods": 1, GPU: 4}


def gang(*roles: tuple[int, Amounts], required: str | None = None, preferred: str | None = None) -> Gang:
    kinds = [kind for count, amounts in roles for kind in [PodClass(vector(amounts))] * count]
    members = tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds))
    return Gang("g", members, required_level=required, preferred_levels=(preferred,) if preferred else ())


@pytest.mark.parametrize(
    ("required", "preferred"),
    [(None, None), (None, "block"), ("block", None)],
    ids=["none", "preferred", "required"],
)
def test_workers_and_servers_go_into_two_subblocks_of_one_block(
    required: str | None, preferred: str | None
) -> None:
    asked = gang((128, WORKER), (32, SERVER), required=required, preferred=preferred)
    found = placed(asked, Snapshot.build(cluster(5000, 8), []))
    assert found.objective.domains == (1, 2, 32, 32)


def test_workers_and_servers_are_placed_as_near_on_a_hundred_thousand_nodes() -> None:
    found = placed(gang((128, WORKER), (32, SERVER)), Snapshot.build(cluster(100_000, 8), []))
    assert found.objective.domains == (1, 2, 32, 32)


EMPTY = {"cpu": 96_000, "memory": 2**40, "pods": 110, GPU: 8}


def of_unlike_pods(count: int, seed: int, required: str | None) -> Gang:
    dice = random.Random(1000 * seed + count)
    roles = [
        {
            GPU: dice.choice((1, 2, 3, 5, 7)),
            "cpu": dice.randint(5000, 60_000),
            "memory": dice.randint(10, 600) * GIB,
            "pods": 1,
        }
        for _ in range(count)
    ]
    return gang(*((1, role) for role in roles), required=required)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("nodes", "pods", "required"),
    [(5000, 16, "block"), (5000, 10, "block"), (400, 60, "block"), (400, 60, None), (5000, 60, None)],
)
def test_unlike_pods_find_a_place_in_one_block_of_an_empty_cluster(
    nodes: int, pods: int, required: str | None, seed: int
) -> None:
    made = [
        NodeInfo(
            f"n{number:05}",
            node("", (f"b{number // 100}", f"r{number // 50}", f"h{number}")).labels,
            allocatable=EMPTY,
        )
        for number in range(nodes)
    ]
    found = placed(of_unlike_pods(pods, seed, required), Snapshot.build(made, []))
    assert found.objective.domains[0] == 1


MILLICORES, MEMORY, CARD = "gpu.intel.com/millicores", "gpu.intel.com/memory.max", "gpu.intel.com/i915"


def unlike_cards(nodes: int, *, linked: bool) -> Snapshot:
    """Nodes of eight cards, no two of which have the same free."""
    dice, made, usage = random.Random(7), [], []
    for number in range(nodes):
        cards = tuple(
            Card(
                f"card{card}",
                {MILLICORES: 1000, MEMORY: 16_384},
                4,
                numa=card // 4,
                links=tuple((0, f"card{other}", 1) for other in range(8) if other != card) if linked else (),
            )
            for card in range(8)
        )
        amounts = {
            "cpu": 192_000,
            "memory": 2**40,
            "pods": 110,
            CARD: 400,
            MILLICORES: 8000,
            MEMORY: 8 * 16_384,
        }
        labels = node("", (f"b{number // 160}", f"r{number // 16}", f"h{number}")).labels
        made.append(NodeInfo(f"n{number:05}", labels, allocatable=amounts, cards=cards))
        for card in range(8):
            used = {MILLICORES: dice.randint(0, 700), MEMORY: dice.randint(0, 11_000)}
            tiles = frozenset(dice.sample(range(4), dice.randint(0, 3)))
            usage.append((f"n{number:05}", Usage(used, {f"card{card}": used}, {f"card{card}": tiles})))
    return Snapshot.build(made, usage)


def with_cards(*wishes: tuple[int, int, int], linked: bool = False) -> PodClass:
    """wishes: of each container cards, and of each of these millicores and memory."""
    containers = tuple(
        CardWish(count, vector({MILLICORES: cpu, MEMORY: memory})) for count, cpu, memory in wishes
    )
    amounts = {"cpu": 1000, "pods": 1, CARD: sum(count for count, _, _ in wishes)}
    for count, cpu, memory in wishes:
        amounts[MILLICORES] = amounts.get(MILLICORES, 0) + count * cpu
        amounts[MEMORY] = amounts.get(MEMORY, 0) + count * memory
    return PodClass(vector(amounts), cards=containers, single_numa=not linked, linked=linked)


@pytest.mark.parametrize("nodes", [32, 100, 400])
def test_pods_with_cards_of_one_numa_node_find_a_place_on_nodes_that_are_all_unlike(nodes: int) -> None:
    kind = with_cards((3, 137, 1009), (2, 111, 2003))
    members = tuple(Member(f"p{rank}", rank, kind) for rank in range(32))
    assert len(set(placed(Gang("g", members), unlike_cards(nodes, linked=False)).nodes)) == 32


@pytest.mark.parametrize("nodes", [100, 400])
def test_pods_with_linked_pairs_of_cards_find_a_place_on_nodes_that_are_all_unlike(nodes: int) -> None:
    kind = with_cards((2, 37, 109), (2, 41, 211), linked=True)
    members = tuple(Member(f"p{rank}", rank, kind) for rank in range(100))
    assert len(set(placed(Gang("g", members), unlike_cards(nodes, linked=True)).nodes)) == 100
