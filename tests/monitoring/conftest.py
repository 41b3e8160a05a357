"""What the programs of topogate answer at /metrics when all is well, and in states of trouble, each live."""

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from hack.local import nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from labeler.allocator import metrics as allocator
from labeler.contract import keys
from tests.admission.harness import running, shipped_policy
from tests.monitoring.scrapes import NOT_HERE, PROMTOOL, Series, State, read
from tests.support import create_namespace, delete_namespace
from tests.tasks.at_work import install

API_SERVER = "apiserver"
FAILS_OPEN = "apiserver_admission_webhook_fail_open_count"


@contextlib.contextmanager
def program(module: str, *arguments: str, kubeconfig: Path) -> Iterator[str]:
    """A program of ours that runs; gives the address of its metrics."""
    port = free_port()
    command = [sys.executable, "-m", module, "--kubeconfig", str(kubeconfig), *arguments]
    command += ["--metrics-address", "127.0.0.1", "--metrics-port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            process.terminate()
            process.wait(20)


def scraped(cluster: Cluster, address: str, until: str) -> tuple[Series, ...]:
    """The answer once a line of it begins so."""
    text = ""

    def holds() -> bool:
        nonlocal text
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5) as answer:
            text = answer.read().decode()
        return any(line.startswith(until) for line in text.splitlines())

    cluster.wait_for(f"{until} at {address}", holds)
    return read(text)


def api_server_series(cluster: Cluster) -> tuple[Series, ...]:
    """What the API server counts of our webhook."""
    found = read(cluster.api().request("GET", "/metrics").decode(), FAILS_OPEN)
    return tuple(each for each in found if ("name", "pods.topogate.io") in each.labels)


@pytest.fixture(scope="module")
def at_work(module_cluster: Cluster) -> Iterator[Cluster]:
    """A control plane with our definitions, four GPU nodes and a gated pod whose wish cannot be meant."""
    install(module_cluster)
    nodes.register(module_cluster.api(), nodes.grid(nodes.Shape(nodes=4, blocks=2, subblocks=1)))
    namespace = create_namespace(module_cluster)
    pod = {
        "metadata": {"name": "p", "annotations": {keys.REQUIRED_TOPOLOGY_ANNOTATION: "moon"}},
        "spec": {
            "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
            "schedulingGates": [{"name": keys.GATE}],
        },
    }
    module_cluster.api().request("POST", f"/api/v1/namespaces/{namespace}/pods", body=pod)
    yield module_cluster
    delete_namespace(module_cluster, namespace)


@pytest.fixture(scope="module")
def calm(at_work: Cluster, tmp_path_factory: pytest.TempPathFactory) -> State:
    """All programs at work, each scraped from its own process; the allocator's from its registry."""
    if not PROMTOOL:
        pytest.skip(NOT_HERE)
    folder = tmp_path_factory.mktemp("webhook")
    (folder / "tasks.yaml").write_text(shipped_policy())
    sweeper = ("webhook.sweeper.main", "--no-leader-election", "--settle", "0")
    tasks = ("webhook.tasks.main", "--no-leader-election", "--policy", str(folder / "tasks.yaml"))
    kubeconfig = at_work.kubeconfig
    with (
        running(folder, at_work) as webhook,
        program(*sweeper, kubeconfig=kubeconfig) as sweeping,
        program(*tasks, kubeconfig=kubeconfig) as tasking,
    ):
        return State(
            {
                "topogate-webhook": read(webhook.get("/metrics")[1].decode()),
                "topogate-sweeper": scraped(at_work, sweeping, 'topogate_gangs_waiting{cause="wish"} 1'),
                "topogate-tasks": scraped(at_work, tasking, "topogate_tasks_watch_silence_seconds{"),
                "topogate-allocator": allocator_series(),
                API_SERVER: (),
            }
        )


def allocator_series() -> tuple[Series, ...]:
    """What the allocator shows once it has given a container its cards, as planned."""
    resource = keys.I915
    allocator.ALLOCATIONS.labels(resource, "planned").inc()
    allocator.ALLOCATIONS.labels(resource, "refused").inc(0)
    allocator.CONFLICT.labels(resource).set(0)
    allocator.REGISTERED.labels(resource).set(1)
    registry = CollectorRegistry()
    for each in (allocator.ALLOCATIONS, allocator.CONFLICT, allocator.REGISTERED):
        registry.register(each)
    return read(generate_latest(registry).decode())
