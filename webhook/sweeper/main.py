"""topogate-sweeper: watches gated pods, places their gangs and releases them."""

import argparse
import logging
import signal
import sys
import threading
from pathlib import Path

from webhook import logs
from webhook.kube.client import Api, ConnectError
from webhook.sweeper.cache import ClusterCache
from webhook.sweeper.settings import Settings
from webhook.sweeper.sweep import Sweeper

_COALESCE_SECONDS = 0.02
logger = logging.getLogger("webhook.sweeper")


def main(arguments: list[str] | None = None) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status."""
    options = _parser().parse_args(arguments)
    logs.configure(options.log_level, options.log_format)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    try:
        api = Api.connect(options.kubeconfig, user_agent="topogate-sweeper")
    except ConnectError as error:
        logger.error("cannot_start reason=%r", str(error))
        return 2
    settings = Settings(
        settle_seconds=options.settle,
        patience_seconds=options.patience,
        interval_seconds=options.interval,
        ignored_namespaces=frozenset(options.ignored_namespace),
    )
    run(api, settings, stopping)
    return 0


def run(api: Api, settings: Settings, stopping: threading.Event) -> None:
    """Sweep whenever something changes, until `stopping` is set."""
    cache = ClusterCache(api)
    cache.start()
    logger.info("started server=%s", api.host)
    while not cache.synced:
        if stopping.wait(0.05):
            return
    logger.info("synced pods=%d nodes=%d", len(cache.pods.items()), len(cache.nodes.items()))
    sweeper = Sweeper(api, cache, settings, stopping)
    try:
        while not stopping.is_set():
            cache.changed.clear()
            try:
                due = sweeper.sweep()
            except Exception:  # a pass that fails is tried again: every pod of the cluster waits for us
                logger.exception("pass_failed")
                due = 1.0
            _wait(cache.changed, stopping, due)
    finally:
        sweeper.close()
    logger.info("stopped")


def _wait(changed: threading.Event, stopping: threading.Event, seconds: float) -> None:
    """Wait for a change (and a moment more, for its siblings), for the time that is due, or for the end."""
    waited = 0.0
    while waited < seconds and not stopping.is_set():
        if changed.wait(min(0.5, seconds - waited)):
            stopping.wait(_COALESCE_SECONDS)
            return
        waited += 0.5


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="topogate-sweeper", description=__doc__)
    parser.add_argument(
        "--kubeconfig", type=Path, help="how to reach the cluster; without it, as the pod's ServiceAccount"
    )
    parser.add_argument(
        "--settle",
        type=float,
        default=5.0,
        metavar="SECONDS",
        help="a gang whose size nobody tells is complete after this long without a new pod (default 5)",
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="a gang whose pods do not all come is placed as it is after this long (default 60)",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="a pass at least this often (default 30)",
    )
    parser.add_argument(
        "--ignored-namespace",
        nargs="*",
        action="extend",
        default=[],
        metavar="NAME",
        help="namespaces whose pods are left alone",
    )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", default="text", choices=logs.FORMATS)
    return parser


if __name__ == "__main__":
    sys.exit(main())
