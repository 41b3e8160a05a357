"""Heterogeneous gangs too large to search out: an answer all the same, and what it claims."""

import random
from dataclasses import replace

import pytest

from hack.comparing.hostile import packed
from hack.comparing.packings import loose
from tests.placement.small import gang_of, node, placed, pod_class, snapshot_of
from webhook.placement import (
    Anchor,
    Assignment,
    Gang,
    Member,
    Nearest,
    NodeInfo,
    NoFit,
    Options,
    Rules,
    Slice,
    Snapshot,
    Usage,
    check,
    place,
)
from webhook.placement.budget import Budget


def heterogeneous(dice: random.Random, count: int) -> Gang:
    kinds = [pod_class(dice.randint(1, 4), memory=dice.randint(1, 9)) for _ in range(count)]
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))


TWO_A_NODE = [pod_class(cpu) for cpu in (6, 5, 5, 5)]
ONE_TOO_MANY = Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(TWO_A_NODE)))
THREE_NODES = {"b": {"r": {"x": 9, "y": 9, "z": 9}}}


def test_a_search_that_was_cut_never_answers_that_there_is_no_place() -> None:
    found = place(ONE_TOO_MANY, snapshot_of(THREE_NODES), Options(bound=3))
    assert isinstance(found, NoFit)
    assert not found.proven
    assert "found within 3 search steps, which does not prove that none exists" in found.sentence


def test_a_search_that_ends_proves_that_there_is_no_place() -> None:
    found = place(ONE_TOO_MANY, snapshot_of(THREE_NODES))
    assert isinstance(found, NoFit)
    assert found.proven
    assert "the cluster has capacity for 2 of 3 pods like p1 and 1 of 1 pod like p0" in found.sentence


def tight(dice: random.Random, nodes: int) -> tuple[Gang, Snapshot]:
    """Nodes that are cut into pods, with little or nothing left over: there is a place for all of them."""
    made, kinds = [], []
    for number in range(nodes):
        parts = [(dice.randint(1, 6), dice.randint(1, 9)) for _ in range(dice.randint(1, 4))]
        kinds += [pod_class(cpu, memory=memory) for cpu, memory in parts]
        cpu = sum(part[0] for part in parts) + dice.choice((0, 0, 0, 1))
        memory = sum(part[1] for part in parts) + dice.choice((0, 0, 1, 2))
        made.append(
            node(f"n{number}", (f"b{number % 2}", f"r{number % 4}", f"h{number}"), cpu, memory=memory)
        )
    dice.shuffle(kinds)
    members = tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds))
    return Gang("g", members), Snapshot.build(made, [])


@pytest.mark.parametrize("seed", [1, 2, 4, 14, 15, 18])
def test_different_pods_that_just_fit_find_their_place(seed: int) -> None:
    dice = random.Random(seed)
    asked, snapshot = tight(dice, dice.randint(4, 14))
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert check(found, asked, snapshot) == []


def test_a_leader_and_two_hundred_workers_get_a_proven_answer_within_the_budget() -> None:
    nodes = [node(f"n{i}", (f"b{i // 400}", f"r{i // 20}", f"h{i}"), 8) for i in range(1200)]
    workers = tuple(Member(f"w{rank}", rank, pod_class(1)) for rank in range(1, 201))
    asked, snapshot = Gang("g", (Member("leader", 0, pod_class(3)), *workers)), Snapshot.build(nodes, [])
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert found.objective.domains == (1, 2, 26, 26)
    assert check(found, asked, snapshot) == []


def test_a_large_gang_of_identical_pods_gets_the_nearest_domain() -> None:
    nodes = [node(f"n{i}", (f"b{i // 1000}", f"r{i // 20}", f"h{i}"), 8) for i in range(2500)]
    found = place(gang_of(9000, required_level="block"), Snapshot.build(nodes, []))
    assert isinstance(found, NoFit)
    assert found.proven
    assert (found.nearest, found.free_slots) == (Nearest("block", ("b0",), 8000), 8000)
    assert "block b0 has capacity for 8000 of 9000" in found.sentence


@pytest.mark.parametrize("cpu", [0, 4], ids=["no capacity at all", "capacity for some"])
def test_hundreds_of_different_pods_that_do_not_fit_get_that_answer(cpu: int) -> None:
    kinds = [pod_class(1, memory=rank + 1) for rank in range(310)]
    asked = Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))
    nodes = [node(f"n{i}", ("b", "r", f"h{i}"), cpu, memory=200) for i in range(20)]
    found = place(asked, Snapshot.build(nodes, []))
    assert isinstance(found, NoFit)
    assert found.proven


def test_many_slices_that_each_lost_a_pod_are_completed_and_proven() -> None:
    """Each of the lost pods is a class of its own, tied to the rack of its slice."""
    racks = {f"r{rack:02}": {f"n{rack:02}-{i}": 4 for i in range(3)} for rack in range(50)}
    usage = [(f"n{rank // 4:02}-0", Usage({"cpu": 1000, "pods": 1})) for rank in range(200) if rank % 4]
    members = tuple(Member(f"p{rank}", rank, pod_class(1)) for rank in range(0, 200, 4))
    anchors = tuple(Anchor(f"n{rank // 4:02}-0", rank) for rank in range(200) if rank % 4)
    asked = Gang("g", members, slices=(Slice("subblock", 4),), anchors=anchors)
    found = place(asked, snapshot_of({"b": racks}, usage))
    assert isinstance(found, Assignment)
    assert found.proven
    assert found.nodes == {f"p{rank}": f"n{rank // 4:02}-0" for rank in range(0, 200, 4)}


