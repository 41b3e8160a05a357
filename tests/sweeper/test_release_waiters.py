"""The Event of a gang whose pod waits for an unconfirmed release on a node with cards."""

from typing import Any, cast

import msgspec
import pytest

from labeler.contract.event_reasons import EventReason
from tests.sweeper.clock import Clock
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.queues import BROKEN, HANGS, UNDONE, Answer, Leader, cluster, given_to, led_for_long
from tests.sweeper.reports import Answers, Copy, Reports
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.release_queue import sentences
from webhook.sweeper.observe.gangs import OwnerFacts, gather, key_of
from webhook.sweeper.observe.view import View

SENT = "for the cards of n0: the release of {} there is unconfirmed until "


def after(leader: Leader, seconds: int) -> dict[str, str]:
    """What is reported of gangs in the pass after so many seconds, by the pod that is named first."""
    try:
        for _ in range(seconds):
            leader.one()
            leader.server.advance(1)
        leader.one()
    finally:
        leader.close()
    by_gang = sentences(leader.queue.waiters.values(), key_of)
    return {pod.metadata.name: sentence for pod, sentence in by_gang.values()}


@pytest.mark.promise("I74")
@pytest.mark.parametrize(
    ("namespaces", "whose"),
    [(("bad", "good"), "a pod of another namespace"), (("bad", "bad"), "pod bad-0")],
    ids=["of another namespace", "of its own"],
)
def test_who_waits_gets_for_which_pod_and_until_when_without_names_of_other_namespaces(
    namespaces: tuple[str, str], whose: str
) -> None:
    """By the clock of these leaders it is 16:00:00 on a day, and 240 s."""
    server, planned = cluster(given_to(HANGS), *namespaces)
    by_gang = after(led_for_long(server, planned), 4)
    name = f"{namespaces[1]}-1"
    assert list(by_gang) == [name]
    assert by_gang[name] == f"pod {name} waits {SENT.format(whose)}16:04:31 UTC, when that pod is read"
    assert whose == "pod bad-0" or "bad" not in by_gang[name]


def test_the_sentence_stays_the_same_for_as_long_as_nothing_new_is_known() -> None:
    """Else the status would be written in each pass."""
    sentence = set()
    for seconds in (4, 9, 20):
        server, planned = cluster(given_to(HANGS), "bad", "good")
        sentence |= set(after(led_for_long(server, planned), seconds).values())
    assert len(sentence) == 1


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [(BROKEN, 4), (UNDONE, 4), (HANGS, 60)],
    ids=["known not to be written", "on its way", "once the doubt is over"],
)
def test_nothing_is_sentences_that_come_by_themselves(answer: Answer, seconds: int) -> None:
    server, planned = cluster(given_to(answer), "bad", "good")
    assert after(led_for_long(server, planned), seconds) == {}


def test_of_a_gang_with_many_pods_that_wait_one_is_named_and_the_others_are_counted() -> None:
    server, planned = cluster(given_to(HANGS), "bad", *["good"] * 3)
    leader = led_for_long(server, planned)
    after(leader, 4)
    gang = key_of(decode(pod_json("train-0")))
    ((pod, sentence),) = sentences(leader.queue.waiters.values(), lambda _: gang).values()
    assert pod.metadata.name == "good-1"
    assert sentence.endswith("; likewise 2 more of its pods")


def test_a_gang_that_waits_for_a_release_has_it_in_its_status_for_as_long_as_that_lasts_and_one_event() -> (
    None
):
    events: list[str] = []

    class Recorded(Silent):
        def announce(self, pod: Pod, reason: EventReason, note: str) -> None:
            events.append(f"{pod.metadata.name} {reason}: {note}")

    pod = decode(pod_json("p"))
    (gang,) = gather([pod], [], lambda _: OwnerFacts(1))
    api, copy = Answers(), Copy()
    name = gang.key.placement_key
    metadata = Metadata(name=name.partition("/")[2], namespace="ns")
    planned = Placement(metadata, PlacementSpec(pods=[PlannedPod("p", pod.metadata.uid, "n0")], size=1))
    reporter = Reports(Pass(api, cast(Any, copy), Settings(), announcer=Recorded(), clock=Clock()))
    reasons: list[Any] = []
    for sentence in ("until ten", "until eleven", ""):
        before = PlacementStatus(reason=reasons[-1] if reasons else "")
        copy.placements = {name: msgspec.structs.replace(planned, status=before)}
        waiters = {gang.key: (pod, sentence)} if sentence else {}
        reporter.report(View([pod], [], {}, {}), [gang], waiters=waiters)
        reasons.append(api.bodies[-1]["status"]["reason"])
    assert reasons == ["until ten", "until eleven", None]
    assert events == ["p WaitingForRelease: until ten"]
