"""An API server that says what is not so: a live copy is right again within a bound, whatever it says.

Played by a server of our own: a real one cannot be made to say these things, but for the first.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from hack.local.cluster import Cluster
from tests.kube.copies import ConfigMap, Observed, connect, copy_of, create, sizes
from webhook.kube import client, collection
from webhook.kube import informer as module
from webhook.kube.collection import SILENCE_SECONDS
from webhook.kube.informer import Informer, is_older
from webhook.kube.write_through import WriteThroughInformer

SHIPPED_WATCH_SECONDS, SHIPPED_CONFIRMED_SECONDS = collection.WATCH_SECONDS, module.CONFIRMED_SECONDS
PATH = "/api/v1/namespaces/ns/configmaps"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds, in the proportion that they have, at a hundredth of their length."""
    monkeypatch.setattr(collection, "WATCH_SECONDS", 1.25)  # the API server takes whole seconds: 1
    monkeypatch.setattr(module, "CONFIRMED_SECONDS", 0.75)
    monkeypatch.setattr(module, "_MAX_PAUSE_SECONDS", 0.2)
    monkeypatch.setattr(collection, "_SHORT_SECONDS", 0.1)


@pytest.mark.promise("O322")
def test_a_watch_from_a_version_that_the_api_server_has_not_reached_is_followed_by_a_list(
    cluster: Cluster, namespace: str
) -> None:
    """kube-apiserver takes it, and ends it in time without an event, as after a restore of etcd."""
    api = Observed.to(cluster)
    future = 0

    def restore(query: dict[str, str]) -> None:
        nonlocal future
        if "resourceVersion" in query and api.lists == 1:
            future += 1
            query["resourceVersion"] = "999999999999"

    path = f"/api/v1/namespaces/{namespace}/configmaps"
    api.change = restore
    with copy_of(api, path) as copy:
        cluster.wait_for("a watch from the future", lambda: future > 0)
        create(cluster.api(), path, "one")
        cluster.wait_for("the object", lambda: "one" in sizes(copy))
    assert api.lists >= 2


# --- a server that lies ----------------------------------------------------------------------------


@dataclass
class Server:
    """What there is, and how it is sent. watch: what one watch writes, until it returns."""

    objects: dict[str, str] = field(default_factory=dict)
    version: int = 100
    lists: int = 0
    watches: list[str] = field(default_factory=list)
    list_version: Callable[["Server"], int] = lambda server: server.version
    watch: Callable[["Answer"], None] = lambda answer: answer.rest()
    refuse_watch: tuple[int, str] | None = None
    over: threading.Event = field(default_factory=threading.Event)

    def put(self, name: str, size: str = "1") -> None:
        self.version += 1
        self.objects[name] = size

    def object(self, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": str(self.version)}
        return {"metadata": metadata, "data": {"size": self.objects[name]}}


@dataclass
class Answer:
    """One watch under way."""

    server: Server
    write: Callable[[dict[str, Any]], None]
    seconds: float

    def event(self, kind: str, item: dict[str, Any]) -> None:
        self.write({"type": kind, "object": item})

    def bookmark(self, version: int) -> None:
        self.event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})

    def rest(self) -> None:
        """Silent until its time is up."""
        self.server.over.wait(self.seconds)


@contextmanager
def serving(server: Server) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            if "watch" not in query:
                server.lists += 1
                version = str(server.list_version(server))
                items = [server.object(name) for name in server.objects]
                self.answer(200, {"metadata": {"resourceVersion": version}, "items": items})
                return
            server.watches.append(query["resourceVersion"][0])
            if server.refuse_watch is not None:
                status, retry_after = server.refuse_watch
                self.answer(status, {"reason": "Refused", "message": "not now"}, retry_after)
                return
            self.send_response(200)
            self.end_headers()
            server.watch(Answer(server, self.line, float(query["timeoutSeconds"][0])))

        def line(self, event: dict[str, Any]) -> None:
            self.wfile.write(json.dumps(event).encode() + b"\n")
            self.wfile.flush()

        def answer(self, status: int, body: dict[str, Any], retry_after: str = "") -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            if retry_after:
                self.send_header("Retry-After", retry_after)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        server.over.set()
        http.shutdown()
        thread.join()
        http.server_close()


@contextmanager
def copied(server: Server, folder: Path) -> Iterator[Informer[ConfigMap]]:
    with serving(server) as address, copy_of(connect(folder, address), PATH, stream_lists=False) as copy:
        until("a watch", lambda: bool(server.watches))
        yield copy


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, f"no {what} in 60 s"
        time.sleep(0.01)


def back(answer: Answer) -> None:
    """A bookmark of a history that was set back."""
    answer.bookmark(answer.server.version - 50)
    answer.rest()


def back_by_event(answer: Answer) -> None:
    """An event of a history that was set back, of an object that has not changed since."""
    answer.event(
        "MODIFIED",
        answer.server.object("first")
        | {"metadata": {"name": "first", "namespace": "ns", "resourceVersion": "7"}},
    )
    answer.rest()


