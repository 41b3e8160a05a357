"""What the programs of a node have in common: whose node it is, the API server and their identity there."""

import argparse
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from labeler.version import version

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class UsageError(Exception):
    """The command line or the environment is incomplete."""


def server_of_this_pod(environment: Mapping[str, str]) -> str:
    """The API server's URL from a pod's environment. Raises UsageError outside of a pod."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    if not host:
        raise UsageError(
            "KUBERNETES_SERVICE_HOST is not set, so this is no pod: give --server and --token-file"
        )
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options by which a program outside of a pod gets the same, and how much it logs."""
    add = parser.add_argument
    add("--version", action="version", version=f"%(prog)s {version()}", help="print the version and end")
    add("--node-name", default=os.environ.get("NODE_NAME"), help="this Node (default: $NODE_NAME)")
    add("--server", help="the API server's URL (default: the cluster that this pod runs in)")
    add("--token-file", type=Path, default=SERVICE_ACCOUNT / "token", metavar="FILE")
    add("--ca-file", type=Path, metavar="FILE", help="certificates that sign the API server's")
    add("--verbose", action="store_true", help="log more")


def node_name(options: argparse.Namespace) -> str:
    """The Node's name. Raises UsageError."""
    if not options.node_name:
        raise UsageError("which node is this? give --node-name, or set NODE_NAME from spec.nodeName")
    return str(options.node_name)


def server_of(options: argparse.Namespace) -> tuple[str, Path | None]:
    """The API server's URL, and the file of who signs for it (None: the system's). Raises UsageError."""
    server, ca_file = options.server or server_of_this_pod(os.environ), options.ca_file
    if ca_file is None and not options.server:
        ca_file = SERVICE_ACCOUNT / "ca.crt"
    if ca_file is not None and not ca_file.is_file():
        raise UsageError(f"--ca-file: there is no file {ca_file}")
    return str(server), ca_file


def log_to_stderr(program: str, options: argparse.Namespace) -> None:
    """Log as the options ask, and first this program and its version."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.DEBUG if options.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    logging.getLogger("labeler").info("%s %s starts", program, version())
