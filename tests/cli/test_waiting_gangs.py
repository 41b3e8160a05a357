"""What `topogate doctor` says of gangs that wait for long, and of those that no waiting helps."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from labeler.contract import keys
from tests.ui.scenes import cluster_of, waiting_job
from webhook.inquiry import waiting_gangs
from webhook.inquiry.findings import State
from webhook.inquiry.reading import ClusterReading
from webhook.kube.client import Api

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


class Cluster:
    """The boundary to the API server: one Placement that waits, created at a time of day."""

    def __init__(self, created: str) -> None:
        self.created = created

    def json(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        metadata = {"namespace": "ns", "creationTimestamp": f"2026-01-01T{self.created}:00Z"}
        waits = {"metadata": metadata, "spec": {"gang": "Job/my-job"}, "status": {"state": "Waiting"}}
        return {"items": [waits]}


def found(
    monkeypatch: pytest.MonkeyPatch, pods: int, created: str = "11:59", **annotations: str
) -> list[tuple[State, str]]:
    """Of 8 nodes of 8 GPUs in two blocks, and a waiting Job of so many pods of 8 GPUs."""
    reading = cluster_of(waiting_job(pods, annotations=annotations))
    monkeypatch.setattr(ClusterReading, "read_usage", lambda api: reading)
    return [(each.state, each.sentence) for each in waiting_gangs.examine(cast(Api, Cluster(created)), NOW)]


def test_gangs_that_wait_for_a_moment_are_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(monkeypatch, 2) == [(State.WELL, "1 gangs wait, none for long")]


def test_a_gang_that_waits_for_a_quarter_of_an_hour_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ((state, sentence),) = found(monkeypatch, 2, "11:45")
    assert (state, sentence) == (State.ODD, "1 gang waits for over 10 minutes: ns/Job/my-job")


@pytest.mark.parametrize(
    ("pods", "annotations", "why"),
    [
        (9, {}, "the nodes that it may use have no room for 9 pods even without any other"),
        (
            5,
            {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"},
            "no block has room for 5 pods even without any other",
        ),
    ],
    ids=["more than the cluster", "more than a block"],
)
def test_a_gang_that_can_never_be_placed_as_written_is_named(
    pods: int, annotations: dict[str, str], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((state, sentence),) = found(monkeypatch, pods, **annotations)
    assert state is State.ODD
    assert sentence.endswith(f"can never be placed as it is written: {why}")
