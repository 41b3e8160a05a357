"""Which Jobs of a gang lack pods that the Job controller may still delay, and after how many failures."""

from typing import Any

import msgspec
import pytest

from labeler.contract import keys
from tests.sweeper.pods import job_pod
from webhook.kube.objects import Pod
from webhook.sweeper.observe.delayed_jobs import DelayedJobs
from webhook.sweeper.observe.membership import GangKey, key_of
from webhook.workloads import marks
from webhook.workloads.builtin import Job

OF_JOBSET = {marks.JOBSET_NAME_LABEL: "train", "jobset.sigs.k8s.io/jobset-uid": "uid"}
BY_ANNOTATION = {keys.GANG_ANNOTATION: "train"}


def job(name: str, size: int, failed: int, *, status: Any = None, metadata: Any = None, **spec: Any) -> Job:
    """A Job as the API server has it; metadata is that of its pods."""
    written = metadata if metadata is not None else {"annotations": BY_ANNOTATION}
    template = {"metadata": {**written, "labels": {**labels_of(name), **written.get("labels", {})}}}
    raw = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"ns-{name}"},
        "spec": {"parallelism": size, "completions": size, "template": template, **spec},
        "status": {"failed": failed, **(status or {})},
    }
    return msgspec.convert(raw, Job)


def labels_of(name: str) -> dict[str, str]:
    return {marks.JOB_NAME_LABEL: name, "batch.kubernetes.io/controller-uid": f"ns-{name}"}


def pods_of(name: str, count: int) -> list[Pod]:
    return [job_pod(i, name, annotations=BY_ANNOTATION) for i in range(count)]


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
    ],
    ids=["whole", "suspended", "failed", "complete", "few left", "none after a success", "none failed"],
)
def test_a_job_that_lacks_no_delayed_pods_does_not_count(whole: Job) -> None:
    assert failures([whole], pods_of("a", 4)) == 0


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
