"""Lower bounds of what children of a domain leave free together, by trying every set of children."""

import random
from dataclasses import replace
from itertools import combinations
from math import ceil

import numpy as np
import pytest

from hack.benchmarks.placement_rows import instances
from tests.placement.small import node, pod_class, seeds
from webhook.placement import (
    Assignment,
    Budget,
    Gang,
    Member,
    NodeInfo,
    Options,
    Slice,
    Snapshot,
    place,
)
from webhook.placement.heterogeneous.arrays import GangArrays
from webhook.placement.heterogeneous.first_fit_decreasing import FirstFitDecreasing
from webhook.placement.heterogeneous.joint_bounds import Candidate, ChosenDomains, JointBounds, least_slots
from webhook.placement.question import ask
from webhook.placement.tree import build


def block(dice: random.Random, nodes_in_a_host: int = 1) -> list[NodeInfo]:
    """A block of some subblocks, in which many nodes have all four cpus free."""
    sizes = [dice.randint(2, 6) for _ in range(dice.randint(2, 6))]
    places = [subblock for subblock, size in enumerate(sizes) for _ in range(size)]
    return [
        node(
            f"n{n:02}",
            ("b", f"s{subblock}", f"{subblock}/{n // nodes_in_a_host}"),
            dice.choice((1, 2, 3, 4, 4, 4)),
        )
        for n, subblock in enumerate(places)
    ]


@pytest.mark.parametrize("seed", seeds(60))
def test_no_filled_set_of_parts_costs_less_than_the_bound_of_their_domain(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = Snapshot.build(block(dice, nodes_in_a_host=dice.choice((1, 2))), [])
    kinds = [pod_class(4)] * dice.randint(1, 6) + [pod_class(1)] * dice.randint(1, 6)
    kinds += [pod_class(2)] * dice.randint(0, 6)
    members = tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds))
    question, _ = ask(Gang("g", members), snapshot, Options())
    arrays = GangArrays(question, build(question, snapshot, Budget(10**9)).root)
    (domain,) = arrays.root.parts or [arrays.root]
    bounds = JointBounds(arrays)
    inside = bounds.least_cost(Candidate.of_domain(domain, 1))
    filler = FirstFitDecreasing(arrays, Budget(10**9))
    for number in range(1, len(domain.parts) + 1):
        for parts in combinations(domain.parts, number):
            filled = filler.fill(Candidate.of_parts(domain, parts, uses_all=True).ranges)
            if filled is not None:
                assert inside is not None
                assert arrays.base(domain) + inside <= filled[0]


@pytest.mark.parametrize("seed", seeds(40))
def test_the_bound_of_so_many_nodes_is_their_least_capacity_on_a_line(seed: int) -> None:
    dice = random.Random(seed)
    slots = np.array([dice.randint(0, 8) for _ in range(9)])
    amounts = np.array([dice.randint(0, 6) for _ in range(9)])
    number = dice.randint(1, 4)
    sets = {
        ChosenDomains(int(slots[list(each)].sum()), int(amounts[list(each)].sum()))
        for each in combinations(range(9), number)
    }
    few, many = min(sets), max(sets, key=lambda each: (each.amount, -each.slots))
    for need in range(few.amount + 1, many.amount + 1):
        lines = [
            one.slots + (other.slots - one.slots) * (need - one.amount) / (other.amount - one.amount)
            for one in sets
            for other in sets
            if one.amount < need <= other.amount
        ]
        found = least_slots(slots, amounts, need, number, few, many, few.slots)
        least = ceil(min(lines) - 1e-6)
        assert found == (least if least > few.slots else 0)
        assert found <= min(each.slots for each in sets if each.amount >= need)


@pytest.fixture(scope="module")
def fragmented() -> Snapshot:
    """Eight equal blocks of ten subblocks of 16 nodes, of which four in ten are in use."""
    dice = random.Random("fragmented")
    return Snapshot.build(
        [
            instances.node(
                n, f"b{n // 160}", f"s{n // 16}", dice.randint(0, 8) if dice.random() < 0.4 else 8, 8
            )
            for n in range(1280)
        ],
        [],
    )


@pytest.mark.parametrize(
    ("pods", "slices", "steps"),
    [(128, (), 20_000), (191, (), 12_000), (97, (), 12_000), (96, (Slice("subblock", 8),), 10_000)],
    ids=["two subblocks", "just two subblocks", "one subblock", "slices"],
)
def test_blocks_whose_bound_is_no_better_are_not_searched(
    fragmented: Snapshot, pods: int, slices: tuple[Slice, ...], steps: int
) -> None:
    asked = replace(instances.gang(pods, 8), slices=slices)
    found = place(asked, fragmented, Options(bound=steps))
    assert isinstance(found, Assignment)
    assert found.proven
