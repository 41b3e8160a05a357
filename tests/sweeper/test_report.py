"""What is reported of gangs: each once, whatever fails meanwhile."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.pods import decode, job_pod, pod_json
from tests.sweeper.reports import Answers, Copy, Reports
from webhook.configuration.settings import Settings
from webhook.kube.client import ApiError
from webhook.kube.objects import Metadata
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.orders import Cause, GangOutcome, Orders
from webhook.sweeper.decide.reservations import STARVATION, Reservation
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.gangs import OwnerFacts, PodGang, gather
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.report import Reporter

AWAY = ApiError(0, "Unreachable", "no answer from port 40001")
AWAY_AGAIN = ApiError(0, "Unreachable", "no answer from port 40002")
FORBIDDEN = ApiError(403, "Forbidden", "placements is forbidden")
NOT_SERVED = ApiError(404, "NotFound", "the server could not find the requested resource")
EXISTS = ApiError(409, "AlreadyExists", "it is there already")


def gangs_of(*names: str) -> list[PodGang]:
    return gather([job_pod(0, name) for name in names], [], lambda _: OwnerFacts(1))


def waits(gang: PodGang, reason: str, cause: Cause) -> Orders:
    """It is decided that a gang waits."""
    return Orders(outcomes=(GangOutcome(gang, reason, cause),))


class Passes:
    """A reporter that reports in every pass of some gangs that they wait."""

    def __init__(self, *names: str, api: Answers | None = None) -> None:
        self.api = api or Answers()
        self.metrics = Metrics()
        self._gangs = gangs_of(*names)
        cache: Any = Copy()
        self.clock = Clock()
        self._reporter = Reports(Pass(self.api, cache, Settings(), self.metrics, clock=self.clock))

    def one(self, answer: Exception | None, after: float = Settings().interval_seconds) -> None:
        """A pass, by default so long after the one before that all is tried again that has failed."""
        self.clock.now += after
        self.api.answer = answer
        for gang in self._gangs:
            self._reporter.on_result(waits(gang, "no capacity", Cause.INSUFFICIENT_CAPACITY))
        self._reporter.report(View([], [], {}, {}), self._gangs)

    def end(self) -> None:
        """A pass in which the gangs are gone."""
        self._reporter.report(View([], [], {}, {}), [])


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.partition("error=")[2] for line in caplog.messages if line.startswith("status_failed")]


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([AWAY, AWAY_AGAIN, AWAY], ["40001"]),
        ([FORBIDDEN, FORBIDDEN], ["forbidden"]),
        ([NOT_SERVED, NOT_SERVED], ["could not find"]),
        ([AWAY, FORBIDDEN, FORBIDDEN], ["40001", "forbidden"]),
        ([FORBIDDEN, None, FORBIDDEN], ["forbidden", "forbidden"]),
        ([ValueError("no answer of ours"), ValueError("no answer of ours")], ["ValueError"]),
        ([EXISTS, EXISTS], []),
    ],
    ids=["away", "forbidden", "not served", "another error", "well in between", "no refusal", "expected"],
)
def test_a_status_that_cannot_be_written_is_logged_once_until_that_changes(
    caplog: pytest.LogCaptureFixture, answers: list[Exception | None], expected: list[str]
) -> None:
    passes = Passes("a")
    for answer in answers:
        passes.one(answer)
    assert len(failures(caplog)) == len(expected), failures(caplog)
    for line, words in zip(failures(caplog), expected, strict=True):
        assert words in line


def test_a_status_that_cannot_be_written_is_tried_less_and_less_often() -> None:
    passes, tried = Passes("a"), list[float]()
    for _ in range(100):
        before = len(passes.api.writes)
        passes.one(FORBIDDEN, after=1)
        tried += [passes.clock.now] * (len(passes.api.writes) - before)
    assert tried == [1, 2, 4, 8, 16, 32, 62, 92]


def test_a_gang_that_comes_back_after_it_was_gone_is_reported_again(caplog: pytest.LogCaptureFixture) -> None:
    passes = Passes("a")
    passes.one(FORBIDDEN)
    passes.end()
    passes.one(FORBIDDEN)
    assert len(failures(caplog)) == 2


@pytest.mark.parametrize("answer", [FORBIDDEN, ValueError("no answer of ours")], ids=["refusal", "defect"])
def test_the_trouble_of_one_gang_does_not_stop_reports_on_the_others(answer: Exception) -> None:
    passes = Passes("a", "b", "c")
    passes.one(answer)
    assert len(passes.api.writes) == 3


def test_a_defect_in_the_report_on_one_gang_does_not_stop_those_on_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = Reporter._report_gang

    def failing(reporter: Reporter, gang: PodGang, *rest: Any) -> str:
        if gang.key.name == "b":
            raise RuntimeError("a defect")
        return real(reporter, gang, *rest)

    monkeypatch.setattr(Reporter, "_report_gang", failing)
    passes = Passes("a", "b", "c")
    passes.one(FORBIDDEN)
    assert len(passes.api.writes) == 2
    assert "report_failed placement=ns/job-b-" in caplog.text


def test_a_defect_in_announcing_keeps_nothing_from_being_taken_in(caplog: pytest.LogCaptureFixture) -> None:
    """What is announced of an order must not keep it from being carried out."""

    class Defect:
        def announce(self, *_: Any, **__: Any) -> None:
            raise RuntimeError("a defect")

    announcer: Any = Defect()
    cache: Any = Copy()
    reporter = Reports(Pass(Answers(), cache, Settings(), Metrics(), announcer))
    (gang,) = gangs_of("a")
    reporter.on_result(waits(gang, "no capacity", Cause.INSUFFICIENT_CAPACITY))
    assert reporter.memory.reasons[gang.key].reason == "no capacity"
    assert "announce_failed" in caplog.text


def test_an_api_server_that_is_away_is_asked_once_in_a_pass() -> None:
    passes = Passes("a", "b", "c")
    passes.one(AWAY)
    assert len(passes.api.writes) == 1
    passes.one(None)
    assert len(passes.api.writes) == 1 + 2 * 3, "a Placement and its status for each gang"


def test_a_placement_whose_writes_get_no_answer_stops_no_other_from_being_reported() -> None:
    """As where a webhook for its namespace alone hangs."""

    class Hangs(Answers):
        def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> bytes:
            if body.get("spec", {}).get("gang") == "Job/b":
                self.writes.append("hangs")
                raise AWAY
            return super().request(method, path, body=body, **more)

    passes = Passes("a", "b", "c", "d", api=Hangs())
    for number in (1, 2):
        passes.one(None)
        assert passes.api.writes.count("hangs") == number, "it is asked once in a pass"
    written = [body["spec"]["gang"] for body in passes.api.bodies if "spec" in body]
    assert set(written) == {"Job/a", "Job/c", "Job/d"}


@pytest.mark.parametrize(
    ("attempt", "is_complete"), [(0, True), (1, False)], ids=["the same life", "a later life"]
)
def test_that_a_gang_was_bound_as_a_whole_is_remembered_until_it_starts_again(
    attempt: int, is_complete: bool
) -> None:
    pod = job_pod(0)
    entry = PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node="n")
    (gang,) = gather([pod], [], lambda _: OwnerFacts(1))
    name = gang.key.placement_name
    copy: Any = Copy()
    copy.placements[f"ns/{name}"] = Placement(
        metadata=Metadata(namespace="ns", name=name),
        spec=PlacementSpec(size=1, attempt=attempt, pods=[entry]),
        status=PlacementStatus("Bound", 1, 1, 1, complete=True),
    )
    api = Answers()
    Reports(Pass(api, copy, Settings())).report(View([pod], [], {}, {}), [gang])
    (body,) = api.bodies
    status = body["status"]
    assert (status["state"], status.get("attempt", 0)) == ("Releasing", attempt)
    assert bool(status["complete"]) == is_complete


class Ending:
    """Passes on a plan for pods p0 to p3, of which some are bound, some are not, and the others are gone."""

    def __init__(self, size: int = 4) -> None:
        self.api, self.copy = Answers(), Copy()
        self.entries = [PlannedPod(f"p{number}", f"uid-p{number}", "n1") for number in range(4)]
        self.replan(self.entries, size)
        self.new_leader()

    def new_leader(self) -> None:
        cache: Any = self.copy
        self.reports = Reports(Pass(self.api, cache, Settings()))

    def replan(self, entries: list[PlannedPod], size: int) -> None:
        spec = PlacementSpec(gang="Job/j", size=size, pods=entries)
        self.copy.placements = {"ns/p": Placement(Metadata("p", "ns", "u"), spec)}

    def is_complete_after(self, bound: str, unbound: str = "", evicted: str = "") -> bool:
        """Whether the gang is complete after a pass with these pods, given by their numbers."""
        pods = [decode(pod_json(f"p{number}", nodeName="n1", schedulingGates=[])) for number in bound]
        pods += [decode(pod_json(f"p{number}", schedulingGates=[])) for number in unbound]
        self.api.bodies.clear()
        deleted = {("ns", f"uid-p{number}") for number in evicted}
        self.reports.report(View([], pods, {}, self.copy.placements), [], evicted=deleted)
        (body,) = self.api.bodies
        return bool(body["status"].get("complete"))


@pytest.mark.promise("O97")
@pytest.mark.parametrize("size", [4, 0], ids=["known size", "unknown size"])
def test_a_gang_is_not_complete_while_pods_that_were_never_bound_are_gone(size: int) -> None:
    """As after repair has deleted them, until their Job recreates them; a new leader knows nothing of it."""
    ending = Ending(size)
    assert not ending.is_complete_after(bound="01", unbound="23")
    assert not ending.is_complete_after(bound="01")
    ending.new_leader()
    assert not ending.is_complete_after(bound="01")
    recreated = [PlannedPod(f"p{number}", f"uid-p{number}", "n1") for number in (4, 5)]
    ending.replan([*ending.entries[:2], *recreated], size)
    assert not ending.is_complete_after(bound="014", unbound="5")
    assert ending.is_complete_after(bound="0145")


def test_pods_that_have_run_and_ended_count_for_a_complete_gang() -> None:
    ending = Ending()
    assert not ending.is_complete_after(bound="01", unbound="23")
    assert not ending.is_complete_after(bound="2", unbound="3")
    assert ending.is_complete_after(bound="23")


def test_a_bound_pod_that_was_deleted_because_its_node_is_gone_has_not_run() -> None:
    ending = Ending()
    assert not ending.is_complete_after(bound="012", unbound="3")
    assert not ending.is_complete_after(bound="123", evicted="0")


def test_a_reason_is_of_bounded_length_whatever_it_repeats() -> None:
    api, copy, (gang,) = Answers(), Copy(), gangs_of("a")
    cache: Any = copy
    reporter = Reports(Pass(api, cache, Settings()))
    reporter.on_result(waits(gang, "no capacity for " + "№" * 100_000, Cause.INSUFFICIENT_CAPACITY))
    reporter.report(View([], [], {}, {}), [gang])
    (reason,) = [body["status"]["reason"] for body in api.bodies if "status" in body]
    assert len(reason.encode()) <= 4096
    assert reason.endswith("№…")


class Slow(Answers):
    """Takes a second for each request."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def request(self, method: str, path: str, *, body: Any = None, **more: Any) -> bytes:
        self.clock.now += 1
        return super().request(method, path, body=body, **more)


