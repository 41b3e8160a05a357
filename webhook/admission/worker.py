"""gunicorn's threaded worker, made so that clients without good will cannot hold it up.

A thread is spent on a connection only once its client has sent something, and the whole request has a
deadline from that moment on, waiting for a thread included, so that any number of slow ones is gone
after it. Where connections run out, the oldest that is idle makes room for the new one.
"""

import errno
import selectors
import socket
import time
from functools import partial
from typing import Any, Final

from gunicorn import http, util
from gunicorn.sock import ssl_wrap_socket
from gunicorn.workers import gthread

FIRST_BYTE_SECONDS: float = 5.0
"""For a new connection to send its first byte; the API server does so at once."""
REQUEST_SECONDS: float = 5.0
"""From the first byte of a request to its last. The API server waits 3 s for the answer, as shipped."""
LATE_SECONDS: float = 0.25
"""For a request that has waited for a thread longer than that: enough for one that is there already."""
_TRANSIENT: Final = (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK)


class Connection(gthread.TConn):  # type: ignore[misc]
    """One connection; `deadline` is by when the request under way must be read, in monotonic seconds."""

    deadline: float = 0.0
    initialized: bool
    sock: Any

    def init(self) -> None:
        """Shake hands, once."""
        if self.initialized:
            return
        self.initialized = True
        self.sock.setblocking(True)
        self.sock = ssl_wrap_socket(self.sock, self.cfg)
        self.sock.deadline = self.deadline
        self.sock.do_handshake()
        self.parser = http.get_parser(self.cfg, self.sock, self.client)

    def close(self, graceful: bool = False) -> None:
        """Close; nothing is owed to a client that never shook hands, so it is not waited for."""
        if self.parser is None:
            util.close(self.sock)
        else:
            super().close(graceful)


class Worker(gthread.ThreadWorker):  # type: ignore[misc]
    """The worker. Everything here but `handle` runs in the thread that all connections go through."""

    def init_process(self) -> None:
        """Set up and serve."""
        self.newcomers = self.get_thread_pool()
        super().init_process()

    def accept(self, listener: socket.socket) -> None:
        """Take a new connection and leave it to the poller until it sends something."""
        try:
            client, address = listener.accept()
        except OSError as error:
            if error.errno in _TRANSIENT:
                return
            raise
        connection = Connection(self.cfg, client, address, listener.getsockname())
        connection.timeout = time.monotonic() + FIRST_BYTE_SECONDS
        self.nr_conns += 1
        self.pending_conns.append(connection)
        readable = partial(self.on_pending_socket_readable, connection)
        self.poller.register(client, selectors.EVENT_READ, readable)
        if self.nr_conns >= self.worker_connections:
            self._make_room()

    def _make_room(self) -> None:
        """Close the oldest connection that has sent nothing yet, else the one that has been idle longest."""
        idle = self.pending_conns if len(self.pending_conns) > 1 else self.keepalived_conns
        if idle:
            connection = idle.popleft()
            self.poller.unregister(connection.sock)
            self.nr_conns -= 1
            connection.close()

    def enqueue_req(self, conn: Connection) -> None:
        """Hand a connection that has sent something to the threads, a new one to threads of their own.

        Whoever never gets as far as a whole request holds up other newcomers at most, and not the
        connections that the API servers keep.
        """
        conn.deadline = time.monotonic() + REQUEST_SECONDS
        pool = self.tpool if conn.initialized else self.newcomers
        done = pool.submit(self.handle, conn)
        done.add_done_callback(lambda future: self.method_queue.defer(self.finish_request, conn, future))

    def run(self) -> None:
        """Serve until told to stop."""
        super().run()
        self.newcomers.shutdown(wait=False)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Stop at once."""
        self.newcomers.shutdown(wait=False)
        super().handle_quit(sig, frame)

    def handle(self, conn: Connection) -> Any:
        """Serve one request."""
        conn.deadline = max(conn.deadline, time.monotonic() + LATE_SECONDS)
        if conn.initialized:
            conn.sock.deadline = conn.deadline
        return super().handle(conn)
