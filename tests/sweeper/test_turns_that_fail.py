"""Releases to a node with cards that fail: no two are ever under way there, and nobody blocks the others."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labeler.contract import keys
from tests.sweeper.turns import (
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
    SAID_GONE,
    SAID_LATE,
    SAYS_NOTHING,
    TURN,
    UNDONE,
    WELL,
    Answer,
    Leader,
    Server,
    cluster,
    given_to,
    in_turn,
    led_for_long,
    passes,
)
from webhook.kube.client import ApiError
from webhook.kube.planned import PlannedPod
from webhook.sweeper.apply import release
from webhook.sweeper.decide.tries import LOST_SECONDS


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (BROKEN, 15),
        (DENIED, 15),
        (BUSY, 15),
        (NO_CONNECTION, 15),
        (FORBIDDEN, 15),
        (SAID_GONE, 15),
        (SAID_LATE, 15),
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


def test_a_new_leader_waits_until_what_the_one_before_sent_can_arrive_no_more() -> None:
    """Though what it sends itself is refused before it is written."""
    server, planned = cluster(given_to(BROKEN), "bad", "good")
    (found,) = passes(Leader(server, planned), 2 * LOST_SECONDS)
    assert LOST_SECONDS <= found[1] < LOST_SECONDS + 10


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


def test_whose_release_failed_elsewhere_keeps_no_turn_until_it_is_tried_again() -> None:
    """It is planned anew, as its node is gone, and is not tried for half a minute."""
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
    server, planned = cluster(in_turn(IS_LOST, FORBIDDEN, UNDONE, then=FORBIDDEN), "bad", *["good"] * 2)
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
    assert leader.turns.take([(pod, on_other)]) == ()


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [(BROKEN, 15), (UNDONE, 45), (HANGS, 45), (IS_LOST, 135)],
    ids=["fails", "undone by a webhook", "hangs", "no answer"],
)
def test_whose_releases_fail_keeps_no_turn_from_others_of_its_own_namespace_either(
    answer: Answer, seconds: float
) -> None:
    server, planned = cluster(None, *["same"] * 4)
    server.answers = lambda _, method: answer if server.asked == "same-0" and method == "PATCH" else WELL
    found = passes(led_for_long(server, planned), 4 * seconds)
    assert [name for name, _ in found] == ["same-1", "same-2", "same-3"]
    assert found[0][1] < 2 * LOST_SECONDS + seconds


@pytest.mark.parametrize("lag", [0, 5], ids=["seen", "not seen yet"])
@pytest.mark.parametrize("error", [SAYS_NOTHING, LOST], ids=["hangs", "no answer"])
def test_what_arrives_late_keeps_its_turn(error: ApiError, lag: float) -> None:
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
    [(1, UNDONE, ()), (5, UNDONE, ()), (1, SAID_GONE, (NOT_THERE,)), (1, HANGS, ())],
    ids=["undone", "undone in the next pass", "said to be gone, as by a proxy", "in doubt for less long"],
)
def test_what_may_arrive_late_keeps_its_turn_whatever_a_later_try_is_answered(
    failed: int, then: Answer, reads: tuple[Answer, ...], seconds: int
) -> None:
    """Of the first try no answer came; once the others could go its namespace is refused."""
    lost = [Answer(LOST, seconds), *[IS_LOST] * (failed - 1)]
    answers = in_turn(*lost, then, then=FORBIDDEN, reads=reads)
    server, planned = cluster(answers, "bad", *["good"] * 4)
    names = [name for name, _ in passes(led_for_long(server, planned), 60)]
    assert names[0] == "bad-0"


def test_while_pods_cannot_be_read_no_turn_is_given_away() -> None:
    def answers(namespace: str, method: str) -> Answer:
        return BUSY if method == "GET" else HANGS if namespace == "bad" else WELL

    server, planned = cluster(answers, "bad", "good")
    assert not passes(led_for_long(server, planned), 300)
    assert len(server.read) < 20, "it is asked less and less often"


def test_who_has_been_let_go_and_cannot_be_read_keeps_its_turn_until_the_watch_shows_it() -> None:
    server, planned = cluster(lambda _, method: BUSY if method == "GET" else WELL, "bad", "good")
    leader = led_for_long(server, planned)
    leader.began, leader.lag = 0.0, 60.0
    found = dict(passes(leader, 600))
    assert found["good-1"] >= found["bad-0"] + leader.lag
    assert len(server.read) < 15, "it is asked less and less often"


def test_who_is_gone_when_it_is_read_was_not_undone(caplog: pytest.LogCaptureFixture) -> None:
    """The watch will show it."""
    server, planned = cluster(in_turn(reads=[NOT_THERE] * 9, then=WELL), "bad", "good")
    leader = led_for_long(server, planned)
    leader.began, leader.lag = 0.0, 60.0
    passes(leader, 30)
    assert server.read
    assert "release_undone" not in caplog.text


def test_after_a_failure_the_next_pass_comes_soon_for_the_others_however_long_it_is_put_off() -> None:
    server, planned = cluster(given_to(BROKEN), "bad")
    leader = led_for_long(server, planned)
    for _ in range(5):
        count = len(server.tried)
        due = leader.one()
        assert due <= 1 or len(server.tried) == count
        server.advance(due)
    leader.close()
    assert due > 1


def test_what_is_remembered_of_pods_goes_with_them() -> None:
    server, planned = cluster(given_to(HANGS), "bad", "good")
    leader = led_for_long(server, planned)
    leader.one()
    assert list(leader.tries.in_doubt())
    server.raws.clear()
    planned.clear()
    leader.one()
    leader.close()
    tries = leader.tries
    assert not any((tries._doubts, tries._again_at, tries._failed_at, tries._pod_failed_at))


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


def out_of_line(*namespaces: str, first: Sequence[Answer] = ()) -> tuple[Server, dict[str, PlannedPod]]:
    """Who is in "bad" is denied. first: what the first releases in other namespaces are answered."""
    left = iter(first)

    def answer(namespace: str, method: str) -> Answer:
        if method != "PATCH":
            return WELL
        return DENIED if namespace == "bad" else next(left, WELL)

    return cluster(answer, *namespaces)


def test_what_a_leader_sent_out_of_line_before_it_died_is_sent_first_by_the_next() -> None:
    server, planned = out_of_line("bad", "good", first=[Answer(LOST, 20.0), *[IS_LOST] * 4])
    leader = led_for_long(server, planned)
    while "good-1" not in server.tried:
        server.advance(leader.one())
    leader.close()
    tried = len(server.tried)
    assert [name for name, _ in passes(Leader(server, planned), 5)] == ["good-1"]
    assert server.tried[tried] == "good-1"


@pytest.mark.parametrize(
    "answer",
    [FORBIDDEN, BROKEN, IS_LOST, UNDONE],
    ids=["refused", "fails", "no answer", "undone by a webhook"],
)
def test_whose_turn_cannot_be_written_is_not_sent_and_keeps_nobody_else_from_the_node(answer: Answer) -> None:
    def answers(namespace: str, method: str) -> Answer:
        if namespace == "unwritable" and method == TURN:
            return answer
        return DENIED if namespace == "bad" and method == "PATCH" else WELL

    server, planned = cluster(answers, "bad", "unwritable", "good")
    assert [name for name, _ in passes(led_for_long(server, planned), 200)] == ["good-2"]
    assert "unwritable-1" not in server.tried


@pytest.mark.parametrize(
    "body", [b"<html>", b'{"metadata": {}, "spec": {"packed": "x"}}'], ids=["no JSON", "no plan"]
)
def test_whose_plan_cannot_be_read_once_its_turn_is_written_stops_nobody_elsewhere(body: bytes) -> None:
    """As where a webhook of its namespace changes it so."""

    def answers(namespace: str, method: str) -> Answer:
        if namespace == "unreadable" and method == TURN:
            return Answer(body=body)
        return DENIED if namespace == "bad" and method == "PATCH" else WELL

    server, planned = cluster(answers, "bad", "unreadable", "bad", "good")
    for uid in ("uid-bad-2", "uid-good-3"):
        planned[uid] = msgspec.structs.replace(planned[uid], node="n1")
    assert "good-3" in dict(passes(led_for_long(server, planned), 10))


def test_whose_turns_take_all_the_time_of_a_pass_keep_it_from_others_once_only() -> None:
    """However many its plans are, and wherever they stand among all: here before the others'."""

    def answers(namespace: str, method: str) -> Answer:
        if namespace.startswith("slow") and method == TURN:
            return Answer(SAYS_NOTHING, takes=10.0)
        return DENIED if namespace == "bad" and method == "PATCH" else WELL

    slow = [f"slow{number}" for number in range(12)]
    server, planned = cluster(answers, *["bad"] * 13, *slow, "good")
    for number, uid in enumerate(list(planned)):
        planned[uid] = msgspec.structs.replace(planned[uid], node=f"n{number % 13}")
    assert "good-25" in dict(passes(led_for_long(server, planned), 150))


