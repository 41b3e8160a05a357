"""What the page shows of a cluster: nodes, domains, gangs and their sums."""

from typing import Any

import msgspec
import pytest

from tests.ui.pictures import holding, placement_of
from tests.ui.scenes import COUNTING, SETTINGS, Changes, bound_pod, cluster_of, scene_of, waiting_job
from webhook.cli.top import gather
from webhook.ui.availability import capacity_by_model
from webhook.ui.history import percentile, sample
from webhook.ui.live import Artist
from webhook.ui.picture import EXCLUDED, FREE, RESERVED, STATES, USED, WAITED_FOR

FIRST, SECOND = "node-b0-s0-h00", "node-b0-s0-h01"


def test_a_node_without_pods_is_free() -> None:
    tile = scene_of(cluster_of([])).picture.nodes[FIRST]
    assert (tile.state, tile.gpus, tile.used, tile.waiting) == (FREE, 8, 0, 0)


@pytest.mark.promise("R191")
def test_a_node_is_used_as_soon_as_one_gpu_of_it_is() -> None:
    tile = scene_of(cluster_of([bound_pod("a", FIRST, gpus=1)])).picture.nodes[FIRST]
    assert (tile.state, tile.used) == (USED, 1)
    assert [(pod.namespace, pod.name, pod.gpus, pod.state) for pod in tile.pods] == [("ns", "a", 1, "bound")]


@pytest.mark.promise("R191")
def test_gpus_of_a_plan_whose_pods_are_still_gated_are_waited_for() -> None:
    pods = waiting_job(1)
    scene = scene_of(cluster_of(pods, placement_of(pods, FIRST)))
    tile = scene.picture.nodes[FIRST]
    assert (tile.state, tile.used, tile.waiting) == (WAITED_FOR, 0, 8)
    assert tile.pods[0].state == "planned"


@pytest.mark.promise("R191")
def test_a_node_that_is_reserved_for_a_gang_names_it_and_until_when() -> None:
    pods = waiting_job(2)
    tile = scene_of(cluster_of(pods, holding(pods, FIRST, state="Waiting"))).picture.nodes[FIRST]
    assert (tile.state, tile.reserved_for, tile.reserved_until) == (
        RESERVED,
        "ns/Job/train",
        "2026-01-01T00:30:00Z",
    )


def test_a_node_that_a_plan_reserves_for_later_pods_stays_reserved_until_the_gang_is_complete() -> None:
    pods = waiting_job(1)
    for complete, state in ((False, RESERVED), (True, FREE)):
        (plan,) = placement_of(pods, FIRST, complete=complete).values()
        plan = msgspec.structs.replace(
            plan, spec=msgspec.structs.replace(plan.spec, later_pod_nodes=[SECOND])
        )
        tile = scene_of(cluster_of([], {"ns/p": plan})).picture.nodes[SECOND]
        assert (tile.state, tile.reserved_until) == (state, "")


def test_free_gpus_of_reserved_nodes_are_reserved_in_the_sums_and_not_whole() -> None:
    pods = waiting_job(2)
    cluster = cluster_of([bound_pod("a", FIRST, gpus=2), *pods], holding(pods, FIRST, state="Waiting"))
    block = scene_of(cluster).picture.domains[0]
    assert (block.gpus, block.used, block.reserved, block.whole) == (32, 2, 6, 24)


NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.promise("R191")
@pytest.mark.parametrize(
    ("changes", "cause"),
    [({"spec": {"unschedulable": True}}, "cordoned"), ({"status": NOT_READY}, "not ready")],
    ids=["cordoned", "not ready"],
)
def test_an_excluded_node_has_the_reason(changes: dict[str, dict[str, Any]], cause: str) -> None:
    tile = scene_of(cluster_of([], changes={FIRST: changes})).picture.nodes[FIRST]
    assert (tile.state, tile.cause) == (EXCLUDED, cause)


def test_domains_add_up_what_their_nodes_have() -> None:
    pods = [bound_pod("a", FIRST), bound_pod("b", SECOND, gpus=3)]
    domains = {each.id: each for each in scene_of(cluster_of(pods)).picture.domains}
    block, subblock = domains["1/b0"], domains["1/b0/s0"]
    assert (block.gpus, block.used, block.whole) == (32, 11, 16)
    assert (subblock.gpus, subblock.used, subblock.whole) == (16, 11, 0)
    assert dict(zip(STATES, subblock.nodes, strict=True))[USED] == 2


def test_excluded_nodes_are_not_counted_among_the_gpus_that_there_are() -> None:
    scene = scene_of(cluster_of([], changes={FIRST: {"spec": {"unschedulable": True}}}))
    assert next(each for each in scene.picture.domains if each.id == "1/b0/s0").gpus == 8


