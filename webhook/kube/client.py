"""One HTTP client for the API server: raw bytes out, raw bytes in, every call with a time-out.

Bodies do not pass through the models of a client package, which cost 70 times the decoding and drop fields
that they do not know.
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
"""What to accept where nothing of the object in an answer is wanted: the server need not write all of it."""

_PATH: Final = "/%?=&:,+@!$'()*;~"
_STOPPED: Final = re.compile(
    r'Internal error occurred: failed calling webhook "|admission webhook "[^"]+" denied the request\b'
)
"""How the API server begins what it says where admission fails or denies, before anything is written."""
_CHUNK_BYTES: Final = 64 * 1024
_LONGEST_RETRY_SECONDS: Final = 30.0
"""No longer wait is taken over from an API server, or a proxy before it: who waits for an hour is blind."""


class ConnectError(Exception):
    """No usable identity or address for an API server: the configuration is at fault, not the server."""


class ApiError(Exception):
    """The API server refused a request, or could not be reached.

    status: the HTTP status, 0 if no answer came. reason: the machine-readable word of the answer
    ("Conflict", "Invalid"). retry_after: seconds that the server asks to wait, if it does, 30 at most.
    is_sent: False where the request did not leave us.
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
        """Whether the same request may succeed later: no answer, overload, or a server's own fault."""
        return self.status in (0, 408, 429) or self.status >= 500

    @property
    def is_for_now(self) -> bool:
        """Whether it is transient, or the server does not know who asks: that may be its token's fault."""
        return self.is_transient or self.status == 401

    @property
    def is_unwritten(self) -> bool:
        """Whether it is known that the request has changed nothing, and that it will not.

        A server's own fault, or a time-out, leaves that open, unless admission stopped the request: a webhook
        that denies may choose any status.
        """
        if not self.is_sent:
            return True
        if 400 <= self.status < 500 and self.status != 408:
            return True
        return self.status >= 400 and bool(_STOPPED.match(self.message.partition(": ")[2]))


class Api:
    """A connection pool to one API server under one identity. Safe for use by many threads."""

    def __init__(
        self, identity: Identity, user_agent: str, pool_size: int = 40, *, brief: bool = False
    ) -> None:
        """Take who asks whom. Raises OSError, ValueError.

        pool_size: the number of connections kept alive; a leader watches some twenty collections. brief: for
        a command that is over soon, which starts faster so.
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
        """Connect as a kubeconfig says, or several as one; without any as the pod's own ServiceAccount.

        brief: see __init__. Raises ConnectError with a sentence that names what is missing.
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
        accept: str = "application/json",
        timeout_seconds: float = 10.0,
    ) -> bytes:
        """One call; returns the body of a 2xx answer.

        body: bytes as they are, or anything json can write. accept: the form of the answer.
        Raises ApiError; nothing is retried here, because only the caller knows whether a second try is safe.
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
        """The same, decoded: for the few calls whose answers are small. Raises ApiError, also where the
        answer is no object.
        """
        text = self.request(method, path, **options)
        try:
            found = json.loads(text)
        except RecursionError:
            from webhook.kube.depth import shallow  # not for commands that are brief

            found = json.loads(shallow(text))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise self.unreadable(method, path, text)
        return found

    def unreadable(self, method: str, path: str, text: bytes) -> ApiError:
        """What to raise of an answer that cannot be read, such as a proxy's page."""
        begin = quote(text[:200].decode(errors="replace"))
        what = f"{self._host} answers {begin}, which is not a Kubernetes object: is it an API server?"
        return ApiError(0, "NoObject", f"{method} {path}: {what}")

    def lines(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> Iterator[bytes]:
        """A GET whose answer is read line by line as it comes (a watch).

        timeout_seconds is the longest silence that is believed. Ends when the server ends the answer;
        raises ApiError when it fails.
        """
        with self.stream(path, query=query, timeout_seconds=timeout_seconds) as stream:
            yield from stream

    def stream(self, path: str, *, query: Mapping[str, str], timeout_seconds: float) -> "Stream":
        """The same as an object that another thread can cut. Raises ApiError."""
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
        """A 2xx answer to what `send` sends. Raises ApiError.

        failures: what `send` raises, and those of it that say that nothing was sent.
        """
        errors, unsent = failures
        headers = {"Accept": accept, "User-Agent": self._user_agent}
        if self._impersonated:
            headers["Impersonate-User"] = self._impersonated
        if body is not None:
            headers["Content-Type"] = content_type
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        # Nothing but a path that a server can read: names come from people.
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
                nobody = f"{method} {path}: got no answer from {self._host}: {error}"
                is_sent = not isinstance(error, unsent)
                raise ApiError(0, "Unreachable", nobody, is_sent=is_sent) from error
            # What was not authenticated was not done either: with a newer token it may be asked again.
            if response.status != 401 or not self._renewed(token):
                raise refusal

    def _authorization(self) -> str:
        """The header's value, "" without one; asked for every call because tokens are rotated."""
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
    """Lines of an answer that does not end, such as a watch; a context manager that closes it."""

    def __init__(
        self, path: str, response: "urllib3.BaseHTTPResponse", errors: tuple[type[Exception], ...]
    ) -> None:
        """Take an answer whose body has not been read. errors: what it raises when it breaks off."""
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
                # Joined once a line, not once a chunk: a line may be of megabytes.
                head, *rest = chunk.split(b"\n")
                pending.append(head)
                for part in rest:
                    line = b"".join(pending)
                    pending = [part]
                    if self._is_cut:  # Python takes TLS off a socket that is shut down: this may be cipher
                        raise ApiError(0, "Unreachable", f"watch of {self._path} was cut")
                    if line:
                        yield line
        except self._errors as error:
            raise ApiError(0, "Unreachable", f"watch of {self._path} broke: {error}") from error

    def cut(self) -> None:
        """End the answer from another thread, which finds it ended or broken."""
        with self._lock:
            self._is_cut = True
            if self._is_open:
                # RuntimeError: the answer ended by itself, so that its connection is the pool's again.
                with contextlib.suppress(ValueError, RuntimeError, *self._errors):
                    self._response.shutdown()


def _listed(files: Path | str | Sequence[Path]) -> str:
    return str(files) if isinstance(files, Path | str) else os.pathsep.join(map(str, files))


def _transport(identity: Identity, size: int) -> "Transport":
    from webhook.kube.transport import Transport  # loads slowly: not for commands that are brief

    return Transport(identity, size)


def _brief(identity: Identity) -> "Brief | None":
    """None where that transport does not serve."""
    from webhook.kube.brief import Brief, serves

    return Brief(identity) if serves(identity) else None


def _refusal(method: str, path: str, response: "HttpAnswer | urllib3.BaseHTTPResponse") -> ApiError:
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
        min(float(retry_after), _LONGEST_RETRY_SECONDS) if retry_after.isdecimal() else None,
    )
