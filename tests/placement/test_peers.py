"""More placement cases of other schedulers: layers, even spreading, leaders, growth, requests of pods.

Each has its source's result, or a sentence why ours is better by the objective, or what we answer instead.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.placement.small import Tree, gang_of, node, placed, pod_class, snapshot_of, taken
from webhook.kube import objects
from webhook.placement import (
    Anchor,
    Gang,
    Member,
    NodeInfo,
    NoFit,
    PodClass,
    Slice,
    Snapshot,
    Topology,
    Usage,
    place,
    vector,
)
from webhook.scheduling import convert

GPU = "nvidia.com/gpu"


def led(leader: PodClass, workers: int, worker: PodClass, **rules: Any) -> Gang:
    members = (Member("leader", 0, leader), *(Member(f"w{i}", i, worker) for i in range(1, workers + 1)))
    return Gang("g", members, **rules)


def gpu_node(name: str, place: tuple[str, ...], cpu: int, gpus: int) -> NodeInfo:
    plain = node(name, place, cpu)
    return replace(plain, allocatable={**plain.allocatable, GPU: gpus})


def gpu_pods(cpu: int, gpus: int) -> PodClass:
    return PodClass(vector({"cpu": cpu * 1000, "pods": 1, GPU: gpus}))


# --- several layers of slices -------------------------------------------------------------------------


def test_slices_of_racks_in_slices_of_zones_fill_whole_racks_of_a_gb200_cluster() -> None:
    levels = ("dc", "zone", "block", "rack", "host")
    topology = Topology((tuple(f"example.com/{level}" for level in levels),), levels)
    nodes = [
        NodeInfo(
            f"r{rack}-{host:02}",
            dict(
                zip(
                    topology.families[0],
                    ("dc0", f"z{rack // 4}", f"b{rack // 2}", f"r{rack}", f"h{host}"),
                    strict=True,
                )
            ),
            allocatable={"pods": 110, GPU: 2},
        )
        for rack in range(8)
        for host in range(18)
    ]
    gang = gang_of(
        96,
        PodClass(vector({"pods": 1, GPU: 2})),
        required_level="dc",
        slices=(Slice("zone", 48), Slice("rack", 16)),
    )
    found = placed(gang, Snapshot.build(nodes, [], topology))
    racks = [name.partition("-")[0] for name in found.nodes.values()]
    assert {rack: racks.count(rack) for rack in racks} == dict.fromkeys(
        ("r0", "r1", "r2", "r4", "r5", "r6"), 16
    )


def test_a_lost_slice_of_a_host_stays_under_the_switch_of_its_slice() -> None:
    levels = ("block", "rack", "switch", "host")
    topology = Topology((tuple(f"example.com/{level}" for level in levels),), levels)
    under = {"s1": ("x1", "x2"), "s2": ("x3", "x4"), "s3": ("x5", "x6"), "s4": ("x7", "x8")}
    slots = {"x1": 4, "x3": 0, "x4": 4}
    nodes = [
        NodeInfo(
            name,
            dict(
                zip(topology.families[0], ("b1", "r1" if switch < "s3" else "r2", switch, name), strict=True)
            ),
            allocatable={"cpu": slots.get(name, 2) * 1000, "pods": 110},
        )
        for switch, names in under.items()
        for name in names
    ]
    hosts = [name for names in under.values() for name in names]
    anchors = tuple(Anchor(hosts[rank // 2], rank) for rank in range(16) if hosts[rank // 2] != "x3")
    gang = Gang(
        "g",
        tuple(Member(f"p{rank}", rank, pod_class()) for rank in (4, 5)),
        slices=(Slice("rack", 8), Slice("switch", 4), Slice("host", 2)),
        anchors=anchors,
    )
    running = [(anchor.node, Usage(dict(pod_class().requests))) for anchor in anchors]
    assert taken(placed(gang, Snapshot.build(nodes, running, topology)).nodes) == {"x4": 2}


# --- leaders and groups -------------------------------------------------------------------------------


def test_the_block_that_holds_the_workers_but_not_the_leader_is_skipped() -> None:
    nodes = [gpu_node("large", ("b1", "r", "h"), 11, 8), gpu_node("small", ("b2", "r", "h"), 4, 4)]
    gang = led(pod_class(1), 4, gpu_pods(1, 1), required_level="block")
    assert taken(placed(gang, Snapshot.build(nodes, [])).nodes) == {"large": 5}


def test_a_leader_that_wants_the_spare_cpus_of_one_node_leaves_the_gpus_of_others_to_workers() -> None:
    """Both blocks hold the gang on three nodes of one rack, b1 with more headroom; its nodes are equal."""
    nodes = [gpu_node(name, ("b1", "r1", name), 2, 1) for name in ("x3", "x5", "x1")]
    nodes += [gpu_node(name, ("b2", "r1", name), cpu, 1) for name, cpu in (("x6", 1), ("x2", 2), ("x4", 2))]
    found = placed(led(pod_class(2), 2, gpu_pods(1, 1), required_level="block"), Snapshot.build(nodes, []))
    assert taken(found.nodes) == {"x1": 1, "x3": 1, "x5": 1}


def test_two_groups_that_each_need_a_rack_find_the_block_with_two_such_racks() -> None:
    tree: Tree = {"A": {"r1": {"a": 3}, "r2": {"b": 5}}, "B": {"r1": {"c": 5}, "r2": {"d": 5}}}
    gang = gang_of(10, required_level="block", slices=(Slice("subblock", 5),))
    assert taken(placed(gang, snapshot_of(tree)).nodes) == {"c": 5, "d": 5}


# --- growth and replacement ---------------------------------------------------------------------------


def test_a_gang_that_shrinks_by_its_last_ranks_leaves_its_last_nodes() -> None:
    """To shrink is the controller's: it deletes the last ranks, and those are the tail of the topology."""
    snapshot = snapshot_of({"b": {"r": {"x1": 3, "x2": 4}}})
    before = placed(gang_of(5), snapshot)
    assert [before.nodes[f"p-{rank}"] for rank in range(5)] == ["x1", "x1", "x1", "x2", "x2"]
    nothing_new = placed(Gang("g", (), anchors=(Anchor("x1", 0),)), snapshot)
    assert nothing_new.placed == ()


