"""Which Jobs of a gang lack pods that the Job controller may still delay, and after how many failures."""

from typing import Any

import msgspec
import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.sweeper.pods import job_pod
from webhook.kube.objects import Pod
from webhook.sweeper.observe.delayed_jobs import DelayedJobs
from webhook.sweeper.observe.membership import GangKey, key_of
from webhook.workloads import marks
from webhook.workloads.builtin import Job, job_counts_only_ended

OF_JOBSET = {marks.JOBSET_NAME_LABEL: "train", "jobset.sigs.k8s.io/jobset-uid": "uid"}
BY_ANNOTATION = {keys.GANG_ANNOTATION: "train"}
STARTED = "2026-01-01T00:00:00Z"
REPLACED = "2026-01-01T00:00:10Z"


def job(
    name: str,
    size: int,
    failed: int,
    *,
    status: Any = None,
    metadata: Any = None,
    deleted: str | None = None,
    **spec: Any,
) -> Job:
    """A Job as the API server has it; metadata is that of its pods. deleted: since when it is."""
    written = metadata if metadata is not None else {"annotations": BY_ANNOTATION}
    template = {"metadata": {**written, "labels": {**labels_of(name), **written.get("labels", {})}}}
    raw = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"ns-{name}", "deletionTimestamp": deleted},
        "spec": {"parallelism": size, "completions": size, "template": template, **spec},
        "status": {"failed": failed, "startTime": STARTED, **(status or {})},
    }
    return msgspec.convert(raw, Job)


def labels_of(name: str) -> dict[str, str]:
    return {marks.JOB_NAME_LABEL: name, "batch.kubernetes.io/controller-uid": f"ns-{name}"}


def pods_of(name: str, count: int, created: str = STARTED) -> list[Pod]:
    return [job_pod(i, name, annotations=BY_ANNOTATION, creationTimestamp=created) for i in range(count)]


def failures(jobs: list[Job], pods: list[Pod]) -> int:
    delayed = DelayedJobs()
    for each in jobs:
        delayed.on_change(None, each)
    return delayed.most_failures(key_of(pods[0]), pods)


def test_a_job_of_which_no_pod_exists_yet_counts() -> None:
    """After a preemption: the leader is back after 10 s, the workers after ten minutes."""
    assert failures([job("leader", 1, 1), job("workers", 8, 8)], pods_of("leader", 1)) == 8


def test_a_job_of_a_jobset_counts_for_it_by_the_labels_of_its_pods() -> None:
    pod = job_pod(0, "leader", labels={**labels_of("leader"), **OF_JOBSET})
    workers, others = job("workers", 8, 8, metadata={"labels": OF_JOBSET}), job("others", 8, 9)
    assert failures([workers, others], [pod]) == 8


def test_a_job_that_is_a_gang_by_itself_counts_its_own_failures() -> None:
    pods = [job_pod(0, "train")]
    assert failures([job("train", 2, 3, metadata={}), job("other", 2, 4, metadata={})], pods) == 3


@pytest.mark.parametrize(
    "whole",
    [
        job("a", 4, 7),
        job("a", 9, 7, suspend=True),
        job("a", 9, 7, status={"conditions": [{"type": "Failed", "status": "True"}]}),
        job("a", 9, 7, status={"conditions": [{"type": "Complete", "status": "True"}]}),
        job("a", 9, 7, status={"succeeded": 5}),
        job("a", 9, 7, status={"succeeded": 1}, completions=None),
        job("a", 9, 0),
        job("a", 9, 7, deleted=REPLACED),
    ],
    ids=[
        "whole",
        "suspended",
        "failed",
        "complete",
        "few left",
        "none after a success",
        "none failed",
        "being deleted",
    ],
)
def test_a_job_that_lacks_no_delayed_pods_does_not_count(whole: Job) -> None:
    assert failures([whole], pods_of("a", 4)) == 0


@pytest.mark.parametrize(
    ("failed", "policy", "created", "expected"),
    [
        (0, "Failed", REPLACED, 7),
        (9, "Failed", REPLACED, 9),
        (0, "Failed", STARTED, 0),
        (0, "TerminatingOrFailed", REPLACED, 0),
    ],
    ids=["not counted", "more have failed before", "the Job has just started", "all are counted"],
)
def test_failed_pods_that_the_status_of_a_job_does_not_count_are_delayed_too(
    failed: int, policy: str, created: str, expected: int
) -> None:
    """What such a Job lacks long after its start has ended, or still ends."""
    jobs = [job("a", 8, failed, podReplacementPolicy=policy)]
    assert failures(jobs, pods_of("a", 1, created)) == expected


def test_the_first_pods_of_a_large_job_replace_none_though_they_take_long_to_create() -> None:
    """The Job controller creates 20 pods a second by default, and other clients slow it down."""
    seconds = [f"2026-01-01T00:00:{second:02}Z" for second in range(0, 40, 4)]
    pods = [job_pod(i, "a", annotations=BY_ANNOTATION, creationTimestamp=at) for i, at in enumerate(seconds)]
    large = job("a", 500, 0, podReplacementPolicy="Failed")
    assert failures([large], pods) == 0
    replaced = job_pod(10, "a", annotations=BY_ANNOTATION, creationTimestamp="2026-01-01T00:00:50Z")
    assert failures([large], [*pods, replaced]) == 489


def test_a_job_whose_pods_got_their_gang_at_admission_counts_for_it() -> None:
    delayed, pods, failed = DelayedJobs(), pods_of("a", 1), job("a", 8, 8, metadata={})
    delayed.on_change(None, failed)
    assert delayed.most_failures(key_of(pods[0]), pods) == 8
    assert delayed.most_failures(GangKey("theirs", "Gang", "train", "train"), pods) == 0, "of others"
    delayed.on_change(failed, None)
    assert delayed.most_failures(key_of(pods[0]), pods) == 0


def test_a_job_that_ignores_evictions_does_not_count_all_failed_pods(
    cluster: Cluster, namespace: str
) -> None:
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    pod = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    body = {
        "metadata": {"name": "train"},
        "spec": {"podFailurePolicy": {"rules": [disrupted]}, "template": pod},
    }
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    made = cluster.api().json("POST", path, query={"dryRun": "All"}, body=body)
    assert job_counts_only_ended(msgspec.convert(made, Job))


def test_changes_of_a_job_are_followed() -> None:
    delayed, gang, pods = DelayedJobs(), GangKey("ns", "Gang", "train", "train"), pods_of("a", 1)
    first, second = job("a", 8, 1), job("a", 8, 2)
    delayed.on_change(None, first)
    delayed.on_change(first, second)
    assert delayed.most_failures(gang, pods) == 2
    suspended = job("a", 8, 2, suspend=True)
    delayed.on_change(second, suspended)
    assert delayed.most_failures(gang, pods) == 0
    delayed.on_change(suspended, second)
    delayed.on_change(second, None)
    assert delayed.most_failures(gang, pods) == 0
