"""Whether the labeler lives and has labelled, on an HTTP port for the kubelet's probes.

``/healthz`` fails when the loop has stood still, ``/readyz`` until the node is labelled and while it cannot
be: an API server that is away makes a labeler unready, and never has it restarted. ``/metrics`` has a few
numbers in Prometheus' text format, written by hand: its client library costs more memory than they are
worth on each node.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

MOST_CONNECTIONS: Final = 16
"""Of more, the oldest are closed: every pod can connect here, and a probe must not wait for slow peers."""


@dataclass(frozen=True)
class Metric:
    """A number that is read when it is asked for. kind: gauge or counter. labels: as "{a="b"}"."""

    name: str
    kind: str
    text: str
    value: Callable[[], float]
    labels: str = ""

    def __str__(self) -> str:
        """As Prometheus reads it."""
        about = f"# HELP {self.name} {self.text}\n# TYPE {self.name} {self.kind}\n"
        return f"{about}{self.name}{self.labels} {float(self.value())}\n"


class Health:
    """The loop's pulse. Written by the loop, read by the probes' thread."""

    def __init__(
        self,
        longest_pause_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        metrics: Sequence[Metric] = (),
    ) -> None:
        """longest_pause_seconds: more silence than this means that the loop hangs."""
        self._longest_pause = longest_pause_seconds
        self._metrics = tuple(metrics)
        self._clock = clock
        self._heartbeat_at = clock()
        self._problem = "nothing published yet"

    def heartbeat(self, problem: str = "") -> None:
        """One cycle of the loop is done; problem is why the node is not labelled, if it is not."""
        self._problem = problem
        self._heartbeat_at = self._clock()

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text for a probe."""
        silence = self._clock() - self._heartbeat_at
        if path == "/healthz":
            alive = silence <= self._longest_pause
            return (200, "ok") if alive else (503, f"the loop has stood still for {silence:.0f} s")
        if path == "/readyz":
            return (503, self._problem) if self._problem else (200, "ok")
        if path == "/metrics" and self._metrics:
            return 200, "".join(map(str, self._metrics))
        return 404, "there are /healthz and /readyz, and /metrics where numbers are kept"


class ProbeServer(ThreadingHTTPServer):
    """Answers each connection by itself, and never holds many."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        """Raises OSError if the port is taken."""
        super().__init__(address, handler)
        self._open: list[Any] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        """Drop what is old for the newest first."""
        self._open = [*(each for each in self._open if each.fileno() >= 0), request]
        while len(self._open) > MOST_CONNECTIONS:
            oldest = self._open.pop(0)
            with contextlib.suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # its thread sees the end, and closes it
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that has disconnected is worth no traceback."""


def serve(health: Health, port: int, host: str = "") -> ProbeServer:
    """Answer probes in a thread (port 0: any that is free). Raises OSError if the port is taken."""

    class ProbeHandler(BaseHTTPRequestHandler):
        """Answers GET."""

        timeout = 5  # a silent peer must not delay the kubelet

        def do_GET(self) -> None:
            """One probe."""
            status, text = health.answer(self.path)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are not worth a line each."""

    server = ProbeServer((host, port), ProbeHandler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
