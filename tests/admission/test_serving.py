"""The webhook as a process under TLS: what it refuses, survives, reloads and logs."""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.admission import impatient
from tests.admission.alone import (
    Impatient,
    post,
    served_serial,
    serving,
    stalled_after,
    stalled_in_handshake,
    worker_pid,
)
from tests.admission.harness import HOSTS, Webhook, gpu_pod, shipped_configuration, short_lived
from tests.admission.reviews import bodies, review
from webhook.admission import certificates, serve
from webhook.admission.app import LARGEST_BODY_BYTES

# --- the exchange -------------------------------------------------------------------------------


def test_a_review_is_answered_as_admission_v1_asks(webhook: Webhook) -> None:
    status, body = post(webhook, review(gpu_pod("a")))
    answer = json.loads(body)
    assert status == 200
    assert set(answer) == {"apiVersion", "kind", "response"}
    assert set(answer["response"]) == {"uid", "allowed", "patchType", "patch"}
    assert answer["response"]["uid"] == review(None)["request"]["uid"]


@pytest.mark.promise("D7")
def test_an_api_server_that_hangs_delays_no_answer(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with serving(tmp_path, server=server) as made, silent.accept()[0] as unanswered:
            assert unanswered.recv(10_000).startswith(b"GET ")
            assert post(made, review(gpu_pod("a")))[0] == 200
            unanswered.setblocking(False)
            with pytest.raises(BlockingIOError):  # it still waits
                unanswered.recv(1)


def test_a_body_above_the_cap_is_refused_with_413_unread(webhook: Webhook) -> None:
    connection = http.client.HTTPSConnection("127.0.0.1", webhook.port, context=webhook.tls(), timeout=60)
    connection.putrequest("POST", "/mutate")
    connection.putheader("Content-Type", "application/json")
    connection.putheader("Content-Length", str(LARGEST_BODY_BYTES + 1))
    connection.endheaders(b"{")
    with connection.getresponse() as response:
        assert response.status == 413
    connection.close()


def chunked(*chunks: bytes) -> bytes:
    parts = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in (*chunks, b"")]
    return b"".join(parts)


_WHOLE = json.dumps(review(gpu_pod("a"))).encode()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (chunked(_WHOLE[:100], _WHOLE[100:]), 200),
        (chunked(*[b" " * (1 << 20)] * 9), 413),
        (b"zz\r\n{}\r\n0\r\n\r\n", 400),
        (chunked(_WHOLE[:100])[:-2] + b"\r\n", 400),
    ],
    ids=["in two chunks", "above the cap", "with a bad chunk", "cut short"],
)
def test_a_body_without_a_length_has_the_same_rules(webhook: Webhook, body: bytes, status: int) -> None:
    connection = http.client.HTTPSConnection("127.0.0.1", webhook.port, context=webhook.tls(), timeout=60)
    with contextlib.closing(connection):
        connection.putrequest("POST", "/mutate")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        with contextlib.suppress(OSError):  # it may answer before all is sent
            connection.send(body)
        with connection.getresponse() as response:
            assert response.status == status
    assert "Traceback" not in webhook.log


def test_a_review_of_three_mebibytes_is_answered(webhook: Webhook) -> None:
    pod = gpu_pod("a", annotations={"big": "x" * (3 << 20)})
    assert post(webhook, review(pod))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/mutate", 405), ("GET", "/", 404), ("POST", "/healthz", 405)]
)
def test_other_routes_are_refused_in_plain_text(
    webhook: Webhook, method: str, path: str, status: int
) -> None:
    found, body = webhook.request(path, b"{}" if method == "POST" else None)
    assert found == status
    assert b"<" not in body


@pytest.mark.promise("S6")
def test_no_body_and_no_traceback_ever_reaches_the_log(webhook: Webhook) -> None:
    pod: dict[str, Any] = gpu_pod("a")
    pod["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": "hunter2"}]
    post(webhook, review(pod))
    pod["spec"]["containers"][0]["name"] = 7
    post(webhook, review(pod))
    post(webhook, json.dumps(review(pod)).encode()[:-20])
    assert "hunter2" not in webhook.log
    assert "Traceback" not in webhook.log


def test_nobody_writes_lines_of_their_own_into_the_log(webhook: Webhook) -> None:
    denied = gpu_pod("a", annotations={"topogate.io/gpu-model": "abacus"})
    forged = "x\n2026-01-01T00:00:00Z ERROR forged"
    post(webhook, review(denied, uid=forged, namespace=forged))
    before = len(webhook.log)
    post(webhook, review(denied, uid="y" * 100_000, namespace="z" * 100_000))
    assert 0 < len(webhook.log) - before < 1000
    assert "\n2026-01-01T00:00:00Z ERROR forged" not in webhook.log


@pytest.mark.promise("S6")
@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(bodies)
def test_no_body_whatever_makes_a_5xx_or_kills_the_worker(webhook: Webhook, body: bytes) -> None:
    connection = _persistent(webhook)
    connection.request("POST", "/mutate", body, {"Content-Type": "application/json"})
    with connection.getresponse() as response:
        answer = response.read()
        assert response.status in (200, 400), answer
        if response.status == 200:
            assert json.loads(answer)["kind"] == "AdmissionReview"


