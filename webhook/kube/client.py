"""One HTTP client for the API server: raw bytes out, raw bytes in, every call with a time-out.

Bodies do not pass through the models of a client package, which cost 70 times the decoding and drop fields
that they do not know.
"""

import contextlib
import copy
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from webhook.kube.identity import Identity, of_this_pod, pool_of

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

CONNECT_SECONDS: Final = 5.0
"""The longest wait for a connection; less where the whole call may not take as long."""
_CHUNK_BYTES: Final = 64 * 1024


class ConnectError(Exception):
    """No usable identity or address for an API server: the configuration is at fault, not the server."""


class ApiError(Exception):
    """The API server refused a request, or could not be reached.

    status: the HTTP status, 0 if no answer came. reason: the machine-readable word of the answer
    ("Conflict", "Invalid"). retry_after: seconds that the server asks to wait, if it does.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{message} (HTTP {status} {reason})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later: no answer, overload, or a server's own fault."""
        return self.status in (0, 408, 429) or self.status >= 500


class Api:
    """A connection pool to one API server under one identity. Safe for use by many threads."""

    def __init__(self, identity: Identity, user_agent: str, pool_size: int = 16) -> None:
        """Take who asks whom; pool_size is the number of connections kept alive. Raises ValueError."""
        self._host = identity.server
        self._credential = identity.credential
        self._pool = pool_of(identity, pool_size)
        self._user_agent = user_agent
        self._impersonated = identity.acting_as

    @classmethod
    def connect(
        cls, kubeconfig: Path | str | None = None, *, user_agent: str, context: str | None = None
    ) -> "Api":
        """Connect as a kubeconfig says, or without one as the pod's own ServiceAccount.

        Raises ConnectError with a sentence that names what is missing.
        """
        try:
            if kubeconfig is None:
                return cls(of_this_pod(), user_agent)
            from webhook.kube.kubeconfig import identity_of

            return cls(identity_of(Path(kubeconfig), context), user_agent)
        except (OSError, ValueError) as error:
            where = f"kubeconfig {kubeconfig}" if kubeconfig else "this pod's ServiceAccount"
            raise ConnectError(f"no connection to a cluster from {where}: {error}") from error

    def acting_as(self, user: str) -> "Api":
        """The same connections under another name, for whoever has the right to impersonate that user."""
        made = copy.copy(self)
        made._impersonated = user
        return made

    @property
    def host(self) -> str:
        """The API server's address, for messages."""
        return self._host

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | object | None = None,
        content_type: str = "application/json",
        timeout_seconds: float = 10.0,
    ) -> bytes:
        """One call; returns the body of a 2xx answer.

        body: bytes as they are, or anything json can write. Raises ApiError; nothing is retried here,
        because only the caller knows whether a second try is safe.
        """
        response = self._open(method, path, query, body, content_type, timeout_seconds, preload=True)
        return bytes(response.data)

    def json(self, method: str, path: str, **options: Any) -> Any:
        """The same, decoded: for the few calls whose answers are small."""
        return json.loads(self.request(method, path, **options))

    def lines(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> Iterator[bytes]:
        """A GET whose answer is read line by line as it comes (a watch).

        timeout_seconds is the longest silence that is believed. Ends when the server ends the answer;
        raises ApiError when it fails.
        """
        with self.stream(path, query=query, timeout_seconds=timeout_seconds) as stream:
            yield from stream

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> "Stream":
        """The same as an object that another thread can cut. Raises ApiError."""
        return Stream(path, self._open("GET", path, query, None, "", timeout_seconds, preload=False))

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | object | None,
        content_type: str,
        timeout_seconds: float,
        *,
        preload: bool,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": self._user_agent}
        if self._impersonated:
            headers["Impersonate-User"] = self._impersonated
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._host + path + (f"?{urlencode(query)}" if query else "")
        while True:
            token = self._authorization()
            try:
                response = self._pool.request(
                    method,
                    url,
                    body=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
                    headers=headers | ({"Authorization": token} if token else {}),
                    timeout=_timeout(timeout_seconds),
                    retries=False,
                    redirect=False,
                    preload_content=preload,
                )
            except (urllib3.exceptions.HTTPError, OSError) as error:
                raise ApiError(0, "Unreachable", f"{method} {path} got no answer: {error}") from error
            if response.status < 300:
                return response
            refusal = _refusal(method, path, response)
            # What was not authenticated was not done either: with a newer token it may be asked again.
            if response.status != 401 or not self._renewed(token):
                raise refusal

    def _authorization(self) -> str:
        """The header's value, "" without one; asked for every call because tokens are rotated."""
        try:
            return self._credential.header() if self._credential is not None else ""
        except ValueError as error:
            raise ApiError(0, "NoCredential", f"no credential for {self._host}: {error}") from error

    def _renewed(self, refused: str) -> bool:
        try:
            return self._credential is not None and self._credential.renew(refused)
        except ValueError as error:
            raise ApiError(0, "NoCredential", f"no credential for {self._host}: {error}") from error


class Stream:
    """Lines of an answer that does not end, such as a watch; a context manager that closes it."""

    def __init__(self, path: str, response: urllib3.BaseHTTPResponse) -> None:
        """Take an answer whose body has not been read."""
        self._path = path
        self._response = response
        self._lock = threading.Lock()
        self._is_open = True

    def __enter__(self) -> "Stream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._is_open = False
            self._response.close()

    def __iter__(self) -> Iterator[bytes]:
        """The lines that are not empty. Raises ApiError when the answer breaks off."""
        pending: list[bytes] = []
        try:
            for chunk in self._response.stream(_CHUNK_BYTES):
                # Joined once a line, not once a chunk: a line may be of megabytes.
                head, *rest = chunk.split(b"\n")
                pending.append(head)
                for part in rest:
                    line = b"".join(pending)
                    pending = [part]
                    if line:
                        yield line
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, "Unreachable", f"watch of {self._path} broke: {error}") from error

    def cut(self) -> None:
        """End the answer from another thread, which finds it ended or broken."""
        with self._lock:
            if self._is_open:
                with contextlib.suppress(OSError, ValueError, urllib3.exceptions.HTTPError):
                    self._response.shutdown()


def _timeout(seconds: float) -> urllib3.Timeout:
    return urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds, total=seconds)


def _refusal(method: str, path: str, response: urllib3.BaseHTTPResponse) -> ApiError:
    """Turn an answer that is no success into an error that says what was refused and why."""
    text = bytes(response.data)[:4096]  # also for a stream: the body of a refusal is short
    reason, message = response.reason or "", text.decode(errors="replace").strip()
    try:
        answer = json.loads(text)
        reason, message = answer.get("reason") or reason, answer.get("message") or message
    except (ValueError, AttributeError):
        pass  # a proxy's page, not a Status: its text is the best there is
    retry_after = response.headers.get("Retry-After", "")
    return ApiError(
        response.status,
        reason,
        f"{method} {path}: {message or 'refused without a message'}",
        float(retry_after) if retry_after.isdigit() else None,
    )
