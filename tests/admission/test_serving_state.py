"""What the webhook says of its certificate and of its PriorityClasses is what it serves and knows."""

import base64
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labeler.contract import keys
from tests.admission.alone import app_dependencies, decisions_counted, serving
from tests.admission.harness import HOSTS, gpu_pod, short_lived
from tests.admission.reviews import CLASSES, review
from webhook.admission import app, certificates

EXPIRY = "topogate_certificate_expiry_timestamp_seconds"


@pytest.mark.promise("O212")
@pytest.mark.parametrize(
    "content", [certificates.issue(HOSTS).certificate, b"garbage"], ids=["of another key", "garbage"]
)
def test_a_certificate_that_cannot_be_served_is_reported_and_the_served_one_is_described(
    tmp_path: Path, content: bytes
) -> None:
    made = app_dependencies(tmp_path)
    client = app.create_app(made).test_client()
    expiry = made.certificate.not_after.timestamp()

    def is_rejected() -> bool:
        made.certificate.refresh()
        found = client.get("/readyz").get_json()
        assert found["certificate"] == "valid"
        lines = [line.split(" ") for line in client.get("/metrics").text.splitlines()]
        metrics = {line[0]: float(line[1]) for line in lines if line[0] != "#"}
        assert metrics[EXPIRY] == expiry
        assert metrics["topogate_certificate_rejected"] == bool(found["certificateRejected"])
        return bool(found["certificateRejected"])

    good, context = (tmp_path / "tls.crt").read_bytes(), made.certificate.context()
    (tmp_path / "tls.crt").write_bytes(content)
    assert is_rejected()
    assert made.certificate.context() is context
    (tmp_path / "tls.crt").write_bytes(good)
    assert not is_rejected()


def test_an_unusable_pair_is_logged_once_and_not_at_every_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cache = app_dependencies(tmp_path).certificate
    (tmp_path / "tls.crt").write_bytes(b"garbage")
    for _ in range(20):
        cache.context()
    assert caplog.text.count("tls_pair_unusable") == 1


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (short_lived(-60), "certificate expired at"),
        (certificates.issue(HOSTS, now=datetime.now(UTC) + timedelta(days=1)), "not valid before"),
    ],
    ids=["expired", "of tomorrow"],
)
def test_a_certificate_that_no_client_accepts_makes_it_unready_and_is_named(
    tmp_path: Path, pair: certificates.Pair, words: str
) -> None:
    """Also while the one on disk is good, but has no key."""
    made = app_dependencies(tmp_path)
    client = app.create_app(made).test_client()
    assert client.get("/readyz").status_code == 200
    (tmp_path / "tls.crt").write_bytes(pair.certificate)
    (tmp_path / "tls.key").write_bytes(pair.key)
    made.certificate.refresh()
    (tmp_path / "tls.crt").write_bytes(certificates.issue(HOSTS).certificate)
    made.certificate.refresh()
    found = client.get("/readyz")
    assert found.status_code == 503
    assert words in found.get_json()["certificate"]


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((1000.0, 1000.25))
    client = app.create_app(app_dependencies(tmp_path)).test_client()
    with monkeypatch.context() as patched:
        patched.setattr("webhook.admission.app.time", SimpleNamespace(perf_counter=times.__next__))
        client.post("/mutate", json=review(gpu_pod("a")))
    text = client.get("/metrics").text
    assert "topogate_admission_seconds_sum 0.25\n" in text
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

    client = app.create_app(app_dependencies(tmp_path)).test_client()
    monkeypatch.setattr("webhook.admission.app.decide", fail)
    answer = client.post("/mutate", json=review(gpu_pod("a", annotations={"token": "hunter2"})))
    assert answer.status_code == 500
    assert "hunter2" not in answer.text + caplog.text
    assert "error=ValueError at=" in caplog.text
    assert "test_serving_state.py" in caplog.text
    assert decisions_counted(client) == {("error", "internal-error"): 1}


# --- PriorityClasses --------------------------------------------------------------------------------


@pytest.mark.promise("O214")
@pytest.mark.parametrize(
    ("synced", "silence", "believed", "state"),
    [
        (True, 299.0, True, "synced"),
        (True, 300.0, False, "stale: no message about PriorityClasses for 300 s"),
        (False, 0.0, False, "not synced"),
    ],
    ids=["of now", "stale", "never complete"],
)
def test_no_class_is_injected_from_a_stale_copy_and_that_is_reported(
    tmp_path: Path, synced: bool, silence: float, believed: bool, state: str
) -> None:
    made = app_dependencies(
        tmp_path, classes=lambda: CLASSES, classes_synced=lambda: synced, classes_silence=lambda: silence
    )
    client = app.create_app(made).test_client()
    pod = gpu_pod("a", annotations={keys.PRIORITY_ANNOTATION: "high"})
    response = client.post("/mutate", json=review(pod)).get_json()["response"]
    patch = base64.b64decode(response["patch"])
    assert keys.GATE.encode() in patch
    assert (b"gpu-high-priority" in patch) == believed
    assert ("PriorityClasses cannot be read now" in str(response.get("warnings"))) != believed
    readiness = client.get("/readyz")
    assert readiness.get_json()["priorityClasses"].startswith(state)
    assert (readiness.status_code == 200) == synced, "a gate without a class is better than none"
    metric = f"topogate_priority_classes_silence_seconds {silence}"
    assert metric in client.get("/metrics").text.splitlines()
