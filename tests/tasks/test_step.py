"""The next step of a task, and what its status says, from what stands in the cluster alone."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from labeler.contract import keys
from tests.tasks.builders import NOW, job, later, placement, pod, rules, task
from webhook.kube.complaints import Complaint
from webhook.tasks.step import CHANGE, CREATE, DELETE, EXPIRE, ObservedTask, TaskStep, next_step
from webhook.tasks.task_objects import (
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    SUSPENDED,
    WAITING,
    Task,
    TaskJob,
    TaskPod,
)

DELETED: dict[str, Any] = {"deletionTimestamp": "2026-11-21T11:00:00Z"}
COMPLETE = {
    "conditions": [{"type": "Complete", "status": "True"}], "completionTime": "2026-11-21T11:59:00Z",
}  # fmt: skip
NOT_YET = [{"state": {"waiting": {"reason": "PodInitializing"}}}]
CRASHES = [{"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}}]
NO_IMAGE = [{"state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}]
QUOTA = 'Error creating: pods "train-0-abcde" is forbidden: exceeded quota: few'
FAILURE = {
    "conditions": [
        {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Too often."}
    ]
}


def step_of(made: Task, *more: Any, **seen: Any) -> TaskStep:
    return next_step(ObservedTask(made, *more, **seen), rules(), NOW)


# --- the Job -----------------------------------------------------------------------------------------


def test_a_new_task_gets_its_job() -> None:
    step = step_of(task())
    assert (step.act, step.status.phase) == (CREATE, PENDING)
    assert step.body is not None
    assert step.body["metadata"]["name"] == "train"


@pytest.mark.promise("O154")
def test_a_task_that_cannot_be_waits_with_the_reason() -> None:
    step = step_of(task({"gpu": "rtx4080"}))
    assert (step.act, step.status.phase) == ("", PENDING)
    assert 'no GPU model "rtx4080"' in step.status.reason
    (accepted,) = [each for each in step.status.conditions if each.type == "Accepted"]
    assert (accepted.status, accepted.reason) == ("False", "UnknownModel")


def test_a_task_that_is_being_deleted_is_left_alone() -> None:
    made = task(status={"phase": RUNNING}, **DELETED)
    assert step_of(made) == TaskStep("", "it is being deleted, and its Job with it", made.status)


@pytest.mark.promise("O152")
def test_a_job_that_was_deleted_by_hand_is_recreated_when_its_pods_are_gone() -> None:
    made = task(status={"phase": RUNNING})
    there = step_of(made, pods=[pod(phase="Running", node="n1")])
    assert (there.act, "has not ended yet" in there.status.reason) == ("", True)
    assert step_of(made, pods=[pod(phase="Succeeded", node="n1")]).act == CREATE


def test_nothing_is_done_while_a_job_is_being_deleted() -> None:
    assert step_of(task(), job(**DELETED)).act == ""
    assert step_of(task({"attempt": 1}), job(**DELETED)).act == ""


@pytest.mark.promise("R150")
@pytest.mark.parametrize(("spec", "there"), [({"suspend": True}, False), ({"suspend": False}, True)])
def test_suspending_and_resuming_are_handed_on_to_the_job(spec: dict[str, Any], there: bool) -> None:
    step = step_of(task(spec), job({"suspend": there}))
    assert (step.act, step.body, step.status.phase) == (CHANGE, spec, SUSPENDED)


@pytest.mark.promise("R150")
@pytest.mark.parametrize(
    ("status", "counts", "pods"),
    [
        ({"phase": SUSPENDED, "startTime": "2026-11-21T11:00:00Z"}, {}, []),
        ({}, {"succeeded": 1}, []),
        ({}, {"failed": 1}, []),
        ({}, {}, [pod(2, "Succeeded", "n1")]),
    ],
    ids=["it has run", "a worker has succeeded", "a worker has failed", "not counted yet"],
)
def test_a_task_that_has_run_is_resumed_from_its_beginning_by_another_job(
    status: dict[str, Any], counts: dict[str, Any], pods: list[TaskPod]
) -> None:
    made = task({"workers": 4}, status)
    suspended = job({"suspend": True}, counts)
    step = step_of(made, suspended, pods)
    assert (step.act, step.status.phase) == (DELETE, PENDING)
    assert step_of(made, job({"suspend": True}, counts, **DELETED), pods).act == ""
    ends = pod(1, "Running", "n1")
    assert step_of(made, pods=[*pods, ends]).act == ""
    again = step_of(made, pods=pods)
    assert (again.act, again.body and again.body["spec"]["suspend"]) == (CREATE, False)
    assert step_of(made, job({}, {"ready": 4}), pods).act == ""
    assert step_of(task({"workers": 4, "suspend": True}, status), suspended, pods).act == ""


def test_a_deadline_that_changes_is_handed_on_to_the_job() -> None:
    assert step_of(task({"activeDeadlineSeconds": 60}), job()).body == {"activeDeadlineSeconds": 60}
    assert step_of(task(), job({"activeDeadlineSeconds": 60})).body == {"activeDeadlineSeconds": None}


@pytest.mark.promise("R165")
def test_another_attempt_ends_the_earlier_job_first_and_then_makes_its_own() -> None:
    again = task({"attempt": 1}, {"phase": RUNNING, "startTime": "2026-11-21T11:00:00Z"})
    assert step_of(again, job()).act == DELETE
    fresh = step_of(again)
    assert (fresh.act, fresh.status.attempt, fresh.status.start_time) == (CREATE, 1, None)


@pytest.mark.promise("R150")
def test_an_ended_task_starts_again_with_another_attempt() -> None:
    ended = {"phase": SUCCEEDED, "attempt": 0, "finishTime": "2026-11-21T11:00:00Z"}
    assert step_of(task({"attempt": 0}, ended)).act == ""
    assert step_of(task({"attempt": 1}, ended), job(status=COMPLETE)).act == DELETE
    fresh = step_of(task({"attempt": 1}, ended))
    assert (fresh.act, fresh.status.finish_time) == (CREATE, None)


@pytest.mark.promise("R165")
def test_a_priority_that_changes_while_it_waits_queues_it_again() -> None:
    made, waiting = task({"priority": "high"}), [pod(gated=True)]
    step = step_of(made, job(class_name="gpu-low-priority"), waiting)
    assert step.act == DELETE
    assert step_of(made, job(class_name="gpu-high-priority"), waiting).act == ""


@pytest.mark.promise("R165")
@pytest.mark.parametrize("place", [{"pods": [pod(node="n1")]}, {"ready": 1}])
def test_a_priority_that_changes_while_it_runs_ends_nothing(place: dict[str, Any]) -> None:
    there = job(status={"ready": place.get("ready", 0)}, class_name="gpu-low-priority")
    step = step_of(task({"priority": "high"}), there, place.get("pods", ()))
    assert step.act == ""
    assert "gpu-high-priority applies from its next start" in step.status.reason


def test_a_policy_that_changes_ends_nothing_that_runs() -> None:
    step = step_of(task({"gpu": "rtx4080"}), job(), [pod(phase="Running", node="n1")])
    assert (step.act, step.status.phase) == ("", RUNNING)
    assert "no GPU model" in step.status.reason


@pytest.mark.promise("O168")
@pytest.mark.parametrize(
    "owners", [[], [{"kind": "CronJob", "name": "train", "uid": "x", "controller": True}]]
)
def test_a_foreign_job_is_never_touched(owners: list[dict[str, Any]]) -> None:
    made = task({"suspend": True, "attempt": 3, "priority": "high"})
    foreign = job(status=COMPLETE, ownerReferences=owners)
    assert step_of(made, foreign).act == ""
    assert "Job train exists and does not belong to this task" in step_of(made, foreign).status.reason


@pytest.mark.promise("O168")
def test_the_job_of_an_earlier_task_of_its_name_is_deleted_first() -> None:
    made = task({"suspend": True})
    step = step_of(made, job(owner="uid-0"))
    assert (step.act, step.status.phase) == (DELETE, PENDING)
    assert "the Job of an earlier task of this name ends first" in step.status.reason
    assert step_of(made, job(owner="uid-0", **DELETED)).act == ""


# --- the end -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("being", [{}, DELETED], ids=["there", "being deleted"])
def test_the_end_of_a_job_is_recorded_also_where_it_is_being_deleted(being: dict[str, Any]) -> None:
    step = step_of(task(), job(status=COMPLETE, **being))
    assert (step.act, step.status.phase) == ("", SUCCEEDED)
    assert step.status.finish_time == "2026-11-21T11:59:00Z"


def test_a_failure_has_a_reason() -> None:
    step = step_of(task(), job(status=FAILURE), [pod(phase="Failed", node="n1")])
    assert (step.status.phase, step.status.reason) == (FAILED, "Too often.")


@pytest.mark.promise("O152")
def test_what_has_ended_stays_so_without_its_job() -> None:
    ended = step_of(task(), job(status=COMPLETE)).status
    made = task(status={"phase": ended.phase, "attempt": 0, "observedGeneration": 1})
    assert step_of(made) == TaskStep("", "it has ended", made.status)


def test_a_task_is_deleted_when_its_time_after_the_end_is_over() -> None:
    ended = {"phase": SUCCEEDED, "attempt": 0, "finishTime": "2026-11-21T12:00:00Z", "observedGeneration": 1}
    made = task({"ttlSecondsAfterFinished": 60}, ended)
    early = next_step(ObservedTask(made), rules(), later(59))
    assert (early.act, early.due) == ("", later(60))
    assert next_step(ObservedTask(made), rules(), later(60)).act == EXPIRE


@pytest.mark.parametrize(
    "edit", ["", "yesterday", "2026-11-21t11:59:00z", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"]
)
def test_an_edited_finish_time_is_replaced_by_the_present_one(edit: str) -> None:
    ended = {"phase": SUCCEEDED, "attempt": 0, "finishTime": edit, "observedGeneration": 1}
    made = task({"ttlSecondsAfterFinished": 60}, ended)
    step = step_of(made)
    assert (step.act, step.due, step.status.finish_time) == ("", later(60), "2026-11-21T12:00:00Z")
    repaired = replace(made, status=step.status)
    assert next_step(ObservedTask(repaired), rules(), later(60)).act == EXPIRE


@pytest.mark.parametrize("phase", [SUCCEEDED, FAILED])
@pytest.mark.parametrize("attempt", [0, 1], ids=["this attempt", "a restart"])
def test_an_edited_phase_ends_no_task_whose_job_is_unfinished(phase: str, attempt: int) -> None:
    """After its time to live the task would be deleted, and its pods with it while they run."""
    ended = {
        "phase": phase,
        "attempt": attempt,
        "finishTime": "2026-11-21T11:00:00Z",
        "observedGeneration": 1,
    }
    made = task({"ttlSecondsAfterFinished": 60, "attempt": attempt}, ended)
    step = step_of(made, job(), [pod(phase="Running", node="n1")])
    assert (step.act, step.status.phase) == ((DELETE, PENDING) if attempt else ("", RUNNING))
    assert not step.status.finish_time


@pytest.mark.parametrize(
    "found",
    [job(status=COMPLETE), job(**DELETED), job(owner="uid-0"), None],
    ids=["ended", "leaves", "foreign", "none"],
)
def test_a_task_that_has_ended_stays_so_whatever_else_exists(found: TaskJob | None) -> None:
    ended = {"phase": SUCCEEDED, "attempt": 0, "finishTime": "2026-11-21T11:00:00Z", "observedGeneration": 1}
    made = task({}, ended)
    assert step_of(made, found) == TaskStep("", "it has ended", made.status)


# --- the status --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workers", "pods", "plan", "phase", "reason"),
    [
        pytest.param(1, [], None, PENDING, "its pods are being created", id="no pods yet"),
        pytest.param(
            1, [pod(gated=True)], None, WAITING, "it waits for its gang to be placed", id="gated"
        ),
        pytest.param(
            1,
            [pod(gated=True)],
            placement("Waiting", "Needs capacity."),
            WAITING,
            "Needs capacity.",
            id="it waits",
        ),
        pytest.param(
            1,
            [pod(conditions=[{"type": "PodScheduled", "status": "False", "message": "0/3 nodes"}])],
            None, WAITING, "0/3 nodes", id="kube-scheduler waits",
        ),
        pytest.param(1, [pod(node="n1")], None, PENDING, "its containers are being started", id="bound"),
        pytest.param(
            1,
            [pod(node="n1", containerStatuses=NO_IMAGE)],
            None, PENDING, "pod train-0-x: ErrImagePull: no", id="no image",
        ),
        pytest.param(
            1,
            [pod(node="n1", initContainerStatuses=NO_IMAGE, containerStatuses=NOT_YET)],
            None, PENDING, "pod train-0-x: ErrImagePull: no", id="no image of an init container",
        ),
        pytest.param(
            2,
            [pod(0, "Running", "n1"), pod(1, "Running", "n2", containerStatuses=CRASHES)],
            None, RUNNING, "pod train-1-x: CrashLoopBackOff: back-off 10s", id="ends again and again",
        ),
        pytest.param(1, [pod(phase="Running", node="n1")], None, RUNNING, "", id="runs"),
        pytest.param(
            2,
            [pod(phase="Running", node="n1"), pod(1, gated=True)],
            placement("Releasing", ""), RUNNING,
            "1 of 2 workers run, 1 wait: it waits for its gang to be placed", id="half of it runs",
        ),
        pytest.param(
            2, [pod(0, "Succeeded", "n1"), pod(1, "Running", "n2")], None, RUNNING, "", id="half is done"
        ),
        pytest.param(1, [pod(0, "Succeeded", "n1")], None, RUNNING, "", id="all is done, but for the Job"),
    ],
)  # fmt: skip
def test_the_phase_shows_how_far_it_is(
    workers: int, pods: list[Any], plan: Any, phase: str, reason: str
) -> None:
    status = step_of(task({"workers": workers}), job(), pods, plan).status
    assert (status.phase, status.reason) == (phase, reason)


def test_nodes_cards_and_ranks_are_listed_in_order() -> None:
    pods = [
        pod(1, "Running", "n2", annotations={keys.GAS_CARDS_ANNOTATION: "card1"}),
        pod(0, "Running", "n1", annotations={keys.GAS_CARDS_ANNOTATION: "card0,card2"}),
    ]
    status = step_of(task({"workers": 2}), job(), pods).status
    assert (status.node, status.nodes, status.cards) == ("2 nodes", ("n1", "n2"), "card0,card2; card1")
    assert status.running == 2


def test_pods_of_an_earlier_job_do_not_count_for_this_one() -> None:
    status = step_of(task(), job(), [pod(phase="Running", node="n1", of="job-0")]).status
    assert (status.phase, status.running) == (PENDING, 0)


def test_restarts_and_the_first_start_stay() -> None:
    states = [{"restartCount": 2, "state": {"running": {"startedAt": "2026-11-21T11:30:00Z"}}}]
    before = {"phase": RUNNING, "restarts": 1, "startTime": "2026-11-21T11:00:00Z"}
    status = step_of(task(status=before), job(), [pod(0, "Running", "n1", containerStatuses=states)]).status
    assert (status.restarts, status.start_time) == (2, "2026-11-21T11:00:00Z")


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    first = step_of(task(), job(), [pod(gated=True)]).status
    assert {each.last_transition_time for each in first.conditions} == {"2026-11-21T12:00:00Z"}
    recorded = [
        {
            "type": each.type,
            "status": each.status,
            "reason": each.reason,
            "lastTransitionTime": "2026-11-21T10:00:00Z",
        }
        for each in first.conditions
    ]
    made = task(status={"phase": WAITING, "conditions": recorded})
    second = step_of(made, job(), [pod(phase="Running", node="n1")]).status
    assert {each.type: each.last_transition_time for each in second.conditions} == {
        "Accepted": "2026-11-21T10:00:00Z",
        "Placed": "2026-11-21T12:00:00Z",
    }


def test_asking_again_about_what_was_written_writes_nothing() -> None:
    seen = (job(), [pod(phase="Running", node="n1")])
    first = step_of(task(), *seen).status
    second = step_of(task(status=msgspec.json.decode(msgspec.json.encode(first))), *seen)
    assert (second.act, second.status) == ("", first)


# --- pods that cannot be made ------------------------------------------------------------------------


def complaint(message: str = QUOTA, at: str = "2026-11-21T12:00:00Z") -> Complaint:
    return msgspec.convert({"metadata": {"name": "e"}, "message": message, "lastTimestamp": at}, Complaint)


@pytest.mark.promise("O154")
@pytest.mark.parametrize(
    ("workers", "pods", "phase", "reason"),
    [
        pytest.param(
            1, [], PENDING, "its pods cannot be created: forbidden: exceeded quota: few", id="none",
        ),
        pytest.param(
            2, [pod(gated=True)], WAITING, "its pods cannot be created: forbidden: exce", id="a part",
        ),
        pytest.param(
            2, [pod(phase="Running", node="n")], RUNNING,
            "1 of 2 workers run; its pods cannot be created: forbidden: exceeded quota: few",
            id="a part runs",
        ),
        pytest.param(1, [pod(phase="Running", node="n")], RUNNING, "", id="all are there"),
    ],
)  # fmt: skip
def test_why_pods_cannot_be_made_is_reported(
    workers: int, pods: list[TaskPod], phase: str, reason: str
) -> None:
    status = step_of(task({"workers": workers}), job(), pods, complaint=complaint()).status
    assert (status.phase, status.reason[: len(reason) or None]) == (phase, reason)


def test_it_has_the_same_words_for_the_next_pod() -> None:
    status = [
        step_of(task(), job(), complaint=complaint(QUOTA.replace("abcde", name))).status.reason
        for name in ("abcde", "vwxyz")
    ]
    assert status[0] == status[1]


def test_a_complaint_older_than_the_newest_pod_is_not_repeated() -> None:
    there = pod(phase="Running", node="n")
    newer = replace(there, metadata=replace(there.metadata, creation_timestamp="2026-11-21T12:00:01Z"))
    status = step_of(task({"workers": 2}), job(), [newer], complaint=complaint()).status
    assert status.reason == "1 of 2 workers run"


def test_the_reason_of_a_plan_that_waits_is_preferred() -> None:
    plan = placement("Waiting", "1 of 2 pods exist: exceeded quota: few")
    status = step_of(task({"workers": 2}), job(), [pod(gated=True)], plan, complaint=complaint()).status
    assert status.reason == plan.status.reason


def test_a_task_that_is_suspended_lacks_no_pods() -> None:
    status = step_of(task({"suspend": True}), job({"suspend": True}), complaint=complaint()).status
    assert (status.phase, status.reason) == (SUSPENDED, "")
