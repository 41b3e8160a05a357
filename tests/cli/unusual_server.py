"""An API server whose answers a test chooses."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

ABSENT: Final = (404, {"reason": "NotFound", "message": "not found"})


Answer = tuple[int, Any]


class Server:
    """Answers by the end of a path, as an API server would; notes what it is asked."""

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers, self.asked = answers, list[str]()

    def answer(self, path: str) -> Answer:
        self.asked.append(path)
        return next((each for end, each in self.answers.items() if urlsplit(path).path.endswith(end)), ABSENT)


@contextmanager
def serving(server: Server, folder: Path, stream: Callable[[Any], None] | None = None) -> Iterator[Path]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            if stream is not None and "/log" in self.path:
                stream(self)
                return
            status, body = server.answer(self.path)
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.do_GET()

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    file = folder / "kubeconfig"
    address = f"http://127.0.0.1:{http.server_port}"
    file.write_text(
        f"current-context: c\nclusters: [{{name: k, cluster: {{server: '{address}'}}}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\nusers: [{name: u, user: {token: t}}]\n"
    )
    try:
        yield file
    finally:
        http.shutdown()
        http.server_close()
