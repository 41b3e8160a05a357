"""topogate-sweeper: watches gated pods, places their gangs and releases them. One of its replicas leads."""

import argparse
import logging
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Final

from webhook import logs, version
from webhook.configuration.document import ConfigurationError
from webhook.configuration.store import ConfigurationStore, add_flag, watch_files
from webhook.extensions.known import SWITCHES
from webhook.extras import LACKS_CEL, has_cel
from webhook.kube.client import Api, ConnectError
from webhook.kube.lease import Elector
from webhook.policy.values import Policy
from webhook.sweeper.process import run

LEASE: Final = "topogate-sweeper"
NAMESPACE: Final = "topogate-system"
logger = logging.getLogger("webhook.sweeper")


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    options = parser().parse_args(arguments)
    logs.begin("topogate-sweeper", options.log_level, options.log_format)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        store = ConfigurationStore(options.config)
        api = Api.connect(options.kubeconfig, user_agent="topogate-sweeper")
    except (ConfigurationError, ConnectError) as error:
        for line in str(error).splitlines():  # of a configuration, each is a fault of its own
            logger.error("cannot_start reason=%r", line)
        return 2
    identity = f"{socket.gethostname()}_{os.getpid()}"
    elector = None
    if options.leader_election:
        # Renewals have a connection pool of their own: they must not wait behind releases.
        own = Api.connect(options.kubeconfig, user_agent="topogate-sweeper-lease")
        elector = Elector(own, options.namespace, LEASE, identity)
    _report_missing_extra(store.policy)
    watching = watch_files([store.refresh])
    address, port = options.metrics_address, options.metrics_port
    try:
        run(api, store, stopping, elector, address, port, identity, SWITCHES)
    finally:
        watching.set()
    return 0


def _report_missing_extra(policy: Policy) -> None:
    """Log what the policy asks for and this installation lacks. Gangs that need it wait and show it."""
    if policy.resource_claims and not has_cel():
        logger.error("extra_missing key=gpus.deviceClasses reason=%r", LACKS_CEL)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="topogate-sweeper", description=__doc__)
    version.add_argument(made)
    add = made.add_argument
    add("--kubeconfig", type=Path, help="how to reach the cluster; without it, as the pod's ServiceAccount")
    add_flag(made)
    add("--leader-election", action=argparse.BooleanOptionalAction, default=True, help="one of several leads")
    add("--namespace", default=NAMESPACE, help="where the Lease lives (%(default)s)")
    add("--metrics-address", default="0.0.0.0", help="where /metrics, /healthz, /readyz listen")
    add("--metrics-port", type=int, metavar="PORT", help="none without it")
    logs.add_flags(made)
    return made


if __name__ == "__main__":
    raise SystemExit(main())
