"""A watch on a connection that is dead without saying so: found out in time, and reported meanwhile."""

import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.kube.copies import connect, copy_of
from webhook.kube import collection
from webhook.kube import informer as module
from webhook.kube.client import Api, Stream

LIST = b'{"metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "one"}}]}'
PATH = "/api/v1/configmaps"


class Silent(ThreadingHTTPServer):
    """Answers a list, and is silent on every watch. answers: after the head of an answer."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, *, answers: bool) -> None:
        self.watches: list[dict[str, list[str]]] = []
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                if "watch" in query:
                    outer.watches.append(query)
                    if answers:
                        self.send_response(200)
                        self.end_headers()
                        self.wfile.flush()
                    outer.over.wait()  # until the test is over: else the server would end the watch
                else:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(LIST)))
                    self.end_headers()
                    self.wfile.write(LIST)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture(params=[True, False], ids=["after the head of its answer", "from the beginning"])
def silent(request: pytest.FixtureRequest) -> Iterator[Silent]:
    server = Silent(answers=request.param)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_watch_that_stays_silent_is_given_up_and_asked_for_again_from_where_it_was(
    silent: Silent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(module, "_MAX_PAUSE_SECONDS", 0.1)
    api = connect(tmp_path, f"http://127.0.0.1:{silent.server_port}")
    with copy_of(api, PATH, stream_lists=False) as copy:
        deadline = time.monotonic() + 90
        while len(silent.watches) < 2:
            assert time.monotonic() < deadline, "the silent watch is still believed"
            time.sleep(0.02)
        assert list(copy.items()) == ["one"], "what was known has been lost"
    assert [query["resourceVersion"] for query in silent.watches[:2]] == [["7"], ["7"]]


def test_silence_is_reported_while_it_lasts(silent: Silent, tmp_path: Path) -> None:
    api = connect(tmp_path, f"http://127.0.0.1:{silent.server_port}")
    with copy_of(api, PATH, stream_lists=False) as copy:
        deadline = time.monotonic() + 90
        while copy.silence_seconds < 0.3:  # the head of an answer, which may come late, ends it once
            assert time.monotonic() < deadline, "nobody is told of it"
            time.sleep(0.02)
        silent.over.set()  # a head that does not come is waited for, also by stop()


class Asked(Api):
    """Notes how long a watch is to last, and what silence is believed."""

    def __init__(self) -> None:
        self.asked: list[tuple[float, float]] = []

    def request(self, method: str, path: str, **_: Any) -> bytes:
        return LIST

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> Stream:
        self.asked.append((float(query["timeoutSeconds"]), timeout_seconds))
        assert query["allowWatchBookmarks"] == "true"
        raise OSError("no more is needed")


def test_a_live_server_ends_a_watch_before_its_silence_is_taken_for_death() -> None:
    api = Asked()
    with copy_of(api, PATH, stream_lists=False):
        deadline = time.monotonic() + 90
        while not api.asked and time.monotonic() < deadline:
            time.sleep(0.01)
    lasts, believed = api.asked[0]
    assert lasts + 10 < believed <= 120
