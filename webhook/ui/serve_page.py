"""`topogate ui` on a laptop, and `topogate-ui` in a cluster: the page as a separate process.

It has its own informers and only reads, so viewers never slow down the sweeper or the webhook.
"""

import argparse
import logging
import os
import signal
import ssl
import sys
import threading
from pathlib import Path
from typing import Any, Final

from flask import Flask

from webhook import logs, version
from webhook.admission.serve import ConfiguredServer, connections
from webhook.admission.tls import ContextCache
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import Configuration
from webhook.configuration.store import POLL_SECONDS, ConfigurationStore, add_flag, watch_files
from webhook.kube.client import Api, ConnectError
from webhook.sweeper.observe.cache import ClusterCache
from webhook.ui.history import History
from webhook.ui.live import LeaderRecords, Live
from webhook.ui.page_app import create_app
from webhook.ui.page_worker import PageWorker
from webhook.ui.pages import MOST_STREAMS, PageDependencies
from webhook.ui.rights import Gatekeeper
from webhook.ui.viewer_access import Access, ClusterAccess, LaptopAccess, Proxy

USER_AGENT: Final = "topogate-ui"
THREADS: Final = MOST_STREAMS + 16
"""A stream occupies a thread for as long as its page is open."""


class PageServer(ConfiguredServer):
    """The page's server."""

    def __init__(self, options: dict[str, Any], load_app: Any, store: ConfigurationStore) -> None:
        """options: gunicorn's settings; load_app: creates the app."""
        self._options = options
        self._load_app = load_app
        super().__init__(store)

    def load_config(self) -> None:
        """Apply the settings of gunicorn; see its documentation."""
        for name, value in self._options.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Start reading the cluster, and create the app."""
        app: Flask = self._load_app()
        return app


def build(
    api: Api, configuration: Configuration, access: Access, cluster: str = "",
    store: ConfigurationStore | None = None,
) -> tuple[Flask, Live]:  # fmt: skip
    """The app over a live cluster that is already being read; see PageDependencies."""
    settings, counted = configuration.settings, configuration.counting
    cache, records = ClusterCache(api, settings.gate_prefix), LeaderRecords(api)
    live = Live(cache, settings, counted, History(), records=records, policy=configuration.policy)
    live.start()
    return create_app(PageDependencies(live, settings, counted, access, api, cluster, store)), live


def options(bind: str, folder: Path | None = None) -> dict[str, Any]:
    """Settings of gunicorn: one worker, since each worker would read the whole cluster.

    folder: with tls.crt and tls.key. Raises OSError or ssl.SSLError if they cannot be used.
    """
    made: dict[str, Any] = {
        "bind": bind,
        "workers": 1,
        "worker_class": PageWorker,
        "threads": THREADS,
        "worker_connections": connections(),
        "sendfile": False,  # it has no time-out
        "do_handshake_on_connect": False,
        "keepalive": 75,
        "graceful_timeout": 2,
        "control_socket_disable": True,
        "proc_name": "topogate-ui",
        "loglevel": "warning",
    }
    if folder is not None:
        certificate, key = folder / "tls.crt", folder / "tls.key"
        contexts = ContextCache(certificate, key)
        made |= {"certfile": str(certificate), "keyfile": str(key)}
        made["ssl_context"] = lambda _config, _default: contexts.context()
    return made


def serve_laptop(api: Api, configuration: Configuration, name: str, port: int, cluster: str = "") -> int:
    """Serve the page on loopback until interrupted; prints the address with the secret.

    api: connected as the user; name, cluster: the displayed names of the user and of the cluster. Raises
    ApiError.
    """
    access = LaptopAccess(name)
    address = f"127.0.0.1:{port}"

    def load_app() -> Flask:
        return build(api, configuration, access, cluster)[0]

    api.request("GET", "/version")

    def print_address(_arbiter: object) -> None:
        print(f"http://{address}/?secret={access.secret}", flush=True)  # noqa: T201

    # Print it once the server listens: earlier requests would be refused.
    PageServer({**options(address), "when_ready": print_address}, load_app, ConfigurationStore([])).run()
    return 0


def end_when_changed(store: ConfigurationStore, poll_seconds: float = POLL_SECONDS) -> threading.Event:
    """End this worker once the configuration has changed; gunicorn starts another one, which has it.

    Looks until the returned event is set.
    """
    first = store.generation

    def look() -> None:
        store.refresh()
        if store.generation != first:
            os.kill(os.getpid(), signal.SIGTERM)

    return watch_files([look], poll_seconds)


def parser() -> argparse.ArgumentParser:
    """The command line of `topogate-ui`."""
    made = argparse.ArgumentParser(prog="topogate-ui", description=__doc__)
    version.add_argument(made)
    made.add_argument("--bind", default="0.0.0.0:8090", help="address:port to listen on (%(default)s)")
    made.add_argument("--cert-dir", type=Path, help="holds tls.crt and tls.key; without it plain HTTP")
    made.add_argument("--kubeconfig", type=Path, default=None, help="default: the pod's own ServiceAccount")
    made.add_argument(
        "--user-header", default="", metavar="NAME",
        help="trust a proxy in front that sends the user in this header; only it may reach this port",
    )  # fmt: skip
    made.add_argument("--groups-header", default="", metavar="NAME", help="and the groups in this one")
    made.add_argument(
        "--cluster-name", default="", metavar="NAME", help="what the page's header calls the cluster"
    )
    logs.add_flags(made)
    add_flag(made)
    return made


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM. Returns 2 for errors in arguments or configuration."""
    arguments = parser().parse_args(argv)
    logs.begin("topogate-ui", arguments.log_level, arguments.log_format)
    # The page runs the sweeper's steps for its explanations: what they would preempt or reserve is no news.
    logging.getLogger("webhook.sweeper.decide").setLevel(logging.WARNING)
    if arguments.groups_header and not arguments.user_header:
        print("topogate-ui: --groups-header needs --user-header", file=sys.stderr)  # noqa: T201
        return 2
    proxy = Proxy(arguments.user_header, arguments.groups_header) if arguments.user_header else None
    try:
        store = ConfigurationStore(arguments.config)
        api = Api.connect(arguments.kubeconfig, user_agent=USER_AGENT)
        served = options(arguments.bind, arguments.cert_dir)
    except (ConnectError, ConfigurationError) as error:
        print(f"topogate-ui: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except (OSError, ssl.SSLError) as error:
        where = f"{arguments.cert_dir}/tls.crt, tls.key"
        print(f"topogate-ui: no usable certificate in {where}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    if proxy is not None:
        logging.getLogger(__name__).info("proxy_believed header=%s", proxy.user_header)

    def load_app() -> Flask:
        access = ClusterAccess(Gatekeeper(api), proxy)
        end_when_changed(store)
        return build(api, store.configuration, access, arguments.cluster_name, store)[0]

    PageServer(served, load_app, store).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
