"""The client: who it is, how long it waits, and what it says when it is refused."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
import urllib3

from hack.local.cluster import Cluster
from tests.kube.copies import connect, kubeconfig
from webhook.kube.client import Api, ApiError, ConnectError, Stream
from webhook.kube.tokens import REFRESH_SECONDS, TokenFile

WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def token(cluster: Cluster, namespace: str, account: str) -> str:
    api = cluster.api()
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    if account != "default":
        api.request("POST", path, body={"metadata": {"name": account}})
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    return str(api.json("POST", f"{path}/{account}/token", body=request)["status"]["token"])


def who(api: Api) -> str:
    return str(api.json("POST", WHO, body=REVIEW)["status"]["userInfo"]["username"])


# --- tokens ----------------------------------------------------------------------------------------


def test_a_token_that_was_refused_is_read_again_and_the_request_repeated(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("expired")
    cluster.write_token_kubeconfig(tmp_path / "kubeconfig", tmp_path / "token")
    api = Api.connect(tmp_path / "kubeconfig", user_agent="test")
    with pytest.raises(ApiError) as refused:
        who(api)
    assert refused.value.status == 401
    (tmp_path / "token").write_text(token(cluster, namespace, "default") + "\n")
    assert who(api) == f"system:serviceaccount:{namespace}:default"


def test_a_rotated_token_is_used_although_the_old_one_would_still_do(
    cluster: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text(token(cluster, namespace, "default"))
    cluster.write_token_kubeconfig(tmp_path / "kubeconfig", tmp_path / "token")
    api = Api.connect(tmp_path / "kubeconfig", user_agent="test")
    assert who(api).endswith(":default")
    (tmp_path / "token").write_text(token(cluster, namespace, "next"))
    assert who(api).endswith(":default"), "the file is not read for every request"
    monkeypatch.setattr("webhook.kube.tokens.REFRESH_SECONDS", 0.0)
    assert who(api).endswith(":next")


def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "token"
    path.write_text("one")
    file = TokenFile(path, lambda: now)
    path.write_text("two\n")
    assert file.header() == "Bearer one"
    now = REFRESH_SECONDS
    assert file.header() == "Bearer two"


@pytest.mark.parametrize("content", [None, "", " \n"], ids=["gone", "empty", "blank"])
def test_while_the_file_cannot_be_read_the_last_token_stays(tmp_path: Path, content: str | None) -> None:
    now = 0.0
    path = tmp_path / "token"
    path.write_text("one")
    file = TokenFile(path, lambda: now)
    path.unlink()
    if content is not None:
        path.write_text(content)
    now = REFRESH_SECONDS
    assert file.header() == "Bearer one"


# --- connections that cannot be made ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "kubeconfig"),
        ("not: [yaml", "kubeconfig"),
        ("just a sentence", "kubeconfig"),
        ("users: [{name: x}]", "kubeconfig"),
    ],
    ids=["missing", "no-yaml", "no-mapping", "incomplete"],
)
def test_a_kubeconfig_that_is_no_use_is_named(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConnectError, match=words):
        Api.connect(path, user_agent="test")


def test_an_empty_token_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "token").touch()
    path = kubeconfig(tmp_path, {"tokenFile": "token"})
    with pytest.raises(ConnectError, match=r"token file .*token is empty"):
        Api.connect(path, user_agent="test", context="mine")


def test_outside_of_a_pod_and_without_a_kubeconfig_it_reports_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ConnectError, match="this pod's ServiceAccount"):
        Api.connect(user_agent="test")


# --- answers ---------------------------------------------------------------------------------------


@contextmanager
def server(status: int, headers: dict[str, str], body: bytes) -> Iterator[str]:
    """A server on loopback that gives one answer to everything, as a proxy in front of an API server may."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


@pytest.mark.parametrize(
    ("header", "seconds"), [("7", 7), ("soon", None), ("\xb2", None)], ids=["seconds", "a word", "no number"]
)
def test_the_server_s_retry_after_is_passed_on(tmp_path: Path, header: str, seconds: float | None) -> None:
    answer = b'{"reason": "TooManyRequests", "message": "later"}'
    with (
        server(429, {"Retry-After": header}, answer) as address,
        pytest.raises(ApiError, match="later") as refused,
    ):
        connect(tmp_path, address).request("GET", "/x")
    assert refused.value.retry_after == seconds
    assert refused.value.is_transient


def test_the_page_of_a_proxy_is_the_message_where_there_is_no_better(tmp_path: Path) -> None:
    with (
        server(502, {}, b"<html>bad gateway</html>") as address,
        pytest.raises(ApiError, match="bad gateway") as refused,
    ):
        connect(tmp_path, address).request("GET", "/x")
    assert refused.value.status == 502


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\n\n\ntwo", [b"one"]),
        (b"", []),
        (b"x" * 300_000 + b"\ntwo\n", [b"x" * 300_000, b"two"]),
    ],
    ids=["lines", "empty-lines-and-a-torn-one", "nothing", "longer-than-a-chunk"],
)
def test_a_stream_is_read_in_whole_lines(tmp_path: Path, body: bytes, lines: list[bytes]) -> None:
    with server(200, {}, body) as address:
        api = connect(tmp_path, address)
        assert list(api.lines("/x", query={"watch": "1"}, timeout_seconds=60)) == lines


def test_a_stream_that_ended_by_itself_may_be_cut(tmp_path: Path) -> None:
    with (
        server(200, {}, b"one\n") as address,
        connect(tmp_path, address).stream("/x", query={}, timeout_seconds=60) as stream,
    ):
        assert list(stream) == [b"one"]
        stream.cut()


def test_what_comes_after_a_stream_was_cut_is_no_line_of_it() -> None:
    """Python takes TLS off a socket that another thread shuts down: what is read then is cipher."""

    class Answer:
        def stream(self, _: int) -> Iterator[bytes]:
            yield b"first\n"
            made.cut()
            yield b"\x17\x03\x03\n"

        def shutdown(self) -> None:
            pass

        def close(self) -> None:
            pass

    made = Stream("/x", cast(urllib3.BaseHTTPResponse, Answer()), (OSError,))
    lines = iter(made)
    assert next(lines) == b"first"
    with pytest.raises(ApiError, match="was cut"):
        next(lines)