@pytest.mark.promise("O322")
@pytest.mark.parametrize(
    "watch",
    [lambda answer: answer.rest(), back, back_by_event],
    ids=["silent", "bookmark-back", "event-back"],
)
def test_what_a_watch_does_not_report_is_seen_by_a_list(
    watch: Callable[[Answer], None], tmp_path: Path
) -> None:
    server = Server({"first": "1"}, watch=watch)
    with copied(server, tmp_path) as copy:
        server.put("second")
        until("second object", lambda: "second" in sizes(copy))


@pytest.mark.promise("O322")
def test_what_a_lively_watch_withholds_is_seen_by_the_list_that_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RELIST_SECONDS", 0.5)

    def bookmarks(answer: Answer) -> None:
        for _ in range(10):
            answer.bookmark(answer.server.version)
            answer.server.over.wait(answer.seconds / 10)

    server = Server({"first": "1"}, watch=bookmarks)
    with copied(server, tmp_path) as copy:
        server.put("second")
        until("second object", lambda: "second" in sizes(copy))


def test_a_list_of_a_server_that_lags_behind_is_read_once_more_and_not_taken(tmp_path: Path) -> None:
    server = Server({"first": "1"})
    seen: list[set[str]] = []

    def lags_once(each: Server) -> int:
        if each.lists == 2:
            each.objects = {}
            return each.version - 50
        each.objects = {"first": "1"} if each.lists == 1 else {"first": "1", "second": "1"}
        return each.version

    server.list_version = lags_once
    with copied(server, tmp_path) as copy:

        def is_whole() -> bool:
            seen.append(set(sizes(copy)))
            return server.lists >= 3 and "second" in sizes(copy)

        until("second object", is_whole)
    assert set() not in seen, "the list of the server that lags was taken"


@pytest.mark.promise("O322")
def test_a_list_that_stays_older_is_of_a_restored_etcd_and_is_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server({"first": "1", "lost": "1"})
    with copied(server, tmp_path) as copy:
        server.objects, server.version = {"first": "1"}, 50
        until("object of the backup alone", lambda: set(sizes(copy)) == {"first"})
        until("watch from the version of the backup", lambda: server.watches[-1] == "50")
    (line,) = [line for line in caplog.messages if line.startswith("history_went_back ")]
    assert "from=100 to=50" in line


@contextmanager
def written_through(server: Server, folder: Path) -> Iterator[WriteThroughInformer[ConfigMap]]:
    with serving(server) as address:
        copy = WriteThroughInformer(connect(folder, address), PATH, ConfigMap, stream_lists=False)
        copy.start()
        try:
            until("a watch", lambda: bool(server.watches))
            yield copy
        finally:
            copy.stop()


def test_what_was_removed_since_the_backup_is_there_again_after_a_restore_of_etcd(tmp_path: Path) -> None:
    server = Server({"first": "1"})
    with written_through(server, tmp_path) as copy:
        copy.removed("ns/first", "first")
        assert copy.current() == {}
        server.version = 50
        until("object of the backup", lambda: "ns/first" in copy.current())


def test_an_object_that_took_the_name_of_a_removed_one_stays(tmp_path: Path) -> None:
    with written_through(Server({"first": "1"}), tmp_path) as copy:
        copy.removed("ns/first", "of-an-earlier-one")
        assert copy.current().keys() == {"ns/first"}


@pytest.mark.parametrize("status", [403, 429, 500, 503, 504])
def test_a_copy_whose_watches_are_refused_is_updated_by_lists(status: int, tmp_path: Path) -> None:
    server = Server({"first": "1"}, refuse_watch=(status, ""))
    with copied(server, tmp_path) as copy:
        server.put("second")
        until("second object", lambda: "second" in sizes(copy))


@pytest.mark.promise("O324")
@pytest.mark.parametrize("asked", ["3600", "9" * 20, "²", "-1", "soon"])
def test_no_longer_wait_is_taken_over_from_a_server_than_ours(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_LONGEST_RETRY_SECONDS", 0.2)
    server = Server({"first": "1"}, refuse_watch=(429, asked))
    with copied(server, tmp_path) as copy:
        until("next attempt", lambda: len(server.watches) > 3)
        server.put("second")
        until("second object", lambda: "second" in sizes(copy))


@pytest.mark.promise("O322", "O324")
def test_the_bounds_are_those_of_the_docs() -> None:
    """Not those of this module's tests: two minutes for a silent watch, half an hour for all else."""
    assert client._LONGEST_RETRY_SECONDS == 30
    assert module.RELIST_SECONDS == 1800
    assert SHIPPED_CONFIRMED_SECONDS < 0.8 * SHIPPED_WATCH_SECONDS, "the shortest watch counts as long enough"
    assert SILENCE_SECONDS <= 120


@pytest.mark.parametrize(
    ("version", "than", "expected"),
    [("9", "10", True), ("10", "9", False), ("10", "10", False), ("", "10", False), ("x9", "10", False)],
)
def test_versions_are_compared_as_numbers_where_they_are_some(
    version: str, than: str, expected: bool
) -> None:
    assert is_older(version, than) is expected
