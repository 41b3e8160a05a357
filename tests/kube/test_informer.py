"""The live copy: complete before it says so, right after every kind of interruption, and narrow."""

import gc
import itertools
import tracemalloc
from typing import Any, Literal

import pytest

from hack.local.cluster import Cluster
from tests.kube.copies import ConfigMap, Data, Observed, break_watch, copy_of, create, resize, sizes
from webhook.kube import collection
from webhook.kube import informer as module
from webhook.kube.client import ApiError
from webhook.kube.collection import WATCH_SECONDS, Listing
from webhook.kube.informer import Informer, pause_seconds
from webhook.kube.objects import Metadata


@pytest.fixture
def api(cluster: Cluster) -> Observed:
    return Observed.to(cluster)


LISTS = pytest.mark.parametrize("stream_lists", [True, False], ids=["as-stream", "in-pages"])


@pytest.fixture
def path(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


# --- lists and watches -----------------------------------------------------------------------------


@LISTS
def test_a_list_of_several_pages_is_whole(
    cluster: Cluster, api: Observed, path: str, stream_lists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "PAGE_SIZE", 2)
    names = [f"c{number}" for number in range(7)]
    create(cluster.api(), path, *names)
    with copy_of(api, path, stream_lists=stream_lists) as copy:
        assert sizes(copy) == dict.fromkeys(names, "1")
    pages = [query for query in api.queries if "limit" in query]
    assert len(pages) == (0 if stream_lists else 4)


@LISTS
def test_changes_arrive_as_before_and_after(
    cluster: Cluster, api: Observed, path: str, stream_lists: bool
) -> None:
    seen: list[tuple[str, str]] = []

    def note(before: ConfigMap | None, after: ConfigMap | None) -> None:
        item = after or before
        if item is not None and item.metadata.name == "one":
            seen.append((before.data.size if before else "", after.data.size if after else ""))

    with copy_of(api, path, stream_lists=stream_lists, on_event=note) as copy:
        create(cluster.api(), path, "one")
        resize(cluster.api(), path, "one", "2")
        cluster.api().request("DELETE", f"{path}/one")
        cluster.wait_for("three events", lambda: len(seen) == 3)
        assert sizes(copy) == {}
    assert seen == [("", "1"), ("1", "2"), ("2", "")]


def test_a_handler_that_fails_ends_nothing(cluster: Cluster, api: Observed, path: str) -> None:
    def fail(before: ConfigMap | None, after: ConfigMap | None) -> None:
        raise RuntimeError("a defect of the caller")

    with copy_of(api, path, on_event=fail) as copy:
        create(cluster.api(), path, "one")
        cluster.wait_for("the object", lambda: "one" in sizes(copy))


def test_selectors_leave_the_rest_out(cluster: Cluster, api: Observed, path: str) -> None:
    create(cluster.api(), path, "one", "two")
    with copy_of(api, path, field_selector="metadata.name=two") as copy:
        assert sizes(copy) == {"two": "1"}


def test_a_broken_watch_resumes_where_it_was_without_a_new_list(
    cluster: Cluster, api: Observed, path: str
) -> None:
    with copy_of(api, path) as copy:
        create(cluster.api(), path, "one")
        cluster.wait_for("the object", lambda: "one" in sizes(copy))
        break_watch(cluster, api, copy)
        create(cluster.api(), path, "two")
        cluster.wait_for("the next", lambda: "two" in sizes(copy))
    assert api.lists == 1


def test_a_broken_watch_shows_nobody_the_past_once_more(cluster: Cluster, api: Observed, path: str) -> None:
    seen: list[str] = []

    def note(before: ConfigMap | None, after: ConfigMap | None) -> None:
        if after is not None and after.metadata.name == "one":
            seen.append(after.data.size)

    with copy_of(api, path, on_event=note) as copy:
        create(cluster.api(), path, "one")
        resize(cluster.api(), path, "one", "2")
        cluster.wait_for("both versions", lambda: seen == ["1", "2"])
        break_watch(cluster, api, copy)
        resize(cluster.api(), path, "one", "3")
        cluster.wait_for("the next", lambda: "3" in seen)
    assert seen == ["1", "2", "3"]


def test_a_server_without_streaming_lists_is_asked_once_and_then_for_pages(
    cluster: Cluster, api: Observed, path: str
) -> None:
    def refuse(query: dict[str, str]) -> None:
        if "sendInitialEvents" in query:
            # What a server answers whose WatchList feature is off (it validates the combination).
            raise ApiError(422, "Invalid", "sendInitialEvents is forbidden for watch")

    api.change = refuse
    create(cluster.api(), path, "one")
    with copy_of(api, path) as copy:
        assert sizes(copy) == {"one": "1"}
    assert sum("sendInitialEvents" in query for query in api.queries) == 1


def test_a_streaming_list_that_breaks_is_followed_by_pages(
    cluster: Cluster, api: Observed, path: str
) -> None:
    def never_ends(query: dict[str, str]) -> None:
        if "sendInitialEvents" in query:
            query["allowWatchBookmarks"] = "false"  # then nothing marks the end
            query["timeoutSeconds"] = "1"
            query.pop("sendInitialEvents")
            query.pop("resourceVersionMatch")

    api.change = never_ends
    create(cluster.api(), path, "one")
    with copy_of(api, path) as copy:
        assert sizes(copy) == {"one": "1"}
    assert [sum(key in query for query in api.queries) for key in ("sendInitialEvents", "limit")] == [1, 1]


# --- versions that have expired --------------------------------------------------------------------


def test_a_list_whose_next_page_has_been_compacted_away_begins_again(
    cluster: Cluster, api: Observed, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "PAGE_SIZE", 2)
    create(cluster.api(), path, "a", "b", "c")
    continues = itertools.count()

    def expire(query: dict[str, str]) -> None:
        if "continue" in query and next(continues) == 0:
            # The answer of an API server to a token that etcd's compaction has overtaken.
            raise ApiError(410, "Expired", "The provided continue parameter is too old")

    api.change = expire
    with copy_of(api, path, stream_lists=False) as copy:
        assert sizes(copy) == dict.fromkeys("abc", "1")
    assert api.lists == 2


# --- interruptions ---------------------------------------------------------------------------------


def test_a_copy_that_is_stopped_ends_its_watch_at_once(cluster: Cluster, api: Observed, path: str) -> None:
    with copy_of(api, path) as copy:
        cluster.wait_for("a watch", lambda: api.watches > 0)
        copy.stop()
        copy._thread.join(0.6 * WATCH_SECONDS)  # a watch would have ended by itself after 0.8 of it at least
        assert not copy._thread.is_alive(), "it waits for the end of the watch"


# --- objects that cannot be read -------------------------------------------------------------------


@pytest.mark.promise("O252")
@LISTS
def test_one_unreadable_object_in_a_list_is_named_and_hides_no_other(
    cluster: Cluster,
    api: Observed,
    path: str,
    namespace: str,
    stream_lists: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create(cluster.api(), path, "a", "c")
    create(cluster.api(), path, "b", size="banana")
    with copy_of(api, path, stream_lists=stream_lists) as copy:
        assert sizes(copy) == {"a": "1", "c": "1"}
        assert list(copy.undecodable) == [f"{namespace}/b"]
        assert "banana" in copy.undecodable[f"{namespace}/b"]
        (line,) = [line for line in caplog.messages if line.startswith("unreadable ")]
        assert f"object={namespace}/b" in line
        resize(cluster.api(), path, "b", "2")
        cluster.wait_for("the object", lambda: sizes(copy).get("b") == "2")
        assert copy.undecodable == {}


@LISTS
def test_a_claim_whose_parameters_are_no_unicode_hides_no_other(
    cluster: Cluster, api: Observed, namespace: str, stream_lists: bool
) -> None:
    """The API server stores them as they are."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    for name, text in {b"pair": rb"\ud800", b"bytes": b"\xff", b"good": b"x"}.items():
        config = b'{"opaque":{"driver":"a.b","parameters":{"%s":"%s"}}}' % (text, text)
        devices = b'{"requests":[{"name":"r","exactly":{"deviceClassName":"x"}}],"config":[%s]}' % config
        body = b'{"metadata":{"name":"%s"},"spec":{"devices":%s}}' % (name, devices)
        cluster.api().request("POST", path, body=body)
    with copy_of(api, path, stream_lists=stream_lists) as copy:
        assert sorted(copy.items()) == [f"{namespace}/{name}" for name in ("bytes", "good", "pair")]


def test_an_object_that_becomes_unreadable_keeps_its_last_readable_version_until_it_is_gone(
    cluster: Cluster, api: Observed, path: str, namespace: str
) -> None:
    create(cluster.api(), path, "one", size="2")
    with copy_of(api, path) as copy:
        resize(cluster.api(), path, "one", "banana")
        cluster.wait_for("the note", lambda: f"{namespace}/one" in copy.undecodable)
        assert sizes(copy) == {"one": "2"}
        cluster.api().request("DELETE", f"{path}/one")
        cluster.wait_for("its end", lambda: sizes(copy) == {})
        assert copy.undecodable == {}


# --- lists again -----------------------------------------------------------------------------------


def listed(**sizes_: Literal["1", "2"]) -> Listing[ConfigMap]:
    """A list in which each object has the version 7."""
    metadata = {name: Metadata(name=name, uid=name, resource_version="7") for name in sizes_}
    return Listing("9", {name: ConfigMap(metadata[name], Data(size)) for name, size in sizes_.items()})


def test_of_a_new_list_only_what_differs_is_reported() -> None:
    """Of an API server restored from a backup a version may come twice, for other contents."""
    changes: list[tuple[ConfigMap | None, ConfigMap | None]] = []
    nobody: Any = None
    copy = Informer(nobody, "/api/v1/configmaps", ConfigMap, on_event=lambda *each: changes.append(each))
    copy._replace(listed(same="1", other="1", gone="1"))
    before = copy.items()
    changes.clear()
    copy._replace(listed(same="1", other="2"))
    after = copy.items()
    assert after["same"] is before["same"]
    assert changes == [(before["gone"], None), (before["other"], after["other"])]
    assert sizes(copy) == {"same": "1", "other": "2"}


# --- costs -----------------------------------------------------------------------------------------


@LISTS
def test_what_the_struct_does_not_name_is_not_stored(
    cluster: Cluster, api: Observed, path: str, stream_lists: bool
) -> None:
    create(cluster.api(), path, *(f"c{number}" for number in range(40)), ballast="x" * 100_000)
    with copy_of(api, path, stream_lists=stream_lists):
        pass  # what the first use of TLS and of the decoders allocates is not the copy's
    tracemalloc.start()
    try:
        with copy_of(api, path, stream_lists=stream_lists) as copy:
            gc.collect()
            traced, peak = tracemalloc.get_traced_memory()
            assert len(sizes(copy)) == 40
    finally:
        tracemalloc.stop()
    assert peak > 100_000, "the bodies were never seen"
    assert traced < 1_000_000, "4 MB of ballast were read"


def test_pauses_grow_up_to_a_limit_and_are_never_in_step() -> None:
    assert max(pause_seconds(1) for _ in range(100)) <= 0.5
    assert all(15 <= pause_seconds(failures) <= 30 for failures in (8, 20, 10_000))
    assert len({pause_seconds(5) for _ in range(20)}) > 1


def test_after_each_failure_in_a_row_the_pause_is_longer(
    cluster: Cluster, api: Observed, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = list[int]()

    def note(count: int) -> float:
        failures.append(count)
        return 0.01

    def end_at_once(query: dict[str, str]) -> None:
        if "resourceVersion" in query:
            raise ApiError(0, "Unreachable", "ended by the test")

    monkeypatch.setattr(module, "pause_seconds", note)
    api.change = end_at_once
    with copy_of(api, path):
        cluster.wait_for("four failures", lambda: len(failures) >= 4)
    assert failures[:4] == [1, 2, 3, 4]
