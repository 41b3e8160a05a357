"""Clients that hold connections, threads or memory: what they cost the others, over a real server."""

import contextlib
import http.client
import json
import resource
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.admission import bursts, impatient
from tests.admission.alone import (
    Impatient,
    post,
    serving,
    stalled_after,
    stalled_in_handshake,
    unreachable_kubeconfig,
    worker_pid,
)
from tests.admission.harness import MANIFESTS, Webhook, gpu_pod, manifest
from tests.admission.reviews import review
from webhook.admission import certificates, serve
from webhook.admission.app import CLASSES_STALE_SECONDS, LARGE_BODY_BYTES
from webhook.admission.worker import FIRST_BYTE_SECONDS, REQUEST_SECONDS, Connection, Worker
from webhook.configuration.store import ConfigurationStore
from webhook.kube.client import Api

REQUEST_TIME = impatient.TIMES[impatient.REQUEST]
HEADERS = b"POST /mutate HTTP/1.1\r\nX-A: "
BODY = (
    b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{"
)


WAITS_FOR_EVER = {impatient.FIRST_BYTE: impatient.NEVER, impatient.REQUEST: impatient.NEVER}
"""So that no client is answered because others had had their time."""


def is_answered(webhook: Webhook) -> bool:
    return post(webhook, review(gpu_pod("a")))[0] == 200


def is_closed(client: socket.socket, seconds: float) -> bool:
    client.settimeout(seconds)
    try:
        return client.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.promise("O221")
def test_more_silent_connections_than_the_server_takes_keep_nobody_out(tmp_path: Path) -> None:
    with serving(tmp_path, Impatient, times=WAITS_FOR_EVER) as webhook, contextlib.ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(socket.create_connection(("127.0.0.1", webhook.port)))
        assert is_answered(webhook)


@pytest.mark.promise("O221")
def test_more_idle_persistent_connections_than_the_server_takes_keep_nobody_out(tmp_path: Path) -> None:
    with serving(tmp_path, Impatient, times=WAITS_FOR_EVER) as webhook, contextlib.ExitStack() as stack:
        for _ in range(60):
            idle = stack.enter_context(stalled_after(webhook, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"))
            answer = idle.recv(100)
            assert answer.startswith(b"HTTP/1.1 200"), answer
        assert is_answered(webhook)


@pytest.mark.promise("O221")
def test_a_connection_that_sends_nothing_is_closed_long_before_a_persistent_one(
    impatient_webhook: Webhook,
) -> None:
    with socket.create_connection(("127.0.0.1", impatient_webhook.port)) as client:
        assert is_closed(client, 90)


@pytest.mark.promise("O221")
@pytest.mark.parametrize("first", [HEADERS, BODY], ids=["headers", "body"])
def test_a_request_that_comes_drop_by_drop_has_one_deadline_for_the_whole(
    impatient_webhook: Webhook, first: bytes
) -> None:
    started = time.monotonic()
    with stalled_after(impatient_webhook, first) as client:
        client.settimeout(0.3)
        while time.monotonic() - started < 60 * REQUEST_TIME:
            try:
                client.sendall(b"a")
                if client.recv(1000) == b"":
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        else:
            pytest.fail("it was still served")
    assert time.monotonic() - started > REQUEST_TIME - 0.2
    assert "Traceback" not in impatient_webhook.log


def test_a_connection_that_has_only_shaken_hands_idles_as_long_as_one_that_was_used(
    impatient_webhook: Webhook,
) -> None:
    """kube-apiserver keeps spare connections: a call over one that we close is a pod without a gate."""
    with contextlib.closing(_connection(impatient_webhook)) as spare:
        spare.connect()
        time.sleep(max(REQUEST_TIME, impatient.TIMES[impatient.FIRST_BYTE]) + 0.5)
        assert _call(spare) == 200


@pytest.mark.parametrize("is_used", [True, False], ids=["used", "only shaken hands"])
def test_a_connection_that_idles_is_closed_in_the_end(tmp_path: Path, is_used: bool) -> None:
    times = {**WAITS_FOR_EVER, impatient.KEEP_ALIVE: 1}
    with (
        serving(tmp_path, Impatient, times=times) as webhook,
        contextlib.closing(_connection(webhook)) as connection,
    ):
        connection.connect()
        assert not is_used or _call(connection) == 200
        assert is_closed(connection.sock, 90), "keepalive is not in force"


@pytest.mark.parametrize("first", [HEADERS, BODY], ids=["headers", "body"])
def test_a_spare_connection_has_the_whole_deadline_from_its_first_byte_and_no_more(
    impatient_webhook: Webhook, first: bytes
) -> None:
    with contextlib.closing(_connection(impatient_webhook)) as spare:
        spare.connect()
        time.sleep(REQUEST_TIME + 0.5)
        started = time.monotonic()
        spare.sock.sendall(first)
        spare.sock.settimeout(90)
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while spare.sock.recv(1000):  # an answer that the body is not there, perhaps
                pass
        assert time.monotonic() - started > REQUEST_TIME - 0.2


@pytest.mark.promise("O221")
def test_more_spare_connections_than_the_server_takes_do_not_cost_those_that_are_used(
    impatient_webhook: Webhook,
) -> None:
    with contextlib.closing(_connection(impatient_webhook)) as used, contextlib.ExitStack() as stack:
        assert _call(used) == 200
        open_socket = used.sock
        for _ in range(60):
            stack.enter_context(contextlib.closing(_connection(impatient_webhook))).connect()
        assert _call(used) == 200
        assert used.sock is open_socket


def test_no_call_of_the_api_servers_transport_fails_in_bursts_with_pauses(tmp_path: Path) -> None:
    pause = f"{max(FIRST_BYTE_SECONDS, REQUEST_SECONDS) + 1:g}s"
    options = ("-calls", "450", "-burst", "150", "-shortest", pause, "-longest", pause)
    rounds = list[dict[str, Any]]()
    with serving(tmp_path) as webhook:
        # A stall of the machine makes one handshake late, a server that closes what idles does so each time.
        while len(rounds) < 3 and not (rounds and rounds[-1]["failed"] + rounds[-1]["closedByServer"] == 0):
            rounds.append(bursts.bursts(webhook, *options))
            assert rounds[-1]["calls"] == 450
            assert rounds[-1]["opened"] > 1
    assert (rounds[-1]["failed"], rounds[-1]["closedByServer"]) == (0, 0), rounds


def test_clients_that_never_finish_a_request_do_not_delay_persistent_connections(tmp_path: Path) -> None:
    times = {**WAITS_FOR_EVER, impatient.HANDSHAKE: impatient.NEVER}
    with (
        serving(tmp_path, Impatient, times=times) as webhook,
        contextlib.closing(_connection(webhook)) as connection,
    ):
        assert _call(connection) == 200
        with contextlib.ExitStack() as stack:
            for _ in range(2 * serve.THREADS):
                stack.enter_context(stalled_in_handshake(webhook))
            for _ in range(20):  # meanwhile they get all the threads that they can
                assert _call(connection) == 200


def _connection(webhook: Webhook) -> http.client.HTTPSConnection:
    return http.client.HTTPSConnection("127.0.0.1", webhook.port, context=webhook.tls(), timeout=60)


def _call(connection: http.client.HTTPSConnection) -> int:
    body = json.dumps(review(gpu_pod("a")))
    connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
    with connection.getresponse() as response:
        response.read()
        return response.status


def of_empty_containers(size: int) -> bytes:
    """A review of about so many bytes that decodes into as much as any."""
    pod: dict[str, Any] = {"metadata": {}, "spec": {"containers": ["HERE"]}}
    head, tail = json.dumps(review(pod)).encode().split(b'"HERE"')
    return head + b",".join([b"{}"] * ((size - len(head) - len(tail)) // 3)) + tail


def memory_limit() -> int:
    """Of the shipped Deployment, in bytes."""
    items = yaml.safe_load_all((MANIFESTS / "webhook.yaml").read_text())
    (deployment,) = [item for item in items if item["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    text = container["resources"]["limits"]["memory"]
    assert text.endswith("Mi")
    return int(text.removesuffix("Mi")) * 1024 * 1024


def peak_memory(webhook: Webhook) -> int:
    """Of the worker since it started, in bytes."""
    status = Path(f"/proc/{worker_pid(webhook)}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.promise("O221")
def test_many_bodies_of_the_worst_kind_at_once_stay_below_the_memory_limit(tmp_path: Path) -> None:
    bodies = [of_empty_containers(8 * 1024 * 1024)] * 4 + [of_empty_containers(LARGE_BODY_BYTES)] * 24
    statuses: list[int] = []
    # None is too late on a busy machine: that would spare the server its memory.
    with serving(tmp_path, Impatient, times=WAITS_FOR_EVER) as webhook:

        def call(body: bytes) -> None:
            with contextlib.suppress(OSError):  # too late for the client
                statuses.append(post(webhook, body)[0])

        clients = [threading.Thread(target=call, args=(body,)) for body in bodies]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert statuses.count(200) > len(bodies) / 2, statuses
        assert set(statuses) <= {200, 503}
        assert peak_memory(webhook) < memory_limit()


@pytest.mark.promise("O212", "O214", "O221")
def test_the_shipped_times_and_sizes_are_those_of_the_docs() -> None:
    assert (FIRST_BYTE_SECONDS, REQUEST_SECONDS) == (5, 5)
    assert LARGE_BODY_BYTES == 256 * 1024
    assert manifest("webhook-configuration.yaml")["webhooks"][0]["timeoutSeconds"] == 3
    assert CLASSES_STALE_SECONDS == 300


def test_the_shipped_server_has_the_time_outs_of_an_api_server_in_mind(tmp_path: Path) -> None:
    pair = certificates.issue(["localhost"])
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    arguments = serve.parser().parse_args(["--cert-dir", str(tmp_path)])
    api = Api.connect(unreachable_kubeconfig(tmp_path), user_agent="test")
    config = serve.Server(arguments, api, ConfigurationStore([])).cfg
    assert config.keepalive > 90
    assert config.worker_class is Worker
    assert config.is_ssl
    assert config.control_socket_disable
    assert config.worker_connections > 100


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "connections"),
    [
        (1024, 4096, 1100, 1000),
        (1024, resource.RLIM_INFINITY, 1100, 1000),
        (256, 512, 512, 412),
        (100, 101, 101, 32),
        (4096, 4096, None, 1000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 1000),
    ],
    ids=["raised", "raised without an end", "too low", "far too low", "enough", "without an end"],
)
def test_there_are_never_more_connections_than_files_may_be_open(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: int | None, connections: int
) -> None:
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _what, limits: made.append(limits))
    assert serve.connections() == connections
    assert made == ([] if raised is None else [(raised, hard)])


def test_a_connection_that_is_closed_for_others_and_sends_in_the_same_moment_harms_nobody() -> None:
    """The poller reports several at once: the first of them may have cost the second its place."""
    worker, connection = Worker.__new__(Worker), Connection.__new__(Connection)
    connection.is_displaced = True  # and so registered nowhere any more
    worker.on_client_socket_readable(connection, None)
    worker.on_pending_socket_readable(connection, None)
