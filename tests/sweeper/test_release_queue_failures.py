"""Releases to a node with cards that fail: no two are ever under way there, and nobody blocks the others."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.mortal import Killed
from tests.sweeper.queues import (
    ANSWERED_GONE,
    ANSWERED_LATE,
    ANSWERED_SECONDS,
    BROKEN,
    BUSY,
    DENIED,
    FIRST_STAMP,
    FORBIDDEN,
    HANGS,
    IS_LOST,
    LOST,
    NO_CONNECTION,
    TIMED_OUT,
    UNDONE,
    WELL,
    Answer,
    Leader,
    cluster,
    given_to,
    led_for_long,
    one_by_one,
    passes,
)
from webhook.kube.client import ApiError
from webhook.sweeper.apply import release
from webhook.sweeper.apply.release import LOST_SECONDS
from webhook.sweeper.decide.release_queue import SentReleases


@pytest.mark.promise("I74")
@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (BROKEN, 15),
        (DENIED, 15),
        (BUSY, 15),
        (NO_CONNECTION, 15),
        (FORBIDDEN, 15),
        (ANSWERED_GONE, 15),
        (ANSWERED_LATE, 15),
        (UNDONE, 45),
        (HANGS, 45),
        (IS_LOST, 135),
    ],
    ids=[
        "fails",
        "denied",
        "busy",
        "no connection",
        "refused for good",
        "denied as if it were gone",
        "denied as if it were late",
        "undone by a webhook",
        "hangs",
        "no answer",
    ],
)
def test_whose_releases_fail_keeps_the_node_from_others_for_a_bounded_time(
    answer: Answer, seconds: float
) -> None:
    """However many its pods are: after one failure the others come first."""
    server, planned = cluster(given_to(answer), *["bad"] * 20, *["good"] * 3)
    found = passes(led_for_long(server, planned), seconds)
    assert [name for name, _ in found] == ["good-20", "good-21", "good-22"]


@pytest.mark.promise("I33")
@pytest.mark.parametrize("paused", [None, "a", "b"], ids=["all may go", "the first may not", "the second"])
def test_a_new_leader_reads_the_pods_planned_for_a_node_before_it_releases_one_there(
    paused: str | None,
) -> None:
    """Though nothing speaks against the first: the second may have been released by the leader before."""
    server, planned = cluster(given_to(WELL), "a", "b")
    leader = Leader(server, planned, lag=5.0)
    leader.paused = {paused: 1000.0} if paused else {}
    leader.one()
    assert (sorted(server.read), server.tried) == (["a-0", "b-1"] if not paused else server.read, [])
    assert server.read
    assert leader.queue.due_seconds <= 1, "what is read is acted on soon"
    found = passes(leader, 30)
    assert [name for name, _ in found] == [name for name in ("a-0", "b-1") if name[0] != paused]
    assert found[0][1] <= 2


@pytest.mark.promise("I33")
def test_what_the_leader_before_has_released_keeps_its_position_though_the_watch_does_not_show_it() -> None:
    server, planned = cluster(given_to(WELL), "a", "b")
    server.bind_seconds = lambda _: 60.0
    before = led_for_long(server, planned)
    before.paused["a"] = 1000.0
    before.one()
    before.close()
    assert list(server.released) == ["b-1"]
    leader = Leader(server, planned, lag=20.0)
    leader.began = 0.0  # its watch has begun before it leads
    found = dict(passes(leader, 120))
    assert found["a-0"] >= found["b-1"] + 60


def test_a_new_leader_reads_nothing_of_nodes_for_which_one_pod_waits() -> None:
    server, planned = cluster(given_to(WELL), "a")
    leader = Leader(server, planned)
    leader.one()
    leader.close()
    assert (server.read, server.tried) == ([], ["a-0"])


def test_a_new_leader_releases_nothing_on_a_node_whose_pods_it_cannot_read() -> None:
    server, planned = cluster(lambda _, method: BUSY if method == "GET" else WELL, "a", "b")
    assert passes(Leader(server, planned), 300) == []
    assert len(server.read) < 40, "they are asked less and less often"


@pytest.mark.parametrize("answer", [BROKEN, HANGS], ids=["fails", "hangs"])
def test_who_fails_comes_again_after_those_that_waited_and_before_those_planned_later(
    answer: Answer,
) -> None:
    server, planned = cluster(given_to(answer), "bad", "good", "good")
    leader = led_for_long(server, planned)
    last = planned.pop("uid-good-2")
    for _ in range(3):
        leader.one()
        server.advance(1)
    later = str(FIRST_STAMP + int(server.clock.now * 1e9))
    planned["uid-good-2"] = msgspec.structs.replace(
        last, annotations=last.annotations | {keys.GAS_TIMESTAMP_ANNOTATION: later}
    )
    assert [name for name, _ in passes(leader, 200)] == ["good-1", "good-2"]
    tried = [
        name for number, name in enumerate(server.tried) if server.tried[number - 1] != name or not number
    ]
    assert tried[:4] == ["bad-0", "good-1", "bad-0", "good-2"]


def test_whose_release_failed_elsewhere_keeps_no_position_until_it_is_tried_again() -> None:
    """It is planned again, as its node is gone, and is not tried for half a minute."""
    server, planned = cluster(given_to(BROKEN), "bad", "good")
    leader = led_for_long(server, planned)
    here, other = planned["uid-bad-0"], planned.pop("uid-good-1")
    planned["uid-bad-0"] = msgspec.structs.replace(here, node="gone")
    for _ in range(70):
        leader.one()
        server.advance(1)
    later = {keys.GAS_TIMESTAMP_ANNOTATION: str(FIRST_STAMP + int(server.clock.now * 1e9))}
    planned["uid-bad-0"] = here
    planned["uid-good-1"] = msgspec.structs.replace(other, annotations=other.annotations | later)
    assert [name for name, _ in passes(leader, 5)] == ["good-1"]


def test_whose_release_is_undone_on_one_node_while_it_is_in_doubt_on_another_stops_no_plans() -> None:
    """The pass that reads it for the one node may go on to plan pods for the other."""
    server, planned = cluster(one_by_one(IS_LOST, FORBIDDEN, UNDONE, then=FORBIDDEN), "bad", *["good"] * 2)
    leader = led_for_long(server, planned)
    leader.one()
    server.advance(LOST_SECONDS - 5)
    planned["uid-bad-0"] = msgspec.structs.replace(planned["uid-bad-0"], node="n1")
    leader.one()
    server.advance(5)
    leader.one()
    leader.close()
    assert server.read == ["bad-0"]
    (pod,) = [pod for pod in server.pods(0) if pod.metadata.name == "good-2"]
    on_other = msgspec.structs.replace(planned["uid-good-2"], node="n1")
    assert leader.queue.take([(pod, on_other)]) == ()


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [(BROKEN, 15), (UNDONE, 45), (HANGS, 45), (IS_LOST, 135)],
    ids=["fails", "undone by a webhook", "hangs", "no answer"],
)
def test_whose_releases_fail_blocks_no_others_of_its_own_namespace_either(
    answer: Answer, seconds: float
) -> None:
    server, planned = cluster(None, *["same"] * 4)
    server.answers = lambda _, method: answer if server.asked == "same-0" and method == "PATCH" else WELL
    found = passes(led_for_long(server, planned), 4 * seconds)
    assert [name for name, _ in found] == ["same-1", "same-2", "same-3"]
    assert found[0][1] < 2 * LOST_SECONDS + seconds


@pytest.mark.promise("I73")
@pytest.mark.parametrize("lag", [0, 5], ids=["seen", "not seen yet"])
@pytest.mark.parametrize("error", [TIMED_OUT, LOST], ids=["hangs", "no answer"])
def test_what_arrives_late_keeps_its_position(error: ApiError, lag: float) -> None:
    late = ANSWERED_SECONDS if error.status else LOST_SECONDS - 1
    server, planned = cluster(given_to(Answer(error, late)), "bad", "good")
    leader = led_for_long(server, planned)
    leader.lag = lag
    names = [name for name, _ in passes(leader, 300)]
    assert names == ["bad-0", "good-1"]


def test_a_release_in_doubt_is_tried_again_at_once_and_that_ends_the_doubt() -> None:
    """As while an API server restarts."""
    left = [IS_LOST] * 5
    server, planned = cluster(lambda namespace, _: left.pop() if left else WELL, "bad", "good")
    (first, second) = passes(led_for_long(server, planned), 10)
    assert (first[0], second[0]) == ("bad-0", "good-1")


NOT_THERE = Answer(ApiError(404, "NotFound", "GET /p: <html>"))


@pytest.mark.parametrize("seconds", [13, 21, 50])
@pytest.mark.parametrize(
    ("failed", "then", "reads"),
    [(1, UNDONE, ()), (5, UNDONE, ()), (1, ANSWERED_GONE, (NOT_THERE,)), (1, HANGS, ())],
    ids=["undone", "undone in the next pass", "said to be gone, as by a proxy", "in doubt for less long"],
)
def test_what_may_arrive_late_keeps_its_position_whatever_a_later_attempt_is_answered(
    failed: int, then: Answer, reads: tuple[Answer, ...], seconds: int
) -> None:
    """Of the first try no answer came; once the others could go its namespace is refused."""
    lost = [Answer(LOST, seconds), *[IS_LOST] * (failed - 1)]
    answers = one_by_one(*lost, then, then=FORBIDDEN, reads=reads)
    server, planned = cluster(answers, "bad", *["good"] * 4)
    names = [name for name, _ in passes(led_for_long(server, planned), 60)]
    assert names[0] == "bad-0"


@pytest.mark.promise("I73")
def test_while_pods_cannot_be_read_no_position_is_given_away() -> None:
    def answers(namespace: str, method: str) -> Answer:
        return BUSY if method == "GET" else HANGS if namespace == "bad" else WELL

    server, planned = cluster(answers, "bad", "good")
    assert not passes(led_for_long(server, planned), 300)
    assert len(server.read) < 20, "it is asked less and less often"


def test_who_is_released_and_cannot_be_read_keeps_its_position_until_the_watch_shows_it() -> None:
    server, planned = cluster(lambda _, method: BUSY if method == "GET" else WELL, "bad", "good")
    leader = led_for_long(server, planned)
    leader.began, leader.lag = 0.0, 60.0
    found = dict(passes(leader, 600))
    assert found["good-1"] >= found["bad-0"] + leader.lag
    assert len(server.read) < 15, "it is asked less and less often"


def test_who_is_gone_when_it_is_read_was_not_undone(caplog: pytest.LogCaptureFixture) -> None:
    """The watch will show it."""
    server, planned = cluster(one_by_one(reads=[NOT_THERE] * 9, then=WELL), "bad", "good")
    leader = led_for_long(server, planned)
    leader.began, leader.lag = 0.0, 60.0
    passes(leader, 30)
    assert server.read
    assert "release_undone" not in caplog.text


def test_after_a_failure_the_next_pass_comes_soon_for_the_others_however_long_it_is_deferred() -> None:
    server, planned = cluster(given_to(BROKEN), "bad")
    leader = led_for_long(server, planned)
    for _ in range(5):
        count = len(server.tried)
        due = leader.one()
        assert due <= 1 or len(server.tried) == count
        server.advance(due)
    leader.close()
    assert due > 1


def test_what_is_remembered_of_pods_is_removed_with_them() -> None:
    server, planned = cluster(given_to(HANGS), "bad", "good")
    leader = led_for_long(server, planned)
    leader.one()
    assert leader.sent.unconfirmed
    server.raws.clear()
    planned.clear()
    leader.one()
    leader.close()
    assert leader.sent == SentReleases(unconfirmed={})


def test_a_release_in_doubt_that_a_pass_had_no_time_to_read_stays_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many are in doubt, and however long an API server takes: a pass is everybody's."""
    server, planned = cluster(given_to(HANGS), "bad", "good")
    leader = led_for_long(server, planned)
    for _ in range(5):
        leader.one()
        server.advance(2)
    monkeypatch.setattr(release, "_TOGETHER_SECONDS", -1)
    for _ in range(20):
        leader.one()
        server.advance(2)
    assert (server.read, server.released) == ([], {})
    monkeypatch.undo()
    assert [name for name, _ in passes(leader, 5)] == ["good-1"]
    assert server.read == ["bad-0"]


