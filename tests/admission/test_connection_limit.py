"""How a connection begins, and which one frees capacity where the webhook has as many as it takes."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gunicorn.config import Config

from webhook.admission.certificates import issue
from webhook.admission.worker import Connection, least_needed


@dataclass
class OpenConnection:
    """A connection of the worker, and its client's end."""

    connection: Connection
    client: socket.socket


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
