"""Programs of topogate at work as processes, and what they answer at /metrics."""

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.processes import open_tied
from tests.monitoring.scrapes import Series, read

SWEEPER: Final = "topogate-sweeper"
WEBHOOK: Final = "topogate-webhook"
TASKS: Final = "topogate-tasks"
ALLOCATOR: Final = "topogate-allocator"
API_SERVER: Final = "apiserver"
FAILS_OPEN: Final = "apiserver_admission_webhook_fail_open_count"
OURS: Final = ("name", "pods.topogate.io")
_MODULES: Final = {SWEEPER: "webhook.sweeper.main", TASKS: "webhook.tasks.main"}


@contextlib.contextmanager
def program(name: str, kubeconfig: Path, *arguments: str) -> Iterator[str]:
    """A program that runs; gives the address of its metrics."""
    port = free_port()
    command = [sys.executable, "-m", _MODULES[name], "--kubeconfig", str(kubeconfig), *arguments]
    command += ["--metrics-address", "127.0.0.1", "--metrics-port", str(port)]
    with open_tied(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{port}/metrics"
        finally:
            process.terminate()
            process.wait(90)


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


def of_the_api_server(cluster: Cluster) -> tuple[Series, ...]:
    """What the API server counts of our webhook; nothing before it has counted once."""
    text = cluster.api().request("GET", "/metrics").decode()
    # To read all of it takes a second.
    found = read("\n".join(line for line in text.splitlines() if FAILS_OPEN in line) + "\n", FAILS_OPEN)
    # The reader gives every counter the ending _total, which Prometheus does not.
    return tuple(replace(each, name=FAILS_OPEN) for each in found if OURS in each.labels)
