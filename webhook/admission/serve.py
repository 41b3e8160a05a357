"""`topogate-webhook`: the admission webhook as a process.

gunicorn with one threaded worker: it keeps connections alive (otherwise the API server opens a full TLS
handshake each time), and it drains on SIGTERM. More load needs more replicas.
"""

import argparse
import gc
import logging
import resource
import ssl
import sys
from pathlib import Path
from typing import Any, Final

from flask import Flask
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter

from webhook import logs, version
from webhook.admission.app import Dependencies, create_app
from webhook.admission.tls import ContextCache
from webhook.admission.worker import Worker
from webhook.configuration.document import ConfigurationError
from webhook.configuration.store import ConfigurationStore, add_flag, require_file, watch_files
from webhook.kube.client import Api, ConnectError
from webhook.kube.informer import Informer
from webhook.kube.objects import PriorityClass

PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
KEEP_ALIVE_SECONDS: int = 120
"""Above the 90 s after which the API server closes an idle connection, so that it never uses a connection
that we are just closing.
"""
THREADS: Final = 16
CONNECTIONS: int = 1000
"""Open at once; beyond it, idle ones are closed."""
OTHER_FILES: Final = 100
"""Reserved for everything else: a worker that cannot accept for want of a file descriptor ends."""
GRACE_SECONDS: Final = 15
logger = logging.getLogger(__name__)


class Supervisor(Arbiter):  # type: ignore[misc]
    """gunicorn's parent process: each worker begins with its configuration, the last good one."""

    app: "ConfiguredServer"

    def manage_workers(self) -> None:
        """Load the configuration, whose changes the worker logs, and replace a worker that has ended."""
        self.app.store.load()
        super().manage_workers()


class ConfiguredServer(BaseApplication):  # type: ignore[misc]
    """gunicorn around an app; `load` runs in the worker, after the fork, where threads survive."""

    def __init__(self, store: ConfigurationStore) -> None:
        """store: the configuration of the app; the parent process loads it too."""
        self.store = store
        super().__init__()

    def run(self) -> None:
        """Serve until SIGTERM."""
        Supervisor(self).run()


class Server(ConfiguredServer):
    """The webhook's server."""

    def __init__(self, arguments: argparse.Namespace, api: Api, store: ConfigurationStore) -> None:
        """Take the command line, the API server from which to read PriorityClasses, and the configuration."""
        self._arguments = arguments
        self._api = api
        self._certificate = arguments.cert_dir / "tls.crt"
        self._contexts = ContextCache(self._certificate, arguments.cert_dir / "tls.key")
        super().__init__(store)

    def load_config(self) -> None:
        """Settings of gunicorn; see its documentation for their meaning."""
        settings: dict[str, Any] = {
            "bind": self._arguments.bind,
            "workers": 1,
            "worker_class": Worker,
            "threads": THREADS,
            "worker_connections": connections(),
            "keepalive": KEEP_ALIVE_SECONDS,
            "graceful_timeout": GRACE_SECONDS,
            "certfile": str(self._certificate),
            "keyfile": str(self._arguments.cert_dir / "tls.key"),
            "ssl_context": lambda _config, _default: self._contexts.context(),
            "do_handshake_on_connect": False,
            "control_socket_disable": True,  # it would need a writable home folder
            "proc_name": "topogate-webhook",
            "loglevel": self._arguments.log_level,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def load(self) -> Flask:
        """Start what the app reads from, and create the app."""
        informer = Informer(self._api, PRIORITY_CLASSES, PriorityClass)
        informer.start()
        watch_files([self.store.refresh, self._contexts.refresh])
        # What is loaded by now stays loaded: the garbage collector need not scan it each time.
        gc.collect()
        gc.freeze()
        return create_app(
            Dependencies(
                store=self.store,
                certificate=self._contexts,
                classes=informer.items,
                classes_synced=lambda: informer.synced,
                classes_silence=lambda: informer.silence_seconds,
            )
        )


def connections() -> int:
    """How many connections the limit of open files allows; the limit is raised as far as allowed."""
    wanted = CONNECTIONS + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return CONNECTIONS
    raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return max(2 * THREADS, raised - OTHER_FILES)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="topogate-webhook", description=__doc__)
    version.add_argument(made)
    made.add_argument("--bind", default="0.0.0.0:8443", help="address:port to listen on (%(default)s)")
    made.add_argument(
        "--cert-dir", type=Path, default=Path("/etc/topogate/tls"), help="holds tls.crt, tls.key"
    )
    add_flag(made)
    made.add_argument("--kubeconfig", type=Path, default=None, help="default: the pod's own ServiceAccount")
    logs.add_flags(made)
    return made


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM. Returns 2 for an error of the command line or its files."""
    arguments = parser().parse_args(argv)
    require_file(arguments, "topogate-webhook")
    logs.begin("topogate-webhook", arguments.log_level, arguments.log_format)
    try:
        store = ConfigurationStore(arguments.config)
        api = Api.connect(arguments.kubeconfig, user_agent="topogate-webhook")
        server = Server(arguments, api, store)
    except (ConfigurationError, ConnectError) as error:
        print(f"topogate-webhook: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except (OSError, ssl.SSLError) as error:
        where = f"{arguments.cert_dir}/tls.crt, tls.key"
        print(f"topogate-webhook: no usable certificate in {where}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    server.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
