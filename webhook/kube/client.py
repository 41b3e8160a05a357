"""One HTTP client for the API server: raw bytes out, raw bytes in, every call with a time-out.

Identity, TLS and proxies come from the kubernetes package; bodies do not pass through its models,
which cost 70 times the decoding and drop fields that they do not know.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.incluster_config import SERVICE_TOKEN_FILENAME, InClusterConfigLoader

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

CONNECT_SECONDS: Final = 5.0
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

    def __init__(self, configuration: Configuration, user_agent: str, pool_size: int = 16) -> None:
        """Take a loaded configuration; pool_size is the number of connections kept alive."""
        configuration.connection_pool_maxsize = pool_size
        configuration.keep_alive = True
        self._configuration = configuration
        self._host = str(configuration.host).rstrip("/")
        self._pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        self._user_agent = user_agent

    @classmethod
    def connect(
        cls, kubeconfig: Path | str | None = None, *, user_agent: str, context: str | None = None
    ) -> "Api":
        """Connect as a kubeconfig says, or without one as the pod's own ServiceAccount.

        Raises ConnectError with a sentence that names what is missing.
        """
        configuration = Configuration()
        try:
            if kubeconfig is not None:
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    config_file=str(kubeconfig), context=context, client_configuration=configuration
                )
            else:
                directory = Path(SERVICE_TOKEN_FILENAME).parent
                loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
                    str(directory / "token"), str(directory / "ca.crt")
                )
                loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        except (config.ConfigException, OSError) as error:
            where = f"kubeconfig {kubeconfig}" if kubeconfig else "this pod's ServiceAccount"
            raise ConnectError(f"no connection to a cluster from {where}: {error}") from error
        return cls(configuration, user_agent)

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
        response = self._open("GET", path, query, None, "", timeout_seconds, preload=False)
        pending = b""
        try:
            for chunk in response.stream(_CHUNK_BYTES):
                *complete, pending = (pending + chunk).split(b"\n")
                yield from (line for line in complete if line)
        except urllib3.exceptions.HTTPError as error:
            raise ApiError(0, "Unreachable", f"watch of {path} broke: {error}") from error
        finally:
            response.close()

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
        # Asked for every call: the hook behind it re-reads a token file that has been rotated.
        token = self._configuration.get_api_key_with_prefix("BearerToken", "authorization")
        if token:
            headers["Authorization"] = token
        if body is not None:
            headers["Content-Type"] = content_type
        url = self._host + path + (f"?{urlencode(query)}" if query else "")
        try:
            response = self._pool.request(
                method,
                url,
                body=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=timeout_seconds),
                retries=False,
                redirect=False,
                preload_content=preload,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, "Unreachable", f"{method} {path} got no answer: {error}") from error
        if response.status >= 300:
            raise _refusal(method, path, response)
        return response


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
