"""The webhook as a process under TLS that no API server calls, and clients that stall."""

import contextlib
import json
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from flask.testing import FlaskClient

from tests.admission import impatient
from tests.admission.harness import HOSTS, Webhook, shipped_configuration
from webhook.admission import app, certificates
from webhook.admission.tls import ContextCache
from webhook.configuration.store import ConfigurationStore


def unreachable_kubeconfig(folder: Path, server: str = "http://127.0.0.1:9") -> Path:
    """A kubeconfig for a cluster that is not there: the webhook serves, but knows no classes."""
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path


@contextlib.contextmanager
def serving(
    folder: Path,
    kind: Callable[..., Webhook] = Webhook,
    server: str = "http://127.0.0.1:9",
    **options: Any,
) -> Iterator[Webhook]:
    webhook = kind(folder, unreachable_kubeconfig(folder, server), **options)
    try:
        webhook.start(ready=False)
        webhook.wait(lambda: webhook.get("/healthz")[0] == 200, "the webhook to answer")
        yield webhook
    finally:
        webhook.stop()


def post(webhook: Webhook, body: Any, content_type: str = "application/json") -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return webhook.request("/mutate", data, content_type)


def worker_pid(webhook: Webhook) -> str:
    assert webhook.process is not None
    pid = webhook.process.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()


def stalled_in_handshake(webhook: Webhook) -> socket.socket:
    raw = socket.create_connection(("127.0.0.1", webhook.port))
    raw.sendall(b"\x16")  # the first byte of a ClientHello
    return raw


def stalled_after(webhook: Webhook, sent: bytes) -> socket.socket:
    wrapped = webhook.tls().wrap_socket(
        socket.create_connection(("127.0.0.1", webhook.port)), server_hostname="localhost"
    )
    wrapped.sendall(sent)
    return wrapped


def served_serial(webhook: Webhook) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", webhook.port)) as raw, context.wrap_socket(raw) as wrapped:
        return wrapped.getpeercert(binary_form=True) or b""


@dataclass
class Impatient(Webhook):
    """With the time-outs of `impatient`, or those of them that a test says."""

    module = "tests.admission.impatient"
    times: dict[str, float] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, impatient.VARIABLE: json.dumps(self.times)}


def app_dependencies(folder: Path, **classes: Any) -> app.Dependencies:
    """Of an app in this process, with what is shipped; classes: what differs of the PriorityClasses."""
    (folder / "configuration.yaml").write_text(shipped_configuration())
    pair = certificates.issue(HOSTS)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (folder / name).write_bytes(content)
    usual: dict[str, Any] = {
        "classes": dict,
        "classes_synced": lambda: True,
        "classes_silence": lambda: 0.0,
    }
    return app.Dependencies(
        store=ConfigurationStore([folder / "configuration.yaml"]),
        certificate=ContextCache(folder / "tls.crt", folder / "tls.key"),
        **(usual | classes),
    )


def decisions_counted(client: FlaskClient) -> dict[tuple[str, str], float]:
    """How many reviews ended how, by outcome and reason."""
    line = r'topogate_admission_decisions_total\{outcome="(.*)",reason="(.*)"\} (.*)'
    found = re.findall(line, client.get("/metrics").text)
    return {(outcome, reason): float(number) for outcome, reason, number in found if float(number)}
