"""The life of requests: which are created, withdrawn and created again, and what reasons of gangs name."""

import pytest

from tests.extensions.scale_up.requests import BEGAN, CHOICES, Conditions, asked, request, want
from webhook.extensions.scale_up.attempts import MOST_WRITES, pause_seconds, steps
from webhook.extensions.scale_up.provisioning_requests import Progress, progress_of


def test_a_gang_without_a_request_asks() -> None:
    assert asked(steps([want()], set(), [], CHOICES, BEGAN)) == [("train", 1)]


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ({}, Progress.REQUESTED),
        ({"Accepted": "True"}, Progress.REQUESTED),
        ({"Accepted": "True", "Provisioned": "False"}, Progress.DELAYED),
        ({"Provisioned": "True"}, Progress.PROVIDED),
        ({"Provisioned": "True", "BookingExpired": "True"}, Progress.EXPIRED),
        ({"Provisioned": "True", "BookingExpired": "True", "CapacityRevoked": "True"}, Progress.REVOKED),
        ({"Provisioned": "False", "Failed": "True"}, Progress.FAILED),
    ],
)
def test_the_progress_of_a_request_follows_its_conditions(
    conditions: dict[str, str], state: Progress
) -> None:
    assert progress_of(request(want(), conditions=conditions)).state is state


@pytest.mark.promise("O114")
@pytest.mark.parametrize("conditions", [{}, {"Provisioned": "False"}, {"Provisioned": "True"}])
def test_a_request_in_progress_is_left_alone_and_reported(conditions: dict[str, str]) -> None:
    wanted = want()
    made = steps([wanted], set(), [request(wanted, conditions=conditions)], CHOICES, BEGAN)
    assert (made.asks, made.withdrawn) == ([], [])
    assert "ProvisioningRequest job-train-1" in made.notes[wanted.gang.key]


def test_a_request_that_nobody_answers_is_reported_as_that() -> None:
    wanted = want()
    made = steps([wanted], set(), [request(wanted)], CHOICES, BEGAN + 121)
    assert made.notes[wanted.gang.key].endswith("no autoscaler has answered yet")


@pytest.mark.promise("O121")
@pytest.mark.parametrize("end", ["Failed", "BookingExpired", "CapacityRevoked"])
def test_what_has_ended_is_asked_for_again_after_a_pause_that_grows(end: str) -> None:
    wanted = want()
    for attempt, pause in ((1, 60), (2, 120), (3, 240)):
        there = [request(wanted, attempt, conditions={end: "True"})]
        early = steps([wanted], set(), there, CHOICES, BEGAN + pause - 1)
        assert (early.asks, early.due_seconds) == ([], 1)
        assert "requested again at 00:0" in early.notes[wanted.gang.key]
        assert asked(steps([wanted], set(), there, CHOICES, BEGAN + pause)) == [("train", attempt + 1)]


@pytest.mark.promise("O121")
def test_the_pause_grows_to_an_hour_whatever_attempt_is_written_there() -> None:
    assert pause_seconds(999, CHOICES) == 3600


def test_once_another_attempt_is_there_the_one_before_is_withdrawn() -> None:
    wanted = want()
    there = [request(wanted, 1, conditions={"Failed": "True"}), request(wanted, 2)]
    made = steps([wanted], set(), there, CHOICES, BEGAN + 100)
    assert (made.asks, [each.metadata.name for each in made.withdrawn]) == ([], ["job-train-1"])


@pytest.mark.promise("O114")
def test_a_gang_that_asks_for_something_else_withdraws_first_and_then_asks() -> None:
    wanted = want()
    made = steps([wanted], set(), [request(wanted, shape="another")], CHOICES, BEGAN)
    assert (asked(made), len(made.withdrawn)) == ([], 1)


