"""A sweeper beside an API server that needs seconds for each answer: it leads on, and places what comes."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.processes import open_tied
from tests.support import wait_for_pods
from tests.sweeper.at_work import create_job, run_all, template
from webhook.kube.kubeconfig import identity_of
from webhook.kube.transport import manager_of

SECONDS = 1.5
"""An answer takes so long; up to 5 s is tried in tests of the Lease, on a clock of their own."""


class Slow(ThreadingHTTPServer):
    """A proxy before the API server of a cluster, under its administrator's identity."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        identity = identity_of([cluster.kubeconfig])
        manager = manager_of(identity, 64)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                wanted = ("Accept", "Content-Type", "User-Agent")
                answer = manager.request(
                    self.command,
                    identity.server + self.path,
                    body=self.rfile.read(length) if length else None,
                    headers={name: self.headers[name] for name in wanted if self.headers[name]},
                    preload_content=False,
                    retries=False,
                )
                time.sleep(seconds)
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for piece in answer.stream():
                    self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = forward

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@contextmanager
def slow(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """The kubeconfig for that proxy."""
    server = Slow(cluster, SECONDS)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    content = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
        "current-context": "x",
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    yield path
    server.shutdown()
    server.server_close()


@pytest.mark.promise("O320")
def test_a_gang_is_placed_and_the_leader_stays_while_every_answer_takes_seconds(
    two_nodes: Cluster, namespace: str, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with slow(two_nodes, tmp_path) as kubeconfig, log.open("w") as file:
        words = ("--kubeconfig", str(kubeconfig), "--namespace", namespace)
        ports = ("--metrics-address", "127.0.0.1", "--metrics-port", str(free_port()))
        program = open_tied([sys.executable, "-m", "webhook.sweeper.main", *words, *ports], stderr=file)
        try:
            create_job(two_nodes.api(), namespace, "train", 2, template(8))
            wait_for_pods(two_nodes, namespace, lambda pods: run_all(pods, "train", 2), "the gang to run")
        finally:
            program.terminate()
            assert program.wait(90) == 0
    logged = log.read_text()
    assert logged.count("leader_began") == 1
    assert logged.count("leader_ended") <= 1, "it lost its Lease on the way"