def test_a_gang_whose_placed_pods_are_all_on_deleted_nodes_is_placed_afresh() -> None:
    snapshot = snapshot_of({"b1": {"r": {"x1": 4}}, "b2": {"r": {"x2": 2}}})
    fresh = gang_of(3, required_level="block")
    assert placed(replace(fresh, anchors=(Anchor("gone", 0),)), snapshot) == placed(fresh, snapshot)


HOLDING: list[tuple[str, dict[str, int], int, dict[str, int]]] = [
    ("the node of the gang, however much it leaves", {"a": 8, "b": 2, "c": 3}, 2, {"a": 2}),
    ("its node and the tightest of the others", {"a": 1, "b": 8, "c": 3}, 4, {"a": 1, "c": 3}),
    ("two neighbours on one new node rather than apart", {"a": 1, "b": 8, "c": 3}, 2, {"c": 2}),
]


@pytest.mark.parametrize(
    ("slots_of", "count", "expected"), [case[1:] for case in HOLDING], ids=[case[0] for case in HOLDING]
)
def test_nodes_that_hold_the_gang_come_first_and_then_the_tightest(
    slots_of: dict[str, int], count: int, expected: dict[str, int]
) -> None:
    """As Koordinator orders nodes, but for the last case: c is new either way, so it takes both."""
    gang = gang_of(count, anchors=(Anchor("a"),))
    assert taken(placed(gang, snapshot_of({"b": {"r": slots_of}})).nodes) == expected


# --- requests to kube-scheduler ----------------------------------------------------------------------


def decoded(spec: dict[str, Any]) -> objects.Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    return msgspec.convert(
        {"metadata": {"name": "p"}, "spec": {"containers": [container], **spec}}, objects.Pod
    )


PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 100,
                "preference": {"matchExpressions": [{"key": "good", "operator": "In", "values": ["yes"]}]},
            }
        ]
    }
}


def liked(slots_of: Mapping[str, tuple[str, int, bool]]) -> Snapshot:
    """Nodes of block b by name: rack, free slots, whether the affinity prefers them."""
    return Snapshot.build(
        [
            replace(plain, labels={**plain.labels, "good": "yes"} if good else plain.labels)
            for name, (rack, slots, good) in slots_of.items()
            for plain in [node(name, ("b", rack, name), slots)]
        ],
        [],
    )


