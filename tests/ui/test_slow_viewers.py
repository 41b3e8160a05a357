"""Clients that hold connections and threads of the page: what they cost the others, over a real server."""

import contextlib
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from hack.local.processes import open_tied
from webhook.ui import page_worker
from webhook.ui.pages import MOST_STREAMS
from webhook.ui.serve_page import THREADS

HEADERS = b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-A: "
FORM = b"Content-Type: application/x-www-form-urlencoded"
BODY = b"POST /login HTTP/1.1\r\nHost: a\r\n" + FORM + b"\r\nContent-Length: 99\r\n\r\na"
WHOLE = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"
STREAM = b"GET /api/changes HTTP/1.1\r\nHost: a\r\nX-Name: %d\r\n\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with open_tied([sys.executable, "-m", "tests.ui.served"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def is_healthy(port: int) -> bool:
    """Though a stalled request may last for an hour here."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=90) as answer:
        return bool(answer.read() == b"ok")


def is_answered(client: socket.socket) -> bool:
    """Whether all of an answer of /healthz comes."""
    got = b""
    while not got.endswith(b"ok") and (more := client.recv(1000)):
        got += more
    return got.startswith(b"HTTP/1.1 200")


def connected(stack: contextlib.ExitStack, port: int, sent: bytes) -> socket.socket:
    client = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=90))
    client.sendall(sent)
    return client


@pytest.mark.promise("S43")
@pytest.mark.parametrize(
    "first", [b"", HEADERS, BODY, WHOLE], ids=["silent", "headers", "body", "kept alive"]
)
def test_more_slow_clients_than_there_are_threads_keep_nobody_out(port: int, first: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2 * THREADS):
            connected(stack, port, first)
        assert is_healthy(port)


@pytest.mark.promise("S43")
def test_a_client_that_proves_itself_and_stalls_then_keeps_nobody_out_either(port: int) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(2 * THREADS):
            client = connected(stack, port, WHOLE)
            assert is_answered(client)
            client.sendall(HEADERS)
        viewer = connected(stack, port, WHOLE)
        assert is_answered(viewer)
        viewer.sendall(WHOLE)
        assert is_answered(viewer)


@pytest.mark.promise("S43")
def test_streams_continue_where_slow_clients_want_all_threads(port: int) -> None:
    with contextlib.ExitStack() as stack:
        streams = [connected(stack, port, STREAM % viewer) for viewer in range(MOST_STREAMS)]
        for stream in streams:
            assert stream.recv(1000).startswith(b"HTTP/1.1 200")
        for _ in range(2 * THREADS):
            connected(stack, port, HEADERS)
        assert is_healthy(port)
        assert [number for number, stream in enumerate(streams) if is_closed(stream)] == []


def is_closed(client: socket.socket) -> bool:
    """Whether the server has ended a connection, by what has come already."""
    client.setblocking(False)
    try:
        while client.recv(1000):
            pass
    except BlockingIOError:
        return False
    return True


@pytest.mark.promise("S43")
def test_the_oldest_requests_that_are_no_streams_are_ended_where_threads_are_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a clock of its own: 3 threads, of which one has a stream, and 2 requests that wait."""
    now = 100.0
    monkeypatch.setattr(page_worker, "time", SimpleNamespace(monotonic=lambda: now))
    with contextlib.ExitStack() as stack:
        worker = object.__new__(page_worker.PageWorker)
        worker.cfg = SimpleNamespace(threads=3)
        worker.tpool, worker.newcomers = object(), object()
        requests = [request(stack, worker.newcomers, now + n / 10, is_stream=n == 0) for n in range(5)]
        other = request(stack, worker.tpool, 0.0)
        worker.under_way = dict.fromkeys([*requests, other])
        now = 100.05 + page_worker.GUARANTEED_SECONDS
        worker._free_threads()
        assert [each.is_ended for each in requests] == [False] * 5, "each keeps its thread for a while"
        now = 110.0
        for _ in range(2):  # those that are ended are still under way, and count
            worker._free_threads()
            assert [each.is_ended for each in requests] == [False, True, True, False, False]
        assert requests[1].sock.recv(1) == b"", "its thread reads the end"
        assert not other.is_ended, "it needs none of these threads"


def request(
    stack: contextlib.ExitStack, pool: object, since: float, *, is_stream: bool = False
) -> page_worker.PageConnection:
    """A request under way over a connection of its own."""
    ours, theirs = map(stack.enter_context, socket.socketpair())
    connection = page_worker.PageConnection(None, ours, theirs.getsockname(), ours.getsockname())
    connection.sock, connection.pool, connection.since = ours, pool, since
    connection.is_stream = is_stream
    return connection
