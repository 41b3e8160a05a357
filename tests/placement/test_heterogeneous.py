"""Workers in slices, or with a few minority pods beside them: the optimum, by trying everything or not."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.comparing import realistic_gangs
from tests.placement.heterogeneous import LEVELS, asked_of, cluster, snapshot_with
from tests.placement.small import gang_of, node, pod_class, seeds, snapshot_of, without_headroom
from webhook.placement import (
    Anchor,
    Assignment,
    Gang,
    Member,
    NoFit,
    Options,
    PlacementError,
    PodClass,
    Rules,
    Slice,
    Snapshot,
    Toleration,
    check,
    heterogeneous,
    homogeneous,
    place,
    vector,
)
from webhook.placement.budget import Budget
from webhook.placement.costs import Costs
from webhook.placement.heterogeneous.integer_program import LexicographicSearch, Minimum
from webhook.placement.question import Impossible, ask
from webhook.placement.tree import build

WORKER = pod_class(1)


@pytest.mark.parametrize("seed", seeds(30))
def test_leaders_and_slices_get_the_optimum_of_the_search_over_all_states(seed: int) -> None:
    dice = random.Random(seed + 1000)
    for _ in range(4):
        nodes = cluster(dice, 4, (0, 1, 2, 4, 8))
        snapshot, asked = snapshot_with(dice, nodes), asked_of(dice, 9)
        if dice.random() < 0.2:
            anchor = Anchor(dice.choice(nodes).name)
            asked = Gang("g", asked.members, asked.required_level, slices=asked.slices, anchors=(anchor,))
        try:
            question, _ = ask(asked, snapshot, Options())
        except Impossible:
            continue
        if not homogeneous.serves(question):
            continue
        root, costs = build(question, snapshot, Budget(10**9)).root, Costs(question.levels)
        expected = heterogeneous.solve(question, root, len(snapshot.nodes), Budget(10**6))
        assert expected.proven
        found = place(asked, snapshot)
        assert found.proven
        if isinstance(found, NoFit):
            assert expected.cost is None
            continue
        assert expected.cost is not None
        assert check(found, asked, snapshot) == []
        assert without_headroom(found.objective) == without_headroom(costs.objective(expected.cost))


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.integers(0, 10**9))
def test_whatever_is_asked_what_is_found_keeps_every_rule(seed: int) -> None:
    dice = random.Random(seed)
    snapshot, asked = snapshot_with(dice, cluster(dice, 4, (0, 1, 2, 4, 8))), asked_of(dice, 12)
    found = place(asked, snapshot)
    if isinstance(found, Assignment):
        assert check(found, asked, snapshot) == []


def test_eight_minority_pods_of_three_classes_are_proven_beside_a_thousand_workers() -> None:
    nodes = [node(f"n{i}", (f"b{i // 100}", f"r{i // 10}", f"h{i}"), 8, memory=64) for i in range(600)]
    minority = [pod_class(1, memory=20)] * 3 + [pod_class(3)] * 3 + [pod_class(2, memory=1)] * 2
    workers = [Member(f"w{rank}", rank, WORKER) for rank in range(1000)]
    members = [*workers, *(Member(f"o{rank}", 1000 + rank, kind) for rank, kind in enumerate(minority))]
    asked, snapshot = Gang("g", tuple(members)), Snapshot.build(nodes, [])
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert check(found, asked, snapshot) == []
    assert found.objective.domains == (2, 13, 127, 127)


@pytest.mark.parametrize("a_node", [1, 8])
def test_eight_minority_pods_of_three_classes_are_proven_beside_slices(a_node: int) -> None:
    """Where each pod takes a node as where many share one."""
    amounts = {"cpu": 64_000, "pods": 110, "nvidia.com/gpu": 8}
    nodes = [
        replace(node(f"n{i}", (f"b{i // 240}", f"r{i // 12}", f"h{i}")), allocatable=amounts)
        for i in range(1440)
    ]
    gpus = 8 // a_node
    kinds = [vector({"cpu": 4000, "pods": 1, "nvidia.com/gpu": 2})]
    kinds += [vector({"cpu": 8000, "pods": 1})] * 3 + [
        vector({"cpu": 9000, "pods": 1, "nvidia.com/gpu": 1})
    ] * 4
    worker = PodClass(vector({"cpu": 1000, "pods": 1, "nvidia.com/gpu": gpus}))
    members = [Member(f"w{rank}", rank, worker) for rank in range(1000)]
    members += [Member(f"o{rank}", 1000 + rank, PodClass(kind)) for rank, kind in enumerate(kinds)]
    asked = Gang("g", tuple(members), slices=(Slice("subblock", 4),))
    snapshot = Snapshot.build(nodes, [])
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert check(found, asked, snapshot) == []
    assert found.objective.domains[-1] == (126 if a_node == 8 else 1001)


@pytest.mark.parametrize("seed", seeds(40))
def test_the_capacity_that_minority_pods_take_leads_to_the_same_optimum_as_patterns_of_nodes(
    seed: int,
) -> None:
    dice = random.Random(seed + 2000)
    nodes = cluster(dice, 6, dice.choice(((0, 1, 1), (0, 3, 4, 8, 8))))
    size = dice.choice((2, 3, 4))
    kinds = [
        pod_class(dice.choice((1, 2, 3)), memory=dice.randint(0, 4)) for _ in range(dice.choice((1, 2, 3)))
    ]
    minority = [kind for kind in kinds for _ in range(dice.choice((1, 1, 2)))]
    workers = [Member(f"w{rank}", rank, WORKER) for rank in range(size * dice.randint(1, 6))]
    minority = [kind for kind in minority if kind != WORKER][: len(workers) - 1]
    others = [Member(f"o{rank}", 50 + rank, kind) for rank, kind in enumerate(minority)]
    asked = Gang("g", (*workers, *others), slices=(Slice(dice.choice(LEVELS), size),))
    snapshot = snapshot_with(dice, nodes)
    try:
        question, _ = ask(asked, snapshot, Options())
    except Impossible:
        return
    if not others or not homogeneous.serves(question):
        return
    root = build(question, snapshot, Budget(10**9)).root
    expected = heterogeneous.solve(question, root, len(nodes), Budget(10**9))
    found = place(asked, snapshot)
    assert expected.proven
    assert found.proven
    assert isinstance(found, Assignment) == (expected.cost is not None)
    if isinstance(found, Assignment) and expected.cost is not None:
        best = question.costs().objective(expected.cost)
        assert without_headroom(found.objective) == without_headroom(best)
        assert check(found, asked, snapshot) == []


def test_a_leader_that_fits_beside_the_workers_takes_no_node_of_its_own() -> None:
    tree = {"b1": {"r": {"a": 4, "b": 4}}, "b2": {"r": {"c": 4, "d": 1}}}
    leader = Member("leader", 9, pod_class(2))
    asked = Gang("g", (*gang_of(2).members, leader))
    found = place(asked, snapshot_of(tree))
    assert isinstance(found, Assignment)
    assert len(set(found.nodes.values())) == 1


@pytest.mark.parametrize("seed", seeds(30))
def test_a_leader_equal_to_its_workers_stands_beside_the_slices(seed: int) -> None:
    """As a leader of another class that asks for the same amounts."""
    dice = random.Random(seed)
    snapshot = snapshot_with(dice, cluster(dice, 4, (0, 1, 2, 4, 8)))
    size, worker = dice.choice((2, 3, 4)), pod_class(1, memory=dice.choice((0, 1)))
    slices = (Slice(dice.choice(LEVELS), size),)
    workers = [Member(f"w{rank}", rank, worker) for rank in range(size * dice.randint(1, 3))]
    with_equal_leader = Gang("g", (Member("leader", -1, worker), *workers), slices=slices)
    other = replace(worker, rules=Rules(tolerations=(Toleration("unlike"),)))
    with_other_leader = Gang("g", (Member("leader", -1, other), *workers), slices=slices)
    found, expected = place(with_equal_leader, snapshot), place(with_other_leader, snapshot)
    assert found.proven
    assert isinstance(found, NoFit) == isinstance(expected, NoFit)
    if isinstance(found, Assignment) and isinstance(expected, Assignment):
        assert found.objective == expected.objective
        assert check(found, with_equal_leader, snapshot) == []


def test_more_than_a_few_other_pods_beside_slices_are_refused_by_name() -> None:
    others = [Member(f"o{rank}", 10 + rank, pod_class(2)) for rank in range(9)]
    asked = Gang("g", (*gang_of(10).members, *others), slices=(Slice("subblock", 2),))
    with pytest.raises(PlacementError, match="at most 8 other pods are allowed beside them"):
        place(asked, snapshot_of({"b": {"r": {"a": 99}}}))


def test_slices_of_thousands_of_pods_are_proven() -> None:
    dice = random.Random(5)
    nodes = [
        node(f"n{i}", (f"b{i // 200}", f"r{i // 16}", f"h{i}"), dice.choice((0, 1, 3, 8, 8)))
        for i in range(2000)
    ]
    asked, snapshot = (
        gang_of(2000, slices=(Slice("subblock", 10), Slice("host", 2))),
        Snapshot.build(nodes, []),
    )
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert check(found, asked, snapshot) == []


# --- why there is no place --------------------------------------------------------------------------------


def test_a_gang_in_slices_gets_the_layer_that_lacks_capacity() -> None:
    tree = {"b": {"r1": {"a": 4, "b": 1}, "r2": {"c": 2, "d": 1}}}
    found = place(gang_of(8, slices=(Slice("subblock", 4), Slice("host", 2))), snapshot_of(tree))
    assert isinstance(found, NoFit)
    assert (
        "in slices of 4 per subblock, 2 per host; capacity for 1 of 2 subblock slices, 3 of 4 host slices"
        in found.sentence
    )


@pytest.mark.promise("O379")
def test_of_different_pods_those_are_named_that_do_not_fit_and_why() -> None:
    leader = Member("leader", 9, PodClass(pod_class(1).requests, Rules(selector=(("role", "head"),))))
    asked = Gang("g", (*gang_of(2).members, leader))
    found = place(asked, snapshot_of({"b": {"r": {"a": 4, "c": 4}}}))
    assert isinstance(found, NoFit)
    assert found.proven
    assert 'for 1 pod like leader alone: capacity for 0 (no label "role": 2)' in found.sentence


def test_of_different_pods_that_each_fit_alone_each_gets_what_is_excluded_for_it() -> None:
    leader = Member(
        "leader", 9, PodClass(pod_class(2).requests, Rules(selector=(("kubernetes.io/os", "a"),)))
    )
    nodes = [node(name, ("b", "r", name), 2) for name in "ac"]
    nodes[0] = replace(nodes[0], labels={**nodes[0].labels, "kubernetes.io/os": "a"})
    found = place(Gang("g", (*gang_of(3).members, leader)), Snapshot.build(nodes, []))
    assert isinstance(found, NoFit)
    assert "for 3 pods like p-0 alone: capacity for 4 (no node is excluded)" in found.sentence
    assert 'for 1 pod like leader alone: capacity for 1 (no label "kubernetes.io/os": 1)' in found.sentence


def test_of_different_pods_in_one_domain_each_gets_the_free_slots_of_the_largest_domain() -> None:
    asked = replace(
        gang_of(2, pod_class(4)), members=(*gang_of(2, pod_class(4)).members, Member("x", 9, pod_class(1)))
    )
    tree = {"b": {"r1": {"a": 4, "b": 1}, "r2": {"c": 4, "d": 1}}}
    found = place(replace(asked, required_level="subblock"), snapshot_of(tree))
    assert isinstance(found, NoFit)
    assert 'for 2 pods like p-0 alone: capacity for 1 (resource "cpu": 2)' in found.sentence


def test_more_classes_of_pods_than_can_be_looked_at_on_so_many_nodes_get_that_answer() -> None:
    kinds = [pod_class(1, memory=rank + 1) for rank in range(40)]
    asked = Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))
    nodes = [node(f"n{i}", ("b", "r", f"h{i}"), 4, memory=200) for i in range(20)]
    found = place(asked, Snapshot.build(nodes, []), Options(bound=100))
    assert isinstance(found, NoFit)
    assert not found.proven
    assert found.sentence == (
        "Gang g is not placed: no placement of 40 pods was found within 100 search steps, which does not "
        "prove that none exists; checking 20 nodes for 40 pod classes takes more steps."
    )


def test_no_program_minimises_the_same_costs_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where each host has one node, nodes and hosts are the same objective."""
    solved: list[tuple[object, tuple[float, ...]]] = []
    minimise = LexicographicSearch.minimise

    def noted(search: LexicographicSearch, costs: Sequence[float]) -> Minimum:
        solved.append((search, tuple(costs)))
        return minimise(search, costs)

    monkeypatch.setattr(LexicographicSearch, "minimise", noted)
    drawn = realistic_gangs.drawn(142)
    assert place(drawn.gang, drawn.snapshot).proven
    assert len({search for search, _ in solved}) > 1
    assert len(set(solved)) == len(solved)
