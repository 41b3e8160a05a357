"""A TCP server on loopback that answers each request with whatever bytes a test wants, at any speed."""

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

Script = Callable[[socket.socket], None]


class RawServer:
    """Sends `answers` by path, else `answer`; a script has the connection, until who asked hangs up."""

    def __init__(self) -> None:
        self.answer: bytes | Script = http(b"")
        self.answers: dict[str, bytes | Script] = {}
        self.connections = 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):  # the test is over
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # who asked has hung up, as it should
            connection.settimeout(60)
            request = b""
            while b"\r\n\r\n" not in request:
                if not (more := connection.recv(65536)):
                    return
                request += more
            path = request.split(b" ", 2)[1].decode().partition("?")[0]
            answer = self.answers.get(path, self.answer)
            if isinstance(answer, bytes):
                connection.sendall(answer)
            else:
                answer(connection)


def http(body: bytes, headers: Mapping[str, str] | None = None, status: str = "200 OK") -> bytes:
    """A right answer, as Google's server gives it."""
    fields = {"Metadata-Flavor": "Google", "Content-Length": str(len(body))} | dict(headers or {})
    lines = "".join(f"{key}: {value}\r\n" for key, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def document(fields: Any) -> bytes:
    """An answer with a JSON document."""
    return http(json.dumps(fields).encode())


def forever(piece: bytes, first: bytes = b"", pause: float = 0.0) -> Script:
    """Send a piece again and again, some seconds apart."""

    def send(connection: socket.socket) -> None:
        connection.sendall(first)
        while True:
            connection.sendall(piece)
            if pause:
                connection.settimeout(pause)
                with contextlib.suppress(TimeoutError):
                    if not connection.recv(1):
                        return

    return send


def silence(connection: socket.socket) -> None:
    """Nothing, until who asked hangs up."""
    connection.recv(1)
