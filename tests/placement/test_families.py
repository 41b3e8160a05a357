"""Nodes of different label families in one cluster, whose trees are not of one depth."""

from dataclasses import replace

import pytest

from labeler.contract import keys
from tests.placement.small import gang_of, placed, pod_class
from webhook.placement import Gang, NodeInfo, NoFit, PlacementError, Snapshot, Spread, Topology, Usage, place

ZONE, CLIQUE, HOST = keys.ZONE_LABEL, keys.NVLINK_CLIQUE, keys.HOSTNAME_LABEL
TIER_1, TIER_0 = keys.TOPOGRAPH_TIERS


def node(name: str, cpu: int = 1, **labels: str) -> NodeInfo:
    return NodeInfo(name, {HOST: name, **labels}, allocatable={"cpu": 1000 * cpu, "pods": 110})


def labelled(name: str, labels: dict[str, str], cpu: int = 1) -> NodeInfo:
    return node(name, cpu, **labels)


@pytest.mark.promise("W14")
@pytest.mark.parametrize(
    ("labels", "place"),
    [
        (dict(zip(keys.GCE_TOPOLOGY, "bsh", strict=True)) | {CLIQUE: "c", ZONE: "z"}, ("b", "s", "h")),
        (dict(zip(keys.PRERELEASE_TOPOLOGY, "bsh", strict=True)) | {ZONE: "z"}, ("b", "s", "h")),
        ({TIER_1: "t1", TIER_0: "t0", CLIQUE: "c", ZONE: "z"}, ("t1", "c", "n")),
        ({TIER_1: "t1", TIER_0: "t0", keys.TOPOGRAPH_ACCELERATOR: "a"}, ("t1", "a", "n")),
        ({TIER_1: "t1", TIER_0: "t0", ZONE: "z"}, ("t1", "t0", "n")),
        ({keys.COREWEAVE_FABRIC[0]: "f", keys.COREWEAVE_FABRIC[1]: "l", ZONE: "z"}, ("f", "l", "n")),
        (
            {keys.COREWEAVE_FABRIC[0]: "f", keys.COREWEAVE_FABRIC[1]: "l", keys.COREWEAVE_NVLINK: "d"},
            ("f", "d", "n"),
        ),
        (dict(zip(keys.COREWEAVE_INFINIBAND, "sl", strict=True)) | {ZONE: "z"}, ("s", "l", "n")),
        (dict(zip(keys.TOPOGRAPH_OLDER, "sla", strict=True)), ("s", "a", "n")),
        (dict(zip(keys.TOPOGRAPH_OLDER[:2], "sl", strict=True)), ("s", "l", "n")),
        ({ZONE: "z", CLIQUE: "c"}, ("z", "c", "n")),
        ({ZONE: "z"}, ("z", "n", "n")),
        ({TIER_0: "t0"}, None),
        ({}, None),
    ],
)
def test_a_node_s_place_is_that_of_its_first_complete_family(
    labels: dict[str, str], place: tuple[str, ...] | None
) -> None:
    found = Topology().path({HOST: "n", **labels})
    assert (None if found is None else found[1:]) == place


def pools() -> list[NodeInfo]:
    """A pool of two racks of NVLink, and one of which the zone alone is known."""
    racks = [
        labelled(f"r{rack}-{n}", {ZONE: "z", CLIQUE: f"clique-{rack}"}) for rack in range(2) for n in range(3)
    ]
    return [*racks, *(labelled(f"plain-{n}", {ZONE: "z"}) for n in range(6))]


@pytest.mark.promise("W14")
@pytest.mark.parametrize(
    ("level", "count", "names"),
    [
        ("subblock", 3, {"r0"}),
        (CLIQUE, 3, {"r0"}),
        ("block", 6, {"r0", "r1"}),
        (None, 3, {"r0"}),
    ],
)
def test_pools_of_different_depth_are_placed_side_by_side(
    level: str | None, count: int, names: set[str]
) -> None:
    found = placed(gang_of(count, required_level=level), Snapshot.build(pools(), []))
    assert {name.partition("-")[0] for name in found.nodes.values()} == names
    assert found.proven


