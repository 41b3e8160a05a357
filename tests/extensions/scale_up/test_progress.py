"""Since when a request is as it is: by our own clock, whatever an autoscaler's says."""

from datetime import UTC, datetime

import msgspec
import pytest

from tests.extensions.scale_up.requests import BEGAN, CHOICES, asked, request, want
from webhook.extensions.scale_up.attempts import steps
from webhook.extensions.scale_up.provisioning_requests import ProvisioningRequest, sighted, since_by_uid


def failed(reported_at: float) -> ProvisioningRequest:
    """A request that the API server took at BEGAN, and of which the autoscaler says that it failed then."""
    made = request(want(), conditions={"Failed": "True"})
    at = f"{datetime.fromtimestamp(reported_at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    (condition,) = made.status.conditions
    status = msgspec.structs.replace(
        made.status, conditions=(msgspec.structs.replace(condition, last_transition_time=at),)
    )
    return msgspec.structs.replace(made, status=status)


@pytest.mark.parametrize(
    "reported_at", [BEGAN - 1e6, BEGAN + 30, BEGAN + 1e6], ids=["behind", "right", "ahead"]
)
def test_whose_end_was_seen_is_asked_for_again_a_pause_after_that(reported_at: float) -> None:
    there = failed(reported_at)
    sightings = sighted({}, [request(want())], BEGAN + 20)
    sightings = sighted(sightings, [there], BEGAN + 30)
    for after, asks in ((59, []), (60, [("train", 2)])):
        now = BEGAN + 30 + after
        sightings = sighted(sightings, [there], now)
        assert asked(steps([want()], set(), [there], CHOICES, now, since_by_uid(sightings))) == asks


@pytest.mark.promise("O121")
@pytest.mark.parametrize(
    ("reported_at", "since"),
    [(BEGAN - 1e6, BEGAN), (BEGAN + 30, BEGAN + 30), (BEGAN + 1e6, BEGAN + 100)],
    ids=["behind", "right", "ahead"],
)
def test_a_new_leader_believes_no_time_before_the_request_nor_after_now(
    reported_at: float, since: float
) -> None:
    there = failed(reported_at)
    sightings = sighted({}, [there], BEGAN + 100)
    assert since_by_uid(sightings) == {there.metadata.uid: since}
    sightings = sighted(sightings, [there], BEGAN + 200)
    assert since_by_uid(sightings) == {there.metadata.uid: since}, "it does not move on with the time"


def test_a_clock_that_was_fast_for_a_while_delays_no_request_for_as_long() -> None:
    there = failed(BEGAN)
    sightings = sighted({}, [request(want())], BEGAN)
    sightings = sighted(sightings, [there], BEGAN + 1e6)
    sightings = sighted(sightings, [there], BEGAN + 30)
    assert since_by_uid(sightings) == {there.metadata.uid: BEGAN + 30}


def test_requests_that_are_gone_are_forgotten() -> None:
    assert sighted(sighted({}, [request(want())], BEGAN), [], BEGAN) == {}
