"""TLS of a serving program: certificates are read from disk as they are rotated, with time-outs for clients.

gunicorn asks for a context at every new connection; building one costs half of a handshake, so it is kept
until the files change. gunicorn's threads have no time-out for the handshake or for a request that never
ends, so the sockets have.
"""

import errno
import logging
import math
import socket
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cryptography import x509

HANDSHAKE_SECONDS: Final = 3.0
"""For a whole handshake; the API server gives up after 10 s."""
ANSWER_SECONDS: Final = 3.0
"""For a client to read a whole answer, unless the program sets another time."""
LINGER_SECONDS: Final = 0.05
"""For a client to close after us.

gunicorn waits in the thread that accepts all connections, and would wait 2 s there for each client that does
not close.
"""
RETRY_SECONDS: Final = 1.0

_State = tuple[tuple[int, int, int], ...]

logger = logging.getLogger(__name__)


class Impatient(socket.socket):
    """A server's socket with a time-out for a client that stalls, or sends byte by byte.

    deadline: when everything received now must be complete, in monotonic seconds; the worker sets it for each
    request. answer_seconds: for a client to read everything that is sent at once. The errors are those of a
    client that disconnected: gunicorn ends the connection without a log, whereas a time-out would be logged
    with a traceback.
    """

    deadline = math.inf
    answer_seconds = ANSWER_SECONDS
    _is_closing = False

    def shutdown(self, how: int) -> None:
        """Announce the end of sending; from now on, wait for the client LINGER_SECONDS at most."""
        self._is_closing = True
        super().shutdown(how)

    def settimeout(self, value: float | None) -> None:
        """Set the time-out, but never above LINGER_SECONDS once the connection is being closed."""
        super().settimeout(LINGER_SECONDS if self._is_closing and value != 0 else value)

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        """Receive before the deadline; treat a slow client as disconnected."""
        if not self._is_closing:
            self._wait_until(self.deadline)
        try:
            return super().recv(buflen, flags)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "client stalled") from None

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send in time; treat a client that does not read as disconnected."""
        until = time.monotonic() + self.answer_seconds
        rest = memoryview(data).cast("B")
        while rest:
            self._wait_until(until)
            try:
                rest = rest[self.send(rest, flags) :]
            except TimeoutError:
                raise ConnectionResetError(errno.ECONNRESET, "client stalled") from None

    def _wait_until(self, moment: float) -> None:
        """Limit the next operation to the deadline. Raises ConnectionResetError if that is past."""
        remaining = moment - time.monotonic()
        if remaining <= 0:
            raise ConnectionResetError(errno.ECONNRESET, "client stalled")
        super().settimeout(None if remaining == math.inf else remaining)


class ImpatientSocket(Impatient, ssl.SSLSocket):
    """The same under TLS."""

    def do_handshake(self, block: bool = False) -> None:
        """Shake hands within HANDSHAKE_SECONDS, and before the deadline."""
        self._wait_until(min(time.monotonic() + HANDSHAKE_SECONDS, self.deadline))
        try:
            super().do_handshake(block)
        except TimeoutError:
            raise ConnectionResetError(errno.ECONNRESET, "TLS handshake took too long") from None


class ContextCache:
    """The TLS context of a certificate and a key on disk, recreated whenever either changes.

    not_before, not_after: of the certificate that is served, whatever the files contain now. error: why their
    content is not served, "" if it is.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Read both now. Raises OSError or ssl.SSLError if they cannot be used."""
        self._files = (certificate, key)
        self._failed: _State | None = None
        self._retry_at = 0.0
        self.error = ""
        self.not_before = self.not_after = datetime.fromtimestamp(0, UTC)
        self._state = self._stat()
        self._context = self._build()

    @property
    def fault(self) -> str:
        """Why no client would accept the served certificate, "" if nothing is wrong."""
        now = datetime.now(UTC)
        if now > self.not_after:
            return f"certificate expired at {self.not_after.isoformat()}"
        if now < self.not_before:
            return f"certificate is not valid before {self.not_before.isoformat()}"
        return ""

    def context(self) -> ssl.SSLContext:
        """The context for the next connection.

        If a pair cannot be used (for example, half of a rotation), the previous one stays in use; the files
        are tried again when they have changed, or after RETRY_SECONDS.
        """
        state: _State | None = None
        try:
            state = self._stat()
            if state == self._failed and time.monotonic() < self._retry_at:
                return self._context
            if state != self._state:
                self._context = self._build()
                self._state = state
                logger.info(
                    "tls_context_renewed certificate=%s expires=%s",
                    self._files[0],
                    self.not_after.isoformat(),
                )
            self._failed, self.error = None, ""
        except (OSError, ssl.SSLError) as error:
            self._failed, self._retry_at = state, time.monotonic() + RETRY_SECONDS
            if str(error) != self.error:
                self.error = str(error)
                logger.warning("tls_pair_unusable certificate=%s error=%r", self._files[0], self.error)
        return self._context

    def refresh(self) -> None:
        """Load new files without a connection, so that reports about the certificate are true."""
        self.context()

    def _stat(self) -> _State:
        facts = [path.stat() for path in self._files]
        return tuple((fact.st_mtime_ns, fact.st_ino, fact.st_size) for fact in facts)

    def _build(self) -> ssl.SSLContext:
        certificate, key = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        text = certificate.read_bytes()
        context.load_cert_chain(certificate, key)
        if certificate.read_bytes() != text:
            raise OSError("it changed while it was read")
        context.sslsocket_class = ImpatientSocket
        try:
            leaf = x509.load_pem_x509_certificate(text)
        except ValueError as error:
            raise OSError(f"no certificate: {error}") from None
        self.not_before, self.not_after = leaf.not_valid_before_utc, leaf.not_valid_after_utc
        return context
