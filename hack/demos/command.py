"""The topogate command, as a user of the demo's cluster types it."""

import subprocess
import sys
from pathlib import Path

from hack.local.cluster import Cluster


def topogate(
    cluster: Cluster, namespace: str, *words: str, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a subcommand to its end. Raises subprocess.TimeoutExpired."""
    program = str(Path(sys.executable).parent / "topogate")
    connection = ("--kubeconfig", str(cluster.kubeconfig), "-n", namespace)
    command = [program, words[0], *connection, *words[1:]]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds)
