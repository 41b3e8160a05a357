"""How long the topogate command takes to start, beside `kubectl version --client`, in turns.

Wall time and CPU time of whole processes, the median and the range over the rounds. What reads the cluster
loads a client on top, which is measured apart: up to the first request, to a server that is not there.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hack.local.build import programs

KUBECONFIG: Final = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
users: [{name: u, user: {token: t}}]
current-context: x
"""


def once(command: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one run."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, timeout=60)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="hack/bench startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    kubeconfig = Path(folder.name) / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    topogate = str(Path(sys.executable).parent / "topogate")
    commands = {
        "kubectl version --client": [*programs().commands["kubectl"], "version", "--client"],
        "topogate --help": [topogate, "--help"],
        "topogate ps --help": [topogate, "ps", "--help"],
        "topogate completion bash": [topogate, "completion", "bash"],
        "topogate ps, up to the first request": [topogate, "ps", "--kubeconfig", str(kubeconfig)],
    }
    for command in commands.values():
        once(command)  # files into the page cache, modules compiled
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(options.rounds):
        for name, command in commands.items():
            times[name].append(once(command))
    base = statistics.median(wall for wall, _ in times["kubectl version --client"])
    print(f"{options.rounds} rounds in turns, load average {os.getloadavg()[0]:.1f}")
    for name, found in times.items():
        walls, cpus = [wall * 1e3 for wall, _ in found], [cpu * 1e3 for _, cpu in found]
        print(
            f"{name:37} {statistics.median(walls):5.0f} ms ({min(walls):.0f} to {max(walls):.0f}), "
            f"CPU {statistics.median(cpus):5.0f} ms; {statistics.median(walls) / 1e3 / base:.2f} of kubectl"
        )
    folder.cleanup()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