@pytest.mark.parametrize(("answer", "seconds"), [(BROKEN, 30), (HANGS, 60)], ids=["fails", "hangs"])
def test_whose_release_fails_comes_last_also_where_the_clock_was_set_back(
    answer: Answer, seconds: float
) -> None:
    """All plans on the node are then from a time that has not come yet."""
    server, planned = cluster(given_to(answer), *["bad"] * 3, *["good"] * 3)
    leader = led_for_long(server, planned)
    leader.behind = 3600.0
    assert [name for name, _ in passes(leader, seconds)] == ["good-3", "good-4", "good-5"]


def drawn_one_by_one(runs: list[tuple[Answer, int]]) -> list[Answer]:
    """All attempts of a pass have to fail in the same way for it to fail."""
    return [answer for answer, times in runs for _ in range(times)]


NOT_NOW = st.sampled_from([WELL, BROKEN, DENIED, BUSY, FORBIDDEN, NO_CONNECTION, UNDONE, HANGS, IS_LOST])
DIES = st.sampled_from(["before", "after"]).map(lambda moment: Answer(dies=moment))
LATE = st.floats(0, ANSWERED_SECONDS).map(lambda seconds: Answer(TIMED_OUT, seconds))
LATER = st.floats(0, LOST_SECONDS - 1).map(lambda seconds: Answer(LOST, seconds))
RELEASES = NOT_NOW | LATE | LATER | DIES


