"""The few calls that the node's programs make to the API server: here those to the own Node.

Made on urllib3 alone: a client library with every API's models costs more memory than the whole labeler.
"""

import contextlib
import json
import reprlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import urllib3

from labeler.contract.event_reasons import EventReason

CONNECT_SECONDS: Final = 5.0
READ_SECONDS: Final = 15.0
TOKEN_SECONDS: Final = 60.0
"""How long a token read from its file is believed: the kubelet replaces bound tokens before they end."""

LONGEST_RETRY_SECONDS: Final = 30.0
"""No longer wait is taken over from an API server, or a proxy before it."""

LARGEST_OBJECT: Final = 10 * 1024 * 1024
"""Bytes of an answer with one object: 1.5 MB in etcd at most, 9 MB where every character is escaped."""

_LONGEST_REFUSAL: Final = 4096
_PIECE: Final = 64 * 1024
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_USER_AGENT: Final = "topogate-labeler"
_NODE_EVENTS_NAMESPACE: Final = "default"
"""Where Events of objects without a namespace are. kubectl describe looks for a Node's name as its uid."""
_LONGEST_MESSAGE: Final = 1000


class NodeApiError(Exception):
    """The API server refused, or gave no answer (status 0).

    retry_after: seconds that it asks to wait, 30 at most.
    """

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed later without anybody's help."""
        return self.status in (0, 408, 409, 429) or self.status >= 500


class AnswerTooLargeError(NodeApiError):
    """The answer has more bytes than its reader can hold; it was not read."""


class ApiClient:
    """One API server, under the identity of a token file. Several threads may share it."""

    def __init__(
        self,
        server: str,
        token_file: Path,
        ca_file: Path | None,
        user_agent: str = _USER_AGENT,
        read_seconds: float = READ_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """ca_file: certificates that sign the server's; None for the system's."""
        self._server = server.rstrip("/")
        self._token_file = token_file
        self._user_agent = user_agent
        self._clock = clock
        self._token = ""
        self._read_at: float | None = None
        self._pool = urllib3.PoolManager(
            num_pools=1,
            maxsize=2,
            ca_certs=str(ca_file) if ca_file else None,
            timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, read_seconds), read=read_seconds),
            retries=False,
        )

    def call(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        most_bytes: int = LARGEST_OBJECT,
    ) -> bytearray:
        """Send a request for a path (with its query); returns the answer's body.

        Raises NodeApiError, and AnswerTooLargeError for an answer of more than most_bytes.
        """
        response = self._send(method, path, body, headers)
        if response.status == 401:
            response.close()
            self._read_at = None  # perhaps replaced within the last minute
            response = self._send(method, path, body, headers)
        what = f"{method} {self._server}{path}"
        if response.status >= 300:
            raise _refusal(what, response)
        return self._read(what, response, most_bytes)

    def _read(self, what: str, response: urllib3.BaseHTTPResponse, most_bytes: int) -> bytearray:
        data = bytearray()
        try:
            for piece in response.stream(_PIECE):  # read() at once holds everything twice
                data += piece
                if len(data) > most_bytes:
                    response.close()  # the connection as well: the rest is on its way
                    raise AnswerTooLargeError(0, f"{what}: the answer has more than {most_bytes} bytes")
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NodeApiError(0, f"{what}: the answer broke off: {error}") from error
        response.release_conn()
        return data

    def _send(
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> urllib3.BaseHTTPResponse:
        identity = {"Authorization": f"Bearer {self._current_token()}", "User-Agent": self._user_agent}
        try:
            return self._pool.request(
                method,
                self._server + path,
                body=body,
                headers={**headers, **identity},
                redirect=False,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise NodeApiError(0, f"{method} {self._server}{path}: no answer: {error}") from error

    def _current_token(self) -> str:
        now = self._clock()
        if self._read_at is None or now - self._read_at >= TOKEN_SECONDS:
            try:
                token = self._token_file.read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise NodeApiError(0, f"token file {self._token_file} cannot be read: {error}") from error
            if not token.isprintable():
                raise NodeApiError(0, f"token file {self._token_file} does not hold one line of text")
            self._token, self._read_at = token, now
        return self._token


class NodeApi:
    """One Node on one API server, under the identity of a token file."""

    def __init__(
        self,
        server: str,
        token_file: Path,
        ca_file: Path | None,
        node_name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """ca_file: certificates that sign the server's; None for the system's."""
        self._name = node_name
        self._path = f"/api/v1/nodes/{quote(node_name, safe='')}"
        self._url = server.rstrip("/") + self._path
        self._client = ApiClient(server, token_file, ca_file, clock=clock)

    def metadata(self) -> Mapping[str, Any]:
        """The Node's metadata. Raises NodeApiError, with status 404 where there is no such Node."""
        metadata = _object(self._call("GET", "", None, {"Accept": _METADATA_ONLY}), self._url).get("metadata")
        if not isinstance(metadata, Mapping):
            raise NodeApiError(0, f"GET {self._url}: the answer's metadata is {reprlib.repr(metadata)}")
        return metadata

    def node(self) -> Mapping[str, Any]:
        """The whole Node. Raises NodeApiError."""
        return _object(self._call("GET", "", None, {"Accept": "application/json"}), self._url)

    def patch(self, body: Mapping[str, object], subresource: str = "") -> None:
        """Merge-patch the Node, or a subresource such as ``status``. Raises NodeApiError."""
        self._call(
            "PATCH",
            f"{'/' + subresource if subresource else ''}?fieldManager={_USER_AGENT}",
            json.dumps(body).encode(),
            {"Accept": _METADATA_ONLY, "Content-Type": "application/merge-patch+json"},
        )

    def warn(self, reason: EventReason, text: str) -> None:
        """Write an Event of the Node, which kubectl describe shows. Raises NodeApiError."""
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{self._name[:200]}.", "namespace": _NODE_EVENTS_NAMESPACE},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._name},
            "type": "Warning",
            "reason": reason,
            "message": text[:_LONGEST_MESSAGE],
            "source": {"component": _USER_AGENT, "host": self._name},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        path = f"/api/v1/namespaces/{_NODE_EVENTS_NAMESPACE}/events"
        headers = {"Content-Type": "application/json", "Accept": _METADATA_ONLY}
        self._client.call("POST", path, json.dumps(event).encode(), headers)

    def _call(self, method: str, suffix: str, body: bytes | None, headers: Mapping[str, str]) -> bytearray:
        return self._client.call(method, self._path + suffix, body, headers)


def _object(answer: bytearray, url: str) -> Mapping[str, Any]:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError) as error:  # nested too deeply
        raise NodeApiError(0, f"GET {url}: the answer is not JSON: {error}") from error
    if not isinstance(found, Mapping):
        raise NodeApiError(0, f"GET {url}: the answer is no Kubernetes object: {answer[:100]!r}")
    return found


def _refusal(what: str, response: urllib3.BaseHTTPResponse) -> NodeApiError:
    text = ""
    with contextlib.suppress(urllib3.exceptions.HTTPError, OSError):  # the status alone is known then
        text = response.read(_LONGEST_REFUSAL).decode(errors="replace").strip()
    response.close()  # the connection is used again if that was all
    try:
        message = json.loads(text).get("message") or text
    except (ValueError, AttributeError, RecursionError):
        message = text  # a proxy's page, not a Status
    retry_after = response.headers.get("Retry-After", "")
    return NodeApiError(
        response.status,
        f"{what}: HTTP {response.status}: {message}",
        min(float(retry_after), LONGEST_RETRY_SECONDS) if retry_after.isdecimal() else None,
    )
