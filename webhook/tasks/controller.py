"""Takes the steps of GPUTasks: the API server refuses every write whose preconditions have changed."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.client import MERGE_PATCH, Api, ApiError
from webhook.kube.decoding import decoded
from webhook.kube.events import NORMAL, WARNING, Recorder, Reference
from webhook.tasks import status, task_objects
from webhook.tasks.desired_job import TaskRules
from webhook.tasks.observe import Cache, Queue
from webhook.tasks.status import ACCEPTED
from webhook.tasks.step import (
    CHANGE,
    CREATE,
    DELETE,
    EXPIRE,
    ObservedTask,
    TaskStep,
    fault_of_job_there,
    next_step,
)
from webhook.tasks.task_objects import GROUP_VERSION, KIND, Task, TaskCondition, TaskJob, TaskPod, TaskStatus

ACTION: Final = "RunTask"
_AGAIN_SECONDS: Final = 0.5
"""After a refusal because of a change: its event is on the way; this is for the case that it is not."""
_HOLD_SECONDS: Final = 2.0
"""How long a task waits after its Job was created, unless the Job is seen before: the cache lags behind."""
_LEFTOVER_SECONDS: Final = 10.0
"""After so long the garbage collector has overlooked a pod whose Job is gone, or is too slow."""
_LAST_LEFTOVER_SECONDS: Final = 160.0
_MOST_LEFTOVERS: Final = 100
"""Pods that are deleted in one step of a task: other tasks wait meanwhile."""
_NEXT_LEFTOVERS_SECONDS: Final = 1.0
_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 60.0

logger = logging.getLogger("webhook.tasks")
_task_decoder: Final = msgspec.json.Decoder(Task)
_job_decoder: Final = msgspec.json.Decoder(TaskJob)


@dataclass(frozen=True)
class _Leftovers:
    """When (monotonic) pods of a task whose Job is gone are deleted; pause: seconds until the next round."""

    at: float
    pause: float = _LEFTOVER_SECONDS


@dataclass(frozen=True)
class _Refusal:
    """Why a task's Job could not be created, how often in a row, and when (monotonic) to retry.

    fault: the sentence for the status. reason: in one word.
    """

    uid: str
    generation: int
    fault: str
    reason: EventReason
    count: int
    until: float

    def concerns(self, task: Task) -> bool:
        """Whether the task is still the one that was refused."""
        return (self.uid, self.generation) == (task.metadata.uid, task.metadata.generation)


class Controller:
    """Processes one task at a time. What it remembers saves requests; it may be forgotten at any time."""

    def __init__(
        self,
        api: Api,
        cache: Cache,
        queue: Queue,
        rules: Callable[[], TaskRules],
        recorder: Recorder | None = None,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """rules: called for each task. leads: called right before each write."""
        self._api = api
        self._cache = cache
        self._queue = queue
        self._rules = rules
        self._recorder = recorder
        self._leads = leads
        self._written: dict[str, Task] = {}
        self._retry_times: dict[str, float] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._leftovers: dict[str, _Leftovers] = {}
        """When leftover pods are deleted, by task."""

    def step(self, key: str) -> None:
        """Process one task: take its next step. Errors of that task are not raised."""
        self._delete_leftover_pods(key)
        task = self._current(key)
        if task is None:
            for memory in (self._written, self._retry_times, self._refusals):
                memory.pop(key, None)
            return
        wait = self._retry_times.get(key, 0.0) - time.monotonic()
        if wait > 0 and self._cache.jobs.get(key) is None:
            self._queue.add(key, wait)
            return
        self._retry_times.pop(key, None)
        try:
            self._take(self._cache.observed(task))
        except ApiError as error:
            # 404: the task, its namespace or a Job was deleted. Of a foreign Job no event comes.
            if error.status not in (404, 409):
                logger.warning("step_failed task=%s error=%r", key, str(error))
            self._queue.add(key, error.retry_after or (_AGAIN_SECONDS if error.status == 409 else 2.0))

    def _current(self, key: str) -> Task | None:
        """The newest version of the task: that of the cache, or the one that we wrote since."""
        task, mine = self._cache.tasks.get(key), self._written.get(key)
        if task is None or mine is None or task.metadata.uid != mine.metadata.uid:
            return task
        # Versions of one object are ordered numbers (KEP-5504).
        if int(task.metadata.resource_version) >= int(mine.metadata.resource_version):
            del self._written[key]
            return task
        return mine

    def _take(self, seen: ObservedTask) -> None:
        now = datetime.now(UTC)
        step = next_step(seen, self._rules(), now)
        if step.act == CREATE:
            step = self._unless_refused(seen.task, step)
        if not self._leads():
            return
        task = seen.task
        # Before a Job is created or deleted the status is written even if it is the same: a task that has
        # changed since, or ended, refuses that. So a Job of another task of this name is an earlier one's.
        if step.status != task.status or step.act in (CREATE, DELETE):
            task = self._write_status(task, step.status)
        if step.due is not None:
            self._queue.add(task.key, max(0.1, (step.due - now).total_seconds()))
        if step.act and self._leads():
            logger.info("step task=%s act=%s why=%r", task.key, step.act, step.why)
            self._act(task, seen, step)

    def _unless_refused(self, task: Task, step: TaskStep) -> TaskStep:
        """The step that creates a Job; after a recent refusal of the API server, what to do meanwhile."""
        refusal = self._refusals.get(task.key)
        if refusal is None or not refusal.concerns(task):
            return step
        rest = refusal.until - time.monotonic()
        if rest > 0:
            self._queue.add(task.key, rest)  # an event may have replaced it in the queue
        return replace(step, act="" if rest > 0 else CREATE, status=_refused(task, refusal))

    def _act(self, task: Task, seen: ObservedTask, step: TaskStep) -> None:
        metadata, job = task.metadata, seen.job
        path = task_objects.jobs_path(metadata.namespace, metadata.name)
        if step.act == CREATE:
            self._create(task, step)
        elif step.act == EXPIRE:
            self._delete(task_objects.path(metadata.namespace, metadata.name), task, "Background")
        elif step.act == DELETE and job is not None:
            self._delete(path, job, "Foreground")
        elif step.act == CHANGE and job is not None:
            guard = {"uid": job.metadata.uid, "resourceVersion": job.metadata.resource_version}
            body = {"metadata": guard, "spec": step.body}
            self._api.request("PATCH", path, body=body, content_type=MERGE_PATCH)

    def _create(self, task: Task, step: TaskStep) -> None:
        path = task_objects.jobs_path(task.metadata.namespace)
        try:
            self._api.request("POST", path, body=step.body)
        except ApiError as error:
            if error.status == 409:
                self._look_at_the_job_there(task)
                return
            if error.is_transient or error.status == 404:
                raise
            # A quota, a policy, a wrong template.
            message = error.message.partition(": ")[2] or error.message  # without the request
            self._note_refusal(task, f"the API server refuses its Job: {message}", EventReason.JOB_REFUSED)
            return
        self._refusals.pop(task.key, None)
        self._retry_times[task.key] = time.monotonic() + _HOLD_SECONDS
        self._queue.add(task.key, _HOLD_SECONDS)
        self._send_event(task, EventReason.STARTED, f"Job {task.metadata.name} was created")

    def _look_at_the_job_there(self, task: Task) -> None:
        """A Job of that name exists and the cache does not have it: too new, or never to be seen."""
        body = self._api.request("GET", task_objects.jobs_path(task.metadata.namespace, task.metadata.name))
        job = _job_decoder.decode(body)
        if keys.TASK_LABEL in job.metadata.labels:
            self._retry_times[task.key] = time.monotonic() + _HOLD_SECONDS
            self._queue.add(task.key, _HOLD_SECONDS)
            return
        fault, reason = fault_of_job_there(task, job)
        self._note_refusal(task, fault, reason)

    def _note_refusal(self, task: Task, fault: str, reason: EventReason) -> None:
        """There can be no such Job now: write that into the status, and retry with growing pauses."""
        before = self._refusals.get(task.key)
        count = before.count + 1 if before is not None and before.concerns(task) else 1
        wait = min(_LAST_RETRY_SECONDS, _FIRST_RETRY_SECONDS * 2.0 ** min(count, 10))
        metadata = task.metadata
        refusal = _Refusal(metadata.uid, metadata.generation, fault, reason, count, time.monotonic() + wait)
        self._refusals[task.key] = refusal
        self._queue.add(task.key, wait)
        wanted = _refused(task, refusal)
        if wanted != task.status and self._leads():
            self._write_status(task, wanted)

    def _delete_leftover_pods(self, key: str) -> None:
        """Delete pods of earlier Jobs where the garbage collector has not done so for a while.

        It never does where its watch was down from before a Job was deleted until after another of its name
        was created, as it takes both for one object that has changed.
        """
        pods, now = self._cache.leftover_pods(key), time.monotonic()
        if not pods:
            self._leftovers.pop(key, None)
            return
        due = self._leftovers.setdefault(key, _Leftovers(now + _LEFTOVER_SECONDS))
        if due.at <= now:
            deleted = self._delete_pods_of_other_jobs(key, pods)
            # Nothing is deleted if a right is missing, or if the pods belong to a Job that is not the task's.
            pause = _LEFTOVER_SECONDS if deleted else min(2 * due.pause, _LAST_LEFTOVER_SECONDS)
            wait = _NEXT_LEFTOVERS_SECONDS if deleted == _MOST_LEFTOVERS else pause
            due = self._leftovers[key] = _Leftovers(now + wait, pause)
        self._queue.add(key, due.at - now)

    def _delete_pods_of_other_jobs(self, key: str, pods: Sequence[TaskPod]) -> int:
        """Delete the first pods of another Job than is there now: it is read after them, so theirs is gone.

        Returns how many were deleted, _MOST_LEFTOVERS at most. A refused pod does not stop the rest.
        """
        deleted = 0
        try:
            uid = self._uid_of_job(key)
        except ApiError as error:
            logger.warning("leftover_pods_failed task=%s error=%r", key, str(error))
            return deleted
        for pod in pods:
            owner = pod.metadata.controller
            if owner is None or owner.uid == uid or deleted == _MOST_LEFTOVERS or not self._leads():
                continue
            logger.info("delete_leftover_pod task=%s pod=%s job_uid=%s", key, pod.metadata.name, owner.uid)
            try:
                self._delete(task_objects.pod_path(pod), pod, "Background")
                deleted += 1
            except ApiError as error:
                if error.status not in (404, 409):  # gone, or changed since
                    logger.warning("leftover_pods_failed task=%s error=%r", key, str(error))
        return deleted

    def _uid_of_job(self, key: str) -> str:
        """The uid of the Job that there is now of a task's name, "" for none."""
        namespace, _, name = key.partition("/")
        try:
            body = self._api.request("GET", task_objects.jobs_path(namespace, name))
        except ApiError as error:
            if error.status != 404:
                raise
            return ""
        return _job_decoder.decode(body).metadata.uid

    def _delete(self, path: str, what: Task | TaskJob | TaskPod, propagation: str) -> None:
        self._api.request(
            "DELETE",
            path,
            body={
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": propagation,
                "preconditions": {
                    "uid": what.metadata.uid,
                    "resourceVersion": what.metadata.resource_version,
                },
            },
        )

    def _write_status(self, task: Task, wanted: TaskStatus) -> Task:
        """Replace the status; refused with 409 if the task has changed since it was read."""
        fields: dict[str, Any] = msgspec.to_builtins(wanted)
        gone = {name: None for name in msgspec.to_builtins(task.status) if name not in fields}
        metadata = task.metadata
        answer = self._api.request(
            "PATCH",
            task_objects.path(metadata.namespace, metadata.name) + "/status",
            body={
                "metadata": {"uid": metadata.uid, "resourceVersion": metadata.resource_version},
                "status": fields | gone,
            },
            content_type=MERGE_PATCH,
        )
        written = self._written[task.key] = decoded(_task_decoder, answer)
        self._report_changes(task, written)
        return written

    # --- events ---------------------------------------------------------------------------------

    def _report_changes(self, before: Task, after: Task) -> None:
        old, new = before.status, after.status
        fault = _fault_of(new)
        if fault is not None and fault not in old.conditions:
            self._send_event(after, EventReason.named(fault.reason), fault.message)
        elif new.phase != old.phase and (old.phase or new.phase != task_objects.PENDING):
            where = f" on {new.node}" if new.node and new.phase == task_objects.RUNNING else ""
            note = f"{new.phase}{where}" + (f": {new.reason}" if new.reason else "")
            self._send_event(after, EventReason.named(new.phase), note)

    def _send_event(self, task: Task, reason: EventReason, note: str) -> None:
        if self._recorder is not None:
            about = Reference.of(GROUP_VERSION, KIND, task.metadata)
            self._recorder.event(about, reason, ACTION, note, kind=WARNING if reason.is_warning else NORMAL)


def _fault_of(now: TaskStatus) -> TaskCondition | None:
    """The condition that the task is not accepted, if it has one."""
    return next((each for each in now.conditions if each.type == ACCEPTED and each.status == "False"), None)


def _refused(task: Task, refusal: _Refusal) -> TaskStatus:
    now = status.StatusContext(datetime.now(UTC), refusal.fault, refusal.reason)
    return status.pending(task, refusal.fault, now)
