"""What the webhook says of its certificate and of its PriorityClasses is what it serves and knows."""

import base64
import contextlib
import http.client
import http.server
import json
import re
import ssl
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from labeler.contract import keys
from tests.admission.alone import Impatient, post, served_serial, serving
from tests.admission.harness import HOSTS, Webhook, gpu_pod, shipped_policy, short_lived
from tests.admission.reviews import review
from webhook.admission import app, certificates
from webhook.admission.tls import ContextCache
from webhook.policy.store import PolicyStore

EXPIRY = "topogate_certificate_expiry_timestamp_seconds"


def readiness(webhook: Webhook) -> Any:
    """Asked whatever the certificate is worth."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", webhook.port, context=context, timeout=60)
    with contextlib.closing(connection):
        connection.request("GET", "/readyz")
        return json.loads(connection.getresponse().read())


def _other_certificate(webhook: Webhook) -> bytes:
    return certificates.issue(HOSTS).certificate


def _garbage(webhook: Webhook) -> bytes:
    return b"garbage"


@pytest.mark.parametrize("content", [_other_certificate, _garbage], ids=lambda f: f.__name__)
def test_a_certificate_that_cannot_be_served_is_reported_and_the_served_one_is_described(
    own_webhook: Webhook, content: Callable[[Webhook], bytes]
) -> None:
    before, expiry = served_serial(own_webhook), own_webhook.pair.lifetime[1].timestamp()
    good = (own_webhook.folder / "tls.crt").read_bytes()
    (own_webhook.folder / "tls.crt").write_bytes(content(own_webhook))
    own_webhook.wait(lambda: readiness(own_webhook)["certificateRejected"], "the refusal")
    assert readiness(own_webhook)["certificate"] == "valid"
    assert served_serial(own_webhook) == before
    assert own_webhook.metric(EXPIRY) == expiry
    assert own_webhook.metric("topogate_certificate_rejected") == 1
    (own_webhook.folder / "tls.crt").write_bytes(good)
    own_webhook.wait(lambda: readiness(own_webhook)["certificateRejected"] is None, "the mended pair")
    assert own_webhook.metric("topogate_certificate_rejected") == 0


def test_an_unusable_pair_is_logged_once_and_not_at_every_connection(own_webhook: Webhook) -> None:
    (own_webhook.folder / "tls.crt").write_bytes(b"garbage")
    for _ in range(20):
        served_serial(own_webhook)
    assert own_webhook.log.count("tls_pair_unusable") == 1


def test_a_served_certificate_that_expires_beside_a_good_one_without_its_key_is_named(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as webhook:
        authority = webhook.pair
        webhook.write_pair(short_lived(2))
        webhook.pair = authority
        served_serial(webhook)
        (tmp_path / "tls.crt").write_bytes(certificates.issue(HOSTS).certificate)
        webhook.wait(lambda: "certificate expired at" in readiness(webhook)["certificate"], "the expiry")
        assert readiness(webhook)["ready"] is False


def test_a_certificate_of_tomorrow_makes_it_unready_and_is_named(own_webhook: Webhook) -> None:
    authority = own_webhook.pair
    own_webhook.write_pair(certificates.issue(HOSTS, now=datetime.now(UTC) + timedelta(days=1)))
    own_webhook.pair = authority
    own_webhook.wait(
        lambda: "not valid before" in readiness(own_webhook)["certificate"], "the date to be named"
    )


# --- what else is claimed ---------------------------------------------------------------------------


def test_no_control_socket_is_opened_where_gunicorn_would_put_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, runtime, folder = (tmp_path / name for name in ("home", "runtime", "webhook"))
    for path in (home, runtime, folder):
        path.mkdir()
    for variables in ({"HOME": str(home)}, {"HOME": str(home), "XDG_RUNTIME_DIR": str(runtime)}):
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with serving(folder):
            assert not [*home.rglob("*"), *runtime.rglob("*")]


def test_the_latency_histogram_separates_decisions_of_tenths_of_a_millisecond_and_of_a_second(
    own_webhook: Webhook,
) -> None:
    post(own_webhook, review(gpu_pod("a")))
    text = own_webhook.get("/metrics")[1].decode()
    found = re.findall(r'topogate_admission_seconds_bucket\{le="([^"]+)"\} (\S+)', text)
    bounds = [float(bound) for bound, _ in found]
    assert len([bound for bound in bounds if bound < 0.001]) >= 3
    assert len([bound for bound in bounds if 0.001 <= bound <= 1]) >= 6
    counts = [float(count) for _, count in found]
    assert counts == sorted(counts)
    assert counts[-1] == 1


def test_a_defect_of_ours_is_answered_with_500_and_logged_without_the_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(pod: Any, *_: Any, **__: Any) -> None:
        raise ValueError(f"unforeseen: {pod}")

    (tmp_path / "policy.yaml").write_text(shipped_policy())
    pair = certificates.issue(HOSTS)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (tmp_path / name).write_bytes(content)
    dependencies = app.Dependencies(
        store=PolicyStore(tmp_path / "policy.yaml"),
        certificate=ContextCache(tmp_path / "tls.crt", tmp_path / "tls.key"),
        classes=dict,
        classes_synced=lambda: True,
        classes_silence=lambda: 0.0,
    )
    client = app.create_app(dependencies).test_client()
    monkeypatch.setattr("webhook.admission.app.decide", fail)
    answer = client.post("/mutate", json=review(gpu_pod("a", annotations={"token": "hunter2"})))
    assert answer.status_code == 500
    assert "hunter2" not in answer.text + caplog.text
    assert "error=ValueError at=" in caplog.text
    assert "test_serving_state.py" in caplog.text


# --- PriorityClasses --------------------------------------------------------------------------------


class _Classes(http.server.BaseHTTPRequestHandler):
    """An API server that lists one PriorityClass and watches nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        status, body = 200, json.dumps({"kind": "PriorityClassList", **_LIST}).encode()
        if "watch=1" in self.path:
            status, body = 503, b"{}"
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


_LIST: dict[str, Any] = {
    "metadata": {"resourceVersion": "1"},
    "items": [{"metadata": {"name": "gpu-high-priority", "resourceVersion": "1"}, "value": 100}],
}


def test_no_class_is_injected_from_a_stale_copy_and_that_is_reported(tmp_path: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Classes)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    pod = gpu_pod("a", annotations={keys.PRIORITY_ANNOTATION: "high"})
    with serving(tmp_path, Impatient, f"http://127.0.0.1:{server.server_address[1]}") as webhook:
        try:
            webhook.wait(lambda: readiness(webhook)["priorityClasses"] == "synced", "the classes")
            # On a busy machine it may be old by now; another list follows.
            webhook.wait(lambda: b"gpu-high-priority" in patch_of(webhook, pod), "the class to be injected")
        finally:
            server.shutdown()
            server.server_close()
        webhook.wait(lambda: readiness(webhook)["priorityClasses"].startswith("stale: "), "the silence")
        assert readiness(webhook)["ready"] is True, "a gate without a class is better than none"
        assert b"gpu-high-priority" not in patch_of(webhook, pod)
        assert keys.GATE.encode() in patch_of(webhook, pod)
        assert webhook.metric("topogate_priority_classes_silence_seconds") > 2


def patch_of(webhook: Webhook, pod: Any) -> bytes:
    return base64.b64decode(json.loads(post(webhook, review(pod))[1])["response"]["patch"])
