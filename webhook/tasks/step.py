"""The next step of one GPUTask, decided only from the state of the cluster. Pure.

A task has at most one Job, with its own name: the API server itself refuses a second. Every write has
preconditions, so it is safe to decide again after any crash. A Job that must be replaced (a new attempt,
another class while it waits, the resumption of one that has run) is first deleted with its pods, and created
again once they are deleted. So is the Job of an earlier task of the same name: Kubernetes' garbage collector
does not delete it if its watch was down from before that task's deletion until after this one's creation,
since it then takes both for one changed object.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.complaints import Complaint
from webhook.kube.placements import Placement
from webhook.kube.times import since_1970
from webhook.tasks import status
from webhook.tasks.desired_job import RefusedError, TaskRules, job_wanted
from webhook.tasks.status import StatusContext
from webhook.tasks.task_objects import KIND, Task, TaskJob, TaskPod, TaskStatus
from webhook.text import quote

CREATE: Final = "create"
DELETE: Final = "delete"
CHANGE: Final = "change"
EXPIRE: Final = "expire"


@dataclass(frozen=True)
class ObservedTask:
    """One task and its objects.

    job: the Job of its name, whoever created it. pods: all pods of its Jobs, also of deleted ones. placement:
    the plan of the Job's gang. complaint: the last report about pods that the Job cannot have.
    """

    task: Task
    job: TaskJob | None = None
    pods: Sequence[TaskPod] = ()
    placement: Placement | None = None
    complaint: Complaint | None = None


@dataclass(frozen=True)
class TaskStep:
    """What to do: first write this status, then act.

    act: "" for nothing. why: for the log. body: the Job to create, or the change of its spec. due: when to
    decide again even if nothing has happened.
    """

    act: str
    why: str
    status: TaskStatus
    body: dict[str, Any] | None = None
    due: datetime | None = None


def next_step(seen: ObservedTask, rules: TaskRules, time: datetime) -> TaskStep:
    """Decide the next step. The status that comes with it is true before the act is done."""
    task = seen.task
    if task.metadata.deletion_timestamp:
        return TaskStep("", "it is being deleted, and its Job with it", task.status)
    if _has_ended(task, seen.job):
        return _after_the_end(task, time)
    now, body = _judged(task, rules, time)
    if seen.job is None:
        return _without_job(seen, body, now)
    if not _is_of(task, seen.job):
        return _beside_foreign_job(task, seen.job, now)
    pods = [pod for pod in seen.pods if _owner(pod) == seen.job.metadata.uid]
    if seen.job.metadata.labels.get(keys.TASK_ATTEMPT_LABEL) != str(task.spec.attempt):
        wanted_status = status.pending(task, "its earlier attempt ends first", now)
        return _gone_first(seen.job, "another attempt is wanted", wanted_status)
    if seen.job.end is not None:
        return TaskStep("", "its Job has ended", status.finished(task, seen.job, pods, now))
    if seen.job.metadata.deletion_timestamp:
        return TaskStep("", "its Job is being deleted", status.pending(task, "its Job is being deleted", now))
    if _is_resumed(task, seen.job, pods):
        wanted_status = status.pending(task, "its former pods end, before it starts again", now)
        return _gone_first(seen.job, "it is resumed from its beginning", wanted_status)
    return _beside_job(seen, seen.job, pods, body, now)


def _judged(task: Task, rules: TaskRules, time: datetime) -> tuple[StatusContext, dict[str, Any] | None]:
    try:
        return StatusContext(time), job_wanted(task, rules)
    except RefusedError as error:
        return StatusContext(time, str(error), error.reason), None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        # An unforeseen shape is reported to its author; the step must not fail for ever.
        fault = f"no Job can be created from its template ({type(error).__name__}: {quote(str(error), 100)})"
        return StatusContext(time, fault, EventReason.TEMPLATE_REFUSED), None


def _after_the_end(task: Task, time: datetime) -> TaskStep:
    seen = task.status
    if seen.observed_generation != task.metadata.generation:
        seen = replace(seen, observed_generation=task.metadata.generation)
    seconds = task.spec.ttl_seconds_after_finished
    if seconds is None:
        return TaskStep("", "it has ended", seen)
    finished_at = since_1970(seen.finish_time)
    if finished_at is None or finished_at > time.timestamp():
        # An edit, or the clock of the Job controller is ahead.
        finished_at, seen = time.timestamp(), replace(seen, finish_time=status.rfc3339(time))
    due = datetime.fromtimestamp(finished_at, UTC) + timedelta(seconds=seconds)
    if time < due:
        return TaskStep("", "it has ended, and is deleted later", seen, due=due)
    return TaskStep(EXPIRE, "its time to live after the end is over", seen)


def _without_job(seen: ObservedTask, body: dict[str, Any] | None, now: StatusContext) -> TaskStep:
    if body is None:
        return TaskStep("", now.fault_reason, status.pending(seen.task, now.fault, now))
    left = [pod.metadata.name for pod in seen.pods if not pod.is_over]
    if left:
        wanted_status = f"pod {min(left)} of its earlier Job has not ended yet"
        return TaskStep("", "pods of an earlier Job exist", status.pending(seen.task, wanted_status, now))
    return TaskStep(CREATE, "it has no Job", status.pending(seen.task, "its Job is being created", now), body)


def fault_of_job_there(task: Task, job: TaskJob) -> tuple[str, EventReason]:
    """What is wrong with a Job that has a task's name and cannot be used, and the same in one word."""
    name = job.metadata.name
    if _is_of(task, job):
        return (
            f"Job {name} has lost its label {keys.TASK_LABEL}: restore it, or delete the Job",
            EventReason.JOB_UNLABELLED,
        )
    fault = f"Job {name} exists and does not belong to this task: delete it, or give the task another name"
    return fault, EventReason.JOB_NAME_TAKEN


