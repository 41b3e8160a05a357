"""`topogate ui`: the page on this laptop, with the rights of the kubeconfig's user."""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from webhook.kube.client import ApiError, ConnectError


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("ui", help="a page with the map of the cluster and its gangs")
    parser.add_argument("--port", type=int, default=8090, help="on 127.0.0.1 (%(default)s)")
    parser.add_argument("--kubeconfig", type=Path, help="default: $KUBECONFIG, else ~/.kube/config")
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="the sweeper's settings, if it has a file"
    )
    parser.add_argument(
        "--policy", type=Path, metavar="FILE", help="admission's policy, which says what counts as a GPU"
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until interrupted; 1 if the cluster cannot be reached, 2 for a wrong argument."""
    # Flask and gunicorn are loaded for this command alone.
    from webhook.policy.file import PolicyError
    from webhook.sweeper.settings import SettingsError
    from webhook.ui.serve import serve_laptop

    listed = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    default = Path(listed) if listed else Path.home() / ".kube" / "config"
    try:
        return serve_laptop(arguments, arguments.kubeconfig or default)
    except (ApiError, ConnectError) as error:
        print(f"topogate ui: {error}", file=sys.stderr)
        return 1
    except (SettingsError, PolicyError) as error:
        print(f"topogate ui: {error}", file=sys.stderr)
        return 2