def test_whose_turn_may_be_written_late_keeps_the_node_until_that_is_over() -> None:
    """Else it would be first by its plan while another is under way."""
    late = iter([Answer(LOST, LOST_SECONDS - 1)])

    def answers(namespace: str, method: str) -> Answer:
        if namespace == "slow" and method == TURN:
            return next(late, FORBIDDEN)
        return DENIED if namespace == "bad" and method == "PATCH" else WELL

    server, planned = cluster(answers, "bad", "slow", "good")
    leader = led_for_long(server, planned)
    began = server.clock.now
    (first,) = [each for each in passes(leader, 200) if each[0] == "good-2"]
    assert first[1] >= began + LOST_SECONDS - 1


def test_who_goes_before_one_whose_plan_does_not_hold_any_more_is_sent_first_by_the_next_leader() -> None:
    """That its node has refused it, only this leader knows: the plan is there until there is a new one."""
    server, planned = out_of_line("bad", "good", first=[Answer(LOST, 20.0), *[IS_LOST] * 4])
    leader = led_for_long(server, {uid: each for uid, each in planned.items() if uid != "uid-bad-0"})
    leader.one()
    leader.close()
    assert server.tried == ["good-1"] * 5
    assert [name for name, _ in passes(Leader(server, planned), 5)] == ["good-1"]


