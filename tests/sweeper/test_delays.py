"""What is reported of releases and evictions that the API server defers or refuses: once of a gang."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from labeler.contract.event_reasons import EventReason
from tests.sweeper.applies import Applies
from tests.sweeper.clock import Clock
from tests.sweeper.deferred import BUSY, PODS
from tests.sweeper.evictions import BOTH_WAYS, Slow
from tests.sweeper.pods import job_pod
from tests.sweeper.releases import Answers, Never
from tests.sweeper.reports import Copy, Reports
from webhook.configuration.settings import Settings
from webhook.kube.client import ApiError
from webhook.kube.objects import Pod
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.orders import Delay, Done, Eviction, Orders
from webhook.sweeper.observe.gangs import OwnerFacts, gather, key_of
from webhook.sweeper.observe.view import View
from webhook.sweeper.report_memory import Delays


def events_of(*answers: ApiError | None, moves: int = 0) -> tuple[list[tuple[str, str]], str]:
    """The Events, and the reason in the status, after passes in which all of a gang are answered so.

    moves: by how many nodes further on its pods are planned in each pass.
    """
    left = list(answers)

    def patch(_: str) -> None:
        if answer := left[0]:
            raise answer

    events: list[tuple[str, str]] = []

    class Recorded(Silent):
        def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
            events.append((reason, note))

    never: Any = Never()
    cache: Any = SimpleNamespace(expect=lambda _: None)
    surroundings = Pass(
        Answers(patch, {}), cache, Settings(), stopping=never, clock=Clock(), announcer=Recorded()
    )
    applier, reporter = Applies(surroundings), Reports(surroundings)
    while left:
        first = (len(answers) - len(left)) * moves
        pairs = [
            (pod, PlannedPod(pod.metadata.name, pod.metadata.uid, f"n{first + i}"))
            for i, pod in enumerate(PODS)
        ]
        reporter.on_result(applier.apply(Orders(releases=tuple(pairs)), View(PODS, [], {}, {})))
        cast(Any, surroundings.clock).now += 40
        left.pop(0)
    applier.close()
    return events, reporter.memory.sentence(key_of(PODS[0]))


def test_what_is_refused_counts_for_the_gang_that_the_view_names() -> None:
    """As of pods that the settings group, which their own marks alone do not show."""

    def refuse(_: str) -> None:
        raise ApiError(403, "Forbidden", "a policy forbids it")

    whole = replace(key_of(PODS[0]), kind="Group")
    cache: Any = SimpleNamespace(expect=lambda _: None)
    never: Any = Never()
    applier = Applies(Pass(Answers(refuse, {}), cache, Settings(), stopping=never, clock=Clock()))
    pairs = tuple((pod, PlannedPod(pod.metadata.name, pod.metadata.uid, "n0")) for pod in PODS)
    done = applier.apply(Orders(releases=pairs), View(PODS, [], {}, {}, gang_of=lambda _: whole))
    applier.close()
    assert {each.gang for each in done.refused} | {each.gang for each in done.delays} == {whole}


def failing(message: str) -> ApiError:
    return ApiError(500, "InternalError", message)


def test_one_warning_for_a_gang_names_why_its_releases_stay_deferred_however_the_sentence_changes() -> None:
    events, reason = events_of(*(failing(f"failed calling webhook at port {port}") for port in range(4)))
    ((word, note),) = events
    assert word == "ReleaseDeferred"
    assert "the API server answered 500: failed calling webhook at port 1" in note
    assert reason
    assert note.startswith(reason)


def test_releases_that_are_refused_for_good_are_one_warning_that_names_the_first_and_counts_them() -> None:
    events, _ = events_of(ApiError(403, "Forbidden", "a policy forbids it"))
    ((word, note),) = events
    assert word == "ReleaseRefused"
    assert note.startswith("not released to n0: a policy forbids it")
    assert note.endswith("; likewise 19 more of its pods: train-1, train-2, train-3, ...")


def test_answers_that_change_from_try_to_try_are_one_warning_and_the_last_is_in_the_status() -> None:
    answers = [ApiError(status, "", f"answer {status}") for status in (0, 429, 504, 500, 429, 504)]
    events, reason = events_of(BUSY, *answers, *answers)
    assert len(events) == 1
    assert "the API server answered 504: answer 504" in reason


@pytest.mark.parametrize("moves", [0, 1], ids=["by another answer", "on another node"])
def test_the_status_has_the_last_refusal(moves: int) -> None:
    second = ApiError(400 + 3 * moves, "Forbidden", "another policy forbids it")
    events, reason = events_of(ApiError(403, "Forbidden", "a policy forbids it"), second, moves=moves)
    assert len(events) == 1
    assert reason.startswith(f"not released to n{moves}: another policy forbids it")


@pytest.mark.parametrize("end", ["released", "not tried for long"])
def test_the_status_is_of_a_pod_for_which_it_still_applies(end: str) -> None:
    first, second = (
        Delay(key_of(pod), pod, EventReason.RELEASE_DEFERRED, "500", f"{pod.metadata.name} is not released")
        for pod in PODS[:2]
    )
    delays = Delays().after(Done(delays=(first, second)), 0)
    if end == "released":
        done = PlannedPod(first.pod.metadata.name, first.pod.metadata.uid, "n0")
        delays = delays.after(Done(released=(done,)), 0)
    else:
        delays = delays.after(Done(delays=(second,)), 1000)
    gangs = gather(PODS, [], lambda _: OwnerFacts(len(PODS)))
    delays = delays.current(View(PODS, [], {}, {}), gangs, 500 if end == "not tried for long" else 0)
    assert delays.notes_of(first.gang) == [second.note]


def test_a_warning_comes_again_once_all_pods_were_released_in_between() -> None:
    events, _ = events_of(BUSY, BUSY, None, BUSY, failing("at port 1"))
    assert len(events) == 2


class Counted(str):
    """A kind that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def test_what_is_reported_of_many_pods_takes_a_look_at_each() -> None:
    gang = key_of(PODS[0])
    kinds = [Counted(number >= len(PODS) // 2) for number in range(len(PODS))]
    delays = [
        Delay(gang, pod, EventReason.RELEASE_DEFERRED, kind, "")
        for pod, kind in zip(PODS, kinds, strict=True)
    ]
    done = Done(delays=tuple(delays))
    Delays().after(done, 0).after(done, 1)
    assert Counted.compared <= len(PODS)


@pytest.mark.parametrize(
    "answers", [(BUSY,), (BUSY, None)], ids=["put off once", "released at the second try"]
)
def test_no_event_reports_releases_that_are_deferred_once(answers: tuple[ApiError | None, ...]) -> None:
    assert events_of(*answers) == ([], "")


def test_the_reason_is_removed_once_the_pods_are_released() -> None:
    events, reason = events_of(BUSY, BUSY, None)
    assert (len(events), reason) == (1, "")


# --- evictions ---------------------------------------------------------------------------------------


class Scene:
    """A gang of three pods, two of which run and are evicted pass after pass, and what is reported of it."""

    def __init__(self, *, for_others: bool) -> None:
        self.api = Slow(Clock(), refuses=True, seconds=0)
        events: list[tuple[str, str]] = []
        self.events = events

        class Recorded(Silent):
            def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
                events.append((reason, note))

        waiting, *self.pods = (job_pod(number) for number in range(3))
        self.orders = [Eviction(pod, "why", "evicted for others", True, for_others) for pod in self.pods]
        self.gangs = gather([waiting], self.pods, lambda _: OwnerFacts(3))
        cache: Any = Copy()
        surroundings = Pass(self.api, cache, Settings(), clock=self.api.clock, announcer=Recorded())
        self.applier, self.reporter = (
            Applies(surroundings),
            Reports(surroundings),
        )

    def status_after(self, *statuses: int, seconds: float = 40) -> str:
        """What is in the gang's status after passes that are answered so, 200 for well, and as far apart."""
        for status in statuses:
            self.api.status, self.api.refuses = status, status != 200
            view = View([], self.pods, {}, {})
            self.reporter.on_result(self.applier.apply(Orders(evictions=tuple(self.orders)), view))
            self.reporter.report(view, self.gangs)
            self.api.clock.now += seconds
        return self.reporter.memory.sentence(self.gangs[0].key)


@BOTH_WAYS
def test_one_warning_for_a_gang_names_why_its_evictions_stay_deferred_whatever_the_answers(
    for_others: bool,
) -> None:
    scene = Scene(for_others=for_others)
    sentence = scene.status_after(429, 500, 0, 504, 429, 503)
    ((word, note),) = scene.events
    assert word == "EvictionDeferred"
    assert "the API server answered 500: a webhook gave no answer in time" in note
    assert "the API server answered 503" in sentence


@BOTH_WAYS
def test_no_event_reports_evictions_that_are_deferred_once(for_others: bool) -> None:
    scene = Scene(for_others=for_others)
    assert scene.status_after(429) == ""
    assert scene.events == []


@BOTH_WAYS
def test_a_refusal_for_good_is_reported_at_once_on_the_gang_and_in_its_status(for_others: bool) -> None:
    scene = Scene(for_others=for_others)
    sentence = scene.status_after(403, 403)
    ((word, note),) = scene.events
    assert word == "EvictionRefused"
    assert "evicted for others: the API server answered 403" in note
    assert sentence
    assert note.startswith(sentence)


@pytest.mark.parametrize("end", ["the pods go", "the pods are gone", "it is not tried any more"])
def test_what_is_reported_of_evictions_is_in_the_status_for_as_long_as_it_applies(end: str) -> None:
    scene = Scene(for_others=True)
    if end == "the pods go":
        assert scene.status_after(403, 200) == ""
        return
    assert scene.status_after(403)
    if end == "it is not tried any more":
        scene.api.clock.now += 1000
    else:
        scene.pods = []
    scene.reporter.report(View([], scene.pods, {}, {}), scene.gangs)
    assert scene.status_after() == ""


@BOTH_WAYS
def test_what_was_refused_for_good_is_not_tried_by_each_pass(for_others: bool) -> None:
    scene = Scene(for_others=for_others)
    scene.status_after(403, seconds=0.25)
    attempts = [name for name in scene.api.evicted if name != "placements"]
    scene.status_after(403, 403, seconds=0.25)
    assert [name for name in scene.api.evicted if name != "placements"] == attempts


class Judged(Slow):
    """An API server that has each deletion judged again, and answers so where the pod is read."""

    answer: ApiError | dict[str, Any]

    def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> bytes:
        if not self.refuses or self.status != 409:
            return super().request(method, path, body=body, **more)
        if method == "DELETE":
            self.evicted.append(path)
            raise ApiError(409, "Conflict", "the object has been modified")
        if isinstance(self.answer, ApiError):
            raise self.answer
        return msgspec.json.encode(self.answer)


def judged(answer: ApiError | dict[str, Any]) -> Scene:
    scene = Scene(for_others=False)
    scene.api = api = Judged(scene.api.clock, seconds=0)
    api.answer = answer
    scene.applier.surroundings = replace(scene.applier.surroundings, api=api)
    scene.orders = [replace(order, may_run=False) for order in scene.orders]
    return scene


def test_what_was_reported_of_deletions_is_removed_once_the_pods_are_bound() -> None:
    scene = judged({"metadata": {"uid": "another"}, "spec": {}})
    assert "answered 500" in scene.status_after(500, 500)
    assert scene.status_after(409) == ""


def test_a_deletion_that_cannot_be_checked_again_is_reported_and_not_tried_by_each_pass() -> None:
    scene = judged(ApiError(403, "Forbidden", "pods is forbidden"))
    assert "answered 403" in scene.status_after(409, seconds=0.25)
    attempts = len(scene.api.evicted)
    scene.status_after(409, 409, seconds=0.25)
    assert len(scene.api.evicted) == attempts


def test_a_pod_that_is_gone_when_its_deletion_is_checked_again_is_deleted() -> None:
    scene = judged(ApiError(404, "NotFound", "it is gone"))
    scene.api.status, scene.api.refuses = 409, True
    done = scene.applier.apply(Orders(evictions=tuple(scene.orders)), View([], scene.pods, {}, {}))
    assert list(done.evicted) == scene.orders
