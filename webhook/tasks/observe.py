"""Caches of GPUTasks and their objects, and a queue of the tasks to process."""

import heapq
import threading
import time
from collections.abc import Mapping, Set
from typing import Any, Final

from labeler.contract import keys
from webhook.kube import placements
from webhook.kube.client import Api
from webhook.kube.complaints import EVENTS, FAILED_CREATE, Complaint
from webhook.kube.informer import Informer
from webhook.kube.objects import PriorityClass
from webhook.kube.placements import Placement
from webhook.tasks import task_objects
from webhook.tasks.step import ObservedTask
from webhook.tasks.task_objects import Task, TaskJob, TaskNamespace, TaskPod

CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_JOB_GANG: Final = "Job/"


class Queue:
    """Keys and when each is due, every key once. Thread-safe."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._changed = threading.Condition()

    def add(self, key: str, seconds: float = 0.0) -> None:
        """Process it after this many seconds, or earlier if that was requested before."""
        due = time.monotonic() + seconds
        with self._changed:
            if due < self._due.get(key, float("inf")):
                self._due[key] = due
                heapq.heappush(self._heap, (due, key))
                self._changed.notify()

    def take(self, seconds: float) -> str | None:
        """The next key that is due, None if none is within this many seconds."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while True:
                while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
                    heapq.heappop(self._heap)  # an earlier time was set since
                now = time.monotonic()
                if self._heap and self._heap[0][0] <= now:
                    _, key = heapq.heappop(self._heap)
                    del self._due[key]
                    return key
                if now >= deadline:
                    return None
                first = self._heap[0][0] if self._heap else deadline
                self._changed.wait(min(first, deadline) - now)


