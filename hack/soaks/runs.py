"""What every soak does around its own work: a cluster of its own, replicas of programs, logs, a verdict."""

import argparse
import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.install import SYSTEM, Installation
from hack.local.kubelet import Program


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every soak."""
    parser.add_argument("--seed", type=int, default=None, help="repeat the choices of an earlier run")
    parser.add_argument("--logs", type=Path, help="where to copy all programs' logs to")


def seed_of(options: argparse.Namespace) -> int:
    """The seed that was asked for, or a new one."""
    return int(options.seed) if options.seed is not None else random.SystemRandom().randrange(10**6)


def start_replicas(installation: Installation, component: str, count: int, *arguments: str) -> list[Program]:
    """Programs of one component under the identity of the installed one; the caller stops them."""
    cluster = installation.cluster
    first = installation.program_of(SYSTEM, {"app.kubernetes.io/component": component})
    made = []
    for number in range(1, count + 1):
        program = replace(first, log=cluster.log(f"{component}-{number}"))
        port = str(free_port())
        program.start(*arguments, "--metrics-address", "127.0.0.1", "--metrics-port", port)
        made.append(program)
    return made


def make_namespace(cluster: Cluster, name: str, labels: Mapping[str, str]) -> None:
    """Make a namespace in which pods can be made."""
    api = cluster.api()
    api.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name, "labels": labels}})
    path = f"/api/v1/namespaces/{name}/serviceaccounts"
    cluster.wait_for("a ServiceAccount", lambda: bool(api.json("GET", path)["items"]))


def keep_logs(folder: Path | None, cluster: Cluster) -> None:
    """Copy the logs of all programs, the control plane's among them, to a folder, if there is one."""
    if folder is not None:
        shutil.copytree(cluster.folder / "logs", folder, dirs_exist_ok=True)


def verdict(faults: Sequence[str], seed: int) -> int:
    """Print the first faults and how many there are; returns the exit status."""
    for fault in faults[:40]:
        print(f"FAULT: {fault}")
    print(f"{len(faults)} faults; seed {seed}" if faults else f"No fault; seed {seed}")
    return 1 if faults else 0
