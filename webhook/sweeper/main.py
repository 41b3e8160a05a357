"""topogate-sweeper: watches gated pods, places their gangs and releases them. One of its replicas leads."""

import argparse
import logging
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Final

from labeler.contract import keys
from webhook import logs, version
from webhook.extensions.known import SWITCHES
from webhook.extras import LACKS_CEL, has_cel
from webhook.kube.client import Api, ConnectError
from webhook.kube.lease import Elector
from webhook.policy.store import OptionalPolicy, watch_files
from webhook.policy.values import Policy
from webhook.sweeper.process import run
from webhook.sweeper.settings import FLAGS, Settings, SettingsError, add_mode, levels_fault, load, with_flags

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
        settings, policy = _settings(options), OptionalPolicy(options.policy)
        policy.refresh()
        _check_levels(settings, policy.policy)
        api = Api.connect(options.kubeconfig, user_agent="topogate-sweeper")
    except (SettingsError, ConnectError) as error:
        for line in str(error).splitlines():  # of settings, each is a fault of its own
            logger.error("cannot_start reason=%r", line)
        return 2
    identity = f"{socket.gethostname()}_{os.getpid()}"
    elector = None
    if options.leader_election:
        # Renewals have a connection pool of their own: they must not wait behind releases.
        own = Api.connect(options.kubeconfig, user_agent="topogate-sweeper-lease")
        elector = Elector(own, options.namespace, LEASE, identity)
    _report_missing_extra(policy.policy)
    watching = watch_files([policy.refresh])
    address, port = options.metrics_address, options.metrics_port
    try:
        run(api, settings, stopping, elector, address, port, identity, lambda: policy.policy, SWITCHES)
    finally:
        watching.set()
    return 0


def _check_levels(settings: Settings, policy: Policy | None) -> None:
    """Raises SettingsError if admission accepts other levels than there are."""
    if policy is not None and (fault := levels_fault(settings, policy)):
        raise SettingsError("topogate-sweeper", [fault])


def _report_missing_extra(policy: Policy | None) -> None:
    """Log what the policy asks for and this installation lacks. Gangs that need it wait and show it."""
    if policy is not None and policy.resource_claims and not has_cel():
        logger.error("extra_missing setting=resourceClaims reason=%r", LACKS_CEL)


def _settings(options: argparse.Namespace) -> Settings:
    """The file's choices, with the flags' over them. Raises SettingsError."""
    chosen = load(options.config) if options.config else Settings()
    return with_flags(chosen, {flag: getattr(options, flag) for flag in FLAGS})


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="topogate-sweeper", description=__doc__)
    version.add_argument(made)
    add = made.add_argument
    add("--kubeconfig", type=Path, help="how to reach the cluster; without it, as the pod's ServiceAccount")
    add("--config", type=Path, metavar="FILE", help="settings (YAML); flags override it")
    add(
        "--gate",
        metavar="PREFIX",
        help=f"gates with this prefix are served ({keys.GATE_PREFIX}); the policies of the manifests and "
        "admission's gatePrefix name it as well: change them too, see docs/operators/gate.md",
    )
    add(
        "--settle",
        type=float,
        metavar="SECONDS",
        help="time without a new pod after which a gang of unknown size is complete (5)",
    )
    add(
        "--patience",
        type=float,
        metavar="SECONDS",
        help="time without a new pod after which an incomplete gang is placed (60)",
    )
    add(
        "--policy",
        type=Path,
        metavar="FILE",
        help="admission's policy: pods that bypassed the webhook get their GPU model's nodeSelector from it",
    )
    add("--interval", type=float, metavar="SECONDS", help="a pass at least this often (30)")
    add("--ignored-namespace", nargs="*", action="extend", default=[], metavar="NAME", help="left alone")
    add_mode(made)
    _add_scale_up(made)
    add("--leader-election", action=argparse.BooleanOptionalAction, default=True, help="one of several leads")
    add("--namespace", default=NAMESPACE, help="where the Lease lives (%(default)s)")
    add("--metrics-address", default="0.0.0.0", help="where /metrics, /healthz, /readyz listen")
    add("--metrics-port", type=int, metavar="PORT", help="none without it")
    logs.add_flags(made)
    return made


def _add_scale_up(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--scale-up",
        metavar="CLASS",
        help="ask an autoscaler for nodes by ProvisioningRequests of this class (component scale-up)",
    )
    add(
        "--scale-up-requests", type=int, metavar="N", help="requests that a namespace may have at a time (10)"
    )
    add("--scale-up-pods", type=int, metavar="N", help="pods in all requests of a namespace (1000)")


if __name__ == "__main__":
    raise SystemExit(main())
