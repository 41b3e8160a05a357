"""Which connection frees capacity for another, where the webhook has as many as it takes."""

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

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
