"""The page's worker: the webhook's, whose threads nobody keeps from all others.

The webhook's clients are API servers and few; the page's may be anybody, and its port is the probes' too. So
a thread that is wanted is taken from the request that has held one the longest: of a client that stalls, or
reads slowly. Streams are spared: they are fewer than the threads, and their viewers have logged in.
"""

import contextlib
import socket
import time
from concurrent.futures import Future
from typing import Any, Final

from webhook.admission.worker import Connection, Worker

GUARANTEED_SECONDS: Final = 0.5
"""For so long a request has its thread, whoever else wants one."""

ANSWER_SECONDS: Final = 20.0
"""For a viewer to take a whole answer: a large picture over a slow line."""

STREAMS: Final = "/api/changes"


class PageConnection(Connection):
    """since: when the request that is under way began, in monotonic seconds. is_ended: for another's sake."""

    answer_seconds = ANSWER_SECONDS
    since: float = 0.0
    pool: Any = None
    is_stream: bool = False
    is_ended: bool = False


class PageWorker(Worker):
    """The worker; see Worker for what runs in which thread."""

    connection_class = PageConnection

    def init_process(self) -> None:
        """Set up and serve."""
        self.under_way: dict[PageConnection, None] = {}
        super().init_process()

    def enqueue_req(self, conn: PageConnection) -> None:
        """Hand the connection to the threads, and see to it that it gets one."""
        conn.since, conn.is_stream = time.monotonic(), False
        conn.pool = self.tpool if conn.is_proven else self.newcomers
        self.under_way[conn] = None
        super().enqueue_req(conn)
        self._free_threads()

    def finish_request(self, conn: PageConnection, fs: "Future[Any]") -> None:
        """Keep the connection, or close it."""
        self.under_way.pop(conn, None)
        if conn.is_ended:
            self.nr_conns -= 1
            conn.close()
        else:
            super().finish_request(conn, fs)

    def murder_pending(self) -> None:
        """What is due between two looks at the sockets."""
        super().murder_pending()
        self._free_threads()

    def handle_request(self, req: Any, conn: PageConnection) -> Any:
        """Answer a request whose headers are there."""
        conn.is_stream = req.path == STREAMS
        return super().handle_request(req, conn)

    def _free_threads(self) -> None:
        """End the oldest requests, as many as wait for a thread."""
        before = time.monotonic() - GUARANTEED_SECONDS
        for pool in (self.tpool, self.newcomers):
            busy = [conn for conn in self.under_way if conn.pool is pool]
            wanted = len(busy) - self.cfg.threads
            for conn in busy if wanted > 0 else ():
                if wanted <= 0 or conn.since > before:
                    break
                if not conn.is_stream:
                    wanted -= 1
                    conn.is_ended = True
                    with contextlib.suppress(OSError):  # not SSLSocket's, which takes TLS off a socket in use
                        socket.socket.shutdown(conn.sock, socket.SHUT_RDWR)