def test_who_is_planned_while_others_wait_goes_once_its_plan_is_written() -> None:
    server, planned = out_of_line("bad", "good")
    leader = led_for_long(server, planned)
    new = planned.pop("uid-good-1")
    leader.one()
    server.advance(0.5)
    leader.one()
    (pod,) = [pod for pod in server.pods(0) if pod.metadata.name == "good-1"]
    assert leader.turns.take([(pod, new)]) == ()
    assert leader.turns.due_seconds <= 1
    planned["uid-good-1"] = new
    assert [name for name, _ in passes(leader, 5)] == ["good-1"]


def test_who_is_planned_beside_one_that_is_put_off_does_not_go_before_it_is_written_down() -> None:
    """Both are planned in one pass, the one that failed before first: the next leader finds it the first."""
    server, planned = out_of_line("bad", "good")
    leader = led_for_long(server, planned)
    leader.one()
    pods = {pod.metadata.name: pod for pod in server.pods(0)}
    anew = [msgspec.structs.replace(each, node="n1") for each in planned.values()]
    planned.clear()
    leader.one()
    leader.close()
    assert leader.turns.take([(pods["bad-0"], anew[0])]) == ()
    assert leader.turns.take([(pods["good-1"], anew[1])]) == ()
    assert leader.turns.due_seconds <= 1