LIKED: list[tuple[str, dict[str, tuple[str, int, bool]], int, dict[str, Any], dict[str, int]]] = [
    (
        "five pods on two, one, two, one: three nodes do, and Kueue's preferred nodes are among the fewest",
        {
            "pref-1": ("r", 1, True),
            "pref-2": ("r", 2, True),
            "rest-1": ("r", 1, False),
            "rest-2": ("r", 2, False),
        },
        5,
        {"preferred_levels": ("host",)},
        {"pref-1": 1, "pref-2": 2, "rest-2": 2},
    ),
    (
        "the preferred node of two is the tightest too",
        {"pref": ("r", 2, True), "rest": ("r", 8, False)},
        2,
        {},
        {"pref": 2},
    ),
    (
        "more pods than the preferred node holds go to one node, where Kueue uses two",
        {"pref": ("r", 2, True), "rest": ("r", 8, False)},
        4,
        {},
        {"rest": 4},
    ),
    (
        "a rack that is too small is not taken for being preferred",
        {"pref": ("r1", 2, True), "rest-1": ("r2", 4, False), "rest-2": ("r2", 2, False)},
        4,
        {"required_level": "subblock"},
        {"rest-1": 4},
    ),
]


@pytest.mark.parametrize(
    ("slots_of", "count", "asked", "expected"),
    [case[1:] for case in LIKED],
    ids=[case[0] for case in LIKED],
)
def test_preferred_node_affinity_yields_to_compactness(
    slots_of: dict[str, tuple[str, int, bool]], count: int, asked: dict[str, Any], expected: dict[str, int]
) -> None:
    """A preference may cost no domain and no node; topogate does not weigh it at all."""
    kind = convert.pod_class_of(decoded({"affinity": PREFERRED}))
    assert taken(placed(gang_of(count, kind, **asked), liked(slots_of)).nodes) == expected


def test_preferred_affinity_does_not_make_pods_different() -> None:
    plain, choosy = decoded({}), decoded({"affinity": PREFERRED})
    assert convert.pod_class_of(choosy) == convert.pod_class_of(plain)


def test_pods_that_would_rather_be_apart_stay_in_the_network_domain_with_a_free_node_each() -> None:
    busy = [(name, Usage({"cpu": 1000, "pods": 1})) for name in ("n4", "n6")]
    tree: Tree = {"b": {"s0": {"n1": 1, "n2": 1}, "s1": {"n3": 1, "n4": 1}, "s2": {"n5": 1, "n6": 1}}}
    assert taken(placed(gang_of(2), snapshot_of(tree, busy)).nodes) == {"n1": 1, "n2": 1}


# --- racks and rings ----------------------------------------------------------------------------------


def test_a_rack_whose_sum_suffices_but_whose_nodes_do_not_is_distinguished() -> None:
    nodes = [gpu_node(f"a{i}", ("b", "rack1", f"a{i}"), 8, 1) for i in range(2)]
    nodes.append(gpu_node("c", ("b", "rack2", "c"), 8, 2))
    found = place(gang_of(2, gpu_pods(1, 2), required_level="subblock"), Snapshot.build(nodes, []))
    assert isinstance(found, NoFit)
    assert "subblock b/rack2 has capacity for 1 of 2" in found.sentence
    assert found.causes == {f'resource "{GPU}"': 2}


def test_a_new_job_packs_into_the_rack_that_is_in_use() -> None:
    tree: Tree = {"b": {"rack1": {"a": 2, "b": 2}, "rack2": {"c": 2, "d": 2}}}
    running = [("a", Usage({"cpu": 2000, "pods": 1}))]
    assert taken(placed(gang_of(2), snapshot_of(tree, running)).nodes) == {"b": 2}


def test_a_ring_of_ranks_crosses_between_domains_as_often_as_there_are_domains() -> None:
    tree: Tree = {"b": {"s0": {"n1": 1, "n2": 1}, "s1": {"n3": 1, "n4": 1}, "s2": {"n5": 1}}}
    found = placed(gang_of(5), snapshot_of(tree))
    domain = {host: rack for rack, hosts in tree["b"].items() for host in hosts}
    ring = [domain[found.nodes[f"p-{rank}"]] for rank in range(5)]
    assert sum(here != there for here, there in zip(ring, ring[1:] + ring[:1], strict=True)) == 3
