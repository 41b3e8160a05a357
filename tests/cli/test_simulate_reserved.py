"""`topogate simulate` leaves out the nodes that are reserved for gangs that wait, as the sweeper does."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from hack.local.nodes import SimulatedNode
from tests.cli.explanations import GRID, cluster, job_pods
from tests.cli.simulations import job
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.rehearsal import rehearse_manifest
from webhook.inquiry.simulation import PlacedGang, place_each, read_manifest, shipped_rules
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.observe.gangs import key_of
from webhook.sweeper.observe.membership import LostOwner


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
    key, names = key_of(waiting[0]), [node.name for node in nodes]
    planned = [PlannedPod(name=f"train-{n}", uid=f"u{n}", node=name) for n, name in enumerate(names)]
    ends = datetime.now(UTC) + timedelta(minutes=20)
    status = {"state": "Waiting", "reservedNodes": names, "reservedUntil": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
    spec = PlacementSpec(gang="Job/train", pods=planned if is_planned else [])
    metadata = Metadata(name=key.placement_name, namespace="ns", uid="p")
    placement = Placement(metadata, spec, msgspec.convert({} if is_planned else status, PlacementStatus))
    return replace(cluster(waiting, 5), placements={key.placement_key: placement})


def simulated_beside(reading: ClusterReading, tmp_path: Path, count: int) -> PlacedGang:
    """A Job of `count` pods of another namespace, each with a node."""
    body = job(count)
    body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = 8
    (tmp_path / "job.json").write_text(json.dumps(body))
    manifest = read_manifest(tmp_path / "job.json", shipped_rules(), "team")
    (placed,) = place_each(rehearse_manifest(reading, manifest, Settings(reserve_share=1.0)))
    return placed
