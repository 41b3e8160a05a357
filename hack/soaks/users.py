"""People who start, change and end GPUTasks at random, and what must be true of their tasks in the end."""

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from hack.soaks.takes import RUN_FOR
from labeler.contract import keys
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.tasks import task_objects

_CLASSES: Final = {"low": "gpu-low-priority", "medium": "gpu-medium-priority", "high": "gpu-high-priority"}
_PATIENCE_SECONDS: Final = 60.0
_ENDED: Final = (task_objects.SUCCEEDED, task_objects.FAILED)


@dataclass
class TaskRequest:
    """What a user wants of one task now. ends: its workers end by themselves after a while."""

    priority: str
    workers: int
    ends: bool
    suspend: bool = False
    attempt: int = 0


@dataclass
class Users:
    """Does one thing after another in a namespace: `total` tasks altogether, at most `live` at a time.

    where: the part of a pod's spec that says on which nodes its task may run.
    """

    api: Api
    namespace: str
    total: int
    live: int
    choices: random.Random
    done: Counter[str]
    where: dict[str, Any] = field(default_factory=dict)
    requests: dict[str, TaskRequest] = field(default_factory=dict)

    def act(self) -> None:
        """One act of one user. Raises ApiError for what is refused."""
        can_create = self.done["create"] < self.total and len(self.requests) < self.live
        if can_create and (not self.requests or self.choices.random() < 0.4):
            self._create()
            return
        name = self.choices.choice(sorted(self.requests))
        request = self.requests[name]
        act = self.choice()
        self.done[act] += 1
        match act:
            case "suspend":
                request.suspend = not request.suspend
                self._change(name, suspend=request.suspend)
            case "attempt":
                request.attempt += 1
                self._change(name, attempt=request.attempt)
            case "priority":
                request.priority = self.choices.choice(sorted(_CLASSES))
                self._change(name, priority=request.priority)
            case "delete":
                self._delete(task_objects.path(self.namespace, name))
                del self.requests[name]
            case "delete job":
                self._delete(task_objects.jobs_path(self.namespace, name))

    def choice(self) -> str:
        """What is done next to a task. Deleted in the end are about as many as are made."""
        deletes = 1 if len(self.requests) < self.live else 4
        return self.choices.choices(
            ("suspend", "attempt", "priority", "delete", "delete job"), (3, 1, 1, deletes, 1)
        )[0]

    def _create(self) -> None:
        # Names come again, as those of tasks that have just been deleted.
        name = next(name for number in itertools.count() if (name := f"t{number}") not in self.requests)
        request = TaskRequest(
            self.choices.choice(sorted(_CLASSES)),
            self.choices.choice((1, 1, 1, 2, 3)),
            self.choices.random() < 0.3,
        )
        template = {
            "metadata": {"annotations": {RUN_FOR: f"{self.choices.randint(1, 5)}s"} if request.ends else {}},
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "c", "image": "i"}],
                **self.where,
            },
        }
        spec = {
            "gpu-amount": self.choices.choice(("1", "2", "4")),
            "priority": request.priority,
            "workers": request.workers,
            "template": template,
        }
        head = {
            "apiVersion": task_objects.GROUP_VERSION,
            "kind": task_objects.KIND,
            "metadata": {"name": name},
        }
        body = {**head, "spec": spec}
        self._write("POST", task_objects.path(self.namespace), body=body)
        self.requests[name] = request
        self.done["create"] += 1

    def _change(self, name: str, **spec: Any) -> None:
        path = task_objects.path(self.namespace, name)
        self._write("PATCH", path, body={"spec": spec}, content_type=MERGE_PATCH)

    def _delete(self, path: str) -> None:
        try:
            self._write("DELETE", path, query={"propagationPolicy": "Background"})
        except ApiError as error:
            if error.status != 404:
                raise

    def _write(self, method: str, path: str, **options: Any) -> None:
        """As a person who tries again: whether a write without an answer was done shows in the next one."""
        deadline, is_again = time.monotonic() + _PATIENCE_SECONDS, False
        while True:
            try:
                self.api.request(method, path, **options)
                return
            except ApiError as error:
                if is_again and (method, error.status) == ("POST", 409):
                    return
                if not error.is_transient or time.monotonic() > deadline:
                    raise
            is_again = True
            time.sleep(0.2)

    # --- what must be true ----------------------------------------------------------------------

    def faults(self) -> list[str]:
        """What is not true (yet) of tasks and Jobs. Raises ApiError."""
        tasks = self._items(task_objects.path(self.namespace))
        jobs = self._items(task_objects.jobs_path(self.namespace))
        pods = self.api.json("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        ended = {name for name, task in tasks.items() if (task.get("status") or {}).get("phase") in _ENDED}
        found = _differences("tasks", tasks, self.requests)
        # The Job of a task that has ended may have been deleted by hand, and is not recreated.
        found += _differences("Jobs", jobs, (tasks.keys() - ended) | (ended & jobs.keys()))
        for name in tasks.keys() & jobs.keys() & self.requests.keys():
            own = [pod for pod in pods if pod["metadata"].get("labels", {}).get(keys.TASK_LABEL) == name]
            truth = _ended_truth if name in ended else _live_truth
            facts = truth(self.requests[name], tasks[name], jobs[name], own)
            found += [f"{name}: {what} is {a}, not {b}" for what, (a, b) in facts.items() if a != b]
        return found

    def _items(self, path: str) -> dict[str, dict[str, Any]]:
        return {each["metadata"]["name"]: each for each in self.api.json("GET", path)["items"]}


Facts = dict[str, tuple[Any, Any]]


def _differences(what: str, there: Iterable[str], wanted: Iterable[str]) -> list[str]:
    missing, more = sorted(set(wanted) - set(there)), sorted(set(there) - set(wanted))
    return [f"{what} missing: {missing}"] * bool(missing) + [f"{what} too many: {more}"] * bool(more)


def _ended_truth(
    request: TaskRequest, task: dict[str, Any], job: dict[str, Any], pods: list[dict[str, Any]]
) -> Facts:
    left = [pod for pod in pods if pod["status"].get("phase") not in _ENDED]
    return {
        "owner": (job["metadata"]["ownerReferences"][0]["uid"], task["metadata"]["uid"]),
        "an end that its wish allows": (request.ends, True),
        "pods that have not ended": (len(left), 0),
    }


def _live_truth(
    request: TaskRequest, task: dict[str, Any], job: dict[str, Any], pods: list[dict[str, Any]]
) -> Facts:
    status, labels = task.get("status") or {}, job["metadata"]["labels"]
    live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    there = [pod for pod in live if pod["status"].get("phase") not in _ENDED]
    running = [pod for pod in there if pod["status"].get("phase") == "Running"]
    waiting = [pod for pod in there if not pod["spec"].get("nodeName")]
    if request.suspend:
        expected = task_objects.SUSPENDED
    elif waiting:
        expected = task_objects.RUNNING if running else task_objects.WAITING
    else:
        expected = task_objects.RUNNING
    nodes = {pod["spec"]["nodeName"] for pod in there if pod["spec"].get("nodeName")}
    facts: Facts = {
        "owner": (job["metadata"]["ownerReferences"][0]["uid"], task["metadata"]["uid"]),
        "generation": (status.get("observedGeneration"), task["metadata"]["generation"]),
        "attempt": (
            (labels[keys.TASK_ATTEMPT_LABEL], status.get("attempt", 0)),
            (str(request.attempt), request.attempt),
        ),
        "suspend": (job["spec"].get("suspend"), request.suspend),
        "phase": (status.get("phase"), expected),
        "running": (status.get("running", 0), len(running)),
        "pods": (len(there), 0) if request.suspend else (len(live), request.workers),
        "nodes": (set(status.get("nodes") or ()), nodes),
    }
    if waiting and not request.suspend:
        # Only what waits is recreated for another class; what runs keeps its own until its next start.
        facts["a reason to wait"] = (bool(status.get("reason")), True)
        if not running and len(waiting) == len(there):
            classes = {pod["spec"].get("priorityClassName") for pod in waiting}
            facts["class"] = (classes, {_CLASSES[request.priority]})
    return facts
