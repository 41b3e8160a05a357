"""What `topogate doctor` says of gangs that wait for long, and of those that no waiting helps."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import msgspec
import pytest

from labeler.contract import keys
from tests.ui.scenes import GRID, Changes, cluster_of, waiting_job
from webhook.inquiry import waiting_gangs
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.findings import State
from webhook.kube.client import Api, ApiError
from webhook.sweeper.observe.gangs import key_of
from webhook.sweeper.observe.membership import LostOwner

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class Cluster:
    """The boundary to the API server: one Placement that waits, created at a time of day, of so many pods."""

    def __init__(self, created: str, size: int = 0) -> None:
        self.created, self.size = created, size

    def json(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        if not path.endswith("/placements"):
            raise ApiError(404, "NotFound", "the sweeper has no Deployment here")
        name = key_of(waiting_job(1)[0]).placement_name
        metadata = {"namespace": "ns", "name": name, "creationTimestamp": f"2026-01-01T{self.created}:00Z"}
        spec = {"gang": "Job/my-job", "size": self.size}
        waits = {"metadata": metadata, "spec": spec, "status": {"state": "Waiting"}}
        return {"items": [waits]}


def found(
    monkeypatch: pytest.MonkeyPatch, pods: int, created: str = "11:59", **annotations: str
) -> list[tuple[State, str]]:
    """Of 8 nodes of 8 GPUs in two blocks, and a waiting Job of so many pods of 8 GPUs."""
    reading = cluster_of(waiting_job(pods, annotations=annotations))
    monkeypatch.setattr(ClusterReading, "read_usage", lambda api: reading)
    return [(each.state, each.sentence) for each in waiting_gangs.examine(cast(Api, Cluster(created)), NOW)]


def test_gangs_that_wait_for_a_moment_are_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, 2) == [(State.WELL, "1 gang waits, none for long")]


@pytest.mark.promise("R248")
def test_a_gang_that_waits_for_a_quarter_of_an_hour_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ((state, sentence),) = found(monkeypatch, 2, "11:45")
    assert (state, sentence) == (State.ODD, "1 gang waits for over 10 minutes: ns/Job/my-job")


@pytest.mark.promise("R248")
@pytest.mark.parametrize(
    ("pods", "annotations", "why"),
    [
        (9, {}, "the nodes that it may use have no capacity for 9 pods, even when they are empty"),
        (
            5,
            {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"},
            "no block has capacity for 5 pods, even when it is empty",
        ),
        (
            4,
            {keys.SLICE_TOPOLOGY_ANNOTATION: "subblock", keys.SLICE_SIZE_ANNOTATION: "3"},
            "4 pods do not divide into slices of 3",
        ),
        (
            2,
            {keys.REQUIRED_TOPOLOGY_ANNOTATION: "rack"},
            'no level "rack"; known: block, subblock, host and node',
        ),
        (
            2,
            {keys.SLICE_TOPOLOGY_ANNOTATION: "subblock"},
            "topogate.io/slice-topology needs topogate.io/slice-size: how many pods",
        ),
    ],
    ids=["more than the cluster", "more than a block", "slices that do not divide", "level", "no size"],
)
def test_a_gang_that_can_never_be_placed_as_written_is_named(
    pods: int, annotations: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((state, sentence),) = found(monkeypatch, pods, **annotations)
    assert state is State.ODD
    assert sentence.endswith(f"can never be placed as it is written: {why}")


def test_what_is_left_of_a_deleted_gang_is_none_that_can_never_be_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleted = LostOwner("its controller is deleted")
    reading = replace(cluster_of(waiting_job(9)), read_lost_owners=lambda _: lambda _: deleted)
    monkeypatch.setattr(ClusterReading, "read_usage", lambda api: reading)
    (finding,) = waiting_gangs.examine(cast(Api, Cluster("11:59")), NOW)
    assert finding.state is State.WELL


def test_a_gang_for_a_scheduler_that_is_not_served_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As explain says: nothing but another scheduler's name ends its wait."""
    pods = [
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, scheduler_name="volcano"))
        for pod in waiting_job(2)
    ]
    monkeypatch.setattr(ClusterReading, "read_usage", lambda api: cluster_of(pods))
    (finding,) = waiting_gangs.examine(cast(Api, Cluster("11:59")), NOW)
    assert finding.state is State.ODD
    assert "its scheduler 'volcano' is not one that topogate serves" in finding.sentence


def test_a_required_level_on_nodes_without_topology_labels_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"}
    unlabelled: Changes = {node.name: {"metadata": {"labels": {}}} for node in GRID}
    reading = cluster_of(waiting_job(2, annotations=wanted), changes=unlabelled)
    monkeypatch.setattr(ClusterReading, "read_usage", lambda api: reading)
    (finding,) = waiting_gangs.examine(cast(Api, Cluster("11:59")), NOW)
    assert finding.sentence.endswith(
        "it asks for domains of the level block, and no node that it may use has topology labels"
    )


def test_slices_are_not_judged_while_pods_of_the_gang_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    sliced = {keys.SLICE_TOPOLOGY_ANNOTATION: "subblock", keys.SLICE_SIZE_ANNOTATION: "3"}
    reading = cluster_of(waiting_job(4, annotations=sliced))
    monkeypatch.setattr(ClusterReading, "read_usage", lambda api: reading)
    (finding,) = waiting_gangs.examine(cast(Api, Cluster("11:59", size=6)), NOW)
    assert finding.state is State.WELL
