"""How a connection begins, and which one frees capacity where the webhook has as many as it takes."""

import contextlib
import errno
import itertools
import logging
import select
import selectors
import socket
import ssl
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gunicorn.config import Config
from gunicorn.workers import gthread

from webhook.admission.certificates import issue
from webhook.admission.tls import Impatient
from webhook.admission.worker import LATE_SECONDS, REQUEST_SECONDS, Connection, Worker, least_needed


@dataclass
class OpenConnection:
    """A connection of the worker, and its client's end."""

    connection: Connection
    client: socket.socket


class Scene:
    """A worker that takes fewer than three connections, and threads that serve none."""

    def __init__(self, listener: socket.socket, stack: contextlib.ExitStack) -> None:
        self.listener = listener
        self._stack = stack
        self.worker = Worker.__new__(Worker)
        self.worker.cfg = Config()
        self.worker.poller = stack.enter_context(selectors.DefaultSelector())
        self.worker.pending_conns, self.worker.keepalived_conns = deque(), deque()
        self.worker.nr_conns, self.worker.worker_connections = 0, 3
        self.worker.numbers = itertools.count(1)
        self.worker.newcomers = stack.enter_context(Idle(1))
        self.worker.tpool = self.worker.newcomers

    def connect(self) -> socket.socket:
        """A client whose connection is accepted."""
        client = self._stack.enter_context(socket.create_connection(self.listener.getsockname()))
        select.select([self.listener], [], [], 10)
        self.worker.accept(self.listener)
        self._stack.callback(self.worker.pending_conns[-1].sock.close)
        return client


