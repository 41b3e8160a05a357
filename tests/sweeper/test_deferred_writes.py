"""Releases that an API server has no time for are tried again soon, though nothing else happens."""

import itertools
import logging
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.deferred import BUSY, PODS
from tests.sweeper.pods import pod_json
from tests.sweeper.releases import Answers, Never
from webhook.configuration.settings import Settings
from webhook.kube.client import ApiError
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.apply import release
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import NO_HURRY, Cause, Done, Eviction, ModelLabelOrder, Orders, ReadBack
from webhook.sweeper.decide.retries import FIRST_SECONDS
from webhook.sweeper.observe.gangs import key_of
from webhook.sweeper.observe.view import View


def applier_of(answers: list[ApiError | None], stopping: Never | None = None, **surroundings: Any) -> Applies:
    """One to whose writes the API server gives the first of the answers, None for well."""

    def patch(_: str) -> None:
        if answer := answers[0]:
            raise answer

    cache: Any = SimpleNamespace(expect=lambda _: None)
    event: Any = stopping or Never()
    settings = Settings(interval_seconds=30)
    return Applies(Pass(Answers(patch, {}), cache, settings, stopping=event, **surroundings))


def released(answer: ApiError | None) -> Done:
    """What becomes of the releases of twenty planned pods."""
    applier = applier_of([answer])
    pairs = [(pod, PlannedPod(pod.metadata.name, pod.metadata.uid, f"n{i}")) for i, pod in enumerate(PODS)]
    try:
        return applier.apply(Orders(releases=tuple(pairs)), View(PODS, [], {}, {}))
    finally:
        applier.close()


def test_the_copies_expect_each_released_pod_on_its_node_before_a_watch_shows_it() -> None:
    applier, expected = applier_of([None]), list[dict[str, str]]()
    applier.surroundings.cache.expect = expected.append  # type: ignore[method-assign, assignment]
    pod = PODS[0]
    pair = pod, PlannedPod(pod.metadata.name, pod.metadata.uid, "n0")
    applier.apply(Orders(releases=(pair,)), View(PODS, [], {}, {}))
    applier.close()
    assert expected == [{pod.metadata.uid: "n0"}]


def test_of_a_pod_that_is_gone_when_it_is_read_nothing_is_left_to_do() -> None:
    pod = PODS[0]
    replaced = pod_json(pod.metadata.name, metadata={"uid": "another"})
    api = Answers(lambda _: None, {pod.metadata.name: replaced})
    applier = Applies(Pass(api, cast(Any, None), Settings(), stopping=cast(Any, Never())))
    planned = PlannedPod(pod.metadata.name, pod.metadata.uid, "n0")
    done = applier.apply(Orders(reads=(ReadBack(pod, planned),)), View(PODS, [], {}, {}))
    applier.close()
    assert (done.failed_releases, done.delays, done.released) == ((), (), ())


