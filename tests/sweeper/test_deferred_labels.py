"""Labels that the API server refuses for now: tried less and less often, reported, no loss for others."""

from types import SimpleNamespace
from typing import Any, Self, cast

import msgspec
import pytest

from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.pods import job_pod
from tests.sweeper.reports import Answers, Copy, Reports
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.sweeper.apply.applier import MOST_LABELS
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import NO_HURRY, Cause, Done, GangOutcome, ModelLabelOrder, Orders
from webhook.sweeper.observe.gangs import OwnerFacts, gather, key_of
from webhook.sweeper.observe.view import View
from webhook.sweeper.report_memory import Delays


class Some(Api):
    """Answers writes of some pods with an HTTP status, and takes all others."""

    def __init__(self) -> None:
        self.status: dict[str, int] = {}
        self.asked: list[str] = []

    def request(self, method: str, path: str, **_: Any) -> bytes:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if status := self.status.get(name):
            raise ApiError(status, "", f"answer {status}")
        return b"{}"


class Scene:
    """Pods that are to have labels, pass after pass."""

    def __init__(self, *pods: Pod, status: int, of: int) -> None:
        """status: what the API server answers of the first pods, so many."""
        self.api, self.clock = Some(), Clock()
        self.api.status = {pod.metadata.name: status for pod in pods[:of]}
        self._orders = Orders(
            model_label_orders=tuple(ModelLabelOrder(pod, {"model": "H100"}) for pod in pods)
        )
        surroundings = Pass(self.api, cast(Any, SimpleNamespace()), Settings(), clock=self.clock)
        self._applier = Applies(surroundings)
        self.delays = Delays()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._applier.close()

    def one_pass(self) -> tuple[list[str], Done]:
        """Who is asked for, and what becomes of it."""
        self.api.asked.clear()
        done = self._applier.apply(self._orders, View([], [], {}, {}))
        self.delays = self.delays.after(done, self.clock())
        return self.api.asked, done


REFUSED = pytest.mark.parametrize("status", [403, 404, 409, 422])


@REFUSED
def test_labels_that_are_refused_for_good_are_tried_less_and_less_often(status: int) -> None:
    tried = []
    with Scene(job_pod(0), status=status, of=1) as scene:
        for second in range(200):
            scene.clock.now = second
            if scene.one_pass()[0]:
                tried.append(second)
    assert tried == [0, 1, 3, 7, 15, 31, 61, 91, 121, 151, 181]


@REFUSED
def test_labels_that_stay_refused_are_reported(status: int) -> None:
    with Scene(job_pod(0), status=status, of=1) as scene:
        scene.one_pass()
        scene.clock.now = 5
        (delay,) = scene.one_pass()[1].delays
    assert delay.reason == "LabelsRefused"
    assert f"answer {status}" in delay.note


@pytest.mark.parametrize("status", [404, 409, 422])
def test_a_pod_that_was_written_meanwhile_is_looked_at_again_before_it_is_reported(status: int) -> None:
    with Scene(job_pod(0), status=status, of=1) as scene:
        _, done = scene.one_pass()
    assert (done.delays, done.refused, done.again_seconds) == ((), (), 1)


@pytest.mark.parametrize("status", [403, 404, 422, 500])
def test_labels_that_are_not_taken_keep_no_other_pod_from_its_own(status: int) -> None:
    """Though each pass gives them to so many pods at most, and all that failed are due at once."""
    pods = [job_pod(number) for number in range(MOST_LABELS + 1)]
    with Scene(*pods, status=status, of=MOST_LABELS) as scene:
        asked, done = scene.one_pass()
        assert len(asked) == MOST_LABELS
        assert done.failed, "there are more"
        scene.clock.now = 10
        assert pods[-1].metadata.name in scene.one_pass()[0]


def test_labels_that_are_taken_make_no_pass_due() -> None:
    with Scene(job_pod(0), status=500, of=0) as scene:
        _, done = scene.one_pass()
    assert (done.failed, done.again_seconds) == (False, NO_HURRY)


@pytest.mark.parametrize("status", [403, 500])
def test_a_gang_whose_labels_are_not_taken_has_a_status_about_it_until_they_are(status: int) -> None:
    """Though it is not complete: it may stay so for as long as a foreign webhook is broken."""
    pod = job_pod(0)
    (gang,) = gather([pod], [], lambda _: OwnerFacts(2))
    api, copy = Answers(), Copy()
    reporter = Reports(Pass(api, cast(Any, copy), Settings()))
    reasons: list[str] = []
    with Scene(pod, status=status, of=1) as scene:
        for scene.clock.now in (0, 5, 10, 15):
            if scene.clock.now == 15:
                scene.api.status.clear()
            expected = "its pods are getting the labels of their GPU model"
            reporter.on_result(Orders(outcomes=(GangOutcome(gang, expected, Cause.INCOMPLETE),)))
            reporter.on_result(scene.one_pass()[1])
            api.bodies.clear()
            reporter.report(View([pod], [], {}, {}), [gang])
            if api.bodies:
                statuses = api.bodies[-1]["status"]
                stored = {key: value for key, value in statuses.items() if value is not None}
                body = {**api.bodies[-1], "status": stored}  # a merge patch removes what is null
                copy.placements = {gang.key.placement_key: msgspec.convert(body, Placement)}
                assert statuses["state"] == "Waiting"
                reasons.append(statuses["reason"])
    during, after = reasons
    assert during.startswith("its pods are getting the labels of their GPU model; without the labels")
    assert f"answer {status}" in during
    assert "retried at least every 30 s" in during
    assert after == "its pods are getting the labels of their GPU model"


def test_labels_that_stay_deferred_are_reported_for_as_long_as_that_lasts() -> None:
    pod = job_pod(0)
    statuses = []
    with Scene(pod, status=500, of=1) as scene:
        for scene.clock.now in (0, 5, 10):
            if scene.clock.now == 10:
                scene.api.status.clear()
            scene.one_pass()
            statuses.append(list(scene.delays.notes_of(key_of(pod))))
    before, during, after = statuses
    assert (before, after) == ([], [])
    assert "the API server answered 500: answer 500" in during[0]