@pytest.mark.promise("W14")
def test_a_level_that_a_family_lacks_is_its_next_finer_one() -> None:
    plain = [each for each in pools() if each.name.startswith("plain")]
    snapshot = Snapshot.build([*plain, labelled("large", {ZONE: "z"}, cpu=3)], [])
    found = placed(gang_of(3, required_level="subblock"), snapshot)
    assert set(found.nodes.values()) == {"large"}
    none = place(gang_of(2, pod_class(2), required_level="subblock"), snapshot)
    assert isinstance(none, NoFit)
    assert placed(gang_of(3, pod_class(), required_level="block"), snapshot).objective.domains == (1, 1, 1, 1)


def test_a_key_that_is_of_several_levels_is_no_name_of_one() -> None:
    topology = Topology((("a", "b"), ("b", "c")), ("block", "rack"))
    gang = Gang("g", gang_of(1).members, required_level="b")
    with pytest.raises(PlacementError, match="b is a key of several levels, block and rack; name the level"):
        place(gang, Snapshot.build([node("n", a="x", b="y")], [], topology))
    assert (topology.level("a"), topology.level("c"), Topology().level(HOST)) == (0, 1, 3)


@pytest.mark.promise("R50")
def test_every_key_of_the_shipped_families_names_one_level() -> None:
    for family in keys.TOPOLOGY_FAMILIES:
        for key in family:
            assert Topology().level(key) in (0, 1, 2, 3)


@pytest.mark.promise("R50")
def test_node_names_the_lowest_level() -> None:
    topology = Topology()
    assert (
        topology.level("node") == len(topology.level_names) > max(map(topology.level, topology.level_names))
    )


def test_small_gangs_keep_racks_of_eighteen_whole_for_large_ones() -> None:
    racks = [
        labelled(f"r{n // 18}-{n % 18:02}", {ZONE: "z", CLIQUE: f"c{n // 18}"}, cpu=4) for n in range(54)
    ]
    snapshot = Snapshot.build(racks, [(f"r1-{n:02}", Usage({"cpu": 4000, "pods": 1})) for n in range(5)])
    for count in (8, 2, 12, 4, 26):  # 52 pods of one cpu fill what is left of r1
        small = gang_of(count)
        found = placed(small, snapshot)
        assert {name.partition("-")[0] for name in found.nodes.values()} == {"r1"}
        snapshot = snapshot.assume(found, small)
    for _ in range(2):
        large = gang_of(18, pod_class(4), required_level=CLIQUE)
        snapshot = snapshot.assume(placed(large, snapshot), large)


@pytest.mark.promise("R50")
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("r0-0", "r0-1"), "1 zone, 1 NVLink domain, 2 hosts, 2 nodes"),
        (("plain-0", "plain-1"), "1 zone, 2 hosts, 2 nodes"),
        (("r0-0", "plain-1"), "2 zones, 2 subblocks, 2 hosts, 2 nodes"),
        (("r0-0", "bare"), "2 zones, 2 NVLink domains, 2 hosts, 2 nodes"),
    ],
)
def test_the_domains_of_a_gang_are_named_in_the_words_of_its_nodes_families(
    names: tuple[str, ...], expected: str
) -> None:
    bare = NodeInfo("bare", allocatable={"cpu": 1000, "pods": 110})
    others = frozenset({each.name for each in pools()} | {"bare"}) - set(names)
    asked = replace(gang_of(2), excluded_nodes=others)
    assert placed(asked, Snapshot.build([*pools(), bare], [])).spread == expected


@pytest.mark.promise("R50")
def test_a_gang_without_capacity_gets_a_reason_in_the_words_of_the_nearest_family() -> None:
    racks = [each for each in pools() if not each.name.startswith("plain")]
    none = place(gang_of(4, required_level="subblock"), Snapshot.build(racks, []))
    assert isinstance(none, NoFit)
    assert "into one NVLink domain; NVLink domain z/clique-0 has capacity for 3 of 4" in none.sentence
    none = place(gang_of(8, spread=Spread("subblock", 3)), Snapshot.build(racks, []))
    assert isinstance(none, NoFit)
    assert "at most 3 per NVLink domain" in none.sentence


def test_an_operator_s_own_names_of_levels_stay() -> None:
    topology = Topology(level_names=("pod", "rack", "host"))
    found = placed(gang_of(3), Snapshot.build(pools(), [], topology))
    assert found.spread == "1 pod, 1 rack, 3 hosts, 3 nodes"
