"""What hack/soak does with GPUTasks, by itself, and that what it judges by can fail.

The choices are the same in every run, so that a fault found here is met again; other seeds are for the soak.
"""

import random
import time
from collections import Counter
from typing import Any

import pytest

from hack.local.cluster import Cluster
from hack.local.install import Installation
from hack.soaks.sweepers import start_sweepers
from hack.soaks.tasks import NAMESPACE, NODES, Tasks
from hack.soaks.users import TaskRequest, Users

TASKS = 40
SEED = 3
KILL_EVERY = 3.0


@pytest.mark.promise("O152")
@pytest.mark.when_changed(
    "webhook/tasks", "hack/soaks/tasks.py", "hack/soaks/users.py", "manifests/base/tasks.yaml"
)
def test_every_task_has_its_one_job_whatever_is_killed(own_cluster: Cluster) -> None:
    api, done = own_cluster.api(), Counter[str]()
    users = Users(api, NAMESPACE, TASKS, 16, random.Random(f"users {SEED}"), done, NODES[0].only)
    tasks = Tasks(own_cluster, users, random.Random(f"kills {SEED}"), done)
    installation = Installation(own_cluster)
    installation.set_up()
    try:
        tasks.set_up(installation)
        for number, sweeper in enumerate(start_sweepers(installation, {}, 2)):
            tasks.programs[f"sweeper {number}"] = sweeper
        last = time.monotonic()
        while done["create"] < TASKS:
            users.act()
            if time.monotonic() - last > KILL_EVERY:
                tasks.kill()
                last = time.monotonic()
            time.sleep(0.05)
        assert tasks.untrue(240) == []
        assert tasks.faults() == []
    finally:
        tasks.stop()
    # It did what it is for.
    assert sum(count for what, count in done.items() if what.startswith("killed ")) >= 2


# --- the judgement can fail ---------------------------------------------------------------------


class Answers:
    """An API server's answers to what is asked in the end."""

    def __init__(self) -> None:
        self.task: dict[str, Any] = {
            "metadata": {"name": "t0", "uid": "u", "generation": 2},
            "status": {
                "phase": "Running", "observedGeneration": 2, "running": 1, "nodes": ["n"],
            },
        }  # fmt: skip
        self.job: dict[str, Any] = {
            "metadata": {
                "name": "t0", "labels": {"falldio.com/attempt": "0"}, "ownerReferences": [{"uid": "u"}],
            },
            "spec": {"suspend": False},
        }  # fmt: skip
        self.pod: dict[str, Any] = {
            "metadata": {"name": "p", "labels": {"falldio.com/task": "t0"}},
            "spec": {"nodeName": "n"},
            "status": {"phase": "Running"},
        }
        self.more_jobs: list[dict[str, Any]] = []

    def json(self, _: str, path: str) -> dict[str, Any]:
        if path.endswith("gputasks"):
            return {"items": [self.task]}
        return {"items": [self.job, *self.more_jobs] if path.endswith("jobs") else [self.pod]}


def faults_of(answers: Answers, request: TaskRequest) -> list[str]:
    users = Users(answers, "n", 1, 1, random.Random(0), Counter(), requests={"t0": request})  # type: ignore[arg-type]
    return users.faults()


def test_a_task_that_runs_as_it_was_asked_for_is_no_fault() -> None:
    assert faults_of(Answers(), TaskRequest("low", 1, ends=False)) == []


@pytest.mark.parametrize(
    ("part", "path", "value", "words"),
    [
        ("task", ("status", "phase"), "Waiting", "phase is Waiting, not Running"),
        ("task", ("status", "observedGeneration"), 1, "generation is 1, not 2"),
        ("task", ("status", "nodes"), [], "nodes is set(), not {'n'}"),
        ("task", ("status", "phase"), "Succeeded", "an end that its wish allows is False"),
        ("job", ("metadata", "labels"), {"falldio.com/attempt": "1"}, "attempt is"),
        ("job", ("metadata", "ownerReferences"), [{"uid": "other"}], "owner is other, not u"),
        ("job", ("spec", "suspend"), True, "suspend is True, not False"),
        ("pod", ("metadata", "deletionTimestamp"), "now", "pods is 0, not 1"),
        ("pod", ("status", "phase"), "Pending", "running is 1, not 0"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_not_so_is_a_fault(part: str, path: tuple[str, str], value: Any, words: str) -> None:
    answers = Answers()
    getattr(answers, part)[path[0]][path[1]] = value
    found = faults_of(answers, TaskRequest("low", 1, ends=False))
    assert any(words in fault for fault in found), found


def test_a_job_without_a_task_and_a_task_without_a_job_are_faults() -> None:
    answers = Answers()
    answers.more_jobs = [{"metadata": {"name": "stray"}}]
    assert faults_of(answers, TaskRequest("low", 1, ends=False)) == ["Jobs too many: ['stray']"]
    answers = Answers()
    answers.job = {"metadata": {"name": "other"}}
    assert set(faults_of(answers, TaskRequest("low", 1, ends=False))) == {
        "Jobs missing: ['t0']", "Jobs too many: ['other']",
    }  # fmt: skip
