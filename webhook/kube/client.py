"""The HTTP client for the API server: it sends and returns bytes, and every call has a time-out.

Bodies do not pass through the models of a client package, which take 70 times as long to decode and drop
unknown fields.
"""

import contextlib
import copy
import functools
import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote as percent_encoded
from urllib.parse import urlencode

from webhook.kube.identity import Identity, of_this_pod
from webhook.text import quote

if TYPE_CHECKING:
    import urllib3

    from webhook.kube.brief import Brief, HttpAnswer
    from webhook.kube.transport import Transport

R = TypeVar("R", bound="HttpAnswer | urllib3.BaseHTTPResponse")

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
"""The Accept header for answers whose object is not needed: the server returns its metadata alone."""

_PATH: Final = "/%?=&:,+@!$'()*;~"
_STOPPED: Final = re.compile(
    r'Internal error occurred: failed calling webhook "|admission webhook "[^"]+" denied the request\b'
)
"""The beginning of the API server's message if admission fails or denies, before anything is written."""
_CHUNK_BYTES: Final = 64 * 1024
_LONGEST_RETRY_SECONDS: Final = 30.0
"""The longest Retry-After that is obeyed: a client that waits for an hour sees no changes meanwhile."""


class ConnectError(Exception):
    """The configuration has no usable identity or address of an API server."""


class ApiError(Exception):
    """The API server refused a request, or could not be reached.

    status: the HTTP status, 0 without an answer. reason: the machine-readable reason of the answer
    ("Conflict", "Invalid"). retry_after: seconds to wait if the server gives them, at most 30.
    is_sent: False if the request was not sent.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        *,
        is_sent: bool = True,
    ) -> None:
        super().__init__(f"{message} (HTTP {status} {reason})" if status else message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.is_sent = is_sent

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later: no answer, overload, or a server error."""
        return self.status in (0, 408, 429) or self.status >= 500

    @property
    def is_for_now(self) -> bool:
        """Whether it is transient, or authentication failed, which an expired token can cause."""
        return self.is_transient or self.status == 401

    @property
    def is_unwritten(self) -> bool:
        """Whether the request certainly changed nothing and will not do so later.

        After a server error or a time-out this is unknown, unless admission stopped the request: a webhook
        may deny with any status.
        """
        if not self.is_sent:
            return True
        if 400 <= self.status < 500 and self.status != 408:
            return True
        return self.status >= 400 and bool(_STOPPED.match(self.message.partition(": ")[2]))