def test_gpus_in_use_on_excluded_nodes_count_and_leave_no_more_free_than_there_are() -> None:
    cordoned: Changes = {FIRST: {"spec": {"unschedulable": True}}}
    scene = scene_of(cluster_of([bound_pod("a", FIRST, gpus=3)], changes=cordoned))
    subblock = next(each for each in scene.picture.domains if each.id == "1/b0/s0")
    assert (subblock.gpus, subblock.used) == (8 + 3, 3)
    (model,) = capacity_by_model(scene.picture.nodes.values())
    assert (model.gpus, model.free) == (7 * 8 + 3, 7 * 8)
    now = sample(scene.at, scene.picture, [])
    assert (sum(now.gpus.values()), sum(now.used.values())) == (7 * 8 + 3, 3)
    (line,) = gather(cluster_of([bound_pod("a", FIRST, gpus=3)], changes=cordoned))
    assert (line.nodes, line.total, line.used, line.free, line.whole) == (8, 7 * 8 + 3, 3, 7 * 8, 7)


def test_a_lowest_domain_of_a_single_node_is_left_to_the_node() -> None:
    levels = {each.level for each in scene_of(cluster_of([])).picture.domains}
    assert levels == {0, 1}


def test_a_waiting_gang_stands_before_one_that_runs() -> None:
    running = waiting_job(1, job="done", namespace="a")
    bound = [
        msgspec.structs.replace(
            pod, spec=msgspec.structs.replace(pod.spec, node_name=FIRST, scheduling_gates=[])
        )
        for pod in running
    ]
    scene = scene_of(cluster_of([*bound, *waiting_job(2)], placement_of(running, FIRST, state="Bound")))
    assert [(row.name, row.state, row.waiting) for row in scene.gangs] == [
        ("train", "Held", 2),
        ("done", "Bound", 0),
    ]
    assert [member.node for member in scene.gangs[1].members] == [FIRST]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], ""),
        (["node-b0-s0-h00", "node-b0-s0-h01", "node-b0-s1-h00"], "1 block, 2 subblocks"),
        (["node-b0-s0-h00", "node-b0-s1-h00", "node-b1-s0-h00"], "2 blocks, 3 subblocks"),
    ],
    ids=["waits", "one block", "two blocks"],
)
def test_a_gang_s_row_counts_the_domains_of_its_pods(nodes: list[str], expected: str) -> None:
    pods = waiting_job(3)
    if not nodes:
        (row,) = scene_of(cluster_of(pods)).gangs
    else:
        bound = [
            msgspec.structs.replace(
                pod, spec=msgspec.structs.replace(pod.spec, node_name=node, scheduling_gates=[])
            )
            for pod, node in zip(pods, nodes, strict=True)
        ]
        (row,) = scene_of(cluster_of(bound, placement_of(pods, FIRST, state="Bound"))).gangs
    assert row.compared == expected


def test_pods_that_are_no_gang_of_ours_are_not_listed() -> None:
    assert scene_of(cluster_of([bound_pod("a", FIRST)])).gangs == []


def test_a_node_that_gangs_avoid_has_the_reason() -> None:
    artist = Artist(cluster_of([]), SETTINGS, COUNTING, lambda: {FIRST: "pods of 3 gangs failed there"})
    tiles = artist.scene().picture.nodes.values()
    assert {tile.name: tile.avoided for tile in tiles if tile.avoided} == {
        FIRST: "pods of 3 gangs failed there"
    }


def test_a_second_drawing_of_the_same_objects_has_the_next_number_and_equal_content() -> None:
    artist = Artist(cluster_of(waiting_job(2)), SETTINGS, COUNTING)
    first, second = artist.scene(), artist.scene()
    assert second.version == first.version + 1
    assert (first.picture, first.gangs) == (second.picture, second.gangs)


def test_fragmentation_is_the_share_of_free_gpus_outside_of_the_freest_block() -> None:
    scene = scene_of(cluster_of([bound_pod("a", FIRST)]))
    assert sample(0, scene.picture, scene.gangs).fragmentation == pytest.approx(1 - 32 / 56, abs=1e-4)


@pytest.mark.parametrize(
    ("values", "share", "want"),
    [([], 0.5, 0.0), ([7.0], 0.95, 7.0), ([1.0, 2.0, 3.0, 4.0], 0.5, 2.0), (list(range(1, 101)), 0.95, 95)],
    ids=["of none", "of one", "half", "95 of 100"],
)
def test_percentiles_are_values_that_were_seen(values: list[float], share: float, want: float) -> None:
    assert percentile(values, share) == want
