"""What a Job does about pods that fail, succeed or are evicted."""

from typing import Any

import pytest

from tests.workloads.objects import read
from webhook.workloads.builtin import (
    job_creates_pods,
    job_fails_by,
    job_failures_left,
    job_has_ended_pods,
    job_ignores_evictions,
)

JOB = "jobs.batch"


@pytest.mark.parametrize(
    ("spec", "status", "left"),
    [
        ({}, {}, 6),
        ({"backoffLimit": 0}, {}, 0),
        ({"backoffLimit": 3}, {"failed": 2}, 1),
        ({}, {"failed": 9}, -3),
    ],
    ids=["the default", "none at all", "some used up", "all used up"],
)
def test_a_job_can_lose_as_many_pods_as_its_backoff_limit_leaves(
    spec: dict[str, Any], status: dict[str, Any], left: int
) -> None:
    assert job_failures_left(read(JOB, spec, status, {})) == left


DISRUPTED = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
BY_CODE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}


@pytest.mark.parametrize(
    ("rules", "ignores"),
    [
        ([], False),
        ([{"action": "Ignore", **DISRUPTED}], True),
        ([{"action": "Count", **DISRUPTED}], False),
        ([{"action": "FailJob", **DISRUPTED}, {"action": "Ignore", **DISRUPTED}], False),
        ([BY_CODE, {"action": "Ignore", **DISRUPTED}], False),
        ([{"action": "Ignore", "onPodConditions": [{"type": "Other", "status": "True"}]}], False),
    ],
    ids=["none", "ignores", "counts", "fails first", "may fail by exit code first", "another condition"],
)
def test_the_rules_of_a_job_make_evictions_no_failures(rules: list[dict[str, Any]], ignores: bool) -> None:
    spec = {"podFailurePolicy": {"rules": rules}}
    assert job_ignores_evictions(read(JOB, spec, {}, {})) is ignores


def by_codes(action: str, operator: str, *values: int) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": operator, "values": values}}


@pytest.mark.parametrize(
    ("rules", "evicted", "deleted"),
    [
        ([], False, False),
        ([{"action": "FailJob", **DISRUPTED}], True, False),
        ([{"action": "FailIndex", **DISRUPTED}], True, False),
        ([{"action": "Ignore", **DISRUPTED}, {"action": "FailJob", **DISRUPTED}], False, False),
        ([BY_CODE, {"action": "Ignore", **DISRUPTED}], False, False),
        ([by_codes("Ignore", "In", 143), {"action": "FailJob", **DISRUPTED}], True, False),
        ([by_codes("FailJob", "In", 1, 143)], True, True),
        ([by_codes("FailJob", "NotIn", 42)], True, True),
        ([by_codes("FailJob", "NotIn", 137, 143)], False, False),
        ([{"action": "Ignore", **DISRUPTED}, by_codes("FailJob", "NotIn", 42)], False, True),
    ],
    ids=[
        "none", "fails", "fails an index", "ignores it first", "fails by another code", "ignores a signal",
        "fails by a signal", "fails by any code but one", "fails by no signal", "ignores evictions alone",
    ],
)  # fmt: skip
def test_a_job_may_fail_for_one_pod_by_its_rules_on_evictions_and_on_signals(
    rules: list[dict[str, Any]], evicted: bool, deleted: bool
) -> None:
    job = read(JOB, {"podFailurePolicy": {"rules": rules}}, {}, {})
    assert (job_fails_by(job, evicted=True, ran=True), job_fails_by(job, evicted=False, ran=True)) == (
        evicted,
        deleted,
    )
    assert not job_fails_by(job, evicted=False, ran=False)


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ({}, False),
        ({"failed": 2, "active": 3}, False),
        ({"succeeded": 1}, True),
        ({"failedIndexes": "1,3-5"}, True),
    ],
)
def test_a_job_of_which_pods_have_succeeded_or_were_given_up_continues_without_them(
    status: dict[str, Any], ended: bool
) -> None:
    assert job_has_ended_pods(read(JOB, {}, status, {})) is ended


@pytest.mark.parametrize(
    ("spec", "succeeded", "creates"), [({"completions": 8}, 3, True), ({}, 0, True), ({}, 1, False)]
)
def test_a_job_without_completions_replaces_no_failed_pod_after_a_success(
    spec: dict[str, Any], succeeded: int, creates: bool
) -> None:
    job = read(JOB, {"parallelism": 8, **spec}, {"failed": 7, "succeeded": succeeded}, {})
    assert job_creates_pods(job) is creates
