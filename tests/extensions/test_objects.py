"""API objects of extensions on a real API server: what they watch, and what they order to write."""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from hack.local.cluster import Cluster
from tests.extensions.made import extension
from tests.sweeper.clock import Clock
from webhook.configuration.settings import Settings
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Metadata
from webhook.kube.struct import Labels, Struct
from webhook.sweeper import extension_objects
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.retries import RetryTable
from webhook.sweeper.extension import (
    EndOrders,
    HookInput,
    ObjectWrite,
    RecordSpec,
    Switch,
    WriteResult,
)
from webhook.sweeper.extension_objects import ExtensionObjects, RecordStore
from webhook.sweeper.hooks import ExtensionHooks
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.view import View
from webhook.sweeper.observe.watches import Verb, WatchedCollection

LABELS = {"of": "the-extension"}


class Map(Struct, frozen=True):
    """A ConfigMap."""

    metadata: Metadata
    data: Labels = msgspec.field(default_factory=dict)


MAPS = WatchedCollection("/api/v1/configmaps", "ConfigMap", Map, "of=the-extension", frozenset(Verb))


def a_map(namespace: str, name: str, labels: Mapping[str, str] = LABELS, **data: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name, "labels": dict(labels)}, "data": data}


class Leader:
    """Passes with one extension, which orders what the test says."""

    def __init__(self, cluster: Cluster, collection: WatchedCollection[Map] = MAPS) -> None:
        self.api, self.clock = cluster.api(), Clock()
        self.orders: Sequence[ObjectWrite] = ()
        self.seen: Mapping[str, Map] | None = None
        self.given: list[HookInput] = []
        self.leads = self.is_on = True
        ordering = extension("test", collections=(collection,), after_pass=self._after_pass)
        switch = Switch(lambda *_: self.is_on, lambda: ordering)
        self.cache = ClusterCache(self.api)
        self.surroundings = Pass(
            self.api, self.cache, Settings(), may_act=lambda: self.leads, clock=self.clock,
            extensions=(switch,),
        )  # fmt: skip
        self.hooks, self.table = ExtensionHooks(self.surroundings), RetryTable()
        self.collection = collection

    def _after_pass(self, given: HookInput, memory: None) -> tuple[EndOrders, None]:
        self.seen = self.collection.of(given.view)
        self.given.append(given)
        return EndOrders(writes=self.orders), memory

    def one_pass(self, *orders: ObjectWrite) -> None:
        self.orders = orders
        view = self.hooks.begin(View([], [], {}, {}), self.hooks.memories)
        retries = Retries(self.surroundings, self.table)
        self.hooks.after_pass(view, retries)
        self.table = retries.table

    def results(self, *orders: ObjectWrite) -> list[WriteResult]:
        """What the next pass gets of what this one orders."""
        self.one_pass(*orders)
        self.one_pass()
        return list(self.given[-1].written)

    def read(self) -> Mapping[str, Map]:
        """What there is, once it has been read."""
        self.one_pass()
        while self.seen is None:
            self.cache.changed.wait(0.05)
            self.one_pass()
        return self.seen


@pytest.fixture
def leader(cluster: Cluster) -> Iterator[Leader]:
    made = Leader(cluster)
    yield made
    made.hooks.close()


def there(cluster: Cluster, namespace: str, name: str) -> dict[str, Any] | None:
    items = cluster.api().json("GET", f"/api/v1/namespaces/{namespace}/configmaps")["items"]
    return next((each for each in items if each["metadata"]["name"] == name), None)


def watchers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == f"informer {MAPS.path}"]


def test_a_collection_is_watched_for_as_long_as_its_extension_is_on(cluster: Cluster, leader: Leader) -> None:
    leader.is_on = False
    leader.one_pass()
    assert not watchers()
    leader.is_on = True
    leader.read()
    assert len(watchers()) == 1
    leader.is_on = False
    leader.one_pass()
    cluster.wait_for("the watch to end", lambda: not watchers())