class Cache:
    """A current copy of the API server's objects; every event queues the task that it concerns."""

    def __init__(self, api: Api, queue: Queue) -> None:
        """Prepare; start() begins to read."""
        self._queue = queue
        self._lock = threading.Lock()
        self._workers: dict[str, dict[str, TaskPod]] = {}
        self._placements: dict[str, dict[str, Placement]] = {}
        self.tasks = Informer(api, task_objects.ALL, Task, on_event=self._task_event)
        self.jobs = Informer(
            api, task_objects.ALL_JOBS, TaskJob, on_event=self._job_event, label_selector=keys.TASK_LABEL
        )
        self.pods = Informer(
            api, task_objects.ALL_PODS, TaskPod, on_event=self._pod_event, label_selector=keys.TASK_UID_LABEL
        )
        self.placements = Informer(api, placements.ALL, Placement, on_event=self._placement_event)
        self.restricted = Informer(
            api, task_objects.NAMESPACES, TaskNamespace, label_selector=task_objects.RESTRICTED
        )
        # Nothing waits for these: without them only a reason is missing.
        self._complaints = Informer(
            api,
            EVENTS,
            Complaint,
            on_event=self._complaint_event,
            field_selector=f"{FAILED_CREATE},involvedObject.kind=Job",
        )
        self._job_complaints: dict[str, dict[str, Complaint]] = {}
        self.classes = Informer(api, CLASSES, PriorityClass, on_event=lambda *_: self.all_again())
        self.informers: dict[str, Informer[Any]] = {
            "gputasks": self.tasks,
            "jobs": self.jobs,
            "pods": self.pods,
            "placements": self.placements,
            "priorityclasses": self.classes,
            "namespaces": self.restricted,
        }

    def start(self) -> None:
        """Begin to list and watch."""
        for informer in (*self.informers.values(), self._complaints):
            informer.start()

    def stop(self) -> None:
        """End all watches."""
        for informer in (*self.informers.values(), self._complaints):
            informer.stop()

    @property
    def synced(self) -> bool:
        """Whether everything has been read once; nothing is done before that."""
        return all(informer.synced for informer in self.informers.values())

    def silences(self) -> dict[str, float]:
        """Seconds since the last message of the API server, by resource."""
        return {name: informer.silence_seconds for name, informer in self.informers.items()}

    def unreadable(self) -> dict[str, int]:
        """How many objects could not be decoded, by resource."""
        return {name: len(informer.undecodable) for name, informer in self.informers.items()}

    def priority_classes(self) -> Mapping[str, PriorityClass]:
        """The cluster's PriorityClasses by name."""
        return self.classes.items()

    def restricted_namespaces(self) -> Set[str]:
        """Namespaces where the API server accepts no pod that may run as root."""
        return self.restricted.items().keys()

    def all_again(self) -> None:
        """Process every task: a change concerns all of them."""
        for key in self.tasks.items():
            self._queue.add(key)

    def observed(self, task: Task, job: TaskJob | None = None) -> ObservedTask:
        """A task and its objects. job: one that was just read, instead of the cached one."""
        key = task.key
        job = job or self.jobs.get(key)
        uid = job.metadata.uid if job is not None else ""
        with self._lock:
            workers = list(self._workers.get(key, {}).values())
            plans = list(self._placements.get(key, {}).values())
            complaint = self._job_complaints.get(key, {}).get(uid)
        return ObservedTask(
            task,
            job,
            [pod for pod in workers if pod.metadata.labels.get(keys.TASK_UID_LABEL) == task.metadata.uid],
            next((plan for plan in plans if plan.spec.gang_id in ("", uid)), None),
            complaint,
        )

    def leftover_pods(self, key: str) -> list[TaskPod]:
        """Pods of Jobs of a task's name that are gone, which nobody has begun to delete."""
        name, job = key.partition("/")[2], self.jobs.get(key)
        uid = job.metadata.uid if job is not None else ""
        with self._lock:
            workers = list(self._workers.get(key, {}).values())
        return [
            pod
            for pod in workers
            if not pod.metadata.deletion_timestamp
            and (owner := pod.metadata.controller) is not None
            and (owner.api_version, owner.kind, owner.name) == ("batch/v1", "Job", name)
            and owner.uid != uid
        ]

    # --- events ---------------------------------------------------------------------------------

    def _task_event(self, before: Task | None, after: Task | None) -> None:
        task = after or before
        if task is not None:
            self._queue.add(task.key)

    def _job_event(self, before: TaskJob | None, after: TaskJob | None) -> None:
        job = after or before
        if job is not None:
            self._queue.add(f"{job.metadata.namespace}/{job.metadata.name}")

    def _pod_event(self, before: TaskPod | None, after: TaskPod | None) -> None:
        for pod in (before, after):
            if pod is None:
                continue
            metadata = pod.metadata
            key = f"{metadata.namespace}/{metadata.labels.get(keys.TASK_LABEL, '')}"
            with self._lock:
                there = self._workers.setdefault(key, {})
                if pod is after:
                    there[metadata.name] = pod
                else:
                    there.pop(metadata.name, None)
                if not there:
                    del self._workers[key]
            self._queue.add(key)

    def _placement_event(self, before: Placement | None, after: Placement | None) -> None:
        for placement in (before, after):
            if placement is None or not placement.spec.gang.startswith(_JOB_GANG):
                continue
            metadata = placement.metadata
            key = f"{metadata.namespace}/{placement.spec.gang.removeprefix(_JOB_GANG)}"
            with self._lock:
                there = self._placements.setdefault(key, {})
                if placement is after:
                    there[metadata.name] = placement
                else:
                    there.pop(metadata.name, None)
                if not there:
                    del self._placements[key]
            self._queue.add(key)

    def _complaint_event(self, before: Complaint | None, after: Complaint | None) -> None:
        for complaint in (before, after):
            if complaint is None:
                continue
            about = complaint.involved_object
            key = f"{complaint.metadata.namespace}/{about.name}"
            with self._lock:
                # Only the newest: any client may write Events, as many as the API server stores.
                there = self._job_complaints.setdefault(key, {})
                last = there.get(about.uid)
                if complaint is after:
                    there[about.uid] = max(complaint, last or complaint, key=lambda each: each.at)
                elif last is not None and last.metadata.name == complaint.metadata.name:
                    del there[about.uid]
                if not there:
                    del self._job_complaints[key]
            if complaint is after and self.tasks.get(key) is not None:
                self._queue.add(key)
