"""gunicorn's threaded worker, hardened against slow and hostile clients.

A connection gets a thread only once its client has sent something, and the whole request has a deadline from
that moment on, including the wait for a thread, so that any number of slow clients is gone after it. A
connection that has completed its handshake may idle before its first request as long as after it: Go's
transport opens spare ones, and a spare that is closed under its next request is a pod without a gate. If
connections run out, the oldest idle one is closed for the new one.
"""

import errno
import itertools
import select
import selectors
import socket
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from gunicorn import http, util
from gunicorn.sock import ssl_wrap_socket
from gunicorn.workers import gthread

from webhook.admission.tls import ANSWER_SECONDS, Impatient

FIRST_BYTE_SECONDS: float = 5.0
"""For a new connection to send its first byte, that of the handshake; the API server does so at once."""
REQUEST_SECONDS: float = 5.0
"""From the first byte of a request to its last. The API server waits 3 s for the answer, as shipped."""
LATE_SECONDS: float = 0.25
"""For a request that has waited longer than that for a thread: enough for one that has already arrived."""
_TRANSIENT: Final = (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK)


class Connection(gthread.TConn):  # type: ignore[misc]
    """One connection, with or without TLS.

    number: counts connections in the order in which they were opened. deadline: when the current handshake or
    request must be read, in monotonic seconds. is_proven: whether a whole request has come over it.
    is_displaced: whether it was closed for another.
    """

    number: int = 0
    deadline: float = 0.0
    is_proven: bool = False
    is_displaced: bool = False
    answer_seconds: float = ANSWER_SECONDS
    initialized: bool
    sock: Any

    def init(self) -> None:
        """Shake hands, once."""
        if self.initialized:
            return
        self.initialized = True
        self.sock.setblocking(True)
        if self.cfg.is_ssl:
            self.sock = ssl_wrap_socket(self.sock, self.cfg)
        else:
            self.sock = Impatient(fileno=self.sock.detach())
        self.sock.deadline, self.sock.answer_seconds = self.deadline, self.answer_seconds
        if self.cfg.is_ssl:
            self.sock.do_handshake()
        self.parser = http.get_parser(self.cfg, self.sock, self.client)

    def close(self, graceful: bool = False) -> None:
        """Close; a client that never completed a handshake is not waited for."""
        if self.parser is None:
            util.close(self.sock)
        else:
            super().close(graceful)

    @property
    def has_sent(self) -> bool:
        """Whether bytes of its client wait to be read: then it only looks idle."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return bool(poll.poll(0))


class Worker(gthread.ThreadWorker):  # type: ignore[misc]
    """The worker. Everything here but `handle` runs in the thread that handles all connections."""

    connection_class: type[Connection] = Connection

    def init_process(self) -> None:
        """Set up and serve."""
        self.newcomers = self.get_thread_pool()
        self.numbers = itertools.count(1)
        super().init_process()

    def accept(self, listener: socket.socket) -> None:
        """Accept a new connection and leave it to the poller until it sends something."""
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in _TRANSIENT:
                return
            raise
        connection = self.connection_class(self.cfg, client, address, listener.getsockname())
        connection.number = next(self.numbers)
        connection.timeout = time.monotonic() + FIRST_BYTE_SECONDS
        self.nr_conns += 1
        self.pending_conns.append(connection)
        readable = partial(self.on_pending_socket_readable, connection)
        self.poller.register(client, selectors.EVENT_READ, readable)
        if self.nr_conns >= self.worker_connections:
            self._displace_one()

    def _displace_one(self) -> None:
        """Close the oldest connection that has sent nothing, else an unused one, else the longest idle."""
        if len(self.pending_conns) > 1:
            self._close_idle(self.pending_conns, self.pending_conns[0])
        elif self.keepalived_conns:
            self._close_idle(self.keepalived_conns, least_needed(self.keepalived_conns))

    def _close_idle(self, idle: deque[Connection], connection: Connection) -> None:
        connection.is_displaced = True
        idle.remove(connection)
        self.poller.unregister(connection.sock)
        self.nr_conns -= 1
        connection.close()

    def on_pending_socket_readable(self, conn: Connection, client: Any) -> None:
        """Serve a connection that has sent its first byte."""
        if not conn.is_displaced:  # just now; its byte came together with the connection that displaced it
            super().on_pending_socket_readable(conn, client)

    def on_client_socket_readable(self, conn: Connection, client: Any) -> None:
        """Serve a kept connection that has sent something."""
        if not conn.is_displaced:
            super().on_client_socket_readable(conn, client)

    def finish_request(self, conn: Connection, fs: "Future[Any]") -> None:
        """Keep the connection, or close it; above the limit, those that were never used are closed first.

        gunicorn would instead end those that are in use, with their next answers.
        """
        super().finish_request(conn, fs)
        if len(self.keepalived_conns) >= self.max_keepalived:
            self._close_idle(self.keepalived_conns, least_needed(self.keepalived_conns))

    def enqueue_req(self, conn: Connection) -> None:
        """Pass a connection that has sent something to the threads, a new one to separate threads.

        A client that never completes a request delays other new clients at most, and not the connections that
        the API servers keep.
        """
        conn.deadline = time.monotonic() + REQUEST_SECONDS
        pool = self.tpool if conn.is_proven else self.newcomers
        done = pool.submit(self.handle, conn)
        done.add_done_callback(lambda future: self.method_queue.defer(self.finish_request, conn, future))

    def run(self) -> None:
        """Serve until stopped."""
        super().run()
        self.newcomers.shutdown(wait=False)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Stop at once."""
        self.newcomers.shutdown(wait=False)
        super().handle_quit(sig, frame)

    def handle(self, conn: Connection) -> Any:
        """Do the handshake, or serve one request; returns whether the connection is kept."""
        conn.deadline = max(conn.deadline, time.monotonic() + LATE_SECONDS)
        if not conn.initialized:
            return self._welcome(conn)
        conn.sock.deadline = conn.deadline
        stays_open = super().handle(conn)
        conn.is_proven = True
        return stays_open

    def _welcome(self, conn: Connection) -> bool:
        """Do the handshake and leave the connection to the poller, as one that has been used.

        No part of a request can have been read with the handshake: OpenSSL reads record by record.
        """
        try:
            conn.init()
        except (OSError, ValueError) as error:  # also of TLS; the client is gone, or speaks no TLS
            self.log.debug("No handshake: %s", error)
            return False
        return True


def least_needed(idle: Iterable[Connection]) -> Connection:
    """Which kept connection to close: the first that has never sent a request; if all have, the longest idle.

    idle: at least one, the longest idle first. The newest connection is not closed, nor one whose request has
    arrived and is only not read yet: that would fail calls of an API server that does nothing wrong. The
    newest need not be the last of `idle`: the answer to an older one's request may have ended after its
    handshake.
    """
    idle = list(idle)
    newest = max(idle, key=lambda each: each.number)
    spare = [each for each in idle if each is not newest] or idle
    unused = (each for each in spare if not each.is_proven and not each.has_sent)
    unproven_idle = (each for each in spare if not each.has_sent)
    return next(unused, None) or next(unproven_idle, spare[0])
