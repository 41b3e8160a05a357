"""Leader election: never two leaders, whatever is lost or late; always one in the end."""

import copy
import itertools
import re
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hack.local.cluster import Cluster
from tests.support import exists
from webhook.kube.client import Api, ApiError
from webhook.kube.lease import Elector, LeaseTimes, micro_time

PATH = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/sweeper"


# --- the state machine, with a clock and a server of its own ---------------------------------------


@dataclass
class Shelf:
    """One Lease behind the API server's rule of resourceVersion, and a clock that only tests move."""

    now: float = 0.0
    lease: dict[str, Any] | None = None
    versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    late: list[tuple[float, Callable[[], object]]] = field(default_factory=list)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        due = [act for at, act in self.late if at <= self.now]
        self.late = [(at, act) for at, act in self.late if at > self.now]
        for act in due:
            with suppress(ApiError):  # nobody listens any more
                act()

    def apply(self, method: str, body: dict[str, Any] | None) -> dict[str, Any]:
        if method == "GET" or body is None:
            if self.lease is None:
                raise ApiError(404, "NotFound", "no lease")
            return copy.deepcopy(self.lease)
        if method == "POST" and self.lease is not None:
            raise ApiError(409, "AlreadyExists", "there is one")
        if method == "PUT":
            if self.lease is None:
                raise ApiError(404, "NotFound", "no lease")
            if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", "changed since")
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(next(self.versions))
        return copy.deepcopy(self.lease)


@dataclass
class Line:
    """One process's way to the shelf, with what happens to its next requests."""

    shelf: Shelf
    fates: list[tuple[str, float]] = field(default_factory=list)
    timeouts: list[float] = field(default_factory=list)

    def json(self, method: str, path: str, **options: Any) -> Any:
        timeout = options["timeout_seconds"]
        self.timeouts.append(timeout)
        fate, delay = self.fates.pop(0) if self.fates else ("answered", 0.0)
        body = copy.deepcopy(options.get("body"))
        if fate == "answered" and delay < timeout:
            self.shelf.advance(delay)
            return self.shelf.apply(method, body)
        if fate == "unheard":  # done, but the answer is lost
            self.shelf.advance(min(delay, timeout))
            try:
                self.shelf.apply(method, body)
            finally:
                self.shelf.advance(timeout - min(delay, timeout))
                raise ApiError(0, "Unreachable", "no answer")
        if fate == "late" and method != "GET":
            self.shelf.late.append((self.shelf.now + timeout + delay, lambda: self.shelf.apply(method, body)))
        self.shelf.advance(timeout)
        raise ApiError(0, "Unreachable", "no answer")


def elector(
    line: Line,
    identity: str,
    offset: float = 0.0,
    on_change: Callable[[bool], None] | None = None,
    **times: float,
) -> Elector:
    """One whose clock shows something else than everybody's, but runs at the same rate."""
    return Elector(
        line,
        "system",
        "sweeper",
        identity,
        LeaseTimes(**times),
        on_change=on_change,
        clock=lambda: line.shelf.now + offset,
    )


@dataclass
class Lossy(Line):
    """Each write is carried out, and answered by an error all the same."""

    status: int = 0

    def json(self, method: str, path: str, **options: Any) -> Any:
        answer = super().json(method, path, **options)
        if method != "GET":
            raise ApiError(self.status, "Unknown", "the answer is lost, or that to a repeated request")
        return answer


FATES = st.lists(
    st.tuples(st.sampled_from(["answered", "answered", "lost", "unheard", "late"]), st.floats(0, 12)),
    max_size=3,
)
STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), FATES, st.floats(0, 9), st.sampled_from(["", "", "", "", "delete"])),
    min_size=5,
    max_size=40,
)