def test_the_view_has_the_objects_with_the_label_once_all_are_read(
    cluster: Cluster, leader: Leader, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    for body in (a_map(namespace, "one", key="1"), a_map(namespace, "other", {})):
        cluster.api().request("POST", path, body=body)
    may_read, request = threading.Event(), leader.api.request

    def read_late(method: str, path: str, **options: Any) -> bytes:
        assert path != MAPS.path or may_read.wait(60)
        return request(method, path, **options)

    monkeypatch.setattr(leader.api, "request", read_late)
    leader.one_pass()
    assert leader.seen is None, "nobody knows yet"
    may_read.set()
    assert {key: each.data for key, each in leader.read().items()} == {f"{namespace}/one": {"key": "1"}}


def test_the_next_pass_sees_what_was_created_patched_and_deleted_before_the_watch_shows_it(
    leader: Leader, namespace: str
) -> None:
    leader.read()
    leader.hooks.close()  # nothing more is heard
    key = f"{namespace}/one"
    leader.one_pass(ObjectWrite.create(MAPS, a_map(namespace, "one", key="1"), "test"))
    made = leader.read()[key]
    assert made.data == {"key": "1"}
    leader.one_pass(ObjectWrite.patch(MAPS, made.metadata, {"data": {"key": "2"}}, "test"))
    assert leader.read()[key].data == {"key": "2"}
    leader.one_pass(ObjectWrite.delete(MAPS, made.metadata, "test"))
    assert key not in leader.read()


def test_an_object_that_an_earlier_leader_has_created_is_the_one_meant(
    cluster: Cluster, leader: Leader, namespace: str
) -> None:
    order = ObjectWrite.create(MAPS, a_map(namespace, "one"), "test")
    assert [each.is_done for each in leader.results(order)] == [True]
    successor = Leader(cluster)
    assert [each.is_done for each in successor.results(order)] == [True]
    successor.hooks.close()


def test_an_object_with_the_same_labels_that_another_order_has_made_is_left_alone(
    cluster: Cluster, leader: Leader, namespace: str
) -> None:
    leader.one_pass(ObjectWrite.create(MAPS, a_map(namespace, "one", key="1"), "test"))
    (other,) = leader.results(ObjectWrite.create(MAPS, a_map(namespace, "one", key="2"), "test"))
    assert "already exists" in other.error


@pytest.mark.parametrize(
    ("served", "is_watched"),
    [
        ({}, False),
        ({"things.example.com": "v2"}, True),
        ({"things.example.com": "v1"}, False),
        ({"others.example.com": "v2"}, False),
    ],
)
def test_an_optional_collection_is_watched_in_the_version_that_the_cluster_serves(
    served: Mapping[str, str], is_watched: bool
) -> None:
    optional = WatchedCollection("/apis/example.com/v2/things", "Thing", Map, is_optional=True)
    assert optional.is_served(served) is is_watched
    assert MAPS.is_served(served)


def test_a_foreign_object_is_left_alone_and_reported_until_a_pause_is_over(
    cluster: Cluster, leader: Leader, namespace: str
) -> None:
    theirs = a_map(namespace, "one", {}, key="theirs")
    cluster.api().request("POST", f"/api/v1/namespaces/{namespace}/configmaps", body=theirs)
    order = ObjectWrite.create(MAPS, a_map(namespace, "one"), "test")
    (first,) = leader.results(order)
    assert "already exists" in first.error
    assert (first.is_done, first.retry_seconds) == (False, 1.0)
    cluster.api().request("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/one")
    assert [each.error for each in leader.results(order)] == [first.error], "it is not asked meanwhile"
    leader.clock.now += 1.0
    assert [each.is_done for each in leader.results(order)] == [True]


def test_pauses_grow_to_a_minute(leader: Leader) -> None:
    order = ObjectWrite.create(MAPS, a_map("no-such-namespace", "one"), "test")
    pauses = []
    for _ in range(8):
        (result,) = leader.results(order)
        pauses.append(result.retry_seconds)
        leader.clock.now += result.retry_seconds
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_what_is_gone_or_another_by_now_is_deleted(cluster: Cluster, leader: Leader, namespace: str) -> None:
    leader.one_pass(ObjectWrite.create(MAPS, a_map(namespace, "one"), "test"))
    metadata = leader.read()[f"{namespace}/one"].metadata
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    cluster.api().request("DELETE", f"{path}/one")
    order = ObjectWrite.delete(MAPS, metadata, "test")
    assert [each.is_done for each in leader.results(order)] == [True]
    cluster.api().request("POST", path, body=a_map(namespace, "one"))
    assert [each.is_done for each in leader.results(order)] == [True]
    assert there(cluster, namespace, "one") is not None


def test_a_patch_is_for_the_object_that_was_seen_alone(
    cluster: Cluster, leader: Leader, namespace: str
) -> None:
    leader.one_pass(ObjectWrite.create(MAPS, a_map(namespace, "one"), "test"))
    metadata = leader.read()[f"{namespace}/one"].metadata
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    cluster.api().request("DELETE", f"{path}/one")
    cluster.api().request("POST", path, body=a_map(namespace, "one"))
    (result,) = leader.results(ObjectWrite.patch(MAPS, metadata, {"data": {"key": "2"}}, "test"))
    assert not result.is_done
    assert "data" not in (there(cluster, namespace, "one") or {})


class Newest(Api):
    """An API server that has the object with the uid "new", and patches no other."""

    def __init__(self) -> None:
        pass

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        if body["metadata"]["uid"] != "new":
            raise ApiError(409, "Conflict", f"{method} {path}: it has another uid")
        return json.dumps(a_map("ns", "one")).encode()


def test_a_recreated_object_does_not_wait_for_the_pause_of_the_one_before() -> None:
    api = Newest()
    surroundings = Pass(api, ClusterCache(api), Settings(), may_act=lambda: True, clock=Clock())
    objects = ExtensionObjects(surroundings, extension("test", collections=(MAPS,)))
    for uid, is_done in (("old", False), ("new", True)):
        metadata = Metadata(namespace="ns", name="one", uid=uid)
        write = ObjectWrite.patch(MAPS, metadata, {"data": {"key": "2"}}, "test")
        (result,), _ = objects.write([write], Retries(surroundings, RetryTable()))
        assert result.is_done is is_done


def test_only_the_leader_writes(cluster: Cluster, leader: Leader, namespace: str) -> None:
    leader.leads = False
    order = ObjectWrite.create(MAPS, a_map(namespace, "one"), "test")
    assert leader.results(order) == [WriteResult(order)]
    assert there(cluster, namespace, "one") is None


def test_of_a_group_nothing_is_written_after_a_write_that_fails(
    cluster: Cluster, leader: Leader, namespace: str
) -> None:
    def group(name: str) -> list[ObjectWrite]:
        bodies = a_map("no-such-namespace", name), a_map(namespace, name)
        return [ObjectWrite.create(MAPS, body, "test", name) for body in bodies]

    alone = ObjectWrite.create(MAPS, a_map(namespace, "alone"), "test")
    results = leader.results(*group("one"), alone)
    assert [each.is_done for each in results] == [False, False, True]
    assert there(cluster, namespace, "one") is None


def test_a_pass_makes_a_bounded_number_of_writes_and_the_next_one_the_rest(
    leader: Leader, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extension_objects, "MOST_WRITES", 2)
    orders = [ObjectWrite.create(MAPS, a_map(namespace, f"m{number}"), "test") for number in range(3)]
    leader.one_pass(*orders)
    assert leader.hooks.due_seconds == 1.0
    leader.one_pass(orders[2])
    assert [each.is_done for each in leader.given[-1].written] == [True, True, False]
    leader.one_pass()
    assert [each.is_done for each in leader.given[-1].written] == [True]


def test_each_write_is_logged_with_its_reason(
    leader: Leader, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    leader.one_pass(ObjectWrite.create(MAPS, a_map(namespace, "one"), "the gang has no place"))
    assert f"verb=create kind=ConfigMap object={namespace}/one reason='the gang has no place'" in caplog.text


def test_a_verb_that_is_not_declared_is_a_defect_of_the_extension(
    cluster: Cluster, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    reading = WatchedCollection("/api/v1/configmaps", "ConfigMap", Map)
    leader = Leader(cluster, reading)
    leader.one_pass(ObjectWrite.create(reading, a_map(namespace, "one"), "test"))
    leader.hooks.close()
    assert "create ConfigMap is not a verb that it declares" in caplog.text
    assert there(cluster, namespace, "one") is None


@pytest.mark.parametrize(
    ("path", "api_version", "namespaced"),
    [
        ("/api/v1/configmaps", "v1", "/api/v1/namespaces/ns/configmaps/x"),
        ("/apis/a.io/v1/things", "a.io/v1", "/apis/a.io/v1/namespaces/ns/things/x"),
    ],
)
def test_addresses_follow_from_the_path_of_a_collection(path: str, api_version: str, namespaced: str) -> None:
    collection = WatchedCollection(path, "Thing", Map)
    assert (collection.api_version, collection.path_in("ns", "x")) == (api_version, namespaced)
    assert collection.path_in("", "x") == f"{path}/x"


class Recording(Api):
    """An API server that has an empty ConfigMap, and keeps which requests would write."""

    def __init__(self) -> None:
        self.writes: list[str] = []

    def request(self, method: str, path: str, **_: Any) -> bytes:
        self.writes.extend([f"{method} {path}"] if method != "GET" else [])
        return json.dumps({"metadata": {"name": "one", "resourceVersion": "1"}, "data": {}}).encode()

    def json(self, method: str, path: str, **_: Any) -> Any:
        return json.loads(self.request(method, path))


@pytest.mark.parametrize("leads", [True, False])
def test_who_does_not_lead_any_more_writes_no_object_and_no_record(leads: bool) -> None:
    objects_api, records_api, clock = Recording(), Recording(), Clock()
    surroundings = Pass(
        objects_api, ClusterCache(objects_api), Settings(), may_act=lambda: leads, clock=clock
    )
    objects = ExtensionObjects(surroundings, extension("test", collections=(MAPS,)))
    order = ObjectWrite.create(MAPS, a_map("ns", "one"), "test")
    (result,), _ = objects.write([order], Retries(surroundings, RetryTable()))
    assert (result.is_done, bool(objects_api.writes)) == (leads, leads)
    store = RecordStore(replace(surroundings, api=records_api), RecordSpec("name"))
    store.read()
    clock.now += 3600
    assert store.write({"key": "new"}) is leads
    assert bool(records_api.writes) is leads
