"""A gang's Events on the page: read in pages, for all viewers together, and a note where some are missing."""

from typing import Any, cast

import msgspec
import pytest

from hack.local.cluster import Cluster
from labeler.contract.event_reasons import EventReason
from tests.support import create_namespace
from tests.ui.scenes import cluster_of, scene_of, waiting_job
from webhook.kube.client import Api, ApiError
from webhook.ui import gang_events as events_room
from webhook.ui.gang_events import CACHE_SECONDS, PAGE, PAGES, GangEvents

ROW = scene_of(cluster_of(waiting_job(2))).gangs[0]


def event(about: str, note: str, minute: int = 0) -> dict[str, Any]:
    return {
        "metadata": {"creationTimestamp": f"2026-01-01T00:{minute:02}:00Z"},
        "regarding": {"name": about},
        "note": note,
        "reason": "R",
        "type": "Normal",
    }


class Namespace:
    """An API server with so many Events in a namespace, in this order."""

    def __init__(self, *events: dict[str, Any]) -> None:
        self.events = list(events)
        self.calls = 0

    def json(self, method: str, path: str, query: dict[str, str]) -> Any:
        self.calls += 1
        selected = query.get("fieldSelector", "").removeprefix("regarding.name=")
        found = [each for each in self.events if selected in ("", each["regarding"]["name"])]
        begin, limit = int(query.get("continue") or 0), int(query["limit"])
        more = str(begin + limit) if begin + limit < len(found) else ""
        return {"metadata": {"continue": more}, "items": found[begin : begin + limit]}


def others(count: int) -> list[dict[str, Any]]:
    return [event(f"other-{number}", "n") for number in range(count)]


def of(api: Any, clock: Any = lambda: 0.0) -> GangEvents:
    return GangEvents(cast(Api, api), clock)


def test_events_behind_many_others_are_found_the_latest_first() -> None:
    there = Namespace(
        *others(3 * PAGE), event(ROW.name, "of the owner", 1), event(ROW.members[1].name, "of a pod", 2)
    )
    events = of(there).of(ROW)
    assert ([line.note for line in events.lines], events.missing) == (["of a pod", "of the owner"], "")


def test_of_a_namespace_with_too_many_the_owner_s_are_read_and_the_rest_is_shown_as_missing() -> None:
    there = Namespace(
        *others(PAGES * PAGE + 1), event(ROW.name, "of the owner"), event(ROW.members[1].name, "x")
    )
    events = of(there).of(ROW)
    assert [line.note for line in events.lines] == ["of the owner"]
    assert events.missing.startswith(f"its namespace has more than {PAGE * PAGES}: only those of train, ")


def test_an_event_of_both_a_gang_s_owner_and_pod_stands_there_once() -> None:
    owner, pod = (
        event(name, "it waits", minute) for name, minute in ((ROW.name, 2), (ROW.members[0].name, 1))
    )
    there = Namespace(owner, {**pod, "deprecatedCount": 3}, event(ROW.members[0].name, "another note"))
    assert [(line.note, line.count, line.at[14:16]) for line in of(there).of(ROW).lines] == [
        ("it waits", 3, "02"),
        ("another note", 1, "00"),
    ]


def test_a_move_is_shown_for_a_gang_whose_recreated_pods_have_other_names() -> None:
    """It is on the evicted pod, which is gone, and on the gang's owner."""
    note = "evicted with its gang Job/train, 2 pods, to be placed elsewhere for gang Job/large"
    moved = {"reason": EventReason.GANG_MOVED, "note": note}
    there = Namespace(*({**event(name, ""), **moved} for name in ("train-0-gone", ROW.name)))
    assert [(line.reason, line.note) for line in of(there).of(ROW).lines] == [("GangMoved", note)]


def test_viewers_and_gangs_share_one_reading_for_a_while() -> None:
    now, there = [0.0], Namespace(event(ROW.name, "n"))
    events = of(there, lambda: now[0])
    for _ in range(100):
        events.of(ROW)
    assert there.calls == 1
    now[0] = CACHE_SECONDS
    events.of(ROW)
    assert there.calls == 2


def test_events_that_cannot_be_read_are_shown_as_missing() -> None:
    class Refusing:
        def json(self, *_: Any, **__: Any) -> Any:
            raise ApiError(403, "Forbidden", "no")

    assert of(Refusing()).of(ROW).missing.startswith("they cannot be read: ")


def test_the_api_server_selects_events_by_what_they_are_about(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_room, "PAGE", 1)
    monkeypatch.setattr(events_room, "PAGES", 2)
    api, namespace = cluster.api(), create_namespace(cluster)
    for number, name in enumerate(["a", "b", "c", ROW.name]):
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"e{number}", "namespace": namespace},
            "involvedObject": {"kind": "Job", "name": name, "namespace": namespace},
            "reason": "R",
            "message": f"about {name}",
            "type": "Normal",
        }
        api.request("POST", f"/api/v1/namespaces/{namespace}/events", body=body)
    events = GangEvents(api).of(msgspec.structs.replace(ROW, namespace=namespace))
    assert [line.note for line in events.lines] == [f"about {ROW.name}"]
    assert events.missing
