"""The page's worker: the webhook's worker, plus protection against clients that occupy all threads.

The webhook has few clients, which are API servers. The page may have any client, and its port also serves the
probes. So if a thread is missing, the oldest request is ended: its client stalls or reads slowly. Streams are
not ended: they are fewer than the threads, and their viewers have logged in.
"""

import contextlib
import socket
import time
from concurrent.futures import Future
from typing import Any, Final

from webhook.admission.worker import Connection, Worker

GUARANTEED_SECONDS: Final = 0.5
"""The time that a request keeps its thread even if others need one."""

ANSWER_SECONDS: Final = 20.0
"""The time for a viewer to read a whole answer, such as a large picture over a slow connection."""

STREAMS: Final = "/api/changes"


class PageConnection(Connection):
    """since: when the current request began, in monotonic seconds. is_ended: to free its thread."""

    answer_seconds = ANSWER_SECONDS
    since: float = 0.0
    pool: Any = None
    is_stream: bool = False
    is_ended: bool = False


class PageWorker(Worker):
    """The worker; see Worker for its threads."""

    connection_class = PageConnection

    def init_process(self) -> None:
        """Set up and serve."""
        self.under_way: dict[PageConnection, None] = {}
        super().init_process()

    def enqueue_req(self, conn: PageConnection) -> None:
        """Hand the connection to the threads, and free one if necessary."""
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
        """The work between two polls of the sockets."""
        super().murder_pending()
        self._free_threads()

    def handle_request(self, req: Any, conn: PageConnection) -> Any:
        """Answer a request after its headers have been read."""
        conn.is_stream = req.path == STREAMS
        return super().handle_request(req, conn)

    def _free_threads(self) -> None:
        """End the oldest requests, as many as there are requests without a thread."""
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
                    with contextlib.suppress(OSError):  # SSLSocket.shutdown would remove TLS from the socket
                        socket.socket.shutdown(conn.sock, socket.SHUT_RDWR)
