"""The sentence of `topogate explain` is the sentence of the sweeper's next pass, word for word."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.cli.explained_stories import Story, stories, story_of_a_request_for_nodes
from tests.cli.explained_worlds import Step
from tests.cli.explanations import GPU, GRID, busy_pod, cluster, explained, job_pods, with_placement
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.extensions.scale_up.provisioning_requests import REQUESTS, TEMPLATES
from webhook.inquiry.explanation import explain
from webhook.sweeper.observe.view import Moment
from webhook.sweeper.observe.watches import WatchedCollection

UNKNOWN = "When it began to find no nodes is not known here"
NO_REASON = ("Now: it is evicted as a whole", "It is planned on", "Now: the sweeper's next pass places it")


def differences(step: Step) -> Iterator[str]:
    """The gangs of which explain does not print the sentence of the pass."""
    for (gang, pod), lines in step.explained.items():
        reason = step.reasons.get(gang, "")
        now = [line.removeprefix("Now: ") for line in lines if line.startswith("Now: ")]
        last = [line.removeprefix("Last attempt: ") for line in lines if line.startswith("Last attempt")]
        if now == ["the same."]:
            now = last
        is_placed = any("next pass places it" in line for line in lines)
        is_early = gang not in step.notes and any(line.startswith(UNKNOWN) for line in lines)
        if reason and is_early:
            is_same = now[0].startswith(reason.removesuffix("."))
        elif reason:
            is_same = now == [reason]
        else:
            is_same = any(line.startswith(NO_REASON) for line in lines) or "apart from its gang" in lines[0]
        if not is_same or is_placed != (gang in step.placed):
            does = "places it" if gang in step.placed else f"reports {reason!r}"
            yield f"{gang} ({pod}): the sweeper {does}, explain prints {lines}"


@pytest.mark.promise("R175")
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(stories())
def test_explain_prints_the_sentence_of_the_next_pass(story: Story) -> None:
    """Gangs are added, time passes, reservations are made and expire, and pods are bound in between."""
    try:
        assert list(differences(story.begin())) == []
        for event in story.events:
            assert list(differences(story.play(event))) == []
    finally:
        story.world.close()


@pytest.mark.parametrize("after_seconds", [0.0, 5.0])
def test_explain_prints_what_becomes_of_a_request_for_nodes(after_seconds: float) -> None:
    """Before it is made, once it is refused, and right after another leader began."""
    story = story_of_a_request_for_nodes(after_seconds)
    try:
        notes = [story.begin().notes]
        for event in story.events:
            step = story.play(event)
            assert list(differences(step)) == []
            notes.append(step.notes)
    finally:
        story.world.close()
    asked, refused = "nodes are requested by", "the autoscaler refuses nodes"
    expected = ["", asked, asked, refused, refused]
    assert all("".join(note.values()).startswith(each) for note, each in zip(notes, expected, strict=True))


@pytest.mark.parametrize("unread", [REQUESTS, TEMPLATES])
def test_explain_prints_that_requests_for_nodes_cannot_be_read(unread: WatchedCollection[Any]) -> None:
    story = story_of_a_request_for_nodes(0.0)
    try:
        story.begin()
        step = story.play(story.events[0])
        reading = dataclasses.replace(
            step.reading,
            read_objects=lambda each: None if each is unread else step.reading.read_objects(each),
        )
        lines = list(explain(reading, "ns", "big", story.world.settings, story.world.moment))
    finally:
        story.world.close()
    assert any(line.startswith("Whether nodes are requested for it is not known here") for line in lines)


def beside_reserved(until: str, leads_since: str = "2026-01-01T00:00:00Z") -> str:
    """The explanation at 00:10 of a gang that fits only on nodes whose status reserves them until then."""
    old = job_pods(4, creationTimestamp="2026-01-01T00:00:00Z")
    names = [node.name for node in GRID]
    status = {"state": "Waiting", "reservedNodes": names, "reservedUntil": until}
    metadata = {"creationTimestamp": "2026-01-01T00:00:01Z"}
    young = decode(pod_json("young", metadata=metadata, containers=[{"name": "c", **GPU}]))
    made = cluster([*old, busy_pod(GRID[0].name), young], parallelism=4)
    reading = dataclasses.replace(
        with_placement(made, old[0], status=status),
        read_leads_since=datetime.fromisoformat(leads_since).timestamp,
    )
    now = Moment(1000.0, datetime(2026, 1, 1, 0, 10, tzinfo=UTC))
    return "\n".join(explain(reading, "ns", "young", Settings(), now))


def test_a_gang_that_may_not_use_reserved_nodes_is_shown_until_when_they_are_reserved() -> None:
    """As the leader has written them into the status of the gang that has waited longer."""
    text = beside_reserved("2026-01-01T00:30:00Z")
    assert "nodes are reserved for gangs that have waited longer: 4 for ns/Job/train until 00:30 UTC" in text
    assert "it fits once the nodes that are reserved for other gangs are free" in text


@pytest.mark.parametrize(
    ("until", "leads_since"),
    [
        ("2999-01-01T00:30:00Z", "2026-01-01T00:00:00Z"),
        ("1970-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
        ("at noon", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:30:00Z", "2026-01-01T00:05:00Z"),
    ],
    ids=["for centuries", "long over", "unreadable", "by an earlier leader"],
)
def test_a_reservation_that_the_present_leader_cannot_have_made_excludes_nothing(
    until: str, leads_since: str
) -> None:
    """A leader reserves nodes for twice reserve_hold_seconds at most, and keeps reservations in memory."""
    assert "next pass places it" in beside_reserved(until, leads_since)


@pytest.mark.parametrize(
    ("last", "is_noted"),
    [("", False), ("the same", False), ("no node is usable.", True)],
    ids=["no last attempt", "the same", "another reason"],
)
def test_where_the_last_attempt_has_another_reason_explain_notes_what_only_the_leader_knows(
    last: str, is_noted: bool
) -> None:
    pods = job_pods(5, creationTimestamp="2026-01-01T00:00:00Z")
    reading = cluster(pods, parallelism=5)
    (now,) = (line for line in explain(reading, "ns", "train-0", Settings()) if line.startswith("Now: "))
    status = {"reason": now.removeprefix("Now: ") if last == "the same" else last}
    text = explained(with_placement(reading, pods[0], status=status))
    assert ("are not known here: they may exclude more nodes" in text) is is_noted
