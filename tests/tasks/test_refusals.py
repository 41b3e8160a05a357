"""What the controller asks of the API server while a Job cannot be made: little, and less with time."""

import json
from collections import Counter
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest

from labeler.contract import keys
from tests.tasks.builders import Clock, rules
from webhook.kube.client import ApiError
from webhook.tasks import controller as module
from webhook.tasks.controller import Controller
from webhook.tasks.observe import Queue
from webhook.tasks.step import ObservedTask
from webhook.tasks.task_objects import Task, TaskJob, TaskPod

OURS: Final = [{"kind": "GPUTask", "name": "train", "uid": "uid-1", "controller": True}]
FOREIGN: Final[dict[str, Any]] = {"metadata": {"name": "train", "namespace": "team", "uid": "other"}}
UNLABELLED: Final[dict[str, Any]] = {"metadata": {**FOREIGN["metadata"], "ownerReferences": OURS}}
EARLIER: Final[dict[str, Any]] = {
    "metadata": {**FOREIGN["metadata"], "ownerReferences": [{**OURS[0], "uid": "uid-0"}]}
}
TOO_NEW: Final[dict[str, Any]] = {
    "metadata": {**UNLABELLED["metadata"], "labels": {keys.TASK_LABEL: "train"}}
}


class Played:
    """An API server with one task, and one Job of its name that no copy shows. Its watch is at once."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job, self.calls, self.events = job, Counter[str](), Counter[str]()
        metadata = {"name": "train", "namespace": "team", "uid": "uid-1", "generation": 1}
        self.task: dict[str, Any] = {
            "metadata": {**metadata, "resourceVersion": "1"},
            "spec": {},
            "status": {},
        }
        self.tasks, self.jobs, self.queue = (
            {"team/train": msgspec.convert(self.task, Task)},
            dict[str, Any](),
            Queue(),
        )

    def observed(self, task: Task) -> ObservedTask:
        return ObservedTask(task)

    def leftover_pods(self, _key: str) -> list[TaskPod]:
        return []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.calls[method] += 1
        if method == "POST":
            raise ApiError(409, "AlreadyExists", "jobs train already exists")
        if method == "GET":
            return json.dumps(self.job).encode()
        merged = {**self.task["status"], **body["status"]}
        status = {name: value for name, value in merged.items() if value is not None}
        if status != self.task["status"]:
            version = str(int(self.task["metadata"]["resourceVersion"]) + 1)
            metadata = {**self.task["metadata"], "resourceVersion": version}
            self.task = {**self.task, "metadata": metadata, "status": status}
            self.tasks["team/train"] = msgspec.convert(self.task, Task)
            self.queue.add("team/train")
        return json.dumps(self.task).encode()

    def event(self, about: Any, reason: str, *_: Any, **__: Any) -> None:
        self.events[reason] += 1


def worked_for(played: Played, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr("webhook.tasks.observe.time", clock)
    made = Controller(played, played, played.queue, rules, played)  # type: ignore[arg-type]
    played.queue.add("team/train")
    end = clock.now + seconds
    while clock.now < end:
        key = played.queue.take(0.0)
        if key is not None:
            made.step(key)
        clock.now += 0.005  # a round trip


@pytest.mark.promise("O152")
@pytest.mark.parametrize(
    "job", [FOREIGN, UNLABELLED, EARLIER, TOO_NEW], ids=["foreign", "unlabelled", "earlier", "new"]
)
def test_a_job_there_that_no_copy_shows_costs_few_requests(
    job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(job)
    worked_for(played, monkeypatch, 10.0)
    assert sum(played.calls.values()) < 20
    assert sum(played.events.values()) <= 1


@pytest.mark.promise("O168")
@pytest.mark.parametrize(
    ("job", "reason", "words"),
    [
        (FOREIGN, "JobNameTaken", "Job train exists and does not belong to this task"),
        (UNLABELLED, "JobUnlabelled", f"Job train has lost its label {keys.TASK_LABEL}: restore it"),
    ],
)
def test_the_status_shows_it_all_the_while(
    job: dict[str, Any], reason: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(job)
    worked_for(played, monkeypatch, 100.0)
    assert words in played.task["status"]["reason"]
    assert played.events == {reason: 1}
    assert played.task["metadata"]["resourceVersion"] == "3"  # being made; it cannot be


@pytest.mark.promise("O152")
def test_a_name_that_is_taken_is_tried_after_2_seconds_and_then_less_often_up_to_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times: list[float] = []

    class Timed(Played):
        def request(self, method: str, path: str, **options: Any) -> bytes:
            if method == "POST":
                times.append(vars(module)["time"].monotonic())
            return super().request(method, path, **options)

    worked_for(Timed(FOREIGN), monkeypatch, 250.0)
    pauses = [round(later - earlier) for earlier, later in pairwise(times)]
    assert pauses == [2, 4, 8, 16, 32, 60, 60, 60]


@pytest.mark.promise("O168")
def test_a_foreign_job_that_is_deleted_right_before_the_look_at_it_leaves_the_task_in_the_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    created: list[str] = []

    class Deleted(Played):
        def request(self, method: str, path: str, **options: Any) -> bytes:
            if method == "GET" and self.calls["GET"]:
                self.calls[method] += 1
                raise ApiError(404, "NotFound", "jobs train not found")
            if method == "POST" and self.calls["GET"] > 1:
                created.append(path)
                return b"{}"
            return super().request(method, path, **options)

    worked_for(Deleted(FOREIGN), monkeypatch, 6.0)
    assert created


def test_a_job_is_not_deleted_as_an_earlier_tasks_where_the_task_that_is_known_is_the_earlier_one() -> None:
    """The copy of Jobs may be ahead of that of tasks. Its status says already what it is to say."""

    class Outdated(Played):
        refuses = False

        def observed(self, task: Task) -> ObservedTask:
            return ObservedTask(task, msgspec.convert(self.job, TaskJob))

        def request(self, method: str, path: str, **options: Any) -> bytes:
            if method == "PATCH" and self.refuses:
                self.calls[method] += 1
                raise ApiError(409, "Conflict", "the UID in the precondition does not match")
            return super().request(method, path, **options) if method == "PATCH" else self._note(method)

        def _note(self, method: str) -> bytes:
            self.calls[method] += 1
            return b"{}"

    played = Outdated(EARLIER)
    made = Controller(played, played, played.queue, rules, played)  # type: ignore[arg-type]
    made.step("team/train")
    assert played.calls == {"PATCH": 1, "DELETE": 1}
    played.refuses = True
    made.step("team/train")
    assert played.calls == {"PATCH": 2, "DELETE": 1}
