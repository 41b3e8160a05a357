"""Which released pods are deleted together, and which stay because deleting them would break more."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.sweeper.pods import decode, job_pod
from tests.sweeper.repairs import job_with
from webhook.configuration.settings import Settings
from webhook.kube.objects import Condition, Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide.orders import Orders
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.repair.allowance import Allowance, JobOf, after_deletion
from webhook.sweeper.repair.repair import RepairMemory, repair_released
from webhook.workloads import marks
from webhook.workloads.builtin import FailureCondition, FailureRule, Job, JobSpec, PodFailurePolicy

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def lost_pod(index: int, **metadata: Any) -> Pod:
    """A pod of the Job "train" that was released to a node that is gone."""
    body = msgspec.to_builtins(job_pod(index, **metadata))
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]
    body["spec"] |= {
        "schedulingGates": [],
        "affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}},
    }
    return decode(body)


def repaired(
    pods: list[Pod], *, left: int | None, index_limit: int | None = None
) -> tuple[list[str], Orders]:
    """The names of the pods deleted when all of these need another place, and all that is ordered."""
    job_of = (lambda *_: None) if left is None else job_with(left, index_limit)
    allowance = Allowance(Settings(), job_of)
    planned = [PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node="gone") for pod in pods]
    placement = Placement(metadata=pods[0].metadata, spec=PlacementSpec(pods=planned))
    view = View([], pods, {}, {"ns/p": placement}, named={("ns", pod.metadata.uid) for pod in pods})
    _, memory = repair_released(view, RepairMemory(), allowance, Settings())
    later = replace(view, now=Moment(1000.0))
    orders = repair_released(later, memory, allowance, Settings())[0].orders
    return [each.pod.metadata.name for each in orders.evictions], orders


@pytest.mark.promise("O90")
def test_all_lost_pods_of_a_job_are_deleted_if_it_can_bear_as_many_failures() -> None:
    names, _ = repaired([lost_pod(index) for index in range(3)], left=3)
    assert names == ["train-0", "train-1", "train-2"]


@pytest.mark.promise("O90")
def test_none_is_deleted_where_the_job_cannot_bear_all_of_them() -> None:
    # Two of three would leave the gang as broken as before, and the Job at its limit.
    names, orders = repaired([lost_pod(index) for index in range(3)], left=2)
    assert names == []
    assert {each.reason for each in orders.warnings} == {"NotRepaired"}
    assert "backoffLimit" in orders.warnings[0].note


IGNORES = PodFailurePolicy([FailureRule("Ignore", on_pod_conditions=[FailureCondition("DisruptionTarget")])])
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def job_of_six_failures(replacement: str, policy: PodFailurePolicy | None = None) -> JobOf:
    spec = JobSpec(backoff_limit=6, pod_replacement_policy=replacement, pod_failure_policy=policy)
    return lambda namespace, name, uid: Job(Metadata(name, namespace, uid), spec)


def disrupted(pod: Pod) -> Pod:
    """It was evicted."""
    status = msgspec.structs.replace(pod.status, conditions=[Condition("DisruptionTarget", "True")])
    return msgspec.structs.replace(pod, status=status)


@pytest.mark.promise("O90")
@pytest.mark.parametrize(
    ("job_of", "are_deleted"),
    [
        (job_of_six_failures("Failed"), False),
        (job_of_six_failures("TerminatingOrFailed"), True),
        (job_of_six_failures("Failed", IGNORES), True),
    ],
    ids=["counts what has ended", "counts what is deleted", "ignores evictions"],
)
def test_deleted_pods_that_have_not_ended_count_as_failures_of_a_job_that_counts_them_later(
    job_of: JobOf, are_deleted: bool
) -> None:
    """As on a node that is not ready: they may end an hour after they were deleted."""
    ending = [disrupted(job_pod(index, **DELETED)) for index in range(4)]
    deletions = after_deletion({}, ending, 0.0)
    others = [job_pod(index) for index in range(4, 8)]
    allowance = Allowance(Settings(), job_of, deletions, 61.0, {pod.metadata.uid: pod for pod in ending})
    assert (allowance.why_not(others) == "") is are_deleted


@pytest.mark.parametrize("action", ["FailJob", "FailIndex"])
def test_a_job_that_fails_by_its_rule_on_evictions_is_not_evicted_and_may_be_repaired(action: str) -> None:
    rule = FailureRule(action, on_pod_conditions=[FailureCondition("DisruptionTarget", "True")])
    allowance = Allowance(Settings(), job_of_six_failures("Failed", PodFailurePolicy([rule])))
    pods = [job_pod(0)]
    assert "podFailurePolicy" in allowance.why_not_evicted(pods)
    assert "podFailurePolicy" in allowance.why_jobs_end(pods)
    assert allowance.why_not(pods) == ""


def test_a_deleted_pod_counts_once_though_it_has_not_ended() -> None:
    ending = [job_pod(index, **DELETED) for index in range(4)]
    deletions, uids = after_deletion({}, ending, 0.0), {pod.metadata.uid: pod for pod in ending}
    allowance = Allowance(Settings(), job_of_six_failures("Failed"), deletions, 1.0, uids)
    assert not allowance.why_not([job_pod(4), job_pod(5)])
    assert allowance.why_not([job_pod(4), job_pod(5), job_pod(6)])


def test_no_pod_of_a_job_that_cannot_be_read_is_deleted() -> None:
    names, orders = repaired([lost_pod(0)], left=None)
    assert names == []
    assert "cannot be read" in orders.warnings[0].note


@pytest.mark.parametrize(
    ("limit", "failed", "names"),
    [(0, "", []), (1, "0", ["train-0"]), (1, "1", []), (3, "2", ["train-0"]), (1, "9" * 5000, ["train-0"])],
    ids=["none allowed", "the first of one", "the second of one", "the third of three", "edited"],
)
def test_an_index_is_not_brought_to_its_own_limit(limit: int, failed: str, names: list[str]) -> None:
    metadata = {"annotations": {marks.JOB_INDEX_FAILURES_ANNOTATION: failed}} if failed else {}
    assert repaired([lost_pod(0, **metadata)], left=100, index_limit=limit)[0] == names
