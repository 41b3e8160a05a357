"""Placement cases known from other schedulers (Kueue, KAI, the original daemon), each with its result.

Notation: block{subblock{node: free slots}}. A case that differs from its source says why ours is better.
"""

from typing import Any

import pytest

from tests.placement.small import Tree, gang_of, node, placed, pod_class, snapshot_of, taken
from webhook.placement import (
    Anchor,
    Gang,
    Member,
    NoFit,
    PlacementError,
    Slice,
    Snapshot,
    Usage,
    place,
)

DEFAULT: Tree = {
    "b1": {"r1": {"x3": 1}, "r2": {"x5": 1, "x1": 1, "x6": 1}},
    "b2": {"r1": {"x2": 1}, "r2": {"x4": 2}},
}
BINARY: Tree = {
    "b1": {"r1": {"x3": 1, "x5": 1}, "r2": {"x1": 1, "x6": 1}},
    "b2": {"r1": {"x2": 1, "x4": 1}, "r2": {"x7": 1, "x8": 1}},
}


CASES: list[tuple[str, Tree, int, dict[str, Any], dict[str, int]]] = [
    (
        "one rack of four nodes rather than two racks of one node",
        {"b1": {"r1": {"x3": 2}, "r2": {"x5": 2}, "r3": {"x1": 1, "x6": 1, "x2": 1, "x4": 1}}},
        4,
        {"required_level": "block"},
        {"x1": 1, "x2": 1, "x4": 1, "x6": 1},
    ),
    ("a whole block", BINARY, 4, {"required_level": "block"}, {"x1": 1, "x3": 1, "x5": 1, "x6": 1}),
    ("the tightest rack", DEFAULT, 2, {"required_level": "subblock"}, {"x4": 2}),
    (
        "one pod leaves the larger block whole; Kueue takes b1/r1, an equal rack of the larger block",
        DEFAULT,
        1,
        {"required_level": "subblock"},
        {"x2": 1},
    ),
    ("one pod in the tightest block", DEFAULT, 1, {"required_level": "block"}, {"x2": 1}),
    (
        "everything, over both blocks",
        DEFAULT,
        6,
        {"preferred_levels": ("block",)},
        {"x1": 1, "x3": 1, "x4": 2, "x5": 1, "x6": 1},
    ),
    (
        "the last block is the tightest",
        {"b1": {"r": {"x1": 2}}, "b2": {"r": {"x2": 1}}, "b3": {"r": {"x3": 4}}},
        5,
        {"preferred_levels": ("block",)},
        {"x2": 1, "x3": 4},
    ),
    (
        "the last node is the tightest",
        {"b": {"r": {"n1": 3, "n2": 3, "n3": 2, "n4": 1}}},
        7,
        {"required_level": "subblock"},
        {"n1": 3, "n2": 3, "n4": 1},
    ),
    (
        "one rack of the larger block; Kueue takes the tighter block and two racks",
        {
            "b0": {"r0": {"a": 8, "b": 8}, "r1": {"c": 4, "d": 8}, "r2": {"e": 2}},
            "b1": {"r0": {"f": 8, "g": 2}, "r1": {"h": 8}},
        },
        14,
        {"required_level": "block"},
        {"a": 8, "b": 6},
    ),
    (
        "one rack, which a choice of the block by its size alone misses",
        {
            "b0": {"r0": {"a": 2, "b": 8}, "r1": {"c": 8, "d": 8}},
            "b1": {"r0": {"e": 8}, "r1": {"f": 8}},
        },
        11,
        {"preferred_levels": ("block",)},
        {"c": 8, "d": 3},
    ),
    (
        "two racks of two nodes, not three racks, as a window over sorted nodes finds",
        {"b": {"r1": {"a": 1, "b": 1}, "r2": {"c": 1}, "r3": {"d": 1, "e": 1}}},
        4,
        {},
        {"a": 1, "b": 1, "d": 1, "e": 1},
    ),
    ("several pods on a node", {"b": {"r": {"a": 8, "b": 8}}}, 4, {}, {"a": 4}),
    (
        "the fullest zone that fits",
        {
            "A": {"r1": {"a": 2}, "r2": {"b": 1}, "r3": {"c": 1}, "r4": {"d": 1}},
            "B": {"r1": {"e": 2}, "r2": {"f": 2}, "r3": {"g": 2}},
        },
        3,
        {"required_level": "block", "preferred_levels": ("subblock",)},
        {"a": 2, "b": 1},
    ),
    (
        "slices without waste",
        {"b": {"r": {"x3": 3, "x5": 2, "x1": 2}}},
        4,
        {"required_level": "block", "slices": (Slice("host", 2),)},
        {"x1": 2, "x5": 2},
    ),
    (
        "slices of two in hosts of three",
        {"b": {"r": {"x3": 3, "x5": 3, "x1": 3}}},
        6,
        {"required_level": "block", "slices": (Slice("host", 2),)},
        {"x1": 2, "x3": 2, "x5": 2},
    ),
    (
        "slices over two blocks",
        {"b1": {"r1": {"x3": 3, "x5": 3, "x1": 3}}, "b2": {"r1": {"x6": 6}}},
        12,
        {"preferred_levels": ("block",), "slices": (Slice("host", 3),)},
        {"x1": 3, "x3": 3, "x6": 6},
    ),
    (
        "slices of racks",
        DEFAULT,
        4,
        {"preferred_levels": ("block",), "slices": (Slice("subblock", 2),)},
        {"x1": 1, "x4": 2, "x5": 1},
    ),
    (
        "slices choose the block",
        {
            "b1": {"r1": {"a": 2}, "r2": {"b": 2}, "r3": {"c": 2}},
            "b2": {"r1": {"d": 3}, "r2": {"e": 3}},
        },
        6,
        {"required_level": "block", "slices": (Slice("subblock", 3),)},
        {"d": 3, "e": 3},
    ),
]