class Idle(ThreadPoolExecutor):
    """A pool whose threads begin nothing."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        return Future()


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def opened(stack: contextlib.ExitStack, number: int, *, used: bool) -> OpenConnection:
    ours, client = socket.socketpair()
    stack.enter_context(ours)
    stack.enter_context(client)
    nothing: Any = None
    connection = Connection(nothing, ours, nothing, nothing)
    connection.number, connection.is_proven = number, used
    return OpenConnection(connection, client)


def chosen(*there: OpenConnection) -> int:
    """The number of the one that is closed. there: the longest idle first."""
    return least_needed([each.connection for each in there]).number


def test_one_that_has_sent_no_request_is_closed_before_one_that_has(stack: contextlib.ExitStack) -> None:
    assert chosen(opened(stack, 1, used=True), opened(stack, 2, used=False), opened(stack, 3, used=True)) == 2


def test_of_used_connections_the_longest_idle_is_closed(stack: contextlib.ExitStack) -> None:
    assert chosen(opened(stack, 2, used=True), opened(stack, 1, used=True), opened(stack, 3, used=True)) == 2


def test_the_newest_stays_though_an_answer_to_an_older_one_ended_after_its_handshake(
    stack: contextlib.ExitStack,
) -> None:
    idle, newest, answered = (opened(stack, number, used=number != 3) for number in (1, 3, 2))
    assert chosen(idle, newest, answered) == 1


def test_one_whose_request_has_arrived_is_not_idle(stack: contextlib.ExitStack) -> None:
    arrived, idle, newest = (
        opened(stack, 1, used=False),
        opened(stack, 2, used=True),
        opened(stack, 3, used=False),
    )
    arrived.client.sendall(b"GET ")
    assert chosen(arrived, idle, newest) == 2


def test_where_the_requests_of_all_have_arrived_one_is_closed_all_the_same(
    stack: contextlib.ExitStack,
) -> None:
    there = [opened(stack, number, used=True) for number in (1, 2)]
    for each in there:
        each.client.sendall(b"GET ")
    assert chosen(*there) == 1


def test_a_single_connection_is_closed(stack: contextlib.ExitStack) -> None:
    assert chosen(opened(stack, 1, used=False)) == 1


def test_hands_are_shaken_before_the_client_sends_a_request(
    stack: contextlib.ExitStack, tmp_path: Path
) -> None:
    pair, ready = issue(["localhost"]), threading.Event()
    (tmp_path / "both").write_bytes(pair.key + pair.certificate)
    settings = Config()
    settings.set("certfile", str(tmp_path / "both"))
    settings.set("keyfile", str(tmp_path / "both"))
    ours, theirs = socket.socketpair()
    stack.enter_context(ours)

    def shake_hands() -> None:
        trusted = ssl.create_default_context(cadata=pair.authority.decode())
        with contextlib.suppress(OSError), trusted.wrap_socket(theirs, server_hostname="localhost"):
            ready.set()

    client = threading.Thread(target=shake_hands)
    client.start()
    connection = Connection(settings, ours, ("127.0.0.1", 1), ("127.0.0.1", 2))
    connection.deadline = float("inf")
    connection.init()
    is_ready = ready.wait(10)
    connection.sock.close()
    client.join()
    assert is_ready


@pytest.fixture
def scene(stack: contextlib.ExitStack) -> Scene:
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    listener.setblocking(False)
    return Scene(listener, stack)


def test_at_the_limit_the_oldest_connection_that_has_sent_nothing_is_closed(scene: Scene) -> None:
    clients = [scene.connect() for _ in range(3)]
    assert [each.number for each in scene.worker.pending_conns] == [2, 3]
    assert scene.worker.nr_conns == 2
    clients[0].settimeout(10)
    assert clients[0].recv(1) == b""


def test_a_connection_that_is_gone_before_it_is_accepted_harms_nobody(scene: Scene) -> None:
    scene.worker.accept(scene.listener)
    assert scene.worker.nr_conns == 0
    scene.listener.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        scene.worker.accept(scene.listener)


def test_a_request_has_its_whole_time_from_its_first_byte(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.connect()
    (connection,) = scene.worker.pending_conns
    monkeypatch.setattr("webhook.admission.worker.time.monotonic", lambda: 100.0)
    scene.worker.enqueue_req(connection)
    assert connection.deadline == 100.0 + REQUEST_SECONDS


@pytest.mark.parametrize(("left", "given"), [(0.0, LATE_SECONDS), (3.0, 3.0)], ids=["late", "in time"])
def test_a_request_that_waited_for_a_thread_has_still_the_time_to_be_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, left: float, given: float
) -> None:
    scene.connect()
    (connection,) = scene.worker.pending_conns
    monkeypatch.setattr("webhook.admission.worker.time.monotonic", lambda: 100.0)
    monkeypatch.setattr(gthread.ThreadWorker, "handle", lambda *_: True)
    connection.deadline = 100.0 + left
    assert scene.worker.handle(connection), "hands are shaken, and the connection is kept"
    assert not connection.is_proven
    assert scene.worker.handle(connection)
    assert connection.is_proven
    assert connection.deadline == connection.sock.deadline == 100.0 + given
    connection.sock.close()


def test_a_connection_whose_client_leaves_before_its_handshake_is_closed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.connect()
    (connection,) = scene.worker.pending_conns

    def fail(_: Connection) -> None:
        raise ConnectionResetError

    monkeypatch.setattr(Connection, "init", fail)
    scene.worker.log = logging.getLogger("test")
    assert not scene.worker.handle(connection)


def test_a_connection_that_has_been_used_is_served_when_it_sends_again(scene: Scene) -> None:
    scene.connect()
    connection = scene.worker.pending_conns.popleft()
    scene.worker.keepalived_conns.append(connection)
    scene.worker.on_client_socket_readable(connection, connection.sock)
    assert not scene.worker.keepalived_conns
    assert not scene.worker.poller.get_map(), "until it has been served, nobody waits for it"


def test_a_client_that_stalls_counts_as_one_that_has_left(stack: contextlib.ExitStack) -> None:
    ours, _theirs = map(stack.enter_context, socket.socketpair())
    with Impatient(fileno=ours.detach()) as impatient:
        impatient.deadline = 0.0
        with pytest.raises(ConnectionResetError) as late:
            impatient.recv()
        impatient.answer_seconds = 0.05
        with pytest.raises(ConnectionResetError) as unread:
            impatient.sendall(b"x" * (1 << 24))
    assert (late.value.errno, unread.value.errno) == (errno.ECONNRESET, errno.ECONNRESET)