@pytest.fixture(scope="module", autouse=True)
def _close_connections() -> Iterator[None]:
    yield
    for connection in _connections.values():
        connection.close()


_connections: dict[int, http.client.HTTPSConnection] = {}


def _persistent(webhook: Webhook) -> http.client.HTTPSConnection:
    if webhook.port not in _connections:
        _connections[webhook.port] = http.client.HTTPSConnection(
            "127.0.0.1", webhook.port, context=webhook.tls(), timeout=60
        )
    return _connections[webhook.port]


# --- clients that misbehave -----------------------------------------------------------------------


def stalled_in_body(webhook: Webhook) -> socket.socket:
    return stalled_after(
        webhook,
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{",
    )


def stalled_in_headers(webhook: Webhook) -> socket.socket:
    return stalled_after(webhook, b"POST /mut")


def silent(webhook: Webhook) -> socket.socket:
    return socket.create_connection(("127.0.0.1", webhook.port))


STALLS = (stalled_in_handshake, stalled_in_headers, stalled_in_body, silent)


@pytest.mark.parametrize(
    ("count", "seconds"), [(2, impatient.NEVER), (serve.THREADS // 2 + 1, 1.0)], ids=["a few", "too many"]
)
def test_clients_that_stall_do_not_stop_the_others(tmp_path: Path, count: int, seconds: float) -> None:
    """More of them than there are threads delay a review till their time is over, fewer not even so long.

    count: of each kind, of which all but the silent ones take a thread.
    """
    times = dict.fromkeys((impatient.FIRST_BYTE, impatient.REQUEST, impatient.HANDSHAKE), seconds)
    with serving(tmp_path, Impatient, times=times) as webhook, contextlib.ExitStack() as stack:
        for stall in STALLS:
            for _ in range(count):
                stack.enter_context(stall(webhook))
        assert post(webhook, review(gpu_pod("a")))[0] == 200
        assert "Traceback" not in webhook.log


def test_plain_http_and_random_bytes_on_the_tls_port_do_no_harm(webhook: Webhook) -> None:
    before = worker_pid(webhook)
    for content in (
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(500),
        b"\x16\x03\x01\xff\xff" + os.urandom(100),
        b"",
    ):
        with silent(webhook) as raw:
            raw.sendall(content)
            raw.settimeout(60)
            with contextlib.suppress(OSError):  # it may be closed by now
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(4096):
                    pass
    assert post(webhook, review(gpu_pod("a")))[0] == 200
    assert worker_pid(webhook) == before
    assert "Traceback" not in webhook.log


# --- TLS ------------------------------------------------------------------------------------------


def test_a_certificate_that_is_replaced_on_disk_is_served_without_a_restart(own_webhook: Webhook) -> None:
    before, pid = served_serial(own_webhook), worker_pid(own_webhook)
    own_webhook.write_pair(certificates.issue(HOSTS))
    assert served_serial(own_webhook) != before
    assert post(own_webhook, review(gpu_pod("a")))[0] == 200
    assert worker_pid(own_webhook) == pid


def test_a_pair_that_does_not_match_leaves_the_one_before_in_force(own_webhook: Webhook) -> None:
    before = served_serial(own_webhook)
    (own_webhook.folder / "tls.key").write_bytes(certificates.issue(HOSTS).key)
    assert served_serial(own_webhook) == before
    assert "tls_pair_unusable" in own_webhook.log


def test_tls_below_1_2_is_refused(webhook: Webhook) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that is why it must be refused
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", webhook.port)) as raw, pytest.raises(ssl.SSLError):
        context.wrap_socket(raw)


def test_a_connection_stays_open_longer_than_the_api_server_uses_it() -> None:
    from webhook.admission.serve import KEEP_ALIVE_SECONDS

    assert KEEP_ALIVE_SECONDS > 90


# --- what the operator sees -----------------------------------------------------------------------


def readiness(webhook: Webhook) -> tuple[int, Any]:
    status, body = webhook.get("/readyz")
    return status, json.loads(body)


def test_it_is_not_ready_while_the_classes_are_not_known(webhook: Webhook) -> None:
    status, detail = readiness(webhook)
    assert status == 503
    assert detail["ready"] is False
    assert detail["priorityClasses"].startswith("not synced")
    assert detail["certificate"] == "valid"


@pytest.mark.promise("O212")
def test_an_expired_certificate_makes_it_unready_and_is_named(own_webhook: Webhook) -> None:
    pair = own_webhook.pair
    own_webhook.write_pair(short_lived(-60))
    own_webhook.pair = pair

    def is_named() -> bool:
        connection = http.client.HTTPSConnection("127.0.0.1", own_webhook.port, context=_unverified())
        with contextlib.closing(connection):
            connection.request("GET", "/readyz")
            return "certificate expired at" in json.loads(connection.getresponse().read())["certificate"]

    own_webhook.wait(is_named, "the expiry to be named")


def _unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.promise("O54")
def test_a_new_configuration_is_taken_up_and_a_broken_one_leaves_the_old_in_force(
    own_webhook: Webhook,
) -> None:
    def is_gated(resource: str) -> bool:
        pod = gpu_pod("a", resource=resource)
        return b'"patch"' in post(own_webhook, review(pod))[1]

    assert not is_gated("example.com/npu")
    own_webhook.configure(shipped_configuration().replace("- amd.com/gpu\n", "- example.com/npu\n"))
    own_webhook.wait_for_generation(2)
    assert is_gated("example.com/npu")
    own_webhook.configure("gatePrefix: 7\n")
    own_webhook.wait(lambda: own_webhook.metric("topogate_configuration_rejected") == 1, "the refusal")
    assert is_gated("example.com/npu")
    assert own_webhook.metric("topogate_configuration_generation") == 2
    assert any(
        "gatePrefix: must be a prefix of a gate's name, not 7" in fault
        for fault in readiness(own_webhook)[1]["configuration"]["rejected"]
    )
    assert "configuration_rejected" in own_webhook.log
    own_webhook.configure("gatePrefix: {{ .Values.gate }}\n")
    own_webhook.wait(
        lambda: "not rendered" in str(readiness(own_webhook)[1]["configuration"]["rejected"]),
        "the second refusal",
    )
    assert "Traceback" not in own_webhook.log
    own_webhook.configure(shipped_configuration())
    own_webhook.wait_for_generation(3)
    assert own_webhook.metric("topogate_configuration_rejected") == 0


@pytest.mark.promise("O54")
def test_a_worker_that_replaces_a_killed_one_begins_with_the_last_good_configuration(
    own_webhook: Webhook,
) -> None:
    def kill_worker() -> None:
        killed = worker_pid(own_webhook)
        os.kill(int(killed), signal.SIGKILL)
        own_webhook.wait(
            lambda: worker_pid(own_webhook) not in ("", killed) and own_webhook.get("/healthz")[0] == 200,
            "the next worker",
        )

    own_webhook.configure(shipped_configuration().replace("- amd.com/gpu\n", "- example.com/npu\n"))
    kill_worker()  # the parent process has read the configuration once it has replaced this one
    own_webhook.configure("gatePrefix: 7\n")
    kill_worker()
    assert b'"patch"' in post(own_webhook, review(gpu_pod("a", resource="example.com/npu")))[1]


def test_metrics_count_decisions_by_outcome_and_reason(own_webhook: Webhook) -> None:
    unknown = {"topogate.io/gpu-model": "abacus"}
    empty: dict[str, Any] = {"metadata": {}, "spec": {}}
    for pod in (gpu_pod("a"), gpu_pod("b", annotations=unknown), empty):
        post(own_webhook, review(pod))
    post(own_webhook, b"")
    name = 'topogate_admission_decisions_total{{outcome="{}",reason="{}"}}'
    counted = {
        ("mutated", "wanted"),
        ("denied", "unknown-model"),
        ("left-alone", "no-gpu"),
        ("error", "malformed"),
    }
    for pair in counted:
        assert own_webhook.metric(name.format(*pair)) == 1
    assert own_webhook.metric("topogate_admission_seconds_count") == 4
    expiry = own_webhook.pair.lifetime[1].timestamp()
    assert own_webhook.metric("topogate_certificate_expiry_timestamp_seconds") == expiry


# --- starting and stopping ------------------------------------------------------------------------


def test_a_configuration_with_faults_ends_the_start_with_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "configuration.yaml"
    file.write_text("apiVersion: topogate.io/v1beta1\nkind: Configuration\ngatePrefix: '-'\ntier: []\n")
    assert serve.main(["--config", str(file)]) == 2
    output = capsys.readouterr().err
    assert "gatePrefix: must be a prefix of a gate's name, not '-'" in output
    assert "tier: unknown key; did you mean tiers?" in output


def test_a_missing_kubeconfig_ends_the_start_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "configuration.yaml"
    file.write_text(shipped_configuration())
    assert serve.main(["--config", str(file), "--kubeconfig", str(tmp_path / "nowhere")]) == 2
    assert "no connection to a cluster from kubeconfig" in capsys.readouterr().err


def test_it_stops_without_waiting_for_its_clients_and_leaves_no_file_behind(tmp_path: Path) -> None:
    times = {"serve.GRACE_SECONDS": impatient.NEVER, impatient.REQUEST: impatient.NEVER}
    with serving(tmp_path, Impatient, times=times) as webhook:
        connection = http.client.HTTPSConnection("127.0.0.1", webhook.port, context=webhook.tls())
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        webhook.stop()
        connection.close()
    assert {path.name for path in tmp_path.iterdir()} == {
        "configuration.yaml",
        "kubeconfig",
        "log",
        "tls.crt",
        "tls.key",
    }
    assert not re.search("Traceback|ERROR", (tmp_path / "log").read_text().replace("ERROR webhook.kube", ""))
