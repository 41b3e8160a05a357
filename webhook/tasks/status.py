"""The status of a GPUTask, from its Job, its pods and its gang's Placement. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from labeler.contract import keys
from webhook.kube import placements
from webhook.kube.complaints import Complaint
from webhook.kube.placements import Placement
from webhook.tasks.task_objects import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    WAITING,
    JobCondition,
    Task,
    TaskCondition,
    TaskJob,
    TaskPod,
    TaskStatus,
)
from webhook.text import printable
from webhook.workloads.marks import JOB_INDEX_KEY
from webhook.workloads.ranks import COUNT

ACCEPTED: Final = "Accepted"
PLACED: Final = "Placed"
COMPLETE: Final = "Complete"

_ABOUT: Final = re.compile(r'^Error creating: (pods "[^"]*" is )?')
"""How messages of the Job controller begin; they are cut since the pod's name changes each time."""
_SECONDS: Final = len("2026-01-01T00:00:00")
_LONGEST_REASON: Final = 1000
_MOST_NODES: Final = 1000
_MOST_CARDS: Final = 8


@dataclass(frozen=True)
class StatusContext:
    """When a status is written, and whether the task is accepted. fault: "" where it is."""

    time: datetime
    fault: str = ""
    fault_reason: str = ""


@dataclass(frozen=True)
class Blockers:
    """What other objects report about a task that does not run: its gang's plan, and why pods are missing."""

    placement: Placement | None = None
    complaint: Complaint | None = None


def pending(task: Task, reason: str, now: StatusContext) -> TaskStatus:
    """A task without a Job that could report more."""
    fresh = _begun(task)
    accepted = _accepted(now)
    placed = TaskCondition(type=PLACED, status="False", reason="NoPods", message="There are no pods yet.")
    return _with_conditions(replace(fresh, phase=PENDING, reason=_cut(reason)), task, [accepted, placed], now)


def finished(task: Task, job: TaskJob, pods: Sequence[TaskPod], now: StatusContext) -> TaskStatus:
    """The end of an attempt. The Job must have its end condition."""
    end = job.end
    assert end is not None
    is_complete = end.type == COMPLETE
    last = _facts(task, job, pods)
    condition = TaskCondition(
        type=COMPLETE if is_complete else FAILED,
        status="True",
        reason=end.reason or end.type,
        message=_cut(end.message or "All workers have ended."),
    )
    done = replace(
        last,
        phase=SUCCEEDED if is_complete else FAILED,
        reason="" if is_complete else _why_failed(end),
        running=0,
        finish_time=job.status.completion_time or end.last_transition_time or rfc3339(now.time),
    )
    return _with_conditions(done, task, [_accepted(now), condition], now)


def _why_failed(end: JobCondition) -> str:
    return _cut(end.message or end.reason or "its Job failed")


def live(
    task: Task,
    job: TaskJob,
    pods: Sequence[TaskPod],
    blockers: Blockers,
    now: StatusContext,
    note: str = "",
) -> TaskStatus:
    """A task whose Job exists. pods: those of this Job. note: what else to report."""
    facts = _facts(task, job, pods)
    ours = [pod for pod in pods if not pod.is_over]
    placed = [pod for pod in ours if pod.spec.node_name]
    done = sum(pod.status.phase == SUCCEEDED for pod in pods)
    is_placed = len(placed) + done >= task.spec.workers
    phase, reason = _phase(task, job, pods, done, blockers)
    if is_placed:
        all_ = task.spec.workers
        message = "The worker has a node." if all_ == 1 else f"All {all_} workers have a node."
    else:
        message = f"{len(placed) + done} of {task.spec.workers} workers have a node."
    condition = TaskCondition(
        type=PLACED,
        status="True" if is_placed else "False",
        reason="AllPlaced" if is_placed else "NotAllPlaced",
        message=message,
    )
    reason = _cut("; ".join(part for part in (now.fault, note, reason) if part))
    return _with_conditions(
        replace(facts, phase=phase, reason=reason), task, [_accepted(now), condition], now
    )


