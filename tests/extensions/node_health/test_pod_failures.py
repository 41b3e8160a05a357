"""What of a pod's end counts as a failure that its node may have caused."""

from typing import Any

import pytest

from tests.extensions.node_health.failing import clock_time, ended, exited
from webhook.extensions.node_health.pod_failures import NodeFailure, asks_of, failure_of, seconds_of
from webhook.scheduling.gpus import Counting
from webhook.sweeper.observe.view import View

COUNTING = Counting(("nvidia.com/gpu",))
SOON = 600


def failure(status: dict[str, Any], **pod: Any) -> NodeFailure | None:
    now = seconds_of(clock_time(3000))
    assert now is not None
    pod_of = ended("p", "n0", status=status, **pod)
    return failure_of(pod_of, COUNTING, SOON, now, View([], [], {}, {}).controller_of)


FAILED = {"phase": "Failed"}

COUNTS: dict[str, tuple[dict[str, Any], str, int]] = {
    "the kubelet has no devices for it": (
        {**FAILED, "reason": "UnexpectedAdmissionError", "startTime": clock_time(20)},
        "UnexpectedAdmissionError",
        0,
    ),
    "it ends soon with a fault": (
        {**FAILED, "containerStatuses": [exited(1, 70, started=40)]},
        "exit status 1",
        30,
    ),
    "it is aborted": ({**FAILED, "containerStatuses": [exited(134, 70, started=40)]}, "exit status 134", 30),
    "an init container does": (
        {**FAILED, "initContainerStatuses": [exited(2, 50, started=40)]},
        "exit status 2",
        10,
    ),
    "it is started again and again": (
        {"phase": "Running", "containerStatuses": [exited(1, 70, started=40, key="lastState")]},
        "exit status 1",
        30,
    ),
    "its container cannot be started": (
        {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "RunContainerError"}}}]},
        "RunContainerError",
        0,
    ),
    "its container could not be started": (
        {**FAILED, "containerStatuses": [exited(128, 70, started=40, reason="StartError")]},
        "StartError",
        0,
    ),
}


@pytest.mark.promise("O132")
@pytest.mark.parametrize("how", COUNTS)
def test_it_counts_that(how: str) -> None:
    status, cause, ran = COUNTS[how]
    found = failure(status)
    assert found is not None
    assert (found.node, found.cause, found.ran, found.gpus) == ("n0", cause, ran, 8)


def running(phase: str = "Running", **status: Any) -> dict[str, Any]:
    return {"phase": phase, **status}


DOES_NOT: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "it runs": (running(), {}),
    "it has succeeded": ({"phase": "Succeeded", "containerStatuses": [exited(0, 70)]}, {}),
    "it has failed late": ({**FAILED, "containerStatuses": [exited(1, 701, started=100)]}, {}),
    "it took too much memory": ({**FAILED, "containerStatuses": [exited(137, 70, reason="OOMKilled")]}, {}),
    "it was killed": ({**FAILED, "containerStatuses": [exited(137, 70)]}, {}),
    "it was told to end": ({**FAILED, "containerStatuses": [exited(143, 70)]}, {}),
    "it was evicted": ({**FAILED, "reason": "Evicted", "containerStatuses": [exited(1, 70)]}, {}),
    "its node was shut down": ({**FAILED, "reason": "Terminated", "containerStatuses": [exited(1, 70)]}, {}),
    "it had run before its kubelet refused it": ({**FAILED, "reason": "UnexpectedAdmissionError"}, {}),
    "its node has no capacity for it": ({**FAILED, "reason": "OutOfcpu"}, {}),
    "its image cannot be pulled": (
        {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImagePull"}}}]},
        {},
    ),
    "its configuration is wrong": (
        {
            "phase": "Pending",
            "containerStatuses": [{"state": {"waiting": {"reason": "CreateContainerConfigError"}}}],
        },
        {},
    ),
    "it is being deleted": (
        {**FAILED, "containerStatuses": [exited(1, 70)]},
        {"deletionTimestamp": clock_time(60)},
    ),
    "it has no GPUs": ({**FAILED, "containerStatuses": [exited(1, 70)]}, {"gpus": 0}),
}


@pytest.mark.promise("O132")
@pytest.mark.parametrize("why", DOES_NOT)
def test_it_does_not_count_that(why: str) -> None:
    status, pod = DOES_NOT[why]
    assert failure(status, **pod) is None


def test_of_pods_that_run_well_no_container_is_stored() -> None:
    """There are many of them."""
    pod = ended("p", "n0", status=running(containerStatuses=[{"name": "c", "state": {"running": {}}}]))
    assert pod.status.container_statuses == ()


def test_two_pods_of_one_template_ask_for_the_same_and_another_does_not() -> None:
    status = COUNTS["it is aborted"][0]
    one, two, other = (
        ended("p", "n0", status=status),
        ended("q", "n1", status=status),
        ended("r", "n1", status=status, gpus=4),
    )
    assert asks_of(one) == asks_of(two) != asks_of(other)


def test_who_failed_is_short_whatever_its_author_calls_it() -> None:
    long = {"annotations": {"topogate.io/gang": "x" * 1000, "topogate.io/gang-size": "2"}}
    found = failure(COUNTS["it is aborted"][0], **long)
    assert found is not None
    assert len(found.gang) == len(found.asks) == 12
