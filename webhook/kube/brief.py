"""The transport of short commands: the standard library's HTTP, one request after the other.

It loads in half the time of the pool, so commands at a terminal start faster. Streams, proxies and another
server name need the pool (see transport).
"""

import http.client
import select
import socket
import threading
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from webhook.kube.identity import CONNECT_SECONDS, Identity, proxy_of, tls_of


class HttpAnswer(NamedTuple):
    """The answer to one request."""

    status: int
    reason: str
    headers: http.client.HTTPMessage
    data: bytes


def serves(identity: Identity) -> bool:
    """Whether this transport supports an identity."""
    return not identity.server_name and not proxy_of(identity)


class Brief:
    """One connection under one identity, kept alive between requests. Thread-safe."""

    _connection: http.client.HTTPConnection | None = None
    errors: Final = (http.client.HTTPException, OSError)
    """Exceptions of `send` if the answer is missing or incomplete."""
    unsent: Final = (ConnectionRefusedError,)
    """Those of them without a connection, so that nothing was sent."""

    def __init__(self, identity: Identity) -> None:
        """Raises OSError, ValueError."""
        self._address = urlsplit(identity.server)
        self._tls = tls_of(identity) if self._address.scheme == "https" else None
        self._lock = threading.Lock()

    def send(
        self, method: str, url: str, body: bytes | None, headers: dict[str, str], seconds: float
    ) -> HttpAnswer:
        """One request without retries. Raises `errors`."""
        target = urlsplit(url)
        with self._lock:
            connection = self._connected(seconds)
            try:
                path = f"{target.path}?{target.query}" if target.query else target.path
                connection.request(method, path, body=body, headers=headers)
                answer = connection.getresponse()
                return HttpAnswer(answer.status, answer.reason, answer.headers, answer.read())
            except self.errors:
                self._close()
                raise

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._close()

    def __del__(self) -> None:
        """Close the connection of a command that ends without close()."""
        self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self, seconds: float) -> http.client.HTTPConnection:
        if self._connection is not None and _is_dropped(self._connection.sock):
            self._close()
        if self._connection is None:
            self._connection = self._open(seconds)
        assert self._connection.sock is not None
        self._connection.sock.settimeout(seconds)
        return self._connection

    def _open(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        wait = min(CONNECT_SECONDS, seconds)
        if self._tls is None:
            made = http.client.HTTPConnection(host, port, timeout=wait)
        else:
            made = http.client.HTTPSConnection(host, port, timeout=wait, context=self._tls)
        made.connect()
        return made


def _is_dropped(sock: socket.socket | None) -> bool:
    """Whether the server has closed an idle connection: it sends nothing else without a request."""
    return sock is None or bool(select.select([sock], [], [], 0)[0])