def test_what_a_leader_has_sent_before_it_died_keeps_its_turn_though_the_next_may_not_send_for_it() -> None:
    """As for a pod that waits for its victims again, or whose gang pauses for another's sake."""
    server, planned = cluster(in_turn(Answer(LOST, 60.0), then=IS_LOST), "bad", "good")
    leader = led_for_long(server, planned)
    leader.one()
    leader.close()
    leader = Leader(server, planned)
    leader.paused["bad"] = server.clock.now + 300
    assert [name for name, _ in passes(leader, 150)] == ["bad-0", "good-1"]


def test_who_may_not_be_sent_for_keeps_its_turn_from_others_no_longer_than_that() -> None:
    server, planned = cluster(given_to(WELL), "bad", "good")
    leader = Leader(server, planned)
    leader.paused["bad"] = server.clock.now + 300
    ((name, seconds),) = passes(leader, LOST_SECONDS + 10)
    assert name == "good-1"
    assert seconds >= LOST_SECONDS


MADE_UP = pytest.mark.parametrize(
    "stamp",
    ["0" * 19, "x" * 19, "1", "\u0661" * 19, ""],
    ids=["the first", "no time", "short", "no ASCII", "none"],
)


def with_stamp(planned: PlannedPod, key: str, stamp: str) -> PlannedPod:
    return msgspec.structs.replace(planned, annotations=planned.annotations | {key: stamp})


@MADE_UP
def test_who_stands_in_a_plan_of_others_by_a_time_that_no_leader_writes_comes_last(stamp: str) -> None:
    """Else there might be no turn before it to write down: the next leader would begin with it."""
    server, planned = out_of_line("bad", "good", first=[Answer(LOST, 20.0), *[IS_LOST] * 4])
    planned["uid-bad-0"] = with_stamp(planned["uid-bad-0"], keys.GAS_TIMESTAMP_ANNOTATION, stamp)
    leader = led_for_long(server, planned)
    leader.one()
    leader.close()
    assert server.tried == ["good-1"] * 5
    assert [name for name, _ in passes(Leader(server, planned), 5)] == ["good-1"]


@MADE_UP
def test_who_stands_before_all_others_in_a_plan_of_others_keeps_nobody_from_the_node(stamp: str) -> None:
    server, planned = out_of_line("bad", "good")
    planned["uid-bad-0"] = with_stamp(planned["uid-bad-0"], keys.TURN_ANNOTATION, stamp)
    assert [name for name, _ in passes(led_for_long(server, planned), 5)] == ["good-1"]


def test_of_two_that_no_leader_has_planned_the_second_is_written_down_before_the_first() -> None:
    server, planned = out_of_line("bad", "good")
    for uid in planned:
        planned[uid] = with_stamp(planned[uid], keys.GAS_TIMESTAMP_ANNOTATION, "")
    passes(led_for_long(server, planned), 5)
    bad, good = (planned[uid].annotations[keys.TURN_ANNOTATION] for uid in planned)
    assert good < bad
    assert [*server.released] == ["good-1"]


def test_all_pods_of_a_plan_that_go_out_of_line_take_one_write() -> None:
    server, planned = out_of_line("bad", "bad", "good", "good")
    for number, node in enumerate(("n0", "n1", "n0", "n1")):
        uid = list(planned)[number]
        planned[uid] = msgspec.structs.replace(planned[uid], node=node)
    leader = led_for_long(server, planned)
    leader.one()
    server.advance(0.5)
    before = server.version
    leader.one()
    leader.close()
    assert len([each for each in planned.values() if keys.TURN_ANNOTATION in each.annotations]) == 2
    assert server.version == before + 1