@pytest.mark.promise("I33")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(RELEASES, st.sampled_from([1, 1, 5])), max_size=30).map(drawn_one_by_one),
    st.lists(NOT_NOW, max_size=20),
    st.sets(st.integers(0, 60), max_size=3),
    st.lists(st.sampled_from([0.5, 5.0, 60.0]), min_size=4, max_size=4),
    st.sampled_from([0.0, 1.0, 5.0]),
    st.sampled_from([0.5, 3.0, 30.0]),
    st.sampled_from([0.0, 0.4, 3.0]),
)
def test_each_pod_gets_its_own_cards_from_a_reader_that_guesses_whatever_fails_arrives_late_or_dies(
    releases: list[Answer],
    reads: list[Answer],
    deaths: set[int],
    binds: list[float],
    lag: float,
    longest: float,
    admit_seconds: float,
) -> None:
    """But where a release arrives after the leader has died that sent it.

    reads: what reading pods is answered; deaths: before which passes a leader dies, beside those at a write;
    binds: from the release of each pod on; lag: of the watch; longest: after so many seconds there is a pass
    for something else; admit_seconds: how long the kubelet takes for a pod.
    """

    def answers(_: str, method: str) -> Answer:
        left = reads if method == "GET" else releases
        return left.pop() if left else WELL

    server, planned = cluster(answers, "a", "b", "a", "c")
    server.bind_seconds = dict(zip(server.raws, binds, strict=True)).__getitem__
    leader, number = Leader(server, planned, lag), 0
    try:
        while len(server.released) < len(planned):
            assert server.clock.now < 3000, f"only {list(server.released)} are released"
            seconds = 0.01
            try:
                if number in deaths:
                    raise Killed
                seconds = leader.one()
            except Killed:
                leader.close()
                server.leader_dies()
                leader = Leader(server, planned, lag)
            server.advance(max(0.01, min(seconds, longest)))
            number += 1
    finally:
        leader.close()
    strange = [names for names in server.overlaps if names.isdisjoint(server.orphans)]
    assert not strange, f"under way on the node together: {strange}"
    others = {pod: whose for pod, whose in server.cards_given(admit_seconds).items() if pod != whose}
    assert others.keys() <= set().union(*server.overlaps), f"got the cards of others: {others}"
