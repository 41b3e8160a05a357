"""Releases that an API server has no time for are tried again soon, though nothing else happens."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sweeper.pods import job_pod
from tests.sweeper.test_defects import Answers, Never
from webhook.kube.client import ApiError
from webhook.kube.planned import PlannedPod
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Done, Orders
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

PODS = [job_pod(number) for number in range(20)]
BUSY = ApiError(429, "TooManyRequests", "too many requests, please try again later")


def released(answer: ApiError | None) -> Done:
    """What becomes of the releases of twenty planned pods."""

    def patch(_: str) -> None:
        if answer:
            raise answer

    never: Any = Never()
    cache: Any = SimpleNamespace(expect=lambda _: None)
    snapshotter: Any = None
    applier = Applier(Pass(Answers(patch, {}), cache, Settings(), stopping=never), snapshotter)
    pairs = [(pod, PlannedPod(pod.metadata.name, pod.metadata.uid, f"n{i}")) for i, pod in enumerate(PODS)]
    try:
        return applier.apply(Orders(releases=tuple(pairs)), View(PODS, [], {}, {}))
    finally:
        applier.close()


UNKNOWN = ApiError(401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize("answer", [BUSY, UNKNOWN], ids=["busy", "does not know us for a moment"])
def test_releases_that_are_put_off_make_the_next_pass_due_soon(answer: ApiError) -> None:
    done = released(answer)
    assert done.failed
    assert not done.refused, "no node is avoided, and no gang left alone, for that"


def test_releases_that_are_written_make_no_pass_due() -> None:
    assert not released(None).failed


def test_releases_that_are_refused_for_good_make_no_pass_due() -> None:
    done = released(ApiError(403, "Forbidden", "a policy forbids it"))
    assert (done.failed, len(done.refused)) == (False, len(PODS))


def test_releases_that_are_put_off_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        released(BUSY)
    (line,) = [each for each in caplog.messages if each.startswith("release")]
    assert "releases_put_off pods=20 first=ns/" in line
    assert "please try again later" in line
