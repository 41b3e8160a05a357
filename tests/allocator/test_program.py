"""The whole program between a played kubelet and a played API server."""

import json
import sys
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from hack.local.processes import open_tied
from labeler.contract import keys
from tests.allocator.conftest import Kubelet
from tests.allocator.machine import MachineCard, plug
from tests.support import serving

pytestmark = pytest.mark.skipif("__import__('os').geteuid() != 0", reason="device files are root's to make")


class ApiServer(ThreadingHTTPServer):
    """Lists no pods, and takes what is written on the Node."""

    daemon_threads = True

    def __init__(self) -> None:
        self.allowed: set[str | None] = set()
        """Who may list pods: a user that is impersonated, None for the token's own."""
        self.reported: dict[str, str | None] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_allowed = self.headers.get("Impersonate-User") in server.allowed
                self._answer(200 if is_allowed else 403, {"items": [], "message": "pods is forbidden"})

            def do_PATCH(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.reported |= body["metadata"]["annotations"]
                self._answer(200, {})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    made = ApiServer()
    with serving(made):
        yield made


@pytest.fixture
def process(kubelet: Kubelet, server: ApiServer, tmp_path: Path) -> Iterator[Popen[str]]:
    """The program, on a node with one card."""
    plug(tmp_path, MachineCard(0, tiles=2, bus=3))
    (tmp_path / "token").write_text("x")
    command = [
        sys.executable, "-m", "labeler.allocator.main", "--node-name=n", "--shares=2",
        f"--server=http://127.0.0.1:{server.server_port}", f"--token-file={tmp_path / 'token'}",
        f"--kubelet={kubelet.folder}", f"--sys={tmp_path / 'sys'}", f"--dev={tmp_path / 'dev'}",
    ]  # fmt: skip
    with (tmp_path / "log").open("w") as file:
        process = open_tied(command, stderr=file)
        yield process
        process.terminate()
        assert process.wait(90) == 0


@pytest.fixture
def log(process: Popen[str], tmp_path: Path) -> Path:
    """What the program logs."""
    return tmp_path / "log"


def wait_for(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.mark.parametrize("who", ["system:node:n", None], ids=["as its node", "as itself, before 1.36"])
def test_it_takes_no_resource_before_it_may_read_pods_and_annotates_its_node_then(
    kubelet: Kubelet, server: ApiServer, log: Path, who: str | None
) -> None:
    wait_for(lambda: "it may list no pods" in log.read_text(), log)
    assert "wants the component allocator-before-1.36" in log.read_text()
    assert not kubelet.registered
    server.allowed.add(who)
    wait_for(lambda: len(kubelet.registered) == 2, log)
    wait_for(lambda: server.reported.get(keys.IDENTIFIES_PODS_ANNOTATION) == keys.IDENTIFIED, log)
    assert server.reported == {
        keys.OFFERED_CARDS_ANNOTATION: f"card0={keys.I915}:2",
        keys.UNPLANNED_CARDS_ANNOTATION: None,
        keys.IDENTIFIES_PODS_ANNOTATION: keys.IDENTIFIED,
    }


def test_it_takes_back_that_it_knows_whom_it_serves_when_it_ends(
    server: ApiServer, process: Popen[str], log: Path
) -> None:
    server.allowed.add("system:node:n")
    wait_for(lambda: server.reported.get(keys.IDENTIFIES_PODS_ANNOTATION) == keys.IDENTIFIED, log)
    process.terminate()
    assert process.wait(90) == 0
    assert server.reported[keys.IDENTIFIES_PODS_ANNOTATION] is None
