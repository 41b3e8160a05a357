"""What a gang is told whose pod waits for its turn on a node with cards."""

from typing import Any, cast

import msgspec
import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.test_report import Answers, Copy
from tests.sweeper.turns import BROKEN, HANGS, UNDONE, Answer, Leader, cluster, given_to, led_for_long
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.kube.planned import PlannedPod
from webhook.sweeper.context import Pass, Silent
from webhook.sweeper.decide.awaited import told_of_turns
from webhook.sweeper.observe.gangs import OwnerSays, gather, key_of
from webhook.sweeper.observe.view import View
from webhook.sweeper.report import Reporter
from webhook.sweeper.settings import Settings

SENT = "at the cards of n0: a release of {} there got no clear answer, and may still arrive until "


def after(leader: Leader, seconds: int) -> dict[str, str]:
    """What is told of gangs in the pass after so many seconds, by the pod that is named first."""
    try:
        for _ in range(seconds):
            leader.one()
            leader.server.advance(1)
        leader.one()
    finally:
        leader.close()
    told = told_of_turns(leader.turns.awaited.values(), key_of)
    return {pod.metadata.name: said for pod, said in told.values()}


@pytest.mark.parametrize(
    ("namespaces", "whose"),
    [(("bad", "good"), "a pod of another namespace"), (("bad", "bad"), "pod bad-0")],
    ids=["of another namespace", "of its own"],
)
def test_who_waits_is_told_for_which_pod_and_until_when_without_names_of_other_namespaces(
    namespaces: tuple[str, str], whose: str
) -> None:
    """By the clock of these leaders it is 16:00:00 on a day, and 240 s."""
    server, planned = cluster(given_to(HANGS), *namespaces)
    told = after(led_for_long(server, planned), 4)
    name = f"{namespaces[1]}-1"
    assert list(told) == [name]
    assert told[name].startswith(f"pod {name} waits for its turn {SENT.format(whose)}16:04:31 UTC")
    assert whose == "pod bad-0" or "bad" not in told[name]


@pytest.mark.parametrize("seconds", [0, 7, 60])
def test_who_waits_as_an_earlier_leader_may_have_sent_for_the_first_is_told_so(seconds: int) -> None:
    """The first may not go, as where its gang is put off. By the clock of these leaders it is 16:00:00."""
    server, planned = cluster(given_to(BROKEN), "held", "good")
    leader = Leader(server, planned)
    leader.paused["held"] = 1000.0
    assert after(leader, seconds) == {
        "good-1": "pod good-1 waits for its turn at the cards of n0: a pod of another namespace comes before "
        "it, and what the leader before may have sent for that may still arrive until 16:02:00 UTC"
    }


def test_the_sentence_stays_the_same_for_as_long_as_nothing_new_is_known() -> None:
    """Else the status would be written in each pass."""
    said = set()
    for seconds in (4, 9, 20):
        server, planned = cluster(given_to(HANGS), "bad", "good")
        said |= set(after(led_for_long(server, planned), seconds).values())
    assert len(said) == 1


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [(BROKEN, 4), (UNDONE, 4), (HANGS, 60)],
    ids=["known not to be written", "on its way", "once the doubt is over"],
)
def test_nothing_is_told_of_turns_that_come_by_themselves(answer: Answer, seconds: int) -> None:
    server, planned = cluster(given_to(answer), "bad", "good")
    assert after(led_for_long(server, planned), seconds) == {}


def test_of_a_gang_with_many_pods_that_wait_one_is_named_and_the_others_are_counted() -> None:
    server, planned = cluster(given_to(HANGS), "bad", *["good"] * 3)
    leader = led_for_long(server, planned)
    after(leader, 4)
    gang = key_of(decode(pod_json("train-0")))
    ((pod, said),) = told_of_turns(leader.turns.awaited.values(), lambda _: gang).values()
    assert pod.metadata.name == "good-1"
    assert said.endswith("; likewise 2 more of its pods")


def test_a_gang_that_waits_for_a_turn_has_it_in_its_status_for_as_long_as_that_lasts_and_one_event() -> None:
    events: list[str] = []

    class Heard(Silent):
        def say(self, pod: Pod, reason: str, note: str, *, warning: bool) -> None:
            events.append(f"{pod.metadata.name} {reason}: {note}")

    pod = decode(pod_json("p"))
    (gang,) = gather([pod], [], lambda _: OwnerSays(1))
    api, copy = Answers(), Copy()
    name = gang.key.placement_key
    metadata = Metadata(name=name.partition("/")[2], namespace="ns")
    planned = Placement(metadata, PlacementSpec(pods=[PlannedPod("p", pod.metadata.uid, "n0")], size=1))
    reporter = Reporter(Pass(api, cast(Any, copy), Settings(), announcer=Heard(), clock=Clock()))
    reasons: list[Any] = []
    for said in ("until ten", "until eleven", ""):
        before = PlacementStatus(reason=reasons[-1] if reasons else "")
        copy.placements = {name: msgspec.structs.replace(planned, status=before)}
        awaited = {gang.key: (pod, said)} if said else {}
        reporter.report(View([pod], [], {}, {}), [gang], awaited=awaited)
        reasons.append(api.bodies[-1]["status"]["reason"])
    assert reasons == ["until ten", "until eleven", None]
    assert events == ["p WaitsForTurn: until ten"]
