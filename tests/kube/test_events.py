"""Events: what people see, how rarely, and that nobody ever waits for them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hack.local.cluster import Cluster
from webhook.kube import events as module
from webhook.kube.client import Api, ApiError
from webhook.kube.events import (
    NOTE_BYTES,
    OBJECT_NOTES,
    REPEAT_SECONDS,
    WARNING,
    Recorder,
    Reference,
    shortened,
)
from webhook.kube.objects import Metadata, OwnerReference

POD = Reference("v1", "Pod", "here", "train-0", "uid-0")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Event that the API server did not accept in time is never sent again, so it has a minute."""
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 60.0)


@contextmanager
def recording(api: Api, clock: Clock | None = None) -> Iterator[Recorder]:
    recorder = Recorder(api, "topogate.io/sweeper", "sweeper-abc", clock or Clock())
    recorder.start()
    try:
        yield recorder
    finally:
        recorder.close()


def pod(cluster: Cluster, namespace: str, name: str = "train-0") -> Reference:
    body = {
        "metadata": {"name": name},
        "spec": {"schedulingGates": [{"name": "test/gate"}], "containers": [{"name": "c", "image": "x"}]},
    }
    made = cluster.api().json("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)
    return Reference("v1", "Pod", namespace, name, made["metadata"]["uid"])


def events(cluster: Cluster, namespace: str, count: int) -> list[dict[str, Any]]:
    """The recorder's Events in a namespace, once there are so many."""
    path = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    found: list[dict[str, Any]] = []

    def there() -> bool:
        items = cluster.api().json("GET", path)["items"]
        found[:] = [item for item in items if item["reportingController"] == "topogate.io/sweeper"]
        return len(found) >= count

    cluster.wait_for(f"{count} events", there)
    return found


def test_an_event_has_all_that_the_api_server_requires(cluster: Cluster, namespace: str) -> None:
    with recording(cluster.api()) as recorder:
        about = pod(cluster, namespace)
        job = Reference("batch/v1", "Job", namespace, "train", "uid-job")
        recorder.event(about, "GangWaits", "Place", "no capacity", kind=WARNING, related=job)
        (event,) = events(cluster, namespace, 1)
    expected = {
        "type": "Warning",
        "reason": "GangWaits",
        "action": "Place",
        "note": "no capacity",
        "reportingInstance": "sweeper-abc",
        "regarding": about.to_json(),
        "related": job.to_json(),
    }
    assert {key: event.get(key) for key in expected} == expected


def test_the_same_is_written_once_and_counted_ten_minutes_later(cluster: Cluster, namespace: str) -> None:
    clock = Clock()
    with recording(cluster.api(), clock) as recorder:
        about = pod(cluster, namespace)
        for _ in range(5):
            recorder.event(about, "GangWaits", "Place", "no capacity")
        (event,) = events(cluster, namespace, 1)
        assert "series" not in event
        wait_until_written(recorder)
        clock.now += REPEAT_SECONDS
        cluster.wait_for("the series", lambda: "series" in _again(recorder, about, cluster, namespace))
        (event,) = events(cluster, namespace, 1)
    assert event["series"]["count"] >= 6
    assert event["series"]["lastObservedTime"] > event["eventTime"]


def _again(recorder: Recorder, about: Reference, cluster: Cluster, namespace: str) -> dict[str, Any]:
    """The Event as it is after it was reported once more."""
    recorder.event(about, "GangWaits", "Place", "no capacity")
    return events(cluster, namespace, 1)[0]


def wait_until_written(recorder: Recorder) -> None:
    """Until the recorder has nothing to do: an Event is there a moment before it counts as written."""
    deadline = time.monotonic() + 90
    while any(series.queued for series in list(recorder._series.values())):
        assert time.monotonic() < deadline, "the recorder does not come to rest"
        time.sleep(0.01)


def test_an_event_that_has_expired_meanwhile_is_written_again(cluster: Cluster, namespace: str) -> None:
    clock = Clock()
    with recording(cluster.api(), clock) as recorder:
        about = pod(cluster, namespace)
        recorder.event(about, "GangWaits", "Place", "no capacity")
        (first,) = events(cluster, namespace, 1)
        name = first["metadata"]["name"]
        wait_until_written(recorder)
        cluster.api().request("DELETE", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}")
        clock.now += REPEAT_SECONDS
        second = _again(recorder, about, cluster, namespace)
    assert "series" not in second
    assert second["metadata"]["uid"] != first["metadata"]["uid"]


def test_an_object_without_a_namespace_has_its_events_in_default(cluster: Cluster) -> None:
    with recording(cluster.api()) as recorder:
        recorder.event(Reference("v1", "Node", "", "gpu-7", "uid-node"), "CardsGone", "Place", "no cards")
        # Other tests' sweepers may have written Events of a node here: Events stay for an hour.
        cluster.wait_for("its Event", lambda: bool(events_about(cluster, "gpu-7")))
        (event,) = events_about(cluster, "gpu-7")
    path = f"/apis/events.k8s.io/v1/namespaces/default/events/{event['metadata']['name']}"
    cluster.api().request("DELETE", path)
    assert (event["metadata"]["namespace"], event["note"]) == ("default", "no cards")


def events_about(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    items = cluster.api().json("GET", "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    return [item for item in items if item["regarding"]["name"] == node]


# --- without a server: refusals and bounds ---------------------------------------------------------


class Refusing(Api):
    """Answers every request in one way, and remembers it."""

    def __init__(self, status: int) -> None:
        self.status = status
        self.bodies: list[Any] = []

    def request(self, method: str, path: str, **options: Any) -> bytes:
        self.bodies.append(options["body"])
        raise ApiError(self.status, "Refused", "no")


@pytest.mark.parametrize(("status", "attempts"), [(403, 1), (503, 2)], ids=["forbidden", "overloaded"])
def test_a_refusal_is_counted_and_tried_again_only_where_that_can_help(status: int, attempts: int) -> None:
    api = Refusing(status)
    with recording(api) as recorder:
        for _ in range(2):
            recorder.event(POD, "GangWaits", "Place", "no capacity")
            wait_until_written(recorder)
    assert len(api.bodies) == attempts
    assert recorder.dropped == attempts


class Hanging(Refusing):
    """Answers no request before it may."""

    def __init__(self) -> None:
        super().__init__(503)
        self.may_answer = threading.Event()

    def request(self, method: str, path: str, **options: Any) -> bytes:
        assert self.may_answer.wait(60)
        return super().request(method, path, **options)


def test_the_caller_does_not_wait_for_an_api_server_that_does_not_answer() -> None:
    api = Hanging()
    with recording(api) as recorder:
        for number in range(1000):
            recorder.event(
                Reference("v1", "Pod", "here", f"p-{number}", f"u-{number}"), "Waits", "Place", "x"
            )
        assert not api.bodies, "no request has been answered"
        assert recorder.dropped > 500
        api.may_answer.set()


def test_of_a_long_sentence_no_more_is_remembered_than_is_written() -> None:
    """So two that differ only behind that are one."""
    api = Refusing(403)
    recorder = Recorder(api, "topogate.io/sweeper", "x", Clock())
    for end in "ab":
        recorder.event(POD, "GangWaits", "Place", "x" * 100_000 + end)
    recorder.start()
    recorder.close(10)
    assert [len(body["note"].encode()) for body in api.bodies] == [NOTE_BYTES]


def test_a_sentence_that_changes_at_every_pass_does_not_flood_the_object() -> None:
    api = Refusing(403)
    recorder = Recorder(api, "topogate.io/sweeper", "x", Clock())
    for number in range(100):
        recorder.event(POD, "GangWaits", "Place", f"{number} GPUs are missing")
    recorder.start()
    recorder.close(10)
    assert len(api.bodies) == OBJECT_NOTES
    assert recorder.dropped == 100


@pytest.mark.parametrize("owned", [POD, Reference("v1", "Node", "", "n1", "uid-0")], ids=["pod", "node"])
def test_an_event_on_an_owner_that_pods_elsewhere_only_claim_takes_nothing_from_the_object(
    owned: Reference,
) -> None:
    """An author writes any uid as that of a pod's owner, and chooses what is quoted of it."""
    api = Refusing(403)
    recorder = Recorder(api, "topogate.io/sweeper", "x", Clock())
    claimed = Reference.owner(OwnerReference("v1", owned.kind, owned.name, owned.uid), "elsewhere")
    for note in ("no capacity", *map(str, range(OBJECT_NOTES))):
        recorder.event(claimed, "GangWaits", "Place", note)
    recorder.event(owned, "GangWaits", "Place", "no capacity")
    recorder.start()
    recorder.close(10)
    assert [body["note"] for body in api.bodies if body["regarding"] == owned.to_json()] == ["no capacity"]


QUOTA = 'pods "{}" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8'


@pytest.mark.parametrize(
    ("notes", "written"),
    [
        ([QUOTA.format(f"train-0-{end}") for end in ("x7k2p", "zzzzz", "24567")], 1),
        ([f"claim {begin}f0c2b9e-1234-4abc-9def-0123456789ab is gone" for begin in "01"], 1),
        (["block b1 has capacity for 14 of 40", "block b1 has capacity for 16 of 40"], 2),
        ([QUOTA.format(f"train-{role}") for role in ("leader", "worker")], 2),
        (["node gpu-17 is full", "node gpu-18 is full"], 2),
    ],
    ids=["generated-names", "uids", "figures", "roles", "nodes"],
)
def test_what_differs_by_random_names_alone_is_one_event_that_is_counted(
    notes: list[str], written: int
) -> None:
    api = Refusing(403)
    recorder = Recorder(api, "topogate.io/sweeper", "x", Clock())
    for note in notes:
        recorder.event(POD, "GangWaits", "Place", note)
    recorder.start()
    recorder.close(10)
    assert [body["note"] for body in api.bodies] == notes[:written]
    assert [series.count for series in recorder._series.values()] == [len(notes) // written] * written


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        ("short", "short"),
        ("x" * NOTE_BYTES, "x" * NOTE_BYTES),
        ("x" * (NOTE_BYTES + 1), "x" * (NOTE_BYTES - 3) + "…"),
        ("x" * (NOTE_BYTES - 4) + "ééé", "x" * (NOTE_BYTES - 4) + "…"),
    ],
    ids=["short", "just-fits", "one-too-long", "not-inside-a-character"],
)
def test_notes_are_cut_at_a_kibibyte(note: str, expected: str) -> None:
    assert shortened(note) == expected
    assert len(shortened(note).encode()) <= NOTE_BYTES


def test_references_are_made_from_what_is_at_hand() -> None:
    metadata = Metadata(name="train-0", namespace="here", uid="uid-0")
    assert Reference.of("v1", "Pod", metadata) == POD
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid="uid-job", controller=True)
    assert Reference.owner(owner, "here") == Reference("batch/v1", "Job", "here", "train", "uid-job")