@pytest.mark.parametrize("fault", ["", "a node is gone"])
@pytest.mark.parametrize("version", [1, 2], ids=["nothing has changed", "the cluster has changed"])
def test_a_plan_is_written_unless_it_no_longer_holds_in_a_cluster_that_has_changed(
    fault: str, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = list[str]()
    monkeypatch.setattr(Applier, "_fault", lambda *_: fault)
    monkeypatch.setattr(Applier, "_write", lambda *_: written.append("plan"))
    cache: Any = SimpleNamespace(usage_version=version, changed=threading.Event())
    owners: Any = SimpleNamespace(owners=lambda: lambda _: None)
    applier = Applier(Pass(cast(Any, None), cache, Settings()), owners)
    order: Any = SimpleNamespace(usage_version=1, gang=key_of(PODS[0]), pods={})
    found = applier._write_if_it_holds(order, View([], [], {}, {}))
    applier.close()
    holds = version == 1 or not fault
    assert (found is None, written) == (holds, ["plan"] * holds)
    assert found is None or fault in found.reason


UNKNOWN = ApiError(401, "Unauthorized", "Unauthorized")


@pytest.mark.parametrize("answer", [BUSY, UNKNOWN], ids=["busy", "does not know us for a moment"])
def test_deferred_releases_make_the_next_pass_due_soon(answer: ApiError) -> None:
    done = released(answer)
    assert done.again_seconds == FIRST_SECONDS
    assert not done.refused, "no node is avoided, and no gang left alone, for that"


def test_releases_that_are_written_make_no_pass_due() -> None:
    done = released(None)
    assert (done.failed, done.again_seconds) == (False, NO_HURRY)


def test_releases_that_are_refused_for_good_make_no_pass_due() -> None:
    done = released(ApiError(403, "Forbidden", "a policy forbids it"))
    assert (done.again_seconds, len(done.refused)) == (NO_HURRY, len(PODS))


def due_after(orders: Orders, *answers: ApiError | None) -> list[float]:
    """After how many seconds passes are due, each at the time that the one before has set."""
    left, clock = list(answers), Clock()
    applier = applier_of(left, clock=clock)
    due: list[float] = []
    while left:
        due.append(applier.apply(orders, View(PODS, [], {}, {})).again_seconds)
        clock.now += min(due[-1], 30)
        left.pop(0)
    applier.close()
    return due


@pytest.mark.parametrize(
    "orders",
    [
        Orders(releases=((PODS[0], PlannedPod(PODS[0].metadata.name, PODS[0].metadata.uid, "n0")),)),
        Orders(model_label_orders=(ModelLabelOrder(PODS[0], {"model": "H100"}),)),
    ],
    ids=["release", "labels"],
)
def test_what_is_deferred_for_ever_makes_fewer_and_fewer_passes_due_until_it_succeeds(orders: Orders) -> None:
    """As where a foreign webhook answers 500."""
    due = due_after(orders, *[BUSY] * 4, *[UNKNOWN] * 3, None, BUSY)
    assert due == [1, 2, 4, 8, 16, 30, 30, NO_HURRY, 1]


def test_a_defect_in_one_kind_of_orders_stops_no_other_and_the_pass_counts_as_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(Applier, "_evict", fail)
    applier = applier_of([None, None])
    pair = PODS[0], PlannedPod(PODS[0].metadata.name, PODS[0].metadata.uid, "n0")
    labels = ModelLabelOrder(PODS[1], {"model": "H100"})
    done = applier.apply(Orders(releases=(pair,), model_label_orders=(labels,)), View(PODS, [], {}, {}))
    applier.close()
    assert done.failed
    assert (len(done.released), len(done.labelled)) == (1, 1), "before the defect, and after it"


def test_a_release_for_which_a_pass_had_no_time_has_not_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would wait as long as those that took the time, and they would take it again."""
    with monkeypatch.context() as scene:
        scene.setattr(release, "_TOGETHER_SECONDS", -1)
        clock = Clock()
        applier = applier_of([None], clock=clock)
        orders = Orders(releases=((PODS[0], PlannedPod(PODS[0].metadata.name, PODS[0].metadata.uid, "n0")),))
        assert applier.apply(orders, View(PODS, [], {}, {})).failed
    assert applier.apply(orders, View(PODS, [], {}, {})).released
    applier.close()


@pytest.mark.parametrize(
    ("nodes", "order"), [(("n0", "n1", "n2"), [2, 0, 1]), (("n0", "n0", "n0"), [0, 1, 2])], ids=str
)
def test_nodes_with_releases_that_have_failed_come_after_others_and_on_one_the_order_stays(
    nodes: tuple[str, ...], order: list[int]
) -> None:
    """Else a pass might have time for those alone, and so might each."""
    answers: list[ApiError | None] = [BUSY]
    clock = Clock()
    applier = applier_of(answers, clock=clock)
    pairs = tuple(
        (pod, PlannedPod(pod.metadata.name, pod.metadata.uid, node))
        for pod, node in zip(PODS[:3], nodes, strict=True)
    )
    applier.apply(Orders(releases=pairs[:2]), View(PODS, [], {}, {}))
    clock.now, answers[0] = 5, None
    done = applier.apply(Orders(releases=pairs), View(PODS, [], {}, {}))
    applier.close()
    assert [planned.name for planned in done.released] == [f"train-{number}" for number in order]


def plan_of_a_gang() -> Any:
    return SimpleNamespace(gang=SimpleNamespace(key=key_of(PODS[0])), pods={})


@pytest.mark.parametrize(
    "orders",
    [
        Orders(releases=((PODS[0], PlannedPod(PODS[0].metadata.name, PODS[0].metadata.uid, "n0")),)),
        Orders(model_label_orders=(ModelLabelOrder(PODS[0], {"model": "H100"}),)),
        Orders(evictions=(Eviction(PODS[0], "why", "", may_run=True),)),
        Orders(evictions=(Eviction(PODS[0], "why", "", may_run=True, for_others=True),)),
        Orders(plans=(plan_of_a_gang(),)),
    ],
    ids=["release", "labels", "deletion", "eviction", "plan"],
)
def test_a_pass_that_comes_for_something_else_does_not_try_what_is_deferred(
    orders: Orders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[float] = []
    clock = Clock()

    def busy(*_: Any, **__: Any) -> str:
        attempts.append(clock.now)
        raise BUSY

    monkeypatch.setattr(Applier, "_write_if_it_holds", busy)
    monkeypatch.setattr(Answers, "request", busy)
    applier = applier_of([None], clock=clock)
    seen = []
    for clock.now in (0, 0.25, 1, 2.75, 3):
        caplog.clear()
        done = applier.apply(orders, View(PODS, PODS, {}, {}))
        seen.append((clock.now in attempts, done.again_seconds, done.deferred == orders.evictions))
        is_news = bool(done.outcomes or done.delays or caplog.messages)
        assert clock.now in attempts or not is_news, "what was not tried has not failed anew"
    applier.close()
    assert seen == [
        (True, 1, True),
        (False, 0.75, True),
        (True, 2, True),
        (False, 0.25, True),
        (True, 4, True),
    ]


@pytest.mark.parametrize("answer", [BUSY, UNKNOWN], ids=["busy", "does not know us for a moment"])
def test_plans_that_cannot_be_written_now_make_fewer_and_fewer_passes_due(
    answer: ApiError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any) -> str:
        raise answer

    monkeypatch.setattr(Applier, "_write_if_it_holds", write)
    clock = Clock()
    applier = applier_of([None], clock=clock)
    due = []
    for _ in range(6):
        done = applier.apply(Orders(plans=(plan_of_a_gang(),)), View(PODS, [], {}, {}))
        assert not done.refused, "the gang is not left alone for that"
        assert "not committed" in done.outcomes[0].reason
        due.append(done.again_seconds)
        clock.now += due[-1]
    applier.close()
    assert due == [1, 2, 4, 8, 16, 30]


def test_after_a_pass_without_time_for_a_plan_the_next_one_comes_soon() -> None:
    applier = applier_of([None], clock=itertools.count(step=1000).__next__)
    done = applier.apply(Orders(plans=(plan_of_a_gang(),)), View(PODS, [], {}, {}))
    applier.close()
    assert (done.failed, done.placed, done.outcomes) == (True, (), ())


def test_each_plan_that_is_written_shows_that_the_pass_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    beats: list[int] = []
    monkeypatch.setattr(Applier, "_write_if_it_holds", lambda *_: None)
    applier = applier_of([None], clock=Clock(), heartbeat=lambda: beats.append(1))
    applier.apply(Orders(), View(PODS, [], {}, {}))
    without = len(beats)
    applier.apply(Orders(plans=(plan_of_a_gang(),)), View(PODS, [], {}, {}))
    applier.close()
    assert len(beats) == 2 * without + 1


@pytest.mark.parametrize(("status", "avoids"), [(409, False), (403, True)])
def test_after_a_plan_that_is_refused_for_good_the_next_pass_comes_soon(
    status: int, avoids: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(*_: Any) -> str:
        raise ApiError(status, "Refused", "no")

    monkeypatch.setattr(Applier, "_write_if_it_holds", write)
    applier = applier_of([None], clock=Clock())
    done = applier.apply(Orders(plans=(plan_of_a_gang(),)), View(PODS, [], {}, {}))
    applier.close()
    assert done.failed
    assert bool(done.refused) is avoids
    assert [each.cause for each in done.outcomes] == [Cause.PLAN_REFUSED]


def test_a_deferred_plan_defers_none_of_another_gang_of_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the groups of a LeaderWorkerSet have."""
    tried: list[str] = []

    def write(_: Applier, order: Any, __: View) -> str:
        tried.append(order.gang.key.id)
        raise BUSY

    monkeypatch.setattr(Applier, "_write_if_it_holds", write)
    applier = applier_of([None], clock=Clock())
    for id_ in ("group-0", "group-1"):
        key = replace(key_of(PODS[0]), id=id_)
        order: Any = SimpleNamespace(gang=SimpleNamespace(key=key), pods={})
        applier.apply(Orders(plans=(order,)), View(PODS, [], {}, {}))
    applier.close()
    assert tried == ["group-0", "group-1"]


def test_a_pod_whose_release_was_deferred_waits_for_no_eviction() -> None:
    """It may have arrived, and the answer not."""
    answers: list[ApiError | None] = [BUSY]
    applier = applier_of(answers)
    planned = PlannedPod(PODS[0].metadata.name, PODS[0].metadata.uid, "n0")
    applier.apply(Orders(releases=((PODS[0], planned),)), View(PODS, [], {}, {}))
    answers[0] = None
    done = applier.apply(Orders(evictions=(Eviction(PODS[0], "why", ""),)), View([], PODS, {}, {}))
    applier.close()
    assert done.evicted


def test_after_the_last_try_of_a_release_nothing_is_waited_for() -> None:
    waits: list[float] = []

    class Recording(Never):
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return False

    applier = applier_of([BUSY], Recording())
    planned = PlannedPod(PODS[0].metadata.name, PODS[0].metadata.uid, "n0")
    applier.apply(Orders(releases=((PODS[0], planned),)), View(PODS, [], {}, {}))
    applier.close()
    assert waits == [0.2, 0.4, 0.8, 1.6]


class Contested(Answers):
    """An API server of which a pod is always another than was judged, and is answered so when it is read."""

    _host = "server"

    def __init__(self, answer: ApiError | bytes | None) -> None:
        """answer: None for the pod, of another version each time."""
        super().__init__(lambda _: None, {})
        self._answer = answer
        self._version = 0

    def request(self, method: str, path: str, **_: Any) -> bytes:
        if method != "GET":
            raise ApiError(409, "Conflict", "somebody is faster")
        if isinstance(self._answer, ApiError):
            raise self._answer
        self._version += 1
        ours = PODS[0].metadata
        metadata = {"name": ours.name, "uid": ours.uid, "resourceVersion": str(self._version)}
        return self._answer or msgspec.json.encode(pod_json(metadata=metadata))


@pytest.mark.parametrize(
    ("answer", "expected", "waited"),
    [
        (BUSY, "answered 429", [0.2, 0.4, 0.8, 1.6]),
        (ApiError(403, "Forbidden", "no"), "answered 403", [0.2, 0.4, 0.8, 1.6]),
        (b"<html>", "is it an API server?", [0.2, 0.4, 0.8, 1.6]),
        (None, "somebody is faster", []),
    ],
    ids=["busy", "forbidden", "no pod", "written all the time"],
)
def test_a_release_that_cannot_be_checked_again_is_deferred_and_reported(
    answer: ApiError | bytes | None, expected: str, waited: list[float]
) -> None:
    waits: list[float] = []

    class Recording(Never):
        def wait(self, seconds: float) -> bool:
            waits.append(seconds)
            return False

    clock, event, cache = Clock(), cast(Any, Recording()), cast(Any, SimpleNamespace(expect=lambda _: None))
    surroundings = Pass(Contested(answer), cache, Settings(), stopping=event, clock=clock)
    applier = Applies(surroundings)
    orders = Orders(releases=((PODS[0], PlannedPod(PODS[0].metadata.name, PODS[0].metadata.uid, "n0")),))
    try:
        assert applier.apply(orders, View(PODS, [], {}, {})).again_seconds == FIRST_SECONDS
        clock.now = 1
        (delay,) = applier.apply(orders, View(PODS, [], {}, {})).delays
    finally:
        applier.close()
    assert expected in delay.note
    assert waits == 2 * waited


def test_deferred_releases_are_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        released(BUSY)
    (line,) = [each for each in caplog.messages if each.startswith("release")]
    assert "releases_deferred pods=20 first=ns/" in line
    assert "please try again later" in line
