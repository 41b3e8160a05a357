"""TLS of the webhook: certificates taken from disk as they are rotated, and no client waited for.

gunicorn asks for a context at every new connection; building one costs half of a handshake, so it is
kept until the files change. gunicorn's threads have no time-out of their own, neither for the
handshake nor for a request that never ends, so the sockets have.
"""

import errno
import logging
import math
import ssl
import time
from pathlib import Path
from typing import Any, Final

HANDSHAKE_SECONDS: Final = 3.0
"""For a whole handshake; the API server gives up after 10 s."""
ANSWER_SECONDS: Final = 3.0
"""For a client to take a whole answer."""
LINGER_SECONDS: Final = 0.05
"""For a client to close after us. gunicorn waits in the thread that all connections go through, and would
wait 2 s there for each client that does not close."""

logger = logging.getLogger(__name__)


class ImpatientSocket(ssl.SSLSocket):
    """A server's TLS socket that gives up on a client that stalls, or sends drop by drop.

    deadline: by when all that is received now must be there, in monotonic seconds; the worker sets it for
    each request. The errors are those of a client that went away: gunicorn takes them quietly and ends
    the connection, whereas a time-out would be logged with a traceback.
    """

    deadline = math.inf
    _is_closing = False

    def do_handshake(self, block: bool = False) -> None:
        """Shake hands within HANDSHAKE_SECONDS, and before the deadline."""
        self._wait_until(min(time.monotonic() + HANDSHAKE_SECONDS, self.deadline))
        try:
            super().do_handshake(block)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "TLS handshake took too long") from None

    def shutdown(self, how: int) -> None:
        """Say that no more will be sent; from now on the client is waited for LINGER_SECONDS at most."""
        self._is_closing = True
        super().shutdown(how)

    def settimeout(self, value: float | None) -> None:
        """Set the time-out, but never above LINGER_SECONDS once the connection is being closed."""
        super().settimeout(LINGER_SECONDS if self._is_closing and value != 0 else value)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receive before the deadline, taking a slow client for one that is gone."""
        if not self._is_closing:
            self._wait_until(self.deadline)
        try:
            return super().recv(buflen, flags)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "client stalled") from None

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send within ANSWER_SECONDS, taking a client that does not read for one that is gone."""
        until = time.monotonic() + ANSWER_SECONDS
        rest = memoryview(data).cast("B")
        while rest:
            self._wait_until(until)
            try:
                rest = rest[self.send(rest, flags) :]
            except TimeoutError:
                raise ConnectionResetError(errno.ECONNRESET, "client stalled") from None

    def _wait_until(self, moment: float) -> None:
        """Let the next operation last until then. Raises ConnectionResetError if that is past."""
        remaining = moment - time.monotonic()
        if remaining <= 0:
            raise ConnectionResetError(errno.ECONNRESET, "client stalled")
        super().settimeout(None if remaining == math.inf else remaining)


class ContextCache:
    """The TLS context of a certificate and a key on disk, made anew whenever either changes."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read both now. Raises OSError or ssl.SSLError if they cannot be used."""
        self._files = (certificate, key)
        self._state = self._stat()
        self._context = self._build()

    def context(self) -> ssl.SSLContext:
        """The context for the next connection.

        A pair that cannot be used (half of a rotation, say) leaves the one before in force.
        """
        try:
            state = self._stat()
            if state != self._state:
                self._context = self._build()
                self._state = state
                logger.info("tls_context_renewed certificate=%s", self._files[0])
        except (OSError, ssl.SSLError) as error:
            logger.warning("tls_pair_unusable certificate=%s error=%r", self._files[0], str(error))
        return self._context

    def _stat(self) -> tuple[tuple[int, int, int], ...]:
        facts = [path.stat() for path in self._files]
        return tuple((fact.st_mtime_ns, fact.st_ino, fact.st_size) for fact in facts)

    def _build(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(certificate, key)
        context.sslsocket_class = ImpatientSocket
        return context
