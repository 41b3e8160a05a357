"""Watches the Jobs of GPUTasks for what must never be: pods of one rank of a task that run under two Jobs."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from labeler.contract import keys
from webhook.kube.client import Api
from webhook.kube.informer import Informer
from webhook.tasks import task_objects
from webhook.tasks.task_objects import TaskJob, TaskPod


@dataclass
class Overlaps:
    """The Jobs that there were in a namespace, and pods of one rank that ran under two of them."""

    found: list[str] = field(default_factory=list)
    running: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    jobs: dict[str, set[str]] = field(default_factory=dict)

    @property
    def jobs_made(self) -> dict[str, int]:
        """How many Jobs of each name there have been."""
        return {name: len(uids) for name, uids in self.jobs.items()}

    def wait_for_jobs(self, number: int, seconds: float) -> None:
        """Until so many have been seen, or the time is over: the watch reports what has been for a while."""
        deadline = time.monotonic() + seconds
        while sum(self.jobs_made.values()) < number and time.monotonic() < deadline:
            time.sleep(0.05)

    def see_job(self, before: TaskJob | None, after: TaskJob | None) -> None:
        """An event of a Job."""
        for job in (before, after):
            if job is not None:
                self.jobs.setdefault(job.metadata.name, set()).add(job.metadata.uid)

    def see(self, before: TaskPod | None, after: TaskPod | None) -> None:
        """An event of a pod."""
        pod = after or before
        if pod is None or pod.metadata.controller is None:
            return
        labels = pod.metadata.labels
        which = (labels[keys.TASK_UID_LABEL], labels["batch.kubernetes.io/job-completion-index"])
        there = self.running.setdefault(which, {})
        if after is None or after.status.phase != "Running":
            there.pop(pod.metadata.uid, None)
            return
        there[pod.metadata.uid] = pod.metadata.controller.uid
        if len(set(there.values())) > 1:
            self.found.append(f"{pod.metadata.name} runs beside a pod of an earlier Job")


@contextlib.contextmanager
def watched(api: Api, namespace: str, seconds: float) -> Iterator[Overlaps]:
    """What there is to see in a namespace while the block lasts. Raises TimeoutError if that cannot begin."""
    overlaps = Overlaps()
    pods = Informer(
        api,
        f"/api/v1/namespaces/{namespace}/pods",
        TaskPod,
        on_event=overlaps.see,
        label_selector=keys.TASK_UID_LABEL,
    )
    jobs = Informer(api, task_objects.jobs_path(namespace), TaskJob, on_event=overlaps.see_job)
    pods.start()
    jobs.start()
    try:
        if not (jobs.wait_synced(seconds) and pods.wait_synced(seconds)):
            raise TimeoutError(f"no list of Jobs and pods after {seconds:.0f} s")
        yield overlaps
    finally:
        pods.stop()
        jobs.stop()
