"""Whether the labeler lives and has labelled, on an HTTP port for the kubelet's probes.

``/healthz`` fails when the loop has stood still, ``/readyz`` until the node is labelled and while it cannot
be: an API server that is away makes a labeler unready, and never has it restarted.
"""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer


class Health:
    """The loop's pulse. Written by the loop, read by the probes' thread."""

    def __init__(self, longest_pause_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """longest_pause_seconds: more silence than this means that the loop hangs."""
        self._longest_pause = longest_pause_seconds
        self._clock = clock
        self._beat_at = clock()
        self._problem = "nothing published yet"

    def beat(self, problem: str = "") -> None:
        """One turn of the loop is done; problem says why the node is not labelled, if it is not."""
        self._problem = problem
        self._beat_at = self._clock()

    def answer(self, path: str) -> tuple[int, str]:
        """Status and text for a probe."""
        silence = self._clock() - self._beat_at
        if path == "/healthz":
            alive = silence <= self._longest_pause
            return (200, "ok") if alive else (503, f"the loop has stood still for {silence:.0f} s")
        if path == "/readyz":
            return (503, self._problem) if self._problem else (200, "ok")
        return 404, "there are /healthz and /readyz"


def serve(health: Health, port: int, host: str = "") -> HTTPServer:
    """Answer probes in a thread (port 0: any that is free). Raises OSError if the port is taken."""

    class ProbeHandler(BaseHTTPRequestHandler):
        """Answers GET."""

        timeout = 5  # a peer that says nothing must not keep the kubelet waiting

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

    server = HTTPServer((host, port), ProbeHandler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server
