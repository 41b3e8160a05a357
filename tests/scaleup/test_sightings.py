"""Since when a request is as it is: by our own clock, whatever an autoscaler's says."""

from datetime import UTC, datetime

import msgspec
import pytest

from tests.scaleup.requests import BEGAN, CHOICES, asked, request, want
from webhook.kube.provisioning import ProvisioningRequest
from webhook.sweeper.scaleup.sightings import Sightings
from webhook.sweeper.scaleup.steps import steps


def failed(told_at: float) -> ProvisioningRequest:
    """A request that the API server took at BEGAN, and of which the autoscaler says that it failed then."""
    made = request(want(), conditions={"Failed": "True"})
    at = f"{datetime.fromtimestamp(told_at, UTC):%Y-%m-%dT%H:%M:%SZ}"
    (condition,) = made.status.conditions
    status = msgspec.structs.replace(
        made.status, conditions=(msgspec.structs.replace(condition, last_transition_time=at),)
    )
    return msgspec.structs.replace(made, status=status)


@pytest.mark.parametrize("told_at", [BEGAN - 1e6, BEGAN + 30, BEGAN + 1e6], ids=["behind", "right", "ahead"])
def test_whose_end_was_seen_is_asked_for_again_a_pause_after_that(told_at: float) -> None:
    sightings, there = Sightings(), failed(told_at)
    sightings.saw([request(want())], BEGAN + 20)
    sightings.saw([there], BEGAN + 30)
    for after, asks in ((59, []), (60, [("train", 2)])):
        now = BEGAN + 30 + after
        sightings.saw([there], now)
        assert asked(steps([want()], set(), [there], CHOICES, now, sightings.since)) == asks


@pytest.mark.parametrize(
    ("told_at", "since"),
    [(BEGAN - 1e6, BEGAN), (BEGAN + 30, BEGAN + 30), (BEGAN + 1e6, BEGAN + 100)],
    ids=["behind", "right", "ahead"],
)
def test_a_new_leader_believes_no_time_before_the_request_nor_after_now(told_at: float, since: float) -> None:
    sightings, there = Sightings(), failed(told_at)
    sightings.saw([there], BEGAN + 100)
    assert sightings.since == {there.metadata.uid: since}
    sightings.saw([there], BEGAN + 200)
    assert sightings.since == {there.metadata.uid: since}, "it does not move on with the time"


def test_a_clock_that_was_ahead_for_a_while_delays_no_request_for_as_long() -> None:
    sightings, there = Sightings(), failed(BEGAN)
    sightings.saw([request(want())], BEGAN)
    sightings.saw([there], BEGAN + 1e6)
    sightings.saw([there], BEGAN + 30)
    assert sightings.since == {there.metadata.uid: BEGAN + 30}


def test_requests_that_are_gone_are_forgotten() -> None:
    sightings = Sightings()
    sightings.saw([request(want())], BEGAN)
    sightings.saw([], BEGAN)
    assert sightings.since == {}
