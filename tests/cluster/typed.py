"""The command `topogate`, run in the test's own process: a process of its own costs half a second of CPU."""

import contextlib
import io
from dataclasses import dataclass

from hack.local.cluster import Cluster
from webhook.cli.main import main


@dataclass(frozen=True)
class Typed:
    """What a command printed, and the status with which it ended."""

    status: int
    out: str
    err: str


def run(*words: str) -> Typed:
    """Run `topogate` with these words."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(list(words))
        except SystemExit as ended:  # argparse ends the program
            status = int(ended.code or 0)
    return Typed(status, out.getvalue(), err.getvalue())


def typed(cluster: Cluster, namespace: str, *words: str) -> Typed:
    """Run a subcommand of `topogate` in a namespace of a cluster, unless the words name another one."""
    where = () if "-n" in words else ("-n", namespace)
    return run(words[0], "--kubeconfig", str(cluster.kubeconfig), *where, *words[1:])
