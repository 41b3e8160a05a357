"""`topogate certs`: issue and rotate the webhook's serving certificates without cert-manager.

`rotate` takes the steps that are due: once, or with --every repeatedly until it is stopped.
"""

import argparse
import logging
import os
import signal
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from webhook import logs
from webhook.admission import certificates
from webhook.admission.certificates import Waits
from webhook.admission.rotation import Names, Rotation
from webhook.cli.terminal import complain, print_line
from webhook.kube.client import Api, ApiError, ConnectError

RETRY_SECONDS: Final = 10.0

logger = logging.getLogger(__name__)


def add_parser(subparsers: Any) -> None:
    """Add the command to the parser of `topogate`."""
    parser = subparsers.add_parser("certs", help="issue and rotate the webhook's certificates")
    commands = parser.add_subparsers(dest="certs_command", required=True)
    issue = commands.add_parser("issue", help="write a new tls.crt, tls.key and ca.crt into a folder")
    issue.add_argument("--dir", type=Path, required=True, help="an existing folder without such files")
    issue.add_argument("--host", action="append", default=[], help="a DNS name or address; may be repeated")
    rotate = commands.add_parser("rotate", help="issue or renew the certificates of a cluster, where due")
    names = Names()
    rotate.add_argument("--kubeconfig", type=Path, help="default: the pod's own ServiceAccount")
    rotate.add_argument("--context", metavar="NAME", help="of the kubeconfig; default: its current one")
    rotate.add_argument("-n", "--namespace", default=names.namespace, help="default: %(default)s")
    rotate.add_argument("--secret", default=names.secret, help="default: %(default)s")
    rotate.add_argument("--service", default=names.service, help="default: %(default)s")
    rotate.add_argument("--configuration", default=names.configuration, help="default: %(default)s")
    rotate.add_argument("--host", action="append", default=[], help="instead of the Service's names")
    rotate.add_argument("--force", action="store_true", help="begin a rotation although none is due")
    rotate.add_argument("--wait", action="store_true", help="wait until a rotation is complete")
    rotate.add_argument(
        "--every", type=_seconds, default=0, metavar="SECONDS", help="repeat the check (default: once)"
    )
    waits = Waits()
    for flag, default, text in (
        ("--publish-seconds", waits.publish, "from the caBundle with both authorities to the switch"),
        ("--switch-seconds", waits.switch, "from the switch until the old authority is dropped"),
    ):
        seconds = default.total_seconds()
        rotate.add_argument(flag, type=_seconds, default=seconds, help=f"{text} (default: {seconds:.0f})")
    for each in (issue, rotate):
        days = certificates.LIFETIME.days
        each.add_argument("--days", type=_days, default=days, help="lifetime (default: %(default)s)")


def run(arguments: argparse.Namespace) -> int:
    """Run `topogate certs ...`; 0 if it worked, 1 if the cluster refused, 2 for a wrong argument."""
    lifetime = timedelta(days=arguments.days)
    if arguments.certs_command == "issue":
        return _issue(arguments.dir, arguments.host, lifetime)
    logs.configure()
    names = Names(arguments.namespace, arguments.secret, arguments.service, arguments.configuration)
    publish, switch = arguments.publish_seconds, arguments.switch_seconds
    try:
        rotation = Rotation(
            api=Api.connect(arguments.kubeconfig, user_agent="topogate-certs", context=arguments.context),
            names=names,
            waits=Waits(timedelta(seconds=publish), timedelta(seconds=switch)),
            lifetime=lifetime,
            hosts=tuple(arguments.host),
        )
        if arguments.every:
            _keep_rotating(rotation, arguments.every)
            return 0
        taken = rotation.run(force=arguments.force, wait=arguments.wait)
    except (ConnectError, ApiError) as error:
        complain(f"topogate certs rotate: {error}")
        return 1
    print_line(f"steps taken: {', '.join(taken) or 'none was due'}")
    return 0


def _keep_rotating(rotation: Rotation, seconds: float) -> None:
    """Repeat the check until SIGTERM; after a failure, retry sooner."""
    stop = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda _number, _frame: stop.set())
    pause = 0.0
    while not stop.wait(pause):
        try:
            rotation.run()
            pause = seconds
        except ApiError as error:
            logger.warning("certificates_failed error=%r", str(error))
            pause = min(seconds, RETRY_SECONDS)


def _issue(folder: Path, hosts: list[str], lifetime: timedelta) -> int:
    """Write a new pair; existing files are never replaced."""
    pair = certificates.issue(hosts or Names().hosts, lifetime)
    for name, content, mode in (
        ("tls.key", pair.key, 0o600),
        ("tls.crt", pair.certificate, 0o644),
        ("ca.crt", pair.authority, 0o644),
    ):
        path = folder / name
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
        except OSError as error:
            complain(f"topogate certs issue: {path}: {error.strerror}")
            return 2
        print_line(str(path))
    return 0


def _seconds(text: str) -> float:
    value = float(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return value


def _days(text: str) -> float:
    value = float(text)
    if not 0 < value <= 3650:
        raise argparse.ArgumentTypeError("must be above 0 and at most 3650")
    return value