def test_a_plan_into_which_a_turn_was_written_takes_more_pods_in_the_same_pass() -> None:
    """Else a gang that has a turn written in each pass would wait for them all with the rest of its pods."""
    server, planned = out_of_line("bad", "good", first=[IS_LOST] * 5)
    leader = led_for_long(server, planned)
    while "good-1" not in server.tried:
        server.advance(leader.one())
    leader.close()
    (there,) = [pod for pod in leader.view.gated if pod.metadata.name == "good-1"]
    key = SimpleNamespace(
        placement_key="good/plan", placement_name="plan", namespace="good", kind="Job", name="g", id="g"
    )
    gang = SimpleNamespace(
        key=key, minimum=2, size=2, pods=[there], gated=[there], later=(), hindrance=""
    )  # fmt: skip
    more = PlannedPod("good-2", "uid-good-2", "n1")
    planned[more.uid] = more
    order: Any = SimpleNamespace(
        gang=gang, entries=(more,), kept=(), answer=SimpleNamespace(proven=True), preempts=False, domains={},
        victims=(), avoided={},
    )  # fmt: skip
    server.raws["good-2"] = server.raws["good-1"]
    leader.applier._write(order, leader.view)
    assert keys.TURN_ANNOTATION in planned["uid-good-1"].annotations


def one_by_one(runs: list[tuple[Answer, int]]) -> list[Answer]:
    """All tries of a pass have to fail alike for it to fail."""
    return [answer for answer, times in runs for _ in range(times)]


NOT_NOW = st.sampled_from([WELL, BROKEN, DENIED, BUSY, FORBIDDEN, NO_CONNECTION, UNDONE, HANGS, IS_LOST])
LATE = st.floats(0, ANSWERED_SECONDS).map(lambda seconds: Answer(SAYS_NOTHING, seconds))
LATER = st.floats(0, LOST_SECONDS - 1).map(lambda seconds: Answer(LOST, seconds))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(NOT_NOW | LATE | LATER, st.sampled_from([1, 1, 5])), max_size=30).map(one_by_one),
    st.lists(NOT_NOW, max_size=20),
    st.lists(NOT_NOW | LATE | LATER, max_size=20),
    st.sets(st.integers(0, 60), max_size=3),
    st.integers(0, 3),
    st.sampled_from([5.0, 60.0]),
    st.sampled_from([0.0, 1.0, 5.0]),
    st.sampled_from([0.5, 3.0, 30.0]),
)
def test_no_two_pods_are_under_way_on_a_node_whatever_fails_arrives_late_or_dies(
    releases: list[Answer],
    reads: list[Answer],
    turns: list[Answer],
    deaths: set[int],
    deaths_in_doubt: int,
    bind_seconds: float,
    lag: float,
    longest: float,
) -> None:
    """Server.write says so. reads, turns: what reading pods, and writing turns into plans, is answered;
    deaths: before which passes a leader dies; deaths_in_doubt: how often after one that has sent what is yet
    to arrive; bind_seconds: from a release on; lag: of the watch; longest: after so many seconds there is a
    pass for something else. Turns that a leader which died has sent do not arrive after it: that takes
    another death within two minutes, and a release that is late by as much.
    """

    def answers(_: str, method: str) -> Answer:
        left = {"GET": reads, TURN: turns}.get(method, releases)
        return left.pop() if left else WELL

    server, planned = cluster(answers, "a", "b", "a", "c")
    server.bind_seconds = bind_seconds
    leader, number, arriving = Leader(server, planned, lag), 0, 0
    try:
        while len(server.released) < len(planned):
            assert server.clock.now < 3000, f"only {list(server.released)} are released"
            in_doubt = len(server.arriving) > arriving and deaths_in_doubt > 0
            if number in deaths or in_doubt:
                deaths_in_doubt -= in_doubt
                leader.close()
                server.lose_plans()
                leader = Leader(server, planned, lag)
            arriving = len(server.arriving)
            server.advance(max(0.01, min(leader.one(), longest)))
            number += 1
    finally:
        leader.close()