def test_what_nobody_wants_is_withdrawn_unless_its_gang_is_being_released_to_the_nodes() -> None:
    there = [request(want(), conditions={"Provisioned": "True"})]
    assert len(steps([], set(), there, CHOICES, BEGAN).withdrawn) == 1
    assert steps([], {"ns-train"}, there, CHOICES, BEGAN).withdrawn == []


@pytest.mark.parametrize(
    ("conditions", "is_withdrawn"),
    [
        ({"Accepted": "True"}, True),
        ({"Provisioned": "False"}, True),
        ({"Provisioned": "True"}, False),
        ({"Failed": "True"}, False),
        ({"Provisioned": "True", "BookingExpired": "True"}, False),
    ],
    ids=["accepted", "delayed", "provided", "failed", "expired"],
)
def test_of_a_gang_that_waits_for_something_else_only_pending_requests_are_withdrawn(
    conditions: Conditions, is_withdrawn: bool
) -> None:
    there = [request(want(), 3, conditions=conditions)]
    made = steps([], set(), there, CHOICES, BEGAN, waiting={"ns-train"})
    assert bool(made.withdrawn) is is_withdrawn
    assert steps([], {"ns-train"}, there, CHOICES, BEGAN).withdrawn == []


def test_a_finished_request_of_a_gang_that_needs_no_nodes_now_does_not_count() -> None:
    there = [request(want(f"j{number}"), conditions={"Failed": "True"}) for number in range(3)]
    waiting = {f"ns-j{number}" for number in range(3)}
    assert asked(steps([want("j3")], set(), there, CHOICES, BEGAN, waiting=waiting)) == [("j3", 1)]


@pytest.mark.promise("O116")
def test_a_namespace_has_so_many_requests_at_a_time_and_others_have_their_own() -> None:
    wants = [want(f"j{number}", pods=1) for number in range(5)] + [want("x", "other")]
    made = steps(wants, set(), [], CHOICES, BEGAN)
    assert asked(made) == [("j0", 1), ("x", 1), ("j1", 1), ("j2", 1)]
    assert "3 requests for nodes, which is its limit" in made.notes[wants[4].gang.key]


@pytest.mark.promise("O116")
@pytest.mark.parametrize(
    ("conditions", "placed", "asks"),
    [
        ({"Provisioned": "True"}, {"ns-j0", "ns-j1", "ns-j2"}, [("j3", 1)]),
        ({"Provisioned": "True"}, {"ns-j0"}, [("j3", 1)]),
        ({"Provisioned": "True"}, set(), []),
        ({"Accepted": "True"}, {"ns-j0", "ns-j1", "ns-j2"}, []),
    ],
    ids=["all have their nodes", "one has", "none has", "none has been provided"],
)
def test_what_was_provided_for_gangs_that_have_their_nodes_counts_no_more(
    conditions: Conditions, placed: set[str], asks: list[tuple[str, int]]
) -> None:
    there = [request(want(f"j{number}"), conditions=conditions) for number in range(3)]
    unchanged = {f"ns-j{number}" for number in range(3)}
    assert asked(steps([want("j3")], unchanged, there, CHOICES, BEGAN, placed=placed)) == asks


@pytest.mark.promise("O116")
def test_a_namespace_asks_for_so_many_pods_in_all() -> None:
    wants = [want("a", pods=6), want("b", pods=6), want("c", pods=11), want("d", pods=4)]
    made = steps(wants, set(), [], CHOICES, BEGAN)
    assert asked(made) == [("a", 1), ("d", 1)]
    assert "nodes for 6 pods already, of the 10" in made.notes[wants[1].gang.key]
    assert "it has 11 pods" in made.notes[wants[2].gang.key]


def test_writes_of_one_pass_are_bounded() -> None:
    wants = [want("j", f"ns{number}", 1) for number in range(3 * MOST_WRITES)]
    made = steps(wants, set(), [], CHOICES, BEGAN)
    assert (len(made.asks), made.due_seconds) == (MOST_WRITES, 0.0)