def test_what_a_pass_has_no_time_to_write_the_next_ones_write_in_order() -> None:
    clock, gangs = Clock(), gangs_of("a", "b", "c")
    api, cache = Slow(clock), Copy()
    reporter = Reports(Pass(api, cache, Settings(pass_seconds=2), clock=clock))  # type: ignore[arg-type]
    written = []
    for _ in range(3):
        for gang in gangs:
            # each time there is news of each
            reporter.on_result(waits(gang, f"no capacity at {clock.now:.0f} s", Cause.INSUFFICIENT_CAPACITY))
        api.bodies.clear()
        assert not reporter.report(View([], [], {}, {}), gangs), "there is more to write"
        written += [body["spec"]["gang"] for body in api.bodies if "spec" in body]
    assert written == ["Job/a", "Job/b", "Job/c"]


@pytest.mark.promise("R173")
def test_what_is_reserved_for_a_gang_stands_in_its_status() -> None:
    api, copy, (gang,) = Answers(), Copy(), gangs_of("a")
    cache: Any = copy
    reporter = Reports(Pass(api, cache, Settings()))
    reporter.on_result(waits(gang, "no capacity", Cause.INSUFFICIENT_CAPACITY))
    ends = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    key = gang.key.placement_key
    reserved = {key: Reservation(STARVATION, key, frozenset({"n2", "n1"}), 0.0, 1800.0, ends)}
    reporter.report(View([], [], {}, {}), [gang], reservations=reserved)
    (status,) = [body["status"] for body in api.bodies if "status" in body]
    assert (status["reservedNodes"], status["reservedUntil"]) == (["n1", "n2"], "2026-01-01T00:30:00Z")
    api.bodies.clear()
    written = PlacementStatus(
        "Waiting", 1, reason="no capacity", reserved_nodes=["n1", "n2"], reserved_until="2026-01-01T00:30:00Z"
    )
    copy.placements = {gang.key.placement_key: Placement(Metadata("p", "ns"), status=written)}
    reporter.report(View([], [], {}, {}), [gang])
    (status,) = [body["status"] for body in api.bodies]
    assert (status["reservedNodes"], status["reservedUntil"]) == (None, None), "it is held no more"