class Api:
    """A connection pool to one API server under one identity. Thread-safe."""

    def __init__(
        self, identity: Identity, user_agent: str, pool_size: int = 40, *, brief: bool = False
    ) -> None:
        """Raises OSError, ValueError.

        pool_size: the number of connections kept alive; a leader watches some twenty collections. brief: for
        a short command, which starts faster with it.
        """
        self._host = identity.server
        self._credential = identity.credential
        self._user_agent = user_agent
        self._impersonated = identity.acting_as
        self._make_transport = functools.cache(lambda: _transport(identity, pool_size))
        self._brief = _brief(identity) if brief else None
        if self._brief is None:
            self._make_transport()

    @classmethod
    def connect(
        cls,
        kubeconfig: Path | str | Sequence[Path] | None = None,
        *,
        user_agent: str,
        context: str | None = None,
        brief: bool = False,
    ) -> "Api":
        """Connect by one or several merged kubeconfigs; without any, as the pod's own ServiceAccount.

        brief: see __init__. Raises ConnectError, whose message names what is missing.
        """
        try:
            if kubeconfig is None:
                return cls(of_this_pod(), user_agent, brief=brief)
            from webhook.kube.kubeconfig import identity_of

            files = [Path(kubeconfig)] if isinstance(kubeconfig, Path | str) else kubeconfig
            return cls(identity_of(files, context), user_agent, brief=brief)
        except (OSError, ValueError) as error:
            where = f"kubeconfig {_listed(kubeconfig)}" if kubeconfig else "this pod's ServiceAccount"
            raise ConnectError(f"no connection to a cluster from {where}: {error}") from error

    def acting_as(self, user: str) -> "Api":
        """The same connections, impersonating a user; this identity needs the right to do so."""
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
        accept: str = "application/json",
        timeout_seconds: float = 10.0,
    ) -> bytes:
        """One call; returns the body of a 2xx answer.

        body: bytes, or a value that json can encode. accept: the format of the answer. Raises ApiError. It
        never retries, because only the caller knows whether a retry is safe.
        """
        transport: Brief | Transport = self._brief or self._make_transport()
        response: HttpAnswer | urllib3.BaseHTTPResponse = self._sent(
            transport.send,
            (transport.errors, transport.unsent),
            method,
            path,
            query,
            body,
            content_type,
            timeout_seconds,
            accept,
        )
        return bytes(response.data)

    def json(self, method: str, path: str, **options: Any) -> Any:
        """One call with a decoded answer, for small answers.

        Raises ApiError, also if the answer is not a JSON object.
        """
        text = self.request(method, path, **options)
        try:
            found = json.loads(text)
        except (RecursionError, ValueError):
            found = _repaired(text)
        if not isinstance(found, dict):
            raise self.unreadable(method, path, text)
        return found

    def unreadable(self, method: str, path: str, text: bytes) -> ApiError:
        """The error for an unreadable answer, such as a proxy's page."""
        begin = quote(text[:200].decode(errors="replace"))
        what = f"{self._host} answers {begin}, which is not a Kubernetes object: is it an API server?"
        return ApiError(0, "NoObject", f"{method} {path}: {what}")

    def lines(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> Iterator[bytes]:
        """A GET whose answer is read line by line as it arrives (a watch).

        timeout_seconds is the longest silence; after it the connection counts as dead. Ends when the server
        ends the answer; raises ApiError if it fails.
        """
        with self.stream(path, query=query, timeout_seconds=timeout_seconds) as stream:
            yield from stream

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> "Stream":
        """The same as an object that another thread can interrupt. Raises ApiError."""
        pool = self._make_transport()
        send = functools.partial(pool.send, preload=False)
        answer = self._sent(send, (pool.errors, pool.unsent), "GET", path, query, None, "", timeout_seconds)
        return Stream(path, answer, pool.errors)

    def close(self) -> None:
        """Close the idle connections."""
        if self._brief is not None:
            self._brief.close()
        if self._brief is None or self._make_transport.cache_info().currsize:
            self._make_transport().close()

    def _sent(
        self,
        send: Callable[[str, str, bytes | None, dict[str, str], float], R],
        failures: tuple[tuple[type[Exception], ...], tuple[type[Exception], ...]],
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        body: bytes | object | None,
        content_type: str,
        timeout_seconds: float,
        accept: str = "application/json",
    ) -> R:
        """The 2xx answer to a request by `send`. Raises ApiError.

        failures: the exceptions of `send`, and those of them that mean that nothing was sent.
        """
        errors, unsent = failures
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if self._impersonated:
            headers["Impersonate-User"] = self._impersonated
        if body is not None:
            headers["Content-Type"] = content_type
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        # Names come from users, so encode every character that is invalid in a path.
        url = self._host + percent_encoded(path, safe=_PATH) + (f"?{urlencode(query)}" if query else "")
        while True:
            token = self._authorization()
            proof = {"Authorization": token} if token else {}
            try:
                response = send(method, url, content, headers | proof, timeout_seconds)
                if response.status < 300:
                    return response
                refusal = _refusal(method, path, response)
            except errors as error:
                message = f"{method} {path}: got no answer from {self._host}: {error}"
                is_sent = not isinstance(error, unsent)
                raise ApiError(0, "Unreachable", message, is_sent=is_sent) from error
            # An unauthenticated request has changed nothing, so it is safe to retry with a newer token.
            if response.status != 401 or not self._renewed(token):
                raise refusal

    def _authorization(self) -> str:
        """The header's value, "" without a credential; read for every call, since tokens are rotated."""
        try:
            return self._credential.header() if self._credential is not None else ""
        except ValueError as error:
            message = f"no credential for {self._host}: {error}"
            raise ApiError(0, "NoCredential", message, is_sent=False) from error

    def _renewed(self, refused: str) -> bool:
        try:
            return self._credential is not None and self._credential.renew(refused)
        except ValueError as error:
            message = f"no credential for {self._host}: {error}"
            raise ApiError(0, "NoCredential", message, is_sent=False) from error


class Stream:
    """Lines of an endless answer such as a watch; a context manager that closes it."""

    def __init__(
        self, path: str, response: "urllib3.BaseHTTPResponse", errors: tuple[type[Exception], ...]
    ) -> None:
        """response: its body has not been read. errors: its exceptions when it breaks off."""
        self._errors = errors
        self._path = path
        self._response = response
        self._lock = threading.Lock()
        self._is_open = True
        self._is_cut = False

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
                # Join once a line, not once a chunk: a line may have megabytes.
                head, *rest = chunk.split(b"\n")
                pending.append(head)
                for part in rest:
                    line = b"".join(pending)
                    pending = [part]
                    if self._is_cut:  # after a shutdown Python reads the socket without TLS: ciphertext
                        raise ApiError(0, "Unreachable", f"watch of {self._path} was cut")
                    if line:
                        yield line
        except self._errors as error:
            raise ApiError(0, "Unreachable", f"watch of {self._path} broke: {error}") from error

    def cut(self) -> None:
        """Interrupt the answer from another thread; the reader sees its end or an ApiError."""
        with self._lock:
            self._is_cut = True
            if self._is_open:
                # RuntimeError: the answer has ended by itself, and the pool has its connection back.
                with contextlib.suppress(ValueError, RuntimeError, *self._errors):
                    self._response.shutdown()


def _listed(files: Path | str | Sequence[Path]) -> str:
    return str(files) if isinstance(files, Path | str) else os.pathsep.join(map(str, files))


def _transport(identity: Identity, size: int) -> "Transport":
    from webhook.kube.transport import Transport  # it loads slowly, and short commands need not load it

    return Transport(identity, size)


def _brief(identity: Identity) -> "Brief | None":
    """The transport of short commands, None if it does not support this identity."""
    from webhook.kube.brief import Brief, serves

    return Brief(identity) if serves(identity) else None


def _refusal(method: str, path: str, response: "HttpAnswer | urllib3.BaseHTTPResponse") -> ApiError:
    """The error for an unsuccessful answer, with its reason and message."""
    text = bytes(response.data)[:4096]  # also for a stream: the body of a refusal is short
    reason, message = response.reason or "", text.decode(errors="replace").strip()
    try:
        answer = json.loads(text)
        reason, message = answer.get("reason") or reason, answer.get("message") or message
    except (ValueError, AttributeError):
        pass  # a proxy's page instead of a Status: use its text
    retry_after = response.headers.get("Retry-After", "")
    return ApiError(
        response.status,
        reason,
        f"{method} {path}: {message or 'refused without a message'}",
        min(float(retry_after), _LONGEST_RETRY_SECONDS) if retry_after.isdecimal() else None,
    )


def _repaired(text: bytes) -> Any:
    """A document that is read only after repairs, None without any."""
    from webhook.kube.depth import readable  # short commands need not load it

    try:
        return json.loads(readable(text))
    except ValueError:
        return None
