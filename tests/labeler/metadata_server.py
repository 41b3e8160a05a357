"""A real HTTP server on loopback that plays a cloud's metadata service, well or badly."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

GOOGLE: Final = {"Metadata-Flavor": "Google"}


@dataclass
class Reply:
    """The answer at a path. drip: seconds between single bytes; delay: seconds before the status."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: dict(GOOGLE))
    delay: float = 0.0
    drip: float = 0.0


class MetadataService:
    """Replies by path; a request for a path without one gets 404. `demand` checks the request's headers."""

    def __init__(self, demand: Callable[[str, dict[str, str]], bool] = lambda method, headers: True) -> None:
        self.replies: dict[str, Reply] = {}
        self.requests: list[tuple[str, str]] = []
        self._changed = threading.Condition()
        self._closing = False
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                service._answer(self, demand)

            do_PUT = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def set(self, path: str, reply: Reply | str | None) -> None:
        """Change the text at a path, and answer all that wait for a change."""
        with self._changed:
            if reply is None:
                self.replies.pop(path, None)
            else:
                self.replies[path] = reply if isinstance(reply, Reply) else Reply(reply.encode())
            self._changed.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: object, __: TracebackType | None) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, request: BaseHTTPRequestHandler, demand: Callable[[str, dict[str, str]], bool]) -> None:
        parts = urlsplit(request.path)
        self.requests.append((request.command, request.path))
        if not demand(request.command, dict(request.headers.items())):
            self._send(request, Reply(b"forbidden", 403))
            return
        query = parse_qs(parts.query)
        with self._changed:
            if "wait_for_change" in query:
                last = query.get("last_etag", [""])[0]
                self._changed.wait_for(
                    lambda: self._closing or (bool(last) and self._etag(parts.path) != last),
                    timeout=float(query["timeout_sec"][0]) if last else 0.0,
                )
            reply = self.replies.get(parts.path, Reply(b"not found", 404))
            etag = self._etag(parts.path)
        self._send(request, reply, {"ETag": etag})

    def _etag(self, path: str) -> str:
        reply = self.replies.get(path)
        return f"{hash(reply.body) & 0xFFFFFFFF:x}" if reply else "none"

    def _send(
        self, request: BaseHTTPRequestHandler, reply: Reply, more_headers: dict[str, str] | None = None
    ) -> None:
        time.sleep(reply.delay)
        try:
            request.send_response(reply.status)
            for key, value in {**reply.headers, **(more_headers or {})}.items():
                request.send_header(key, value)
            request.send_header("Content-Length", str(len(reply.body)))
            request.end_headers()
            for start in range(0, len(reply.body), 1 if reply.drip else len(reply.body) or 1):
                request.wfile.write(reply.body[start : start + (1 if reply.drip else len(reply.body))])
                request.wfile.flush()
                time.sleep(reply.drip)
        except (BrokenPipeError, ConnectionResetError):
            pass  # the labeler has given up, as it should