@pytest.mark.promise("O320")
@pytest.mark.parametrize("names", [("a", "b"), ("same", "same")], ids=["two-names", "one-name"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(steps=STEPS)
def test_two_never_lead_at_one_time_whatever_is_lost_or_late_and_though_the_lease_is_deleted_once(
    names: tuple[str, str], steps: list[tuple[str, list[tuple[str, float]], float, str]]
) -> None:
    shelf = Shelf()
    lines = {"a": Line(shelf), "b": Line(shelf)}
    electors = {"a": elector(lines["a"], names[0], 1e6), "b": elector(lines["b"], names[1], -5.0)}
    for identity in "ab":  # both have seen the Lease once: one that nobody saw may be deleted by its owner
        electors[identity].step()
    was_deleted = False
    for identity, fates, wait, act in steps:
        lines[identity].fates = list(fates)
        electors[identity].step()
        assert not (electors["a"].is_leader and electors["b"].is_leader)
        if act == "delete" and not was_deleted:
            shelf.lease, was_deleted = None, True
        shelf.advance(wait)
        assert not (electors["a"].is_leader and electors["b"].is_leader)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(STEPS)
def test_there_is_a_leader_again_once_requests_are_answered(
    steps: list[tuple[str, list[tuple[str, float]], float, str]],
) -> None:
    shelf = Shelf()
    lines = {"a": Line(shelf), "b": Line(shelf)}
    electors = {identity: elector(line, identity) for identity, line in lines.items()}
    for identity, fates, wait, _ in steps:
        lines[identity].fates = list(fates)
        electors[identity].step()
        shelf.advance(wait)
    for line in lines.values():
        line.fates = []
    for _ in range(20):
        for each in electors.values():
            each.step()
        shelf.advance(2)
    assert [electors["a"].is_leader, electors["b"].is_leader].count(True) == 1


def test_a_leader_counts_from_when_it_sent_its_renewal_not_from_the_answer() -> None:
    line = Line(Shelf(), fates=[("answered", 0.0), ("answered", 1.5)])
    one = elector(line, "a")
    one.step()
    line.shelf.advance(8.4)
    assert one.is_leader
    line.shelf.advance(0.1)
    assert not one.is_leader, "the write was sent 1.5 s before its answer, 10 s ago"


@pytest.mark.promise("O229")
def test_a_silent_leader_is_followed_after_its_whole_lease_and_not_before() -> None:
    shelf = Shelf()
    elector(Line(shelf), "a").step()
    other = elector(Line(shelf), "b")
    other.step()
    shelf.advance(14.9)
    other.step()
    assert not other.is_leader
    shelf.advance(0.2)
    other.step()
    assert other.is_leader
    assert shelf.lease is not None
    assert shelf.lease["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize("year", ["1999", "2099"])
def test_the_time_of_another_clock_in_the_record_is_not_believed(year: str) -> None:
    spec = {
        "holderIdentity": "other",
        "leaseDurationSeconds": 15,
        "acquireTime": f"{year}-01-01T00:00:00.000000Z",
        "renewTime": f"{year}-01-01T00:00:00.000000Z",
    }
    shelf = Shelf(lease={"metadata": {"name": "sweeper", "resourceVersion": "0"}, "spec": spec})
    one = elector(Line(shelf), "a")
    one.step()
    assert not one.is_leader
    shelf.advance(15)
    one.step()
    assert one.is_leader


def test_the_duration_that_the_holder_wrote_counts_not_our_own() -> None:
    shelf = Shelf()
    elector(Line(shelf), "a", lease_seconds=60).step()
    other = elector(Line(shelf), "b", lease_seconds=15)
    other.step()
    shelf.advance(59)
    other.step()
    assert not other.is_leader


def test_a_released_lease_is_taken_at_the_next_look() -> None:
    shelf = Shelf()
    first, second = elector(Line(shelf), "a"), elector(Line(shelf), "b")
    first.step()
    second.step()
    first.release()
    assert not first.is_leader
    assert shelf.lease is not None
    assert shelf.lease["spec"]["holderIdentity"] == ""
    second.step()
    assert second.is_leader


def test_a_process_under_the_name_of_an_earlier_one_waits_for_its_lease() -> None:
    shelf = Shelf()
    elector(Line(shelf), "pod-0").step()
    again = elector(Line(shelf), "pod-0")
    again.step()
    assert not again.is_leader
    shelf.advance(15)
    again.step()
    assert again.is_leader


def test_one_that_is_refused_for_as_long_as_a_lease_lasts_reports_it_until_it_is_answered() -> None:
    shelf = Shelf()
    refused = Refused()
    one = Elector(refused, "ns", "sweeper", "a", clock=lambda: shelf.now)
    assert not one.trouble
    for shelf.now in (0.0, 14.0):
        one.step()
        assert not one.trouble, "a short trouble is none"
    shelf.now = 15.0
    one.step()
    assert one.trouble.startswith("lease sweeper: ")
    assert "401" in one.trouble
    refused.line = Line(shelf)
    one.step()
    assert not one.trouble


class Refused:
    """Refuses every request until there is a line."""

    line: Line | None = None

    def json(self, method: str, path: str, **more: Any) -> Any:
        if self.line is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return self.line.json(method, path, **more)


@pytest.mark.parametrize("status", [0, 409, 429, 504])
@pytest.mark.parametrize("is_there", [False, True], ids=["created", "taken"])
def test_a_write_that_is_carried_out_makes_a_leader_whatever_its_answer(status: int, is_there: bool) -> None:
    shelf = Shelf()
    if is_there:
        elector(Line(shelf), "b").release()
        elector(Line(shelf), "b").step()
    one = elector(Lossy(shelf, status=status), "a")
    one.step()
    shelf.advance(15 if is_there else 0)
    one.step()
    assert one.is_leader
    assert not one.trouble


@pytest.mark.parametrize("answer", [{}, {"metadata": {"resourceVersion": "1"}, "spec": None}], ids=str)
def test_a_leader_leads_on_while_no_answer_to_a_write_is_its_lease(answer: dict[str, Any]) -> None:
    class Garbled(Line):
        def json(self, method: str, path: str, **options: Any) -> Any:
            lease = super().json(method, path, **options)
            return lease if method == "GET" else answer

    shelf = Shelf()
    one, other = elector(Garbled(shelf), "a"), elector(Line(shelf), "b")
    for number in range(40):
        shelf.advance(one.step())
        other.step()
        assert one.is_leader, number
        assert not other.is_leader


@pytest.mark.parametrize("status", [0, 409, 429, 504])
def test_a_leader_leads_on_while_no_answer_to_a_write_arrives(status: int) -> None:
    shelf = Shelf()
    one, other = elector(Lossy(shelf, status=status), "a"), elector(Line(shelf), "b")
    for number in range(40):
        shelf.advance(one.step())
        other.step()
        assert one.is_leader, number
        assert not other.is_leader


class SlowWrites(Line):
    """Only writes are late or slow."""

    def json(self, method: str, path: str, **options: Any) -> Any:
        fates = self.fates
        if method == "GET":
            self.fates = []
        try:
            return super().json(method, path, **options)
        finally:
            self.fates = fates


def test_a_write_that_arrives_late_is_known_after_another_was_tried() -> None:
    """Its time of acquisition differs from that of the write after it, so it looked like another process."""
    shelf = Shelf()
    elector(Line(shelf), "b").step()
    one = elector(SlowWrites(shelf, fates=[("late", 1.0), ("answered", 1.0)]), "a")
    one.step()
    shelf.advance(15)
    one.step()
    assert not one.is_leader, "its write is on the way"
    one.step()
    shelf.advance(2)
    one.step()
    assert one.is_leader


def test_a_write_that_another_has_replaced_makes_no_leader() -> None:
    shelf = Shelf()
    line = Line(shelf, fates=[("answered", 0.0), ("unheard", 0.0), ("lost", 0.0)])
    one, other = elector(line, "a"), elector(Line(shelf), "b")
    one.step()
    other.step()
    shelf.advance(15)
    other.step()
    one.step()
    assert other.is_leader
    assert not one.is_leader


def test_who_was_refused_for_good_reads_nothing_more() -> None:
    line = Lossy(Shelf(), status=403)
    elector(line, "a").step()
    assert len(line.timeouts) == 2, "the first look, and the write"


# --- a Lease that a client has edited ----------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=6,
)
COUNT = st.sampled_from([-(2**31), -1, 0, 1, 15, 3601, 2**31 - 1, 2**31, 10**400])
TIME = st.sampled_from(
    ["", "x", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2026-02-30T99:00:00Z"]
)
EDITED = st.fixed_dictionaries(
    {},
    optional={
        "holderIdentity": st.one_of(JSON, st.sampled_from(["a", "b", "x" * 100_000, "\0"])),
        "leaseDurationSeconds": COUNT | JSON,
        "leaseTransitions": COUNT | JSON,
        "acquireTime": TIME | JSON,
        "renewTime": TIME | JSON,
        "strategy": JSON,
    },
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(EDITED, JSON), st.booleans())
def test_whatever_a_person_writes_into_the_lease_there_is_one_leader_within_an_hour(
    spec: Any, has_leader: bool
) -> None:
    shelf = Shelf(lease={"metadata": {"name": "sweeper", "resourceVersion": "0"}, "spec": {}})
    electors = [elector(Line(shelf), "a"), elector(Line(shelf), "b")]
    if has_leader:
        for each in electors:
            each.step()
    assert shelf.lease is not None
    shelf.lease = {"metadata": {"name": "sweeper", "resourceVersion": "edited"}, "spec": spec}
    for step in range(3602 // 2):
        for each in electors:
            each.step()
        leaders = [each for each in electors if each.is_leader]
        assert len(leaders) < 2
        if leaders and step > 5:
            break
        shelf.advance(2)
    assert len(leaders) == 1
    written = shelf.lease["spec"]
    assert 0 <= written["leaseTransitions"] < 2**31
    assert written["leaseDurationSeconds"] == 15


def test_a_field_of_the_lease_that_cannot_be_believed_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    spec = {"holderIdentity": "b", "leaseDurationSeconds": 2**31 - 1, "leaseTransitions": "many"}
    shelf = Shelf(lease={"metadata": {"name": "sweeper", "resourceVersion": "0"}, "spec": spec})
    one = elector(Line(shelf), "a")
    for _ in range(3):
        one.step()
    assert [record.getMessage() for record in caplog.records] == [
        "lease_edited name=sweeper unreadable=leaseTransitions, leaseDurationSeconds"
    ]


def test_who_never_led_releases_nothing() -> None:
    shelf = Shelf()
    leader, other = elector(Line(shelf), "a"), elector(Line(shelf), "b")
    leader.step()
    other.step()
    other.release()
    assert leader.is_leader
    assert shelf.lease is not None
    assert shelf.lease["spec"]["holderIdentity"] == "a"


@pytest.mark.promise("O320")
def test_no_request_delays_the_word_that_leadership_is_over() -> None:
    line = Line(Shelf())
    calls: list[tuple[bool, float]] = []
    # Attempts at 2 and 7 s, so that the last one would outlast leadership.
    one = elector(line, "a", on_change=lambda leads: calls.append((leads, line.shelf.now)))
    one.step()
    line.shelf.advance(2)
    while one.is_leader:
        line.fates = [("lost", 0.0)] * 2
        line.shelf.advance(one.step())
    one.step()
    assert line.timeouts[-2:] == [pytest.approx(3.0), 5.0], "the second ends with leadership"
    assert calls == [(True, 0.0), (False, pytest.approx(10.0))]


@pytest.mark.promise("O320")
def test_a_leader_leads_on_while_every_answer_takes_four_seconds() -> None:
    shelf = Shelf()
    lines = [Line(shelf), Line(shelf)]
    one, other = elector(lines[0], "a"), elector(lines[1], "b")
    for _ in range(3):  # it has to look before it writes, and each takes its time
        lines[0].fates = [("answered", 4.0)] * 2
        one.step()
    assert one.is_leader
    for _ in range(100):
        lines[0].fates, lines[1].fates = [("answered", 4.0)], [("answered", 0.0)]
        shelf.advance(one.step())
        other.step()
        assert one.is_leader
        assert not other.is_leader
    assert shelf.lease is not None
    assert shelf.lease["spec"]["leaseTransitions"] == 0


@pytest.mark.promise("O320")
def test_a_leader_whose_answers_take_longer_than_a_request_may_stops_before_another_begins() -> None:
    shelf = Shelf()
    lines = [Line(shelf), Line(shelf)]
    one, other = elector(lines[0], "a"), elector(lines[1], "b")
    one.step()
    other.step()
    for _ in range(20):
        lines[0].fates = [("lost", 6.0)] * 2
        shelf.advance(one.step())
        assert not (one.is_leader and other.is_leader)
        other.step()
        assert not (one.is_leader and other.is_leader)
    assert other.is_leader
    assert not one.is_leader


def test_who_sees_that_another_holds_the_lease_leads_no_longer() -> None:
    shelf = Shelf()
    one = elector(Line(shelf), "a")
    one.step()
    assert shelf.lease is not None
    shelf.lease["spec"] |= {"holderIdentity": "taken by hand"}
    shelf.lease["metadata"] |= {"resourceVersion": "999"}
    one.step()
    assert not one.is_leader


def test_a_callback_that_fails_does_not_end_the_election() -> None:
    def fail(_: bool) -> None:
        raise RuntimeError("a defect of the caller")

    one = elector(Line(Shelf()), "a", on_change=fail)
    one.step()
    assert one.is_leader


def test_what_others_wrote_on_the_lease_stays() -> None:
    shelf = Shelf()
    one = elector(Line(shelf), "a")
    one.step()
    assert shelf.lease is not None
    shelf.lease["metadata"] |= {"labels": {"team": "ml"}, "resourceVersion": "999"}
    one.step()
    assert one.is_leader
    assert shelf.lease["metadata"]["labels"] == {"team": "ml"}


@pytest.mark.parametrize(
    "times",
    [
        {"renew_seconds": 15},
        {"retry_seconds": 5.5},
        {"request_seconds": 5.5},
        {"lease_seconds": 15.5},
        {"retry_seconds": 0},
        {"request_seconds": 0},
    ],
    ids=["renews-as-late-as-the-lease", "one-retry", "one-request", "fraction", "no-pause", "no-time"],
)
def test_times_that_are_unsafe_are_refused(times: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="lease_seconds"):
        LeaseTimes(**times)


def test_times_are_written_with_six_decimals() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", micro_time())


# --- on the real API server ------------------------------------------------------------------------

PATIENT = LeaseTimes(lease_seconds=600, renew_seconds=400, retry_seconds=0.5)
"""Longer than anything here takes on the busiest machine, so that only the clock of a test ends a Lease."""


@pytest.mark.promise("O229")
def test_after_a_release_the_other_leads_before_the_lease_is_over(cluster: Cluster, namespace: str) -> None:
    api = cluster.api()
    first, second = (Elector(api, namespace, "sweeper", identity, PATIENT) for identity in "ab")
    first.start()
    try:
        cluster.wait_for("the first to lead", lambda: first.is_leader)
        second.start()
        cluster.wait_for("the second to look", lambda: second.holder == "a")

        def leads() -> bool:
            first.release()  # again, if the API server was too busy for it
            return second.is_leader

        cluster.wait_for("the second to lead", leads)
    finally:
        first.stop()
        second.stop()


def test_a_lease_that_is_deleted_comes_back_under_the_same_leader(cluster: Cluster, namespace: str) -> None:
    """The clock is the test's, so that none passes while a busy server answers."""
    now, api, path = [0.0], cluster.api(), PATH.format(namespace)
    first, second = (
        Elector(api, namespace, "sweeper", identity, PATIENT, clock=lambda: now[0]) for identity in "ab"
    )

    def tried(one: Elector, holds: Callable[[], bool]) -> Callable[[], bool]:
        def is_so() -> bool:
            one.step()
            return holds()

        return is_so

    cluster.wait_for("the first to lead", tried(first, lambda: first.is_leader))
    cluster.wait_for("the second to look", tried(second, lambda: second.holder == "a"))
    api.request("DELETE", path)
    cluster.wait_for("the second to see it", tried(second, lambda: not second.holder))
    now[0] = 300.0
    second.step()
    assert not second.is_leader
    cluster.wait_for("the Lease to be back", tried(first, lambda: exists(api, path)))
    second.step()
    assert (first.is_leader, second.is_leader) == (True, False)
    assert api.json("GET", path)["spec"]["holderIdentity"] == "a"


@dataclass
class Unanswered:
    """The API server carries out each write, whose answer is lost, or is that to a repeated request."""

    api: Api
    status: int

    def json(self, method: str, path: str, **options: Any) -> Any:
        answer = self.api.json(method, path, **options)
        if method != "GET":
            raise ApiError(self.status, "Unknown", "the connection was reset")
        return answer


@pytest.mark.promise("O320")
@pytest.mark.parametrize("status", [0, 409])
def test_who_gets_no_answer_to_any_write_takes_and_keeps_the_lease_and_nobody_leads_beside_it(
    cluster: Cluster, namespace: str, status: int
) -> None:
    """The API server may store a time otherwise than it was sent; the clock is the test's."""
    now, api, path = [0.0], cluster.api(), PATH.format(namespace)
    times = LeaseTimes(lease_seconds=600, renew_seconds=400, retry_seconds=0.5, request_seconds=60)
    former, unheard, other = (
        Elector(each, namespace, "sweeper", identity, times, clock=lambda: now[0])
        for identity, each in (("former", api), ("unheard", Unanswered(api, status)), ("other", api))
    )
    former.step()
    unheard.step()
    assert (former.is_leader, unheard.is_leader) == (True, False)
    now[0] += 600
    unheard.step()
    assert (former.is_leader, unheard.is_leader) == (False, True), "it has read its own write back"
    first = api.json("GET", path)["spec"]
    for _ in range(8):
        now[0] += 150
        unheard.step()
        other.step()
        assert (unheard.is_leader, other.is_leader, former.is_leader) == (True, False, False)
    last = api.json("GET", path)["spec"]
    assert last["renewTime"] > first["renewTime"]
    assert {**last, "renewTime": ""} == {**first, "renewTime": ""}, "it was acquired once"
    assert last["holderIdentity"] == "unheard"


def test_the_manifest_allows_its_lease_alone_and_puts_it_in_the_queue_of_elections(
    cluster: Cluster, tmp_path: Path
) -> None:
    api = cluster.api()
    accounts = "/api/v1/namespaces/topogate-system/serviceaccounts"
    api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": "topogate-system"}})
    api.request("POST", accounts, body={"metadata": {"name": "sweeper"}})
    manifest = Path(__file__).parents[2] / "manifests" / "base" / "leases.yaml"
    cluster.kubectl("apply", "-f", str(manifest))
    try:
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        answer = api.json("POST", f"{accounts}/sweeper/token", body=request)
        (tmp_path / "token").write_text(answer["status"]["token"])
        cluster.write_token_kubeconfig(tmp_path / "kubeconfig", tmp_path / "token")
        theirs = Api.connect(tmp_path / "kubeconfig", user_agent="test")
        one = Elector(theirs, "topogate-system", "topogate-sweeper", "a")
        one.step()
        one.step()
        assert one.is_leader
        one.release()
        other = Elector(theirs, "topogate-system", "something-else", "a")
        other.step()
        assert not other.is_leader
        with pytest.raises(ApiError, match="cannot update resource") as refused:
            theirs.request(
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/topogate-system/leases/something-else",
                body={"metadata": {"name": "something-else"}},
            )
        assert refused.value.status == 403
        schema = api.json("GET", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/topogate-leases")
        cluster.wait_for(
            "the API server to use the FlowSchema",
            lambda: flow_schema_of(cluster, (tmp_path / "token").read_text()) == schema["metadata"]["uid"],
        )
    finally:
        cluster.kubectl("delete", "-f", str(manifest), "--ignore-not-found")


def flow_schema_of(cluster: Cluster, token: str) -> str:
    """The uid of the FlowSchema under which the API server put a look at the Lease."""
    request = urllib.request.Request(
        cluster.server + PATH.format("topogate-system").replace("sweeper", "topogate-sweeper"),
        headers={"Authorization": f"Bearer {token}"},
    )
    context = ssl.create_default_context(cafile=str(cluster.certificate_authority))
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(request, timeout=60) as response:
        return str(response.headers["X-Kubernetes-PF-FlowSchema-UID"])
