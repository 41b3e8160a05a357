"""`topogate simulate` leaves out the nodes that are reserved for gangs that wait, as the sweeper does."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.cli.explanations import GRID, cluster, job_pods
from tests.cli.simulations import job
from webhook.configuration.settings import Settings
from webhook.inquiry.rehearsal import rehearse_manifest
from webhook.inquiry.simulation import place_each, read_manifest, shipped_rules
from webhook.kube.placements import Placement
from webhook.sweeper.observe.gangs import key_of


@pytest.mark.promise("R326")
@pytest.mark.parametrize("count", [4, 3])
def test_a_gang_finds_no_place_on_nodes_that_are_reserved_for_one_that_waits(
    count: int, tmp_path: Path
) -> None:
    """count: of the four nodes."""
    waiting = job_pods(5)
    reserved_nodes = [node.name for node in GRID[:count]]
    key = key_of(waiting[0])
    status = {"state": "Waiting", "held": reserved_nodes, "heldUntil": "2999-01-01T00:30:00Z"}
    body = {"metadata": {"namespace": "ns", "name": key.placement_name, "uid": "p"}, "status": status}
    placement = msgspec.convert({**body, "spec": {"gang": "Job/train"}}, Placement)
    (tmp_path / "job.json").write_text(json.dumps(job(1)))
    manifest = read_manifest(tmp_path / "job.json", shipped_rules(), "team")
    reading = replace(cluster(waiting, 5), placements={key.placement_key: placement})
    (placed,) = place_each(rehearse_manifest(reading, manifest, Settings(reserve_share=1.0)))
    nodes = {each.node for each in placed.answer.placed}
    assert nodes == {node.name for node in GRID[count:]}
    reserved = (
        f"nodes are reserved for gangs that have waited longer: {count} for a gang of another namespace"
    )
    assert (reserved in placed.answer.sentence) == (not nodes)
