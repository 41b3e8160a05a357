"""`topogate simulate` leaves out the same nodes as the sweeper: reserved, spare, new and failing ones."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hack.local.nodes import SimulatedNode
from tests.cli.explanations import GRID, cluster, job_pods, with_placement
from tests.cli.simulations import job
from tests.extensions.node_health.failing import proven
from webhook.configuration.settings import Avoid, BadNodes, Settings, SpareNodes
from webhook.extensions.node_health.avoided_nodes import encoded
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.rehearsal import rehearse_manifest
from webhook.inquiry.simulation import PlacedGang, place_each, read, read_manifest, shipped_rules
from webhook.sweeper.observe.membership import LostOwner

ALL_RESERVED = Settings(reserve_share=1.0)
AVOIDS = Settings(bad_nodes=BadNodes(avoid=Avoid.HARD, failures=1, share=1.0))
SPARES = Settings(spare_nodes=SpareNodes(per_block=1))


@pytest.mark.promise("R325")
@pytest.mark.parametrize("count", [4, 3])
def test_a_gang_finds_no_place_on_nodes_that_are_reserved_for_one_that_waits(
    count: int, tmp_path: Path
) -> None:
    """count: of the four nodes."""
    placed = simulated_beside(waiting_with(GRID[:count]), tmp_path, 1)
    nodes = {each.node for each in placed.answer.placed}
    assert nodes == {node.name for node in GRID[count:]}
    reserved = (
        f"nodes are reserved for gangs that have waited longer: {count} for a gang of another namespace"
    )
    assert (reserved in placed.answer.sentence) == (not nodes)


@pytest.mark.parametrize("is_planned", [False, True], ids=["reserved", "planned"])
def test_a_gang_gets_the_nodes_of_one_whose_controller_is_gone(is_planned: bool, tmp_path: Path) -> None:
    deleted = LostOwner("its controller is deleted")
    waiting = waiting_with(GRID, is_planned)
    assert not simulated_beside(waiting, tmp_path, 4).answer.placed
    gone = replace(waiting, read_lost_owners=lambda _: lambda _: deleted)
    assert len(simulated_beside(gone, tmp_path, 4).answer.placed) == 4


def waiting_with(nodes: Sequence[SimulatedNode], is_planned: bool = False) -> ClusterReading:
    """A gang of five that waits. is_planned: whether these nodes are planned for it, or only reserved."""
    waiting = job_pods(5)
    names = [node.name for node in nodes]
    planned = [{"name": f"train-{n}", "uid": f"u{n}", "node": name} for n, name in enumerate(names)]
    ends = datetime.now(UTC) + timedelta(minutes=20)
    status = {"state": "Waiting", "reservedNodes": names, "reservedUntil": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
    found = cluster(waiting, 5)
    if is_planned:
        return with_placement(found, waiting[0], pods=planned)
    return with_placement(found, waiting[0], status=status)


def failing(node: str) -> dict[str, str]:
    """The record of failing nodes, in which a gang of the same namespace has failed on this one."""
    failure = proven(node, gang="team/Job/lost", namespace="team", at=int(time.time()) - 30)
    return {"failures": encoded((failure,))}


@pytest.mark.parametrize(
    ("settings", "most", "why"),
    [(AVOIDS, 3, f"avoids the node {GRID[0].name}"), (SPARES, 2, "reserved for replacements")],
    ids=["failing", "spare"],
)
def test_a_gang_finds_no_place_on_nodes_that_the_sweeper_excludes(
    settings: Settings, most: int, why: str, tmp_path: Path
) -> None:
    """One of the four nodes is failing, or one of each block is to replace a lost one."""
    reading = replace(cluster([]), read_record=lambda _: failing(GRID[0].name))
    nodes = {each.node for each in simulated_beside(reading, tmp_path, most, settings).answer.placed}
    assert len(nodes) == most
    assert settings is not AVOIDS or GRID[0].name not in nodes
    assert why in simulated_beside(reading, tmp_path, most + 1, settings).answer.sentence


def test_from_files_alone_spare_nodes_are_left_out(tmp_path: Path) -> None:
    nodes = [each.manifest(each.topology_labels) for each in GRID]
    (tmp_path / "nodes.json").write_text(json.dumps({"kind": "List", "items": nodes}))
    write_job(tmp_path, 4)
    scene = read([tmp_path / "nodes.json"], tmp_path / "job.json", namespace="team")
    (placed,) = place_each(scene)
    assert len(placed.answer.placed) == 4
    (placed,) = place_each(replace(scene, settings=SPARES))
    assert "reserved for replacements of failed pods" in placed.answer.sentence


def simulated_beside(
    reading: ClusterReading, tmp_path: Path, count: int, settings: Settings = ALL_RESERVED
) -> PlacedGang:
    """A Job of `count` pods of another namespace, each with a node."""
    write_job(tmp_path, count)
    manifest = read_manifest(tmp_path / "job.json", shipped_rules(), "team")
    (placed,) = place_each(rehearse_manifest(reading, manifest, settings))
    return placed


def write_job(folder: Path, count: int) -> None:
    body = job(count)
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 8
    (folder / "job.json").write_text(json.dumps(body))
