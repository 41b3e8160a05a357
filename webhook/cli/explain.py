"""`topogate explain pod/NAME`: what a pod waits for, and what would help.

Reads the cluster once and asks the placement core the same question as the sweeper does; changes nothing.
"""

import argparse
from pathlib import Path
from typing import Any

from webhook.cli.terminal import complain, say
from webhook.inquiry.explanation import ExplainError, explain
from webhook.inquiry.reading import Cluster, kubeconfig
from webhook.kube.client import Api, ApiError, ConnectError
from webhook.sweeper.settings import Settings, SettingsError, load


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("explain", help="why a pod waits, and what would help")
    parser.add_argument("pod", metavar="pod/NAME")
    parser.add_argument("-n", "--namespace", default="default")
    parser.add_argument("--kubeconfig", type=Path, help="default: $KUBECONFIG, else ~/.kube/config")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the sweeper's settings, if it has a file"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the explanation; 0 if there is one, 1 if not, 2 for a wrong argument."""
    kind, _, name = arguments.pod.rpartition("/")
    if kind not in ("", "pod", "pods", "po") or not name:
        complain(f"topogate explain: {arguments.pod!r} is no pod; write pod/NAME")
        return 2
    try:
        settings = Settings(**(load(arguments.config) if arguments.config else {}))
        api = Api.connect(arguments.kubeconfig or kubeconfig(), user_agent="topogate-explain")
        for line in explain(Cluster.read(api), arguments.namespace, name, settings):
            say(line)
    except (ApiError, ConnectError, ExplainError) as error:
        complain(f"topogate explain: {error}")
        return 1
    except SettingsError as error:
        complain(f"topogate explain: {error}")
        return 2
    return 0
