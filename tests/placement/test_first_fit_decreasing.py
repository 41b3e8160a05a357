"""First-fit decreasing: alone, and for workers in slices or beside minority pods when steps run out."""

import random
from dataclasses import replace

import pytest

from tests.placement.heterogeneous import asked_of, cluster, snapshot_with
from tests.placement.small import gang_of, node, nodes_of, pod_class, seeds
from webhook.placement import (
    Anchor,
    Assignment,
    Gang,
    Member,
    Mode,
    NoFit,
    Options,
    Slice,
    Snapshot,
    check,
    place,
)
from webhook.placement.budget import Budget
from webhook.placement.heterogeneous.arrays import GangArrays
from webhook.placement.heterogeneous.first_fit_decreasing import FirstFitDecreasing
from webhook.placement.question import ask
from webhook.placement.tree import build


def first_fit(asked: Gang, snapshot: Snapshot) -> set[str] | None:
    """The nodes that first-fit decreasing alone uses."""
    question, _ = ask(asked, snapshot, Options())
    arrays = GangArrays(question, build(question, snapshot, Budget(10**9)).root)
    found = FirstFitDecreasing(arrays, Budget(10**9)).fill(((0, len(arrays.states)),))
    return None if found is None else set(arrays.named(found[1]))


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("bound", [100, 400])
def test_an_answer_of_a_search_that_was_cut_keeps_every_rule(seed: int, bound: int) -> None:
    dice = random.Random(seed + 4000)
    snapshot, asked = snapshot_with(dice, cluster(dice, 4, (0, 1, 2, 4, 8))), asked_of(dice, 12)
    budget = Budget(10**9)
    found = place(asked, snapshot, Options(bound=bound), budget)
    if isinstance(found, Assignment):
        assert check(found, asked, snapshot) == []
    elif found.proven:
        assert isinstance(place(asked, snapshot), NoFit)


@pytest.mark.parametrize(("mode", "minority"), [(Mode.BEST_FIT, 0), (Mode.HEADROOM, 3)])
def test_a_gang_in_slices_is_placed_though_no_search_has_the_steps(mode: Mode, minority: int) -> None:
    # Nodes differ at random: of domains that are equal, the search looks at few, and has steps enough.
    dice = random.Random(minority)
    nodes = [
        node(f"n{i}", (f"b{i // 100}", f"r{i // 10}", f"h{i}"), dice.randint(6, 8), memory=9)
        for i in range(1000)
    ]
    asked = gang_of(1200, slices=(Slice("subblock", 6),))
    others = [Member(f"o{rank}", 2000 + rank, pod_class(3, memory=rank)) for rank in range(minority)]
    asked = replace(asked, members=(*asked.members, *others))
    snapshot = Snapshot.build(nodes, [])
    found = place(asked, snapshot, Options(mode=mode, bound=16_000))
    assert isinstance(found, Assignment)
    assert not found.proven
    assert check(found, asked, snapshot) == []


@pytest.mark.parametrize(
    ("anchor", "expected"), [("n17", {"n16", "n17", "n18", "n19"}), ("n30", {"n28", "n29", "n30", "n31"})]
)
def test_first_fit_uses_domains_in_use_before_others_and_no_more_than_it_needs(
    anchor: str, expected: set[str]
) -> None:
    nodes = [node(f"n{i}", (f"b{i // 8}", f"r{i // 4}", f"h{i}"), 2) for i in range(32)]
    asked = gang_of(8, slices=(Slice("subblock", 4),), anchors=(Anchor(anchor),))
    assert first_fit(asked, Snapshot.build(nodes, [])) == expected


def test_first_fit_fills_whole_slices_of_each_level_with_what_other_pods_leave() -> None:
    """The leader takes 1 of 4 on a, so that a holds one slice of 2 and its subblock none of 4."""
    nodes = nodes_of({"b": {"r1": {"a": 4, "b": 1}, "r2": {"c": 2, "d": 3}}})
    nodes[0] = replace(nodes[0], allocatable={**nodes[0].allocatable, "memory": 1})
    leader = Member("leader", -1, pod_class(1, memory=1))
    asked = gang_of(4, slices=(Slice("subblock", 4), Slice("host", 2)))
    asked = replace(asked, members=(leader, *asked.members))
    assert first_fit(asked, Snapshot.build(nodes, [])) == {"a", "c", "d"}