def _beside_foreign_job(task: Task, job: TaskJob, now: StatusContext) -> TaskStep:
    owner = job.metadata.controller
    if job.metadata.deletion_timestamp or (owner and owner.kind == KIND and owner.name == task.metadata.name):
        wanted_status = status.pending(task, "the Job of an earlier task of this name ends first", now)
        return _gone_first(job, "an earlier task's Job exists", wanted_status)
    fault, reason = fault_of_job_there(task, job)
    taken = StatusContext(now.time, now.fault or fault, now.fault_reason or reason)
    return TaskStep("", "its name is taken", status.pending(task, taken.fault, taken))


def _beside_job(
    seen: ObservedTask, job: TaskJob, pods: Sequence[TaskPod], body: dict[str, Any] | None, now: StatusContext
) -> TaskStep:
    """The step for an existing Job.

    A task that can no longer have a Job (body is None) does not end what runs.
    """
    task, note = seen.task, ""
    if body is not None:
        there = job.metadata.labels.get(keys.TASK_CLASS_LABEL, "")
        wanted = body["metadata"]["labels"][keys.TASK_CLASS_LABEL]
        if there != wanted:
            if not job.status.ready and not any(pod.spec.node_name for pod in pods):
                wanted_status = status.pending(task, "it is queued again with its new priority", now)
                return _gone_first(job, "another class is wanted", wanted_status)
            note = f"it has {there or 'no class'}; {wanted or 'no class'} applies from its next start"
    wanted_status = status.live(task, job, pods, status.Blockers(seen.placement, seen.complaint), now, note)
    change = _job_spec_change(task, job)
    return TaskStep(
        CHANGE if change else "", "its Job is current" if not change else str(change), wanted_status, change
    )


def _is_resumed(task: Task, job: TaskJob, pods: Sequence[TaskPod]) -> bool:
    """Whether a task is resumed of which a worker has ever started.

    A resumed Job runs only the ranks that have not succeeded, and still counts earlier failures.
    """
    if task.spec.suspend or not job.spec.suspend:
        return False
    is_counted = job.status.succeeded or job.status.failed  # pods that ended while nobody saw them
    return bool(task.status.start_time or is_counted or any(pod.is_over for pod in pods))


def _job_spec_change(task: Task, job: TaskJob) -> dict[str, Any]:
    """The fields of the Job's spec that can be changed in place, with the task's values where they differ."""
    change: dict[str, Any] = {}
    if job.spec.suspend != task.spec.suspend:
        change["suspend"] = task.spec.suspend
    if job.spec.active_deadline_seconds != task.spec.active_deadline_seconds:
        change["activeDeadlineSeconds"] = task.spec.active_deadline_seconds
    return change


def _gone_first(job: TaskJob, why: str, wanted_status: TaskStatus) -> TaskStep:
    if job.metadata.deletion_timestamp:
        return TaskStep("", "its Job is being deleted", wanted_status)
    return TaskStep(DELETE, why, wanted_status)


def _is_of(task: Task, job: TaskJob) -> bool:
    owner = job.metadata.controller
    return owner is not None and owner.uid == task.metadata.uid


def _has_ended(task: Task, job: TaskJob | None) -> bool:
    """Whether the end of a task is recorded. While its Job is unfinished, that is an edit: after its time to
    live, the task would be deleted, and its running pods with it.
    """
    if job is None or not _is_of(task, job) or job.metadata.deletion_timestamp:
        return task.is_finished
    return task.is_finished and job.end is not None


def _owner(pod: TaskPod) -> str:
    owner = pod.metadata.controller
    return owner.uid if owner is not None else ""
