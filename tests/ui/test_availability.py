"""Where there is capacity by model, and which nodes are out of use, as the page's first screen says it."""

from collections import Counter

import pytest

from tests.ui.busy import A100, CORDONED, FAILING, H100, busy_scene
from tests.ui.pictures import holding
from tests.ui.scenes import bound_pod, cluster_of, page_of, scene_of, waiting_job
from tests.ui.viewers import Granted
from webhook.ui.availability import capacity_by_model
from webhook.ui.gang_rows import GangRow
from webhook.ui.redact import Rights

FIRST, SECOND = "node-b0-s0-h00", "node-b0-s0-h01"


def gang(name: str) -> GangRow:
    return next(row for row in busy_scene().gangs if row.name == name)


@pytest.mark.promise("R191")
def test_free_capacity_is_counted_by_model_with_the_domain_that_has_most() -> None:
    h100, a100 = busy_scene().capacity
    assert (h100.model, h100.gpus, h100.free, h100.whole) == (H100, 256, 60, 48)
    assert (a100.model, a100.gpus, a100.free, a100.whole) == (A100, 248, 168, 168)
    assert [(each.id, each.gpus) for each in a100.freest] == [("1/b3", 120), ("1/b3/s0", 64)]


def test_reserved_and_partly_used_nodes_are_no_whole_nodes() -> None:
    pods = waiting_job(2)
    cluster = cluster_of([bound_pod("a", FIRST, 2), *pods], holding(pods, SECOND, state="Waiting"))
    (capacity,) = scene_of(cluster).capacity
    assert (capacity.free, capacity.whole) == (64 - 2 - 8, 48)


def test_free_gpus_that_the_next_pod_cannot_use_are_summed_by_model() -> None:
    tiles = list(busy_scene().picture.nodes.values())
    stranded = {tile.name: Counter(cpu=1000) for tile in tiles if tile.model == A100}
    h100, a100 = capacity_by_model(tiles, stranded)
    assert (h100.stranded, a100.stranded) == ("", f"{len(stranded)} stranded: {len(stranded)} lack cpu")


def test_nodes_that_gangs_avoid_come_before_those_out_of_use() -> None:
    troubles = busy_scene().troubles
    assert (troubles.avoided, troubles.excluded) == (1, {"cordoned": 1})
    assert [(each.name, each.is_excluded) for each in troubles.nodes] == [(FAILING, False), (CORDONED, True)]


def test_a_viewer_who_may_not_list_nodes_sees_how_many_are_out_of_use_and_not_which() -> None:
    answer = page_of(busy_scene(), Granted(Rights(None, nodes=False))).get("/api/picture")
    assert answer.json is not None
    assert answer.json["troubles"] == {"excluded": {"cordoned": 1}, "avoided": 1, "nodes": []}


def test_a_gang_has_the_model_of_its_nodes_or_the_one_that_it_selects() -> None:
    assert gang("embed").models == [A100]
    assert gang("train-405b").models == [H100]
    assert gang("notebook-gang-with-a-rather-long-name-of-its-own").models == []


def test_pods_on_a_node_name_their_gang() -> None:
    tiles = busy_scene().picture.nodes
    assert tiles[FIRST].pods[0].gang == "Job/train-70b"
    assert tiles["node-b1-s1-h07"].pods[0].gang == ""
