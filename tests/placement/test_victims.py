"""Nodes that a gang could have if pods went: held against trying every set of nodes."""

import itertools
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from webhook.placement import Gang, Member, Node, NoFit, Options, PodClass, Snapshot, Usage, place
from webhook.placement.victims import claim

OPTIONS = Options()


def gang(pods: int, gpus: int) -> Gang:
    pod_class = PodClass((("gpu", gpus),))
    return Gang("g", tuple(Member(f"m{index}", None, pod_class) for index in range(pods)))


def cluster(*nodes: list[tuple[str, int, int]]) -> Snapshot:
    """Nodes of 8 GPUs, each with pods of (name, GPUs, priority)."""
    usage = [
        (f"n{index}", Usage({"gpu": gpus}, name=name, priority=priority))
        for index, pods in enumerate(nodes)
        for name, gpus, priority in pods
    ]
    made = [Node(f"n{index}", allocatable={"gpu": 8, "pods": 10}) for index in range(len(nodes))]
    return Snapshot.build(made, usage)


def below(priority: int) -> Callable[[Usage], bool]:
    return lambda use: use.priority < priority


def test_the_node_with_the_least_important_pods_is_claimed() -> None:
    snapshot = cluster([("important", 8, 50)], [("cheap", 8, 1)], [("dear", 8, 40)])
    found = claim(gang(1, 8), snapshot, OPTIONS, below(100))
    assert found is not None
    assert found.nodes == frozenset({"n1"})
    assert found.victims == ("cheap",)


def test_the_node_with_the_fewest_pods_is_claimed_among_equals() -> None:
    snapshot = cluster([("a", 4, 1), ("b", 4, 1)], [("c", 8, 1)])
    found = claim(gang(1, 8), snapshot, OPTIONS, below(100))
    assert found is not None
    assert found.victims == ("c",)


def test_pods_of_the_same_or_higher_priority_never_go() -> None:
    assert claim(gang(1, 8), cluster([("equal", 8, 100)], [("higher", 1, 200)]), OPTIONS, below(100)) is None


def test_free_nodes_are_used_beside_claimed_ones() -> None:
    found = claim(gang(2, 8), cluster([], [("cheap", 8, 1)]), OPTIONS, below(100))
    assert found is not None
    assert found.nodes == frozenset({"n0", "n1"})
    assert found.victims == ("cheap",)


def test_a_gang_that_no_pod_stands_in_the_way_of_claims_nothing() -> None:
    assert claim(gang(9, 8), cluster([], [("cheap", 8, 1)]), OPTIONS, below(100)) is None


@settings(deadline=None, max_examples=150, derandomize=True)
@given(
    st.lists(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 3)), max_size=2), min_size=1, max_size=5),
    st.integers(1, 4),
    st.sampled_from([2, 4, 8]),
)
def test_a_claim_is_found_exactly_when_some_set_of_nodes_would_do(
    shape: list[list[tuple[int, int]]], pods: int, gpus: int
) -> None:
    nodes = [
        [(f"p{n}-{i}", gpu, priority) for i, (gpu, priority) in enumerate(each)]
        for n, each in enumerate(shape)
    ]
    snapshot, wanted, may_go = cluster(*nodes), gang(pods, gpus), below(2)
    possible = any(
        not isinstance(place(wanted, snapshot.without(chosen, may_go), OPTIONS), NoFit)
        for count in range(1, len(nodes) + 1)
        for chosen in itertools.combinations(snapshot.nodes, count)
        if any(may_go(use) for name in chosen for use in snapshot.nodes[name].usages)
    )
    found = claim(wanted, snapshot, OPTIONS, may_go)
    assert (found is not None) == possible
    if found is not None:
        assert all(
            may_go(use)
            for name in found.nodes
            for use in snapshot.nodes[name].usages
            if use.name in found.victims
        )
