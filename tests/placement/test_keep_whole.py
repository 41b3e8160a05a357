"""Mode keep-whole, which fills the smallest holes of the fewest racks, against trying everything."""

import random
from dataclasses import replace

import pytest

from tests.placement.brute import agrees
from tests.placement.random_clusters import LEVELS, gang, random_snapshot
from tests.placement.small import Tree, gang_of, node, placed, pod_class, seeds, snapshot_of, taken
from webhook.placement import Assignment, Gang, Mode, Options, Slice, Snapshot, Spread, Topology, place

KEEP_WHOLE = Options(mode=Mode.KEEP_WHOLE)
GPU = "nvidia.com/gpu"

HOLES: list[tuple[str, Tree, int, dict[str, int]]] = [
    ("two ones rather than the two", {"b": {"r": {"x": 2, "y": 1, "z": 1}}}, 2, {"y": 1, "z": 1}),
    ("a two rather than two racks", {"b": {"r": {"x": 2, "y": 1}, "s": {"z": 1}}}, 2, {"x": 2}),
    ("the tightest of those that hold all", {"b": {"r": {"x": 8, "y": 3}}}, 3, {"y": 3}),
    (
        "fewer nodes of equal squares",
        {"b": {"r": {"x": 2, "y": 1, "z": 1, "w": 1, "v": 1}}},
        4,
        dict.fromkeys("vwyz", 1),
    ),
    (
        "one rack, its large node included",
        {"b": {"r": {"x": 8, "y": 1}, "s": {"z": 4, "w": 1}}},
        9,
        {"x": 8, "y": 1},
    ),
]


@pytest.mark.promise("O86")
@pytest.mark.parametrize(("tree", "count", "expected"), [c[1:] for c in HOLES], ids=[c[0] for c in HOLES])
def test_small_holes_are_filled_first_inside_the_fewest_racks(
    tree: Tree, count: int, expected: dict[str, int]
) -> None:
    assert taken(placed(gang_of(count), snapshot_of(tree), KEEP_WHOLE).nodes) == expected


@pytest.mark.promise("O86")
def test_a_gang_of_single_gpus_leaves_the_pair_to_the_pod_that_comes_after_it() -> None:
    free = {"x": 2, "y": 1, "z": 1}
    nodes = [node(name, ("b", "r", f"h{name}"), 8, **{GPU: gpus}) for name, gpus in free.items()]
    first, snapshot = gang_of(2, pod_class(1, **{GPU: 1})), Snapshot.build(nodes, [])
    second = replace(gang_of(1, pod_class(1, **{GPU: 2})), name="second")
    after = snapshot.assume(placed(first, snapshot, KEEP_WHOLE), first)
    assert isinstance(place(second, after, KEEP_WHOLE), Assignment)


@pytest.mark.promise("O86")
def test_by_default_the_two_pods_share_a_node() -> None:
    tree = {"b": {"r": {"x": 2, "y": 1, "z": 1}}}
    assert taken(placed(gang_of(2), snapshot_of(tree)).nodes) == {"x": 2}


def test_without_a_level_of_hosts_nodes_alone_are_machines() -> None:
    topology = Topology((("zone", "rack"),), ("block", "subblock"))
    assert (topology.machine, Topology().machine) == (2, 2)
    nodes = [
        replace(node(name, None, free), labels={"zone": "b", "rack": rack})
        for name, free, rack in (("x", 2, "r"), ("y", 1, "r"), ("z", 1, "r"), ("w", 1, "s"), ("v", 1, "t"))
    ]
    snapshot = Snapshot.build(nodes, [], topology)
    assert taken(placed(gang_of(2), snapshot, KEEP_WHOLE).nodes) == {"y": 1, "z": 1}


@pytest.mark.parametrize("seed", seeds(6))
def test_identical_pods_get_the_optimum(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(50):
        snapshot, level = random_snapshot(dice, 11), dice.choice(LEVELS)
        asked = gang([(pod_class(1), dice.randint(1, 6))], dice, snapshot, required_level=level)
        agrees(asked, snapshot, Mode.KEEP_WHOLE)


@pytest.mark.parametrize("seed", seeds(5))
def test_slices_and_different_pods_get_the_optimum(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        snapshot, size = random_snapshot(dice, 10), dice.choice((2, 2, 3))
        level = dice.choice(("block", "subblock", "host"))
        sliced = gang([(pod_class(1), size * dice.randint(1, 2))], dice, snapshot)
        agrees(replace(sliced, anchors=(), slices=(Slice(level, size),)), snapshot, Mode.KEEP_WHOLE)
        kinds = [
            pod_class(cpu, memory=memory) for cpu, memory in dice.sample([(1, 1), (2, 1), (1, 3), (3, 2)], 3)
        ]
        counts = dice.choice(([1, 3], [2, 2], [1, 1, 1], [1, 4]))
        classes = list(zip(kinds, sorted(counts, reverse=True), strict=False))
        agrees(gang(classes, dice, snapshot, required_level=dice.choice(LEVELS)), snapshot, Mode.KEEP_WHOLE)


def test_a_thousand_pods_on_a_thousand_nodes_are_proven() -> None:
    dice = random.Random(3)
    nodes = [
        node(f"n{i}", (f"b{i // 200}", f"r{i // 16}", f"h{i}"), dice.choice((0, 1, 1, 2, 5, 8)))
        for i in range(1000)
    ]
    asked: Gang = gang_of(1000)
    assert placed(asked, Snapshot.build(nodes, []), KEEP_WHOLE).proven


@pytest.mark.parametrize("most", [None, 2])
def test_pods_that_are_spread_are_placed_as_by_best_fit(most: int | None) -> None:
    tree = {"b": {"r": {"x": 2, "y": 1, "z": 1}}, "c": {"s": {"u": 2, "v": 1, "w": 1}}}
    asked = gang_of(4, spread=Spread("block", most))
    assert placed(asked, snapshot_of(tree), KEEP_WHOLE) == placed(asked, snapshot_of(tree))