@pytest.mark.promise("R44", "R45")
@pytest.mark.parametrize(
    ("tree", "count", "asked", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_known_case_has_its_known_result(
    tree: Tree, count: int, asked: dict[str, Any], expected: dict[str, int]
) -> None:
    assert taken(placed(gang_of(count, **asked), snapshot_of(tree)).nodes) == expected


REFUSED: list[tuple[str, Tree, int, dict[str, Any], str]] = [
    ("a block too small", DEFAULT, 5, {"required_level": "block"}, "block b1 has capacity for 4 of 5"),
    (
        "no rack holds a slice",
        {"b1": {"r1": {"x3": 2}, "r2": {"x5": 2}, "r3": {"x1": 2}}},
        6,
        {"required_level": "block", "slices": (Slice("subblock", 3),)},
        "in slices of 3 per subblock",
    ),
    (
        "slices that do not nest into the rooms",
        {"b1": {"r1": {"x1": 3, "x2": 3, "x3": 0}}},
        6,
        {"slices": (Slice("subblock", 6), Slice("host", 2))},
        "no node has capacity for any of them in slices of 6 per subblock, 2 per host",
    ),
    ("a cluster too small", DEFAULT, 8, {}, "the cluster has capacity for 7 of 8"),
]


@pytest.mark.promise("R175")
@pytest.mark.parametrize(
    ("tree", "count", "asked", "words"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_a_gang_without_place_gets_the_nearest_domain(
    tree: Tree, count: int, asked: dict[str, Any], words: str
) -> None:
    found = place(gang_of(count, **asked), snapshot_of(tree))
    assert isinstance(found, NoFit)
    assert words in found.sentence
    assert found.proven
    assert "\n" not in found.sentence


def test_each_unusable_node_is_counted_once_under_its_worst_cause() -> None:
    from dataclasses import replace

    from webhook.placement import Rules, Taint

    nodes = [
        replace(node("x1", ("b", "r", "1"), 1), taints=(Taint("key", "value", "NoSchedule"),)),
        replace(node("x2", ("b", "r", "2"), 1), labels={"zone": "b"}),
        replace(node("x3", ("b", "r", "3"), 2), labels={"zone": "b"}),
        replace(node("x4", ("b", "r", "4")), labels={"zone": "a"}, allocatable={"cpu": 100, "pods": 1}),
    ]
    nodes[0] = replace(nodes[0], labels={"zone": "a"})
    kind = replace(pod_class(1), rules=Rules(selector=(("zone", "a"),)))
    found = place(gang_of(1, kind), Snapshot.build(nodes, []))
    assert isinstance(found, NoFit)
    assert found.causes == {"nodeSelector": 2, 'resource "cpu"': 1, 'taint "key=value:NoSchedule"': 1}
    assert found.sentence == (
        "Gang g cannot be placed: 1 pod does not fit; no node has capacity for any of them. "
        'Of 4 nodes, excluded: nodeSelector: 2, resource "cpu": 1, taint "key=value:NoSchedule": 1.'
    )


def test_pods_count_against_the_pod_limit_of_a_node() -> None:
    full = Snapshot.build([node("n", ("b", "r", "h"), 8)], [("n", Usage({"pods": 102}))])
    found = place(gang_of(9), full)
    assert isinstance(found, NoFit)
    assert found.free_slots == 8


def test_unequal_pods_are_placed_whatever_the_order_of_nodes_and_ranks() -> None:
    snapshot = snapshot_of({"b": {"r": {"small": 1, "big": 8}}})
    gang = Gang("g", (Member("p0", 0, pod_class(8)), Member("p1", 1, pod_class(1))))
    assert placed(gang, snapshot).nodes == {"p0": "big", "p1": "small"}


def test_the_leader_takes_the_node_that_costs_the_workers_least() -> None:
    snapshot = snapshot_of({"b": {"r1": {"h1": 2, "h2": 4, "h3": 3}}})
    members = (Member("leader", 0, pod_class(1)), *(Member(f"w{i}", i, pod_class(2)) for i in range(1, 5)))
    assert placed(Gang("g", members, required_level="subblock"), snapshot).nodes["leader"] == "h3"


def test_a_rack_that_holds_the_workers_alone_does_not_hold_the_gang() -> None:
    snapshot = snapshot_of({"b1": {"small": {"a": 1, "b": 2}, "large": {"c": 6}}})
    gang = Gang("g", (Member("l", 0, pod_class(2)), Member("w", 1, pod_class(2))), required_level="subblock")
    assert set(placed(gang, snapshot).nodes.values()) == {"c"}


def test_two_gangs_in_one_pass_share_what_is_left() -> None:
    snapshot = snapshot_of({"b1": {"r": {"x1": 2}}, "b2": {"r": {"x2": 2}}, "b3": {"r": {"x3": 2}}})
    first = placed(gang_of(3), snapshot)
    second = placed(gang_of(3), snapshot.assume(first, gang_of(3)))
    assert taken(first.nodes) == {"x1": 2, "x2": 1}
    assert taken(second.nodes) == {"x2": 1, "x3": 2}


@pytest.mark.promise("O91")
def test_growth_stays_with_the_pods_that_are_placed() -> None:
    snapshot = Snapshot.build(
        [node(f"n{i}", (f"b{i // 2}", f"r{i}", f"h{i}"), 4) for i in range(4)], [("n2", Usage({"cpu": 1000}))]
    )
    gang = gang_of(2, anchors=(Anchor("n2", 0),), required_level="block")
    assert taken(placed(gang, snapshot).nodes) == {"n2": 2}


def test_a_lost_pod_returns_to_the_rack_of_its_slice() -> None:
    tree: Tree = {"b1": {"r1": {"x1": 1, "x2": 1}, "r2": {"x4": 2, "x5": 2}}}
    members = (Member("lost", 2, pod_class()),)
    anchors = (Anchor("x1", 0), Anchor("x2", 1), Anchor("x4", 3))
    gang = Gang("g", members, slices=(Slice("subblock", 2),), anchors=anchors)
    busy = snapshot_of(
        tree, [("x1", Usage({"cpu": 1000})), ("x2", Usage({"cpu": 1000})), ("x4", Usage({"cpu": 1000}))]
    )
    assert placed(gang, busy).nodes == {"lost": "x4"}


def test_anchors_on_a_node_that_is_gone_do_not_bind() -> None:
    assert placed(gang_of(2, anchors=(Anchor("gone", 0),)), snapshot_of(DEFAULT)).nodes


def test_ranks_run_along_the_topology() -> None:
    found = placed(gang_of(6), snapshot_of(DEFAULT))
    blocks = [found.nodes[f"p-{rank}"] for rank in range(6)]
    assert [name in ("x2", "x4") for name in blocks] == sorted(name in ("x2", "x4") for name in blocks)


@pytest.mark.promise("O22")
def test_a_node_without_topology_labels_is_used_but_is_close_to_nothing() -> None:
    loose = [node(f"loose{i}", None, 2) for i in range(2)]
    home = [node(f"n{i}", ("b", f"r{i}", f"h{i}"), 1) for i in range(4)]
    snapshot = Snapshot.build(loose + home, [])
    assert taken(placed(gang_of(4), snapshot).nodes) == {"n0": 1, "n1": 1, "n2": 1, "n3": 1}
    assert taken(placed(gang_of(5), snapshot).nodes) == {"loose0": 2, "n0": 1, "n1": 1, "n2": 1}
    refused = place(gang_of(5, required_level="block"), snapshot)
    assert isinstance(refused, NoFit)
    assert refused.causes == {"no topology labels": 2}


def test_equal_names_under_different_parents_are_different_domains() -> None:
    snapshot = snapshot_of({"b1": {"r1": {"a": 1}}, "b2": {"r1": {"b": 1}}})
    assert isinstance(place(gang_of(2, required_level="subblock"), snapshot), NoFit)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"required_level": "zone"}, 'no level "zone"'),
        ({"slices": (Slice("rack", 2),)}, 'no level "rack"'),
        ({"slices": (Slice("host", 0),)}, "a slice has at least 1"),
        ({"slices": (Slice("host", 3),)}, "do not divide into slices of 3"),
        ({"required_level": "host", "slices": (Slice("block", 2),)}, "above the required host"),
        ({"slices": (Slice("block", 3), Slice("host", 2))}, "do not divide into slices of 2"),
    ],
    ids=["level", "slice level", "slice size", "remainder", "slice above required", "slices in slices"],
)
def test_a_gang_that_contradicts_itself_is_an_error_that_names_it(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(PlacementError, match=words):
        place(gang_of(4, **asked), snapshot_of(DEFAULT))


@pytest.mark.promise("D14")
def test_the_result_does_not_depend_on_the_order_of_the_nodes() -> None:
    nodes = [node(f"n{i}", (f"b{i % 3}", f"r{i % 2}", f"h{i}"), i % 4) for i in range(12)]
    forth, back = Snapshot.build(nodes, []), Snapshot.build(reversed(nodes), [])
    assert placed(gang_of(7), forth) == placed(gang_of(7), back)
