"""The webhook as a real process, and its manifests installed in a real API server."""

import base64
import contextlib
import copy
import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.processes import open_tied
from webhook.admission import certificates
from webhook.kube.client import Api

ROOT: Final = Path(__file__).resolve().parents[2]
MANIFESTS: Final = ROOT / "manifests" / "base"
WEBHOOKS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
HOSTS: Final = ("127.0.0.1", "localhost", "webhook.topogate-system.svc")


def manifest(file: str, kind: str | None = None) -> dict[str, Any]:
    """One object of a shipped manifest: the first, or the first of that kind."""
    for item in yaml.safe_load_all((MANIFESTS / file).read_text()):
        if kind is None or item["kind"] == kind:
            return dict(item)
    raise AssertionError(f"{file} has no {kind}")


def shipped_configuration() -> str:
    """The text of the shipped ConfigMap."""
    return str(manifest("configuration.yaml")["data"]["configuration.yaml"])


@dataclass
class Webhook:
    """`topogate-webhook` on loopback, with a certificate and a configuration in a folder of its own."""

    module: ClassVar[str] = "webhook.admission.serve"

    folder: Path
    kubeconfig: Path
    port: int = field(default_factory=free_port)
    pair: certificates.Pair = field(default_factory=lambda: certificates.issue(HOSTS))
    process: subprocess.Popen[bytes] | None = None

    @property
    def configuration_file(self) -> Path:
        return self.folder / "configuration.yaml"

    @property
    def environment(self) -> dict[str, str]:
        """The variables of its process."""
        return dict(os.environ)

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def wait_for_generation(self, number: int) -> None:
        """Wait until so many versions of the configuration have been loaded."""
        self.wait(lambda: self.metric("topogate_configuration_generation") == number, f"version {number}")

    def configure(self, text: str) -> None:
        partial = self.folder / "policy.partial"
        partial.write_text(text)
        partial.replace(self.configuration_file)

    def write_pair(self, pair: certificates.Pair) -> None:
        """Put a certificate on disk; the server takes it up at the next connection."""
        self.pair = pair
        for name, content in (("tls.key", pair.key), ("tls.crt", pair.certificate)):
            partial = self.folder / f"{name}.partial"
            partial.write_bytes(content)
            partial.replace(self.folder / name)

    def start(self, *, ready: bool = True) -> "Webhook":
        if not self.configuration_file.exists():
            self.configure(shipped_configuration())
        self.write_pair(self.pair)
        with (self.folder / "log").open("ab") as log:
            self.process = open_tied(
                [
                    *(sys.executable, "-m", self.module),
                    *("--bind", f"127.0.0.1:{self.port}", "--cert-dir", str(self.folder)),
                    *("--config", str(self.configuration_file), "--kubeconfig", str(self.kubeconfig)),
                ],
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        if ready:
            self.wait(lambda: self.get("/readyz")[0] == 200, "the webhook to be ready")
        return self

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(90)
            self.process = None

    def wait(self, condition: Any, what: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                if condition():
                    return
            assert self.process is None or self.process.poll() is None, f"webhook ended:\n{self.log}"
            assert time.monotonic() < deadline, f"waited in vain for {what}:\n{self.log[-3000:]}"
            time.sleep(0.05)

    def tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.pair.authority.decode())

    def request(
        self, path: str, body: bytes | None = None, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """One call on a connection of its own."""
        headers = {"Content-Type": content_type} if body is not None else {}
        request = urllib.request.Request(self.url + path, data=body, headers=headers)
        try:
            with urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.tls())
            ).open(request, timeout=60) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read()

    def get(self, path: str) -> tuple[int, bytes]:
        return self.request(path)

    def metric(self, name: str) -> float:
        """The value of one metric line, labels included in the name; 0 if it is not there."""
        for line in self.get("/metrics")[1].decode().splitlines():
            if line.startswith(name + " "):
                return float(line.rsplit(" ", 1)[1])
        return 0.0


