"""The small HTTP server of a program without another one: metrics, and the probes of a kubelet."""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


class _QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10

    def answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Probes every few seconds are no news."""


def serve(
    address: str,
    port: int,
    registry: CollectorRegistry,
    refresh: Callable[[], None],
    checks: Mapping[str, Callable[[], str]],
    remark: Callable[[], str] = lambda: "",
) -> ThreadingHTTPServer:
    """Answer /metrics and each path of `checks`, whose functions return "" or what is wrong (503).

    remark: what is wrong, but stops nothing; it is in the answers with 200.

    refresh is called before each answer of /metrics, never by two threads at once.
    """
    one_at_a_time = threading.Lock()

    class Handler(_QuietHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                with one_at_a_time:
                    refresh()
                    body = generate_latest(registry)
                self.answer(200, CONTENT_TYPE_LATEST, body)
            elif self.path in checks:
                wrong = checks[self.path]()
                well = "; ".join(filter(None, ("ok", remark())))
                self.answer(503 if wrong else 200, "text/plain", (wrong or well).encode())
            else:
                self.answer(404, "text/plain", b"there are /metrics, /healthz and /readyz")

    server = ThreadingHTTPServer((address, port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