def test_what_is_reserved_for_later_pods_stands_in_the_status_of_a_gang_of_which_none_waits() -> None:
    api, copy = Answers(), Copy()
    cache: Any = copy
    leader = decode(pod_json("leader", nodeName="n0", schedulingGates=[]))
    spec = PlacementSpec(pods=[PlannedPod("leader", "uid-leader", "n0")], later_pod_nodes=["n1"])
    copy.placements = {"ns/set": Placement(Metadata("set", "ns"), spec)}
    ends = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    reserved = {"ns/set": Reservation(STARVATION, "ns/set", frozenset({"n1"}), 0.0, 1800.0, ends)}
    Reports(Pass(api, cache, Settings())).report(
        View([], [leader], {}, copy.placements), [], reservations=reserved
    )
    (status,) = [body["status"] for body in api.bodies]
    assert (status["reservedNodes"], status["reservedUntil"]) == (["n1"], "2026-01-01T00:30:00Z")


def test_a_gang_between_its_stages_shows_what_is_to_come() -> None:
    leader = decode(pod_json("leader", nodeName="n0", schedulingGates=[]))
    spec = PlacementSpec(
        gang="x", size=4, pods=[PlannedPod("leader", "uid-leader", "n0")], later_pod_nodes=["n1", "n2"]
    )
    copy: Any = Copy()
    copy.placements["ns/set"] = Placement(metadata=Metadata(namespace="ns", name="set"), spec=spec)
    api = Answers()
    Reports(Pass(api, copy, Settings())).report(View([], [leader], {}, copy.placements), [])
    (status,) = [body["status"] for body in api.bodies if "status" in body]
    assert (status["pods"], status["released"], status["bound"]) == (4, 1, 1)
    assert (status["state"], status.get("complete", False)) == ("Releasing", False)
    assert (
        status["reason"] == "3 of its 4 pods are created once the first ones run, and are planned with them"
    )


