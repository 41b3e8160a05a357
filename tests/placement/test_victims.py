"""Which pods would have to go: held against trying every set of nodes."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.comparing.hostile_large import preempting
from tests.placement.small import gang_of, nodes_of, snapshot_of
from webhook.placement import (
    Assignment,
    Budget,
    Gang,
    Member,
    NodeInfo,
    NoFit,
    Options,
    PodClass,
    Snapshot,
    Usage,
    check,
    place,
)
from webhook.placement.victims import Victims, choose, units_on

OPTIONS = Options()


def find(
    gang: Gang,
    snapshot: Snapshot,
    options: Options,
    may_end: Callable[[Usage], bool],
    budget: Budget | None = None,
) -> Victims | None:
    return choose(gang, snapshot, options, units_on(snapshot, may_end), budget=budget)


def gang(pods: int, gpus: int) -> Gang:
    pod_class = PodClass((("gpu", gpus),))
    return Gang("g", tuple(Member(f"m{index}", None, pod_class) for index in range(pods)))


def cluster(*nodes: list[tuple[str, int, int]]) -> Snapshot:
    """Nodes of 8 GPUs, each with pods of (name, GPUs, priority)."""
    usage = [
        (f"n{index}", Usage({"gpu": gpus}, name=name, priority=priority, uid=name))
        for index, pods in enumerate(nodes)
        for name, gpus, priority in pods
    ]
    made = [NodeInfo(f"n{index}", allocatable={"gpu": 8, "pods": 10}) for index in range(len(nodes))]
    return Snapshot.build(made, usage)


def below(priority: int) -> Callable[[Usage], bool]:
    return lambda use: use.priority < priority


def test_the_node_with_the_least_important_pods_is_emptied() -> None:
    snapshot = cluster([("important", 8, 50)], [("cheap", 8, 1)], [("dear", 8, 40)])
    found = find(gang(1, 8), snapshot, OPTIONS, below(100))
    assert found is not None
    assert found.nodes == frozenset({"n1"})
    assert found.pods == {"cheap"}


def test_a_gang_that_fits_as_it_is_needs_no_victims_though_its_questions_take_all_steps() -> None:
    asked, snapshot, options = preempting(random.Random("preemption/8"))
    assert isinstance(place(asked, snapshot, options), Assignment)
    found = find(asked, snapshot, options, below(2))
    assert found is not None
    assert not found.pods


def test_gangs_of_several_classes_look_for_the_best_place_once() -> None:
    asked, snapshot, options = preempting(random.Random("preemption/4"))
    budget = Budget(4 * options.bound)
    found = find(asked, snapshot, options, below(2), budget)
    assert found is not None
    assert budget.spent < 2 * options.bound
    best = place(asked, snapshot, options)
    assert isinstance(best, Assignment)
    assert not found.pods
    assert found.assignment.objective.domains == best.objective.domains


def test_the_node_with_the_fewest_pods_is_emptied_among_equals() -> None:
    snapshot = cluster([("a", 4, 1), ("b", 4, 1)], [("c", 8, 1)])
    found = find(gang(1, 8), snapshot, OPTIONS, below(100))
    assert found is not None
    assert found.pods == {"c"}


@pytest.mark.promise("O180")
def test_pods_of_the_same_or_higher_priority_are_no_victims() -> None:
    assert find(gang(1, 8), cluster([("equal", 8, 100)], [("higher", 1, 200)]), OPTIONS, below(100)) is None


def test_free_nodes_are_used_beside_emptied_ones() -> None:
    found = find(gang(2, 8), cluster([], [("cheap", 8, 1)]), OPTIONS, below(100))
    assert found is not None
    assert found.nodes == frozenset({"n0", "n1"})
    assert found.pods == {"cheap"}


def test_a_gang_that_no_pod_blocks_has_no_victims() -> None:
    assert find(gang(9, 8), cluster([], [("cheap", 8, 1)]), OPTIONS, below(100)) is None


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    st.lists(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), max_size=2), min_size=1, max_size=5),
    st.integers(1, 4),
    st.sampled_from([2, 4, 8]),
)
def test_victims_are_found_exactly_when_some_set_of_nodes_would_do(
    shape: list[list[tuple[int, int]]], pods: int, gpus: int
) -> None:
    nodes = [
        [(f"p{n}-{i}", gpu, priority) for i, (gpu, priority) in enumerate(each)]
        for n, each in enumerate(shape)
    ]
    snapshot, wanted, may_be_victim = cluster(*nodes), gang(pods, gpus), below(2)
    possible = any(
        not isinstance(place(wanted, snapshot.without(chosen, may_be_victim), OPTIONS), NoFit)
        for count in range(len(nodes) + 1)
        for chosen in itertools.combinations(snapshot.nodes, count)
    )
    found = find(wanted, snapshot, OPTIONS, may_be_victim)
    assert (found is not None) == possible
    if found is not None:
        assert all(
            may_be_victim(use)
            for name in found.nodes
            for use in snapshot.nodes[name].usages
            if use.name in found.pods
        )


# --- units, and no eviction in vain -----------------------------------------------------------------

TREE = {"b1": {"r": {"a": 2, "b": 2}}, "b2": {"r": {"c": 2, "d": 2}}}


def pod(name: str, priority: int, gang: str = "", cpu: int = 1) -> Usage:
    return Usage({"cpu": cpu * 1000, "pods": 1}, name=name, gang=gang, priority=priority, uid=name)


def victims(
    usage: list[tuple[str, Usage]], count: int, priority: int, **fields: Any
) -> tuple[str, ...] | None:
    found = find(gang_of(count, **fields), snapshot_of(TREE, usage), OPTIONS, below(priority))
    return tuple(sorted(found.pods)) if found is not None else None


def test_a_gang_that_fits_has_no_victims() -> None:
    assert victims([("a", pod("low", 1))], 4, 10) == ()


@pytest.mark.promise("O180")
def test_pods_of_the_same_or_a_higher_priority_stay() -> None:
    full = [(node, pod(f"p{node}", 10, cpu=2)) for node in "abcd"]
    assert victims(full, 1, 10) is None


def test_the_lowest_priority_is_evicted() -> None:
    full = [("a", pod("five", 5, cpu=2)), ("b", pod("three", 3, cpu=2))]
    full += [(node, pod(f"p{node}", 10, cpu=2)) for node in "cd"]
    assert victims(full, 2, 10) == ("three",)


def test_a_pod_that_need_not_be_evicted_stays() -> None:
    full = [("a", pod("one", 1)), ("a", pod("two", 1))]
    full += [(node, pod(f"p{node}", 10, cpu=2)) for node in "bcd"]
    assert victims(full, 1, 10) == ("one",)


def test_a_gang_is_evicted_as_a_whole() -> None:
    full = [("a", pod("g-0", 1, "g", 2)), ("c", pod("g-1", 1, "g", 2))]
    full += [(node, pod(f"p{node}", 10, cpu=2)) for node in "bd"]
    assert victims(full, 2, 10) == ("g-0", "g-1")


@pytest.mark.parametrize("seed", range(10))
def test_the_gang_fits_once_the_victims_are_gone_and_none_of_them_could_stay(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        usage = [
            (node.name, pod(f"p{number}-{node.name}", dice.choice((1, 2, 20))))
            for node in nodes_of(TREE)
            for number in range(dice.randint(0, 2))
        ]
        snapshot = Snapshot.build(nodes_of(TREE), usage)
        asked = gang_of(dice.randint(1, 8), required_level=dice.choice((None, "block")))
        found = find(asked, snapshot, OPTIONS, below(10))
        if found is None:
            without_all = [(node, use) for node, use in usage if use.priority >= 10]
            assert isinstance(place(asked, Snapshot.build(nodes_of(TREE), without_all)), NoFit)
            continue
        left = [(node, use) for node, use in usage if use.name not in found.pods]
        assert check(found.assignment, asked, Snapshot.build(nodes_of(TREE), left)) == []
        for without in found.pods:
            more = [(n, u) for n, u in usage if u.name == without or u.name not in found.pods]
            assert check(found.assignment, asked, Snapshot.build(nodes_of(TREE), more))
