"""`topogate exec` and `topogate attach`: into a worker, through kubectl, which handles the terminal."""

import argparse
import os
import shutil
from typing import Any

from webhook.cli import session, works


def add_parser(subparsers: Any) -> None:
    """Add the two commands to the parser of `topogate`."""
    for name, text in (("exec", "run a command inside a worker"), ("attach", "watch what a worker runs")):
        parser = subparsers.add_parser(name, help=text, description=__doc__)
        parser.add_argument("name", metavar="NAME", help="a task or job: NAME, task/NAME or job/NAME")
        parser.add_argument("-r", "--rank", type=int, default=0, help="of the worker (0)")
        parser.add_argument("-c", "--container", metavar="NAME", help="default: the first")
        if name == "exec":
            parser.add_argument("words", nargs="*", metavar="-- COMMAND", help="default: a shell")
        session.add_connection(parser)


def run(options: argparse.Namespace) -> int:
    """Become kubectl; returns only if that is impossible: 1."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise session.SessionError(f"{options.command} runs kubectl, which is not on the PATH")
    api = session.connect(options, brief=True)
    work = works.find(api, session.namespace_of(options), options.name)
    pod = works.newest(works.pods_of(api, work)).get(options.rank)
    if pod is None:
        raise session.SessionError(f"{work.name} has no worker of rank {options.rank}; it is {work.state}")
    if pod["status"].get("phase") != "Running":
        raise session.SessionError(
            f"worker {options.rank} of {work.name} is not running: its phase is {pod['status'].get('phase')}"
        )
    os.execv(kubectl, command(kubectl, options, work.namespace, str(pod["metadata"]["name"])))


def command(kubectl: str, options: argparse.Namespace, namespace: str, pod: str) -> list[str]:
    """kubectl's command line for the worker."""
    # Without --kubeconfig kubectl reads the same file as we do: $KUBECONFIG, else ~/.kube/config.
    words = [kubectl, *(["--kubeconfig", str(options.kubeconfig.expanduser())] if options.kubeconfig else [])]
    words += ["--context", options.context] if options.context else []
    terminal = "-it" if os.isatty(0) and os.isatty(1) else "-i"
    words += [options.command, terminal, "-n", namespace, pod]
    words += ["-c", options.container] if options.container else []
    return [*words, "--", *(options.words or ["sh"])] if options.command == "exec" else words
