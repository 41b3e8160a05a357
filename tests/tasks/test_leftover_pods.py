"""Pods whose Job is gone: the garbage collector deletes them, or after a while the controller."""

import json
from collections import Counter
from typing import Any, Final

import msgspec
import pytest

from labeler.contract import keys
from tests.tasks.builders import Clock, rules
from webhook.kube.client import ApiError
from webhook.tasks import controller as module
from webhook.tasks.controller import Controller
from webhook.tasks.observe import Cache, Queue
from webhook.tasks.task_objects import TaskPod

KEY: Final = "team/train"


def left(
    pod: str,
    uid: str = "job-0",
    *,
    api: str = "batch/v1",
    kind: str = "Job",
    name: str = "train",
    **metadata: Any,
) -> TaskPod:
    """A pod of the task's Job with that uid. api, kind, name: of another owner."""
    owner = {"apiVersion": api, "kind": kind, "name": name, "uid": uid, "controller": True}
    body = {
        "name": pod,
        "namespace": "team",
        "uid": f"uid-of-{pod}",
        "resourceVersion": "7",
        "labels": {keys.TASK_LABEL: "train", keys.TASK_UID_LABEL: "uid-0"},
        "ownerReferences": [owner],
        **metadata,
    }
    return msgspec.convert({"metadata": body}, TaskPod)


class Played:
    """An API server with one Job at most, and a copy of pods whose Job is gone, as far as it knows."""

    def __init__(self, job: str, *pods: TaskPod, refusals: dict[str, int] | None = None) -> None:
        self.job, self.pods, self.refusals = job, pods, refusals or {}
        self.tasks: dict[str, Any] = {}
        self.queue = Queue()
        self.calls: list[tuple[float, str]] = []
        self.bodies: list[dict[str, Any]] = []
        self.clock = Clock()

    def leftover_pods(self, _key: str) -> list[TaskPod]:
        return list(self.pods)

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        name = path.rpartition("/")[2]
        self.calls.append((self.clock.now - 1000.0, f"{method} {name}"))
        if method == "GET" and not self.job:
            raise ApiError(404, "NotFound", "jobs train not found")
        if name in self.refusals:
            raise ApiError(self.refusals[name], "", f"pods {name}")
        if method == "DELETE":
            self.bodies.append(body)
            self.pods = tuple(each for each in self.pods if each.metadata.name != name)
        return json.dumps({"metadata": {"name": "train", "uid": self.job}}).encode()

    def asked(self) -> list[str]:
        return [call for _, call in self.calls]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Any:
    def for_seconds(played: Played, seconds: float, leads: bool = True) -> None:
        monkeypatch.setattr(module, "time", played.clock)
        monkeypatch.setattr("webhook.tasks.observe.time", played.clock)
        made = Controller(played, played, played.queue, rules, leads=lambda: leads)  # type: ignore[arg-type]
        played.queue.add(KEY)
        end = played.clock.now + seconds
        while played.clock.now < end:
            key = played.queue.take(0.0)
            if key is not None:
                made.step(key)
            played.clock.now += 0.5

    return for_seconds


@pytest.mark.promise("O168")
def test_for_10_seconds_they_are_left_to_the_garbage_collector(work: Any) -> None:
    played = Played("job-1", left("a"), left("b"))
    work(played, 9.9)
    assert played.calls == []


@pytest.mark.promise("O168")
def test_then_each_is_deleted_as_it_was_seen(work: Any) -> None:
    played = Played("job-1", left("a"), left("b"))
    work(played, 30.0)
    assert played.calls == [(10.0, "GET train"), (10.0, "DELETE a"), (10.0, "DELETE b")]
    assert [each["preconditions"] for each in played.bodies] == [
        {"uid": f"uid-of-{name}", "resourceVersion": "7"} for name in ("a", "b")
    ]


def test_they_are_deleted_where_no_job_came_after_theirs(work: Any) -> None:
    played = Played("", left("a"))
    work(played, 15.0)
    assert played.asked() == ["GET train", "DELETE a"]


@pytest.mark.promise("O168")
def test_pods_of_the_job_that_is_there_stay_where_the_copy_of_jobs_is_late(work: Any) -> None:
    played = Played("job-1", left("old"), left("new", "job-1"))
    work(played, 15.0)
    assert played.asked() == ["GET train", "DELETE old"]


def test_one_that_has_changed_since_keeps_no_other(work: Any) -> None:
    played = Played("job-1", left("a"), left("b"), refusals={"a": 409})
    work(played, 15.0)
    assert played.asked() == ["GET train", "DELETE a", "DELETE b"]


def test_a_refusal_is_tried_again_with_pauses_that_double(
    work: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the role is the one of an earlier release. The task itself has its steps."""
    played = Played("job-1", left("a"), refusals={"a": 403})
    work(played, 400.0)
    assert [time for time, call in played.calls if call == "DELETE a"] == [10.0, 30.0, 70.0, 150.0, 310.0]
    assert "leftover_pods_failed task=team/train" in caplog.text


def test_one_that_is_refused_keeps_no_other(work: Any) -> None:
    played = Played("job-1", left("a"), left("b"), refusals={"a": 403})
    work(played, 15.0)
    assert played.asked() == ["GET train", "DELETE a", "DELETE b"]


def test_a_living_job_of_that_name_is_read_ever_less_often(work: Any) -> None:
    """Its pods have the labels of a task, but the Job itself has none, so no copy has it."""
    played = Played("job-1", left("a", "job-1"))
    work(played, 400.0)
    assert [time for time, _ in played.calls] == [10.0, 30.0, 70.0, 150.0, 310.0]
    assert set(played.asked()) == {"GET train"}


def test_a_step_deletes_100_at_most_and_the_rest_follow(work: Any) -> None:
    played = Played("job-1", *(left(f"p{number}") for number in range(250)))
    work(played, 15.0)
    deleted = Counter(time for time, call in played.calls if call.startswith("DELETE"))
    assert deleted == {10.0: 100, 11.0: 100, 12.0: 50}


def test_who_does_not_lead_deletes_none(work: Any) -> None:
    played = Played("job-1", left("a"))
    work(played, 15.0, leads=False)
    assert "DELETE a" not in played.asked()


@pytest.mark.parametrize(
    ("each", "leftover"),
    [
        (left("a"), True),
        (left("a", deletionTimestamp="2026-11-21T11:00:00Z"), False),
        (left("a", ownerReferences=[]), False),
        (left("a", name="other"), False),
        (left("a", kind="Lone"), False),
        (left("a", api="batch.volcano.sh/v1alpha1"), False),
    ],
    ids=[
        "of a Job that is gone",
        "being deleted",
        "orphaned",
        "of another Job",
        "of something else",
        "of a Job of Volcano",
    ],
)
def test_which_pods_are_left_over(each: TaskPod, leftover: bool) -> None:
    cache = Cache(Played(""), Queue())  # type: ignore[arg-type]
    cache._pod_event(None, each)
    assert cache.leftover_pods(KEY) == ([each] if leftover else [])
