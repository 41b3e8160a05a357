"""`topogate ui`: the page on this laptop, with the rights of the kubeconfig's user."""

import argparse
from typing import Any

from webhook.cli import scene, session


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("ui", help="a page with the map of the cluster and its gangs")
    session.add_connection(parser)
    session.add_configuration(parser)
    parser.add_argument("--port", type=int, default=8090, help="on 127.0.0.1 (%(default)s)")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted; 1 if the cluster cannot be reached, 2 for a wrong argument."""
    return session.guarded(options, lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    # Flask and gunicorn are loaded only for this command.
    from webhook import logs
    from webhook.kube.kubeconfig import context_of, read
    from webhook.ui.serve_page import serve_laptop

    logs.configure("warning")  # it serves until it is interrupted
    api = session.connect(options)
    configuration = scene.configuration_of(options, api)
    context = context_of(read(session.kubeconfigs_of(options)), options.context)
    user, cluster = str(context.get("user") or ""), str(context.get("cluster") or "")
    return serve_laptop(api, configuration, user and f"as {user}", options.port, cluster)