@contextlib.contextmanager
def running(folder: Path, cluster: Cluster, **options: Any) -> Iterator[Webhook]:
    """A webhook that is ready, and stopped afterwards."""
    webhook = Webhook(folder, cluster.kubeconfig, **options)
    try:
        yield webhook.start()
    finally:
        webhook.stop()


def client_config(webhook: Webhook, bundle: bytes | None = None) -> dict[str, str]:
    """What the shipped configuration's clientConfig becomes on loopback."""
    authority = bundle or webhook.pair.authority
    return {"url": f"{webhook.url}/mutate", "caBundle": base64.b64encode(authority).decode()}


def configuration(webhook: Webhook, **changes: Any) -> dict[str, Any]:
    """The shipped webhook configuration, pointed at loopback and changed where asked."""
    made = copy.deepcopy(manifest("webhook-configuration.yaml"))
    (hook,) = made["webhooks"]
    hook["clientConfig"] = client_config(webhook)
    hook.update(changes)
    return made


def install_classes(cluster: Cluster) -> None:
    """Create the shipped PriorityClasses."""
    for item in yaml.safe_load_all((MANIFESTS / "priorityclasses.yaml").read_text()):
        cluster.api().request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body=item)


def install(cluster: Cluster, webhook: Webhook, **changes: Any) -> None:
    """Create the webhook configuration and wait until the API server calls it."""
    cluster.api().request("POST", WEBHOOKS, body=configuration(webhook, **changes))
    wait_called(cluster)


def wait_called(cluster: Cluster) -> None:
    """Wait until a dry run in an opted-in namespace comes back gated: the configuration has arrived."""
    api = cluster.api()
    name = "called-" + str(time.monotonic_ns())
    namespace = {"metadata": {"name": name, "labels": {"topogate.io/injection": "enabled"}}}
    api.request("POST", "/api/v1/namespaces", body=namespace)
    pod = gpu_pod("probe")
    pod["spec"]["serviceAccountName"] = "default"

    def is_called() -> bool:
        try:
            path, query = f"/api/v1/namespaces/{name}/pods", {"dryRun": "All"}
            return bool(api.json("POST", path, body=pod, query=query)["spec"].get("schedulingGates"))
        except Exception:  # noqa: BLE001 - the ServiceAccount may not be there yet
            return False

    cluster.wait_for("the API server to call the webhook", is_called)
    api.request("DELETE", f"/api/v1/namespaces/{name}")


def gpu_pod(
    name: str = "",
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    resource: str = "nvidia.com/gpu",
) -> dict[str, Any]:
    """A pod that asks for a GPU; without a name it has a generateName."""
    metadata: dict[str, Any] = {"name": name} if name else {"generateName": "gpu-"}
    if annotations is not None:
        metadata["annotations"] = annotations
    if labels is not None:
        metadata["labels"] = labels
    container = {"name": "main", "image": "x", "resources": {"limits": {resource: "1"}}}
    return {"metadata": metadata, "spec": {"containers": [container]}}


def create(api: Api, namespace: str, pod: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
    """Create a pod, or only ask what would be stored; returns it as stored. Raises ApiError."""
    path, query = f"/api/v1/namespaces/{namespace}/pods", {"dryRun": "All"} if dry_run else None
    return dict(json.loads(api.request("POST", path, body=pod, query=query, timeout_seconds=60)))


def delete_pods(api: Api, namespace: str) -> None:
    """Delete all pods of a namespace in one call: one by one takes the cleaning-up longer than the test."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    api.request("DELETE", path, query={"gracePeriodSeconds": "0"}, timeout_seconds=60)


def short_lived(seconds: float) -> certificates.Pair:
    """A pair that expires in so many seconds (negative: it has expired)."""
    return certificates.issue(HOSTS, timedelta(seconds=seconds))
