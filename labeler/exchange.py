"""One plain HTTP exchange: a bounded answer before one deadline, whatever the server sends, and how slowly.

Timeouts of urllib3 and of the standard library count from byte to byte, and not while a name is looked up. So
each read has what is left of the time, and all of it runs in a thread of its own.
"""

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3

CONNECT_SECONDS: Final = 2.0
MOST_BYTES: Final = 64 * 1024
"""Of a body, after it is decompressed."""
_MOST_SENT: Final = 8 * MOST_BYTES
"""Bytes of headers, body and all else: a hundred headers of 64 KiB would fill the labeler's memory."""
SHOWN: Final = 200
"""Characters of what a server sent, in a message."""


class ExchangeError(Exception):
    """There is no answer; the message is one short line that names the URL."""


@dataclass(frozen=True)
class ExchangeAnswer:
    """An answer with any status. headers: their names in lower case."""

    status: int
    reason: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


def exchange(method: str, url: str, headers: Mapping[str, str], deadline: float) -> ExchangeAnswer:
    """Ask once, following no redirect and using no proxy. deadline: of the monotonic clock, in seconds.

    Raises ExchangeError where the whole answer is not there in time, is too long or is no HTTP.
    """
    outcome: SimpleQueue[ExchangeAnswer | Exception] = SimpleQueue()

    def run() -> None:
        try:
            outcome.put(_ask(method, url, headers, deadline))
        except (urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError) as error:
            outcome.put(error)

    Thread(target=run, name=f"{method} {url}", daemon=True).start()
    try:
        answer = outcome.get(timeout=max(0.0, deadline - time.monotonic()))
    except Empty:  # its thread ends by itself, at the latest when the name is looked up
        answer = _late()
    if isinstance(answer, Exception):
        raise ExchangeError(f"{url}: no answer: {shown(answer)}") from answer
    return answer


def shown(value: object) -> str:
    """What a server sent, for a log: one line of printable characters, and not many of them."""
    text = str(value)[:SHOWN]
    return text if text.isprintable() else repr(text)


class _BoundedSocket(socket.socket):
    """A connected socket whose reads together end before a deadline, and after so many bytes."""

    deadline = 0.0
    bytes_left = _MOST_SENT

    def recv_into(self, *arguments: Any) -> int:
        """As a socket does. Raises TimeoutError once the deadline has passed, OSError for too many bytes."""
        self.settimeout(_seconds_left(self.deadline))
        count = super().recv_into(*arguments)
        self.bytes_left -= count
        if self.bytes_left < 0:
            raise OSError(f"the server sent more than {_MOST_SENT} bytes")
        return count


def _ask(method: str, url: str, headers: Mapping[str, str], deadline: float) -> ExchangeAnswer:
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    timeout = min(CONNECT_SECONDS, _seconds_left(deadline))
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    try:
        connection.connect()
        connection.sock = _BoundedSocket(fileno=connection.sock.detach())
        connection.sock.deadline = deadline
        connection.sock.settimeout(_seconds_left(deadline))
        connection.request(method, path, headers=dict(headers))
        with connection.getresponse() as response:
            fields = {key.lower(): value for key, value in response.getheaders()}
            body = _body(response, fields)
    finally:
        connection.close()  # a connection costs nothing here, a half-read one a puzzle
    if len(body) > MOST_BYTES:
        raise ValueError(f"the answer is longer than {MOST_BYTES} bytes")
    return ExchangeAnswer(response.status, response.reason, body, fields)


def _body(response: HTTPResponse, headers: Mapping[str, str]) -> bytes:
    """Up to a byte more than is taken: urllib3 decompresses no more, and knows when a part is missing."""
    own = {key: value for key, value in headers.items() if key != "content-length" or not response.chunked}
    return urllib3.HTTPResponse(response, own, preload_content=False).read(MOST_BYTES + 1)


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise _late()
    return left


def _late() -> TimeoutError:
    return TimeoutError("it did not end in time")
