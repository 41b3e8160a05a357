"""The transport of commands that are over soon: what the pool does too, it does in the same words."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.kube.copies import kubeconfig
from webhook.kube.brief import serves
from webhook.kube.client import Api, ApiError
from webhook.kube.identity import Identity


class Server:
    """Answers on loopback, and notes what it was asked and over how many connections."""

    def __init__(self, *, keeps: bool, status: int = 200) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.connections: set[int] = set()
        noted = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if keeps else "HTTP/1.0"

            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                noted.asked.append((self.command, self.path, dict(self.headers), body))
                noted.connections.add(self.client_address[1])
                answer = json.dumps({"reason": "Told", "message": "so it is"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("Retry-After", "7")
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PATCH = do_DELETE = _answer

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listening.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.server_port}"


@contextmanager
def serving(*, keeps: bool = True, status: int = 200) -> Iterator[Server]:
    server = Server(keeps=keeps, status=status)
    thread = threading.Thread(target=server.listening.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.listening.shutdown()
        thread.join()
        server.listening.server_close()


_clients: list[Api] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """No connection outlives its test."""
    yield
    while _clients:
        _clients.pop().close()


def connect(folder: Path, url: str, *, brief: bool = True) -> Api:
    path = kubeconfig(folder, {"token": "t", "as": "somebody"})
    path.write_text(path.read_text().replace("http://127.0.0.1:1", url))
    _clients.append(Api.connect(path, user_agent="test", context="mine", brief=brief))
    return _clients[-1]


@pytest.mark.parametrize("prefix", ["", "/clusters/a"])
@pytest.mark.parametrize("brief", [True, False])
def test_a_request_names_who_asks_for_what(tmp_path: Path, brief: bool, prefix: str) -> None:
    with serving() as server:
        api = connect(tmp_path, server.url + prefix, brief=brief)
        answer = api.json("POST", "/x", query={"a": "b c"}, body={"spec": 1}, content_type="application/y")
    assert answer == {"reason": "Told", "message": "so it is"}
    ((method, path, headers, body),) = server.asked
    assert (method, path, json.loads(body)) == ("POST", f"{prefix}/x?a=b+c", {"spec": 1})
    assert {name: headers[name] for name in ("Authorization", "Impersonate-User", "User-Agent")} == {
        "Authorization": "Bearer t", "Impersonate-User": "somebody", "User-Agent": "test",
    }  # fmt: skip
    assert (headers["Content-Type"], headers["Accept"]) == ("application/y", "application/json")


@pytest.mark.parametrize(("keeps", "connections"), [(True, 1), (False, 3)])
def test_a_connection_serves_until_the_server_closes_it(
    tmp_path: Path, keeps: bool, connections: int
) -> None:
    with serving(keeps=keeps) as server:
        api = connect(tmp_path, server.url)
        for _ in range(3):
            api.request("GET", "/x")
    assert len(server.asked) == 3
    assert len(server.connections) == connections


@pytest.mark.parametrize("brief", [True, False])
def test_a_refusal_names_what_and_why(tmp_path: Path, brief: bool) -> None:
    with serving(status=429) as server, pytest.raises(ApiError, match="GET /x: so it is") as refused:
        connect(tmp_path, server.url, brief=brief).request("GET", "/x")
    error = refused.value
    assert (error.status, error.reason, error.retry_after) == (429, "Told", 7)


@pytest.mark.parametrize("brief", [True, False])
def test_a_server_that_is_not_there_is_a_transient_error(tmp_path: Path, brief: bool) -> None:
    with pytest.raises(ApiError, match="got no answer") as refused:
        connect(tmp_path, "http://127.0.0.1:1", brief=brief).request("GET", "/x")
    assert refused.value.is_transient


@pytest.mark.parametrize(
    "answered", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\ntorn", b"nonsense\r\n\r\n"]
)
def test_an_answer_that_breaks_off_is_a_transient_error_and_the_next_request_starts_again(
    tmp_path: Path, answered: bytes
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(65536)
                    connection.sendall(answered)

        thread = threading.Thread(target=answer)
        thread.start()
        api = connect(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}")
        for _ in range(2):
            with pytest.raises(ApiError, match="got no answer") as refused:
                api.request("GET", "/x")
            assert refused.value.is_transient
        thread.join()


@pytest.mark.parametrize("brief", [True, False])
def test_a_silent_server_is_not_waited_for_longer_than_asked(tmp_path: Path, brief: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        api = connect(tmp_path, f"http://127.0.0.1:{listening.getsockname()[1]}", brief=brief)
        for _ in range(2):
            with pytest.raises(ApiError, match="timed out") as refused:
                api.request("GET", "/x", timeout_seconds=0.3)
            assert refused.value.is_transient


def test_what_it_does_not_serve_is_left_to_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert serves(Identity("https://s"))
    assert not serves(Identity("https://s", server_name="other"))
    assert not serves(Identity("https://s", proxy="http://p"))
    monkeypatch.setenv("https_proxy", "http://p")
    assert not serves(Identity("https://s"))


def test_a_brief_client_streams_by_the_pool(tmp_path: Path) -> None:
    with serving(keeps=False) as server:
        api = connect(tmp_path, server.url)
        api.request("GET", "/x")
        assert list(api.lines("/log", query={"follow": "true"}, timeout_seconds=60)) == []
    assert [path for _, path, _, _ in server.asked] == ["/x", "/log?follow=true"]