def rfc3339(time: datetime) -> str:
    """A time as Kubernetes writes it, to the second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- phase and reason ---------------------------------------------------------------------------------


def _phase(
    task: Task, job: TaskJob, pods: Sequence[TaskPod], done: int, blockers: Blockers
) -> tuple[str, str]:
    ours = [pod for pod in pods if not pod.is_over]
    running = sum(_runs(pod) for pod in ours)
    if task.spec.suspend or job.spec.suspend:
        return SUSPENDED, f"{running} of its pods are still ending" if running else ""
    workers = task.spec.workers
    missing = workers - len(ours) - done
    lacks = _why_missing(pods, blockers.complaint) if missing > 0 else ""
    waiting = [pod for pod in ours if not pod.spec.node_name]
    if waiting:
        reason = _why_waiting(waiting, blockers.placement, lacks)
        if running:
            return RUNNING, f"{running} of {workers} workers run, {len(waiting)} wait: {reason}"
        return WAITING, reason
    return _phase_on_nodes(ours, workers, lacks, done)


def _phase_on_nodes(ours: Sequence[TaskPod], workers: int, lacks: str, done: int) -> tuple[str, str]:
    """The phase where all existing pods have a node. lacks: why the Job has too few."""
    running = sum(_runs(pod) for pod in ours)
    if running:
        some = f"{running} of {workers} workers run" if running + done < workers else ""
        return RUNNING, "; ".join(filter(None, (some, lacks, _why_not_up(ours))))
    if ours:
        return PENDING, lacks or _why_not_up(ours) or "its containers are being started"
    if done >= workers:
        return RUNNING, ""  # all have succeeded, which the Job will report soon
    return PENDING, lacks or ("" if done else "its pods are being created")


def _why_missing(pods: Sequence[TaskPod], complaint: Complaint | None) -> str:
    """Why the Job has fewer pods than it should, "" without a report since its newest pod was created."""
    newest = max((pod.metadata.creation_timestamp or "" for pod in pods), default="")
    if complaint is None or complaint.at < newest[:_SECONDS]:
        return ""
    return f"its pods cannot be created: {_ABOUT.sub('', printable(complaint.message))}"


def _why_waiting(waiting: Sequence[TaskPod], placement: Placement | None, lacks: str) -> str:
    if placement is not None and placement.status.reason and placement.status.state != placements.BOUND:
        return placement.status.reason
    if lacks:
        return lacks
    if any(pod.spec.scheduling_gates for pod in waiting):
        return "it waits for its gang to be placed"
    return next(_unscheduled_messages(waiting), "its pods wait for kube-scheduler")


def _unscheduled_messages(waiting: Sequence[TaskPod]) -> Iterator[str]:
    """What kube-scheduler reports about pods for which it finds no node."""
    for pod in waiting:
        for each in pod.status.conditions:
            if each.type == "PodScheduled" and each.status == "False" and each.message:
                yield each.message


def _why_not_up(pods: Iterable[TaskPod]) -> str:
    """What prevents a container from running, such as an image that cannot be pulled, or repeated crashes."""
    for pod in pods:
        for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
            waits = container.state.waiting
            if waits is not None and waits.reason not in ("", "ContainerCreating", "PodInitializing"):
                return f"pod {pod.metadata.name}: {waits.reason}: {waits.message}".rstrip(": ")
    return ""


def _runs(pod: TaskPod) -> bool:
    return pod.status.phase == RUNNING


# --- facts --------------------------------------------------------------------------------------------


def _begun(task: Task) -> TaskStatus:
    """The fields of the status that remain while an attempt continues; none for another attempt."""
    before = task.status
    if before.attempt != task.spec.attempt or before.finish_time:
        before = TaskStatus(conditions=before.conditions)
    return TaskStatus(
        observed_generation=task.metadata.generation,
        attempt=task.spec.attempt,
        job=task.metadata.name,
        restarts=before.restarts,
        start_time=before.start_time,
        conditions=before.conditions,
    )


def _facts(task: Task, job: TaskJob, pods: Sequence[TaskPod]) -> TaskStatus:
    ours = sorted((pod for pod in pods if pod.spec.node_name), key=_rank)
    current = [pod for pod in ours if not pod.is_over] or ours
    nodes = list(dict.fromkeys(pod.spec.node_name for pod in current))
    began = [began for pod in pods if (began := _began(pod))]
    base = _begun(task)
    return replace(
        base,
        nodes=tuple(nodes[:_MOST_NODES]),
        node=_node_column(nodes),
        cards=_cards(current),
        running=sum(_runs(pod) for pod in ours),
        restarts=max(_restarts(job, pods), base.restarts),
        start_time=base.start_time or (min(began) if began else None),
    )


def _restarts(job: TaskJob, pods: Sequence[TaskPod]) -> int:
    """How often a pod of the Job was recreated, or a container of the existing ones restarted."""
    return job.status.failed + sum(
        container.restart_count for pod in pods for container in pod.status.container_statuses
    )


def _node_column(nodes: Sequence[str]) -> str:
    """The node's name, or how many nodes where they are several."""
    if len(nodes) > 1:
        return f"{len(nodes)} nodes"
    return nodes[0] if nodes else ""


def _rank(pod: TaskPod) -> tuple[int, str]:
    text = pod.metadata.labels.get(JOB_INDEX_KEY) or pod.metadata.annotations.get(JOB_INDEX_KEY) or ""
    return int(text) if COUNT.fullmatch(text) else 1 << 31, pod.metadata.name


def _cards(pods: Sequence[TaskPod]) -> str:
    """The chosen cards, in the order of rank: "card0,card1" for one pod, joined by "; " for several."""
    chosen = [pod.metadata.annotations.get(keys.GAS_CARDS_ANNOTATION, "") for pod in pods]
    named = [cards for cards in chosen if cards]
    more = f"; and {len(named) - _MOST_CARDS} more" if len(named) > _MOST_CARDS else ""
    return "; ".join(named[:_MOST_CARDS]) + more


def _began(pod: TaskPod) -> str:
    states = [container.state for container in pod.status.container_statuses]
    times = [each.started_at for state in states for each in (state.running, state.terminated) if each]
    return min((time for time in times if time), default="")


# --- conditions ---------------------------------------------------------------------------------------


def _accepted(now: StatusContext) -> TaskCondition:
    if now.fault:
        return TaskCondition(type=ACCEPTED, status="False", reason=now.fault_reason, message=_cut(now.fault))
    return TaskCondition(type=ACCEPTED, status="True", reason="Accepted", message="A Job can be created.")


def _with_conditions(
    status: TaskStatus, task: Task, conditions: Sequence[TaskCondition], now: StatusContext
) -> TaskStatus:
    """The conditions, with the time of the last change of each."""
    before = {each.type: each for each in task.status.conditions}
    made = []
    for each in conditions:
        earlier = before.get(each.type)
        same = earlier is not None and earlier.status == each.status and earlier.last_transition_time
        made.append(
            replace(
                each,
                last_transition_time=earlier.last_transition_time if earlier and same else rfc3339(now.time),
                observed_generation=task.metadata.generation,
            )
        )
    return replace(status, conditions=tuple(made))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + "..."
