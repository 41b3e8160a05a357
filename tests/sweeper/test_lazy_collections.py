"""API objects that nobody asks for cost nothing; what is asked for is read, and signals its changes."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from hack.local.cluster import Cluster
from tests.sweeper.clock import Clock
from webhook.kube.client import Api
from webhook.kube.objects import Namespace
from webhook.sweeper.observe.watches import UNREAD_SECONDS, WatchedCollection, Watches


def collection(name: str, frees: Callable[[Any, Any], bool] | None = None) -> WatchedCollection[Namespace]:
    return WatchedCollection(f"/api/v1/{name}", name, Namespace, is_lazy=True, frees=frees)


SPACES = collection("namespaces")
MAPS = collection("configmaps")
UNSERVED = WatchedCollection(
    "/apis/example.com/v1/things", "Thing", Namespace, is_optional=True, is_lazy=True
)


@dataclass
class Reading:
    """Collections with what they have reported."""

    api: Api
    changes: list[str] = field(default_factory=list)
    freed: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.lazy = Watches(
            self.api,
            dict,
            lambda: self.changes.append("changed"),
            lambda: self.freed.append("freed"),
            self.clock,
        )


@pytest.fixture
def reading(cluster: Cluster) -> Iterator[Reading]:
    made = Reading(cluster.api())
    yield made
    made.lazy.stop()


def named(cluster: Cluster, namespace: str, name: str) -> None:
    body = {"metadata": {"name": name}}
    cluster.api().request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=body)


def test_what_is_asked_for_is_read_at_once(cluster: Cluster, reading: Reading, namespace: str) -> None:
    assert namespace in reading.lazy.read((SPACES,))[SPACES]


def test_what_nobody_has_read_for_long_is_watched_no_more_and_read_again_when_asked_for(
    reading: Reading,
) -> None:
    first = reading.lazy.read((SPACES,))[SPACES]
    reading.clock.now += UNREAD_SECONDS / 2
    reading.lazy.begin()
    assert reading.lazy.read((SPACES,))[SPACES] is first, "it is watched still"
    reading.clock.now += UNREAD_SECONDS
    watch = reading.lazy._copies[SPACES]
    reading.lazy.begin()
    assert not reading.lazy._copies
    assert watch._stop.is_set()
    assert reading.lazy.read((SPACES,))[SPACES] is not first


class Slow:
    """A watch of namespaces that does not end while it handles an event."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()
        self.collection = collection("namespaces", self._handle)

    def _handle(self, before: object, after: object) -> bool:
        self.has_begun.set()
        return not self.may_end.wait(120)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setattr("webhook.sweeper.observe.watches.FIRST_SECONDS", 0.0)
    monkeypatch.setattr("webhook.kube.informer._STOP_SECONDS", 60.0)
    return Slow()


def test_a_pass_does_not_wait_for_a_watch_that_ends_slowly(reading: Reading, slow: Slow) -> None:
    reading.lazy.read((slow.collection,))
    try:
        assert slow.has_begun.wait(30)
        reading.clock.now += UNREAD_SECONDS
        begun = threading.Thread(target=reading.lazy.begin, daemon=True)
        begun.start()
        begun.join(30)
        assert not begun.is_alive()
        assert not reading.lazy._copies
    finally:
        slow.may_end.set()


def test_what_is_not_served_is_not_asked_for_and_is_not_there(reading: Reading) -> None:
    found = reading.lazy.read((SPACES, UNSERVED))
    assert set(found) == {SPACES}
    assert set(reading.lazy._copies) == {SPACES}


def test_what_may_not_be_read_is_not_there(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webhook.sweeper.observe.watches.FIRST_SECONDS", 0.0)
    assert reading.lazy.read((collection("nothings"),)) == {}


def test_a_change_of_what_the_last_pass_has_read_is_reported(
    cluster: Cluster, reading: Reading, namespace: str
) -> None:
    reading.lazy.read((MAPS,))
    reading.lazy.begin()
    reading.changes.clear()
    named(cluster, namespace, "one")
    cluster.wait_for("the change to be told", lambda: bool(reading.changes), 30)
    assert not reading.freed, "it frees nothing"


def test_a_change_of_what_nobody_reads_any_more_is_stored_and_not_reported(
    cluster: Cluster, reading: Reading, namespace: str
) -> None:
    reading.lazy.read((MAPS,))
    reading.lazy.begin()
    reading.lazy.begin()
    reading.changes.clear()
    named(cluster, namespace, "one")
    copy = reading.lazy._copies[MAPS]
    cluster.wait_for("the copy to have it", lambda: f"{namespace}/one" in copy.items(), 30)
    assert not reading.changes


def test_a_change_that_may_free_something_is_reported_as_that(
    cluster: Cluster, reading: Reading, namespace: str
) -> None:
    def is_gone(before: Namespace, after: Namespace | None) -> bool:
        """Namespaces of other tests are deleted meanwhile, with their ConfigMaps."""
        return after is None and before.metadata.namespace == namespace

    freeing = collection("configmaps", is_gone)
    reading.lazy.read((freeing,))
    named(cluster, namespace, "one")
    copy = reading.lazy._copies[freeing]
    cluster.wait_for("the copy to have it", lambda: f"{namespace}/one" in copy.items(), 30)
    assert not reading.freed
    cluster.api().request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/one")
    cluster.wait_for("that to be told", lambda: bool(reading.freed), 30)


def test_watches_that_end_slowly_are_ended_together(reading: Reading, slow: Slow) -> None:
    other = collection("configmaps")
    reading.lazy.read((slow.collection, other))
    watch = reading.lazy._copies[other]
    try:
        assert slow.has_begun.wait(30)
        stopped = threading.Thread(target=reading.lazy.stop, daemon=True)
        stopped.start()
        assert watch._stop.wait(30), "the other watch does not wait for the slow one"
        assert stopped.is_alive()
    finally:
        slow.may_end.set()
    stopped.join(60)
    assert not stopped.is_alive()