def test_a_plan_reveals_nothing_of_pods_of_another_namespace_and_does_not_stay_for_them() -> None:
    spoken_of = decode(pod_json("p", nodeName="n1", schedulingGates=[]))
    entry = PlannedPod("p", spoken_of.metadata.uid, "n1")
    metadata = Metadata(name="theirs", namespace="another", uid="u")
    plan = Placement(metadata, PlacementSpec(gang="Job/j", pods=[entry]))
    api, cache = Answers(), Copy()
    cache.placements = {plan.key: plan}
    copy: Any = cache
    Reports(Pass(api, copy, Settings())).report(View([], [spoken_of], {}, {plan.key: plan}), [])
    assert [write.split()[0] for write in api.writes] == ["DELETE"]


def test_a_placement_that_only_records_a_move_reads_as_such_and_not_as_pods_on_nodes() -> None:
    api, copy = Answers(), Copy()
    moved = PlacementSpec(gang="Job/train", pods=[PlannedPod(name="p", uid="gone", node="n0")])
    moved = msgspec.structs.replace(moved, moves=[datetime.now(UTC).isoformat()])
    ran = PlacementStatus("Bound", 1, 1, 1, "1 block", complete=True)
    made = Placement(Metadata(name="p", namespace="ns", uid="u"), moved, ran)
    copy.placements = {made.key: made}
    surroundings: Any = Pass(api, copy, Settings(), Metrics())  # type: ignore[arg-type]
    Reports(surroundings).report(View([], [], {}, {}, now=Moment(0.0, datetime.now(UTC))), [])
    assert [write.split()[0] for write in api.writes] == ["PATCH"]
    (body,) = api.bodies
    status = {name: value for name, value in body["status"].items() if value is not None}
    assert status.keys() == {"complete", "reason"}
    assert "record of moved gangs" in status["reason"]