@pytest.mark.parametrize(("nodes", "new", "fits"), [(6, 2, True), (3, 2, False)])
def test_slices_that_each_lost_a_pod_are_completed_beside_new_ones(nodes: int, new: int, fits: bool) -> None:
    """Nothing packs slices, so that the steps are for the search. nodes: of one pod each, in a rack."""
    racks = {f"r{rack:02}": {f"n{rack:02}-{i}": 1 for i in range(nodes)} for rack in range(31)}
    ranks = [*range(2, 93, 3), *range(93, 93 + 3 * new)]
    anchors = tuple(Anchor(f"n{rank // 3:02}-0", rank) for rank in range(93) if rank % 3 < 2)
    usage = [(f"n{rack:02}-0", Usage({"cpu": 1000, "pods": 1})) for rack in range(31)]
    members = tuple(Member(f"p{rank}", rank, pod_class(1)) for rank in ranks)
    asked = Gang("g", members, slices=(Slice("subblock", 3),), anchors=anchors)
    found = place(asked, snapshot_of({"b": racks}, usage))
    assert isinstance(found, Assignment) is fits
    assert found.proven


def test_slices_that_each_lost_a_pod_are_completed_beside_whole_ones_within_the_steps() -> None:
    """Nothing but the exact search knows slices, so it has most of the steps however many the classes are."""
    racks = {f"r{rack:02}": {f"n{rack:02}-{i}": 4 for i in range(3)} for rack in range(40)}
    lost, whole = range(0, 160, 4), range(160, 172)
    usage = [(f"n{rank // 4:02}-0", Usage({"cpu": 1000, "pods": 1})) for rank in range(160) if rank % 4]
    members = tuple(Member(f"p{rank}", rank, pod_class(1)) for rank in (*lost, *whole))
    anchors = tuple(Anchor(f"n{rank // 4:02}-0", rank) for rank in range(160) if rank % 4)
    asked = Gang("g", members, slices=(Slice("subblock", 4),), anchors=anchors)
    found = placed(asked, snapshot_of({"b": racks}, usage))
    assert found.proven
    assert found.objective.domains == (0, 0, 3, 3)
    assert all(found.nodes[f"p{rank}"].startswith(f"n{rank // 4:02}-") for rank in lost)


# --- more than a thousand million states --------------------------------------------------------------


def in_pools(dice: random.Random, pools: int, moved: int, nodes: int = 4) -> tuple[Gang, Snapshot]:
    """Pools of some nodes, each a rack, that are cut into pods of kinds of their own, with little left over.

    moved: cpus that a node of the last pool has more, and another less.
    """
    made: list[NodeInfo] = []
    members: list[Member] = []
    for pool in range(pools):
        rules = Rules(selector=(("pool", f"p{pool}"),))
        kinds = [
            replace(pod_class(dice.randint(1, 4), memory=dice.randint(1, 5)), rules=rules) for _ in range(3)
        ]
        for number in range(nodes):
            in_block = [dice.choice(kinds) for _ in range(dice.randint(2, 3))]
            cpu, memory = (sum(dict(kind.requests)[name] for kind in in_block) for name in ("cpu", "memory"))
            over = dice.choice((0, 1)) if pool < pools - 1 else {0: moved, 1: -moved}.get(number, 0)
            place = ("b", f"r{pool}", f"h{pool}-{number}")
            each = node(f"n{pool}-{number}", place, cpu // 1000 + over, memory=memory + dice.choice((0, 1)))
            made.append(replace(each, labels={**each.labels, "pool": f"p{pool}"}))
            members += [Member(f"p{len(members) + n}", None, kind) for n, kind in enumerate(in_block)]
    return Gang("g", tuple(members)), Snapshot.build(made, [])


@pytest.mark.parametrize("seed", [1, 4, 12])
def test_a_vast_gang_for_which_no_place_is_found_is_searched_once_more_and_known_not_to_fit(
    seed: int,
) -> None:
    asked, snapshot = in_pools(random.Random(seed), 8, moved=1)
    budget = Budget(10**9)
    found = place(asked, snapshot, Options(), budget, explained=False)
    assert isinstance(found, NoFit)
    assert found.proven
    assert budget.spent <= Options().bound


def test_a_vast_gang_finds_the_place_that_only_the_exact_search_finds() -> None:
    assert placed(*in_pools(random.Random(13), 12, moved=0)).proven


@pytest.mark.parametrize("seed", range(3))
def test_a_vast_gang_that_has_a_place_is_searched_once_more_and_proven(seed: int) -> None:
    asked, snapshot = in_pools(random.Random(seed), 8, moved=0)
    assert placed(asked, snapshot).proven


def test_a_vast_gang_has_few_steps_for_the_exact_search_before_it_is_packed() -> None:
    asked, snapshot = packed(loose(40, 12, 10, 0))
    budget = Budget(10**9)
    found = place(asked, snapshot, Options(), budget, explained=False)
    assert isinstance(found, NoFit)
    assert found.proven
    assert budget.spent < Options().bound // 32
