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
from labeler.allocator.plugin import Plugin
from labeler.allocator.program import finish_calls
from labeler.allocator.wire import deviceplugin_pb2 as wire
from labeler.allocator.wire import podresources_pb2 as podresources
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
        self.status = 200
        self.pods: list[dict[str, Any]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                is_allowed = self.headers.get("Impersonate-User") in server.allowed
                status = server.status if is_allowed else 403
                self._answer(status, {"items": server.pods, "message": "pods is forbidden"})

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


Start = Callable[[str], Popen[str]]
"""Starts the program with a log of this name."""


@pytest.fixture
def start(kubelet: Kubelet, server: ApiServer, tmp_path: Path) -> Iterator[Start]:
    """The program, on a node with one card."""
    plug(tmp_path, MachineCard(0, tiles=2, bus=3))
    (tmp_path / "token").write_text("x")
    command = [
        sys.executable, "-m", "labeler.allocator.main", "--node-name=n", "--shares=2",
        f"--server=http://127.0.0.1:{server.server_port}", f"--token-file={tmp_path / 'token'}",
        f"--kubelet={kubelet.folder}", f"--sys={tmp_path / 'sys'}", f"--dev={tmp_path / 'dev'}",
    ]  # fmt: skip
    started: list[Popen[str]] = []

    def run(log: str) -> Popen[str]:
        with (tmp_path / log).open("w") as file:
            started.append(open_tied(command, stderr=file))
        return started[-1]

    yield run
    for process in started:
        process.terminate()
    assert [process.wait(90) for process in started] == [0] * len(started)


@pytest.fixture
def process(start: Start) -> Popen[str]:
    return start("log")


@pytest.fixture
def log(process: Popen[str], tmp_path: Path) -> Path:
    """What the program logs."""
    return tmp_path / "log"


def wait_for(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


@pytest.mark.promise("O44")
@pytest.mark.parametrize("away", ["the API server", "the kubelet"])
def test_it_takes_no_resource_before_it_could_serve_a_pod(
    kubelet: Kubelet, server: ApiServer, start: Start, tmp_path: Path, away: str
) -> None:
    """A node without devices gets no pods. One whose devices cannot be given would have them refused."""
    server.allowed.add("system:node:n")
    if away == "the API server":
        server.status = 503
    else:
        kubelet.stop()
        kubelet.start(lists_pods=False)
    start("log")
    log = tmp_path / "log"
    wait_for(lambda: "waiting: " in log.read_text(), log)
    assert ("HTTP 503" if away == "the API server" else "pod-resources socket") in log.read_text()
    assert not kubelet.registered
    server.status = 200
    kubelet.stop()
    kubelet.start()
    wait_for(lambda: len(kubelet.registered) == 2, log)


@pytest.mark.promise("O44")
def test_the_next_allocator_waits_beside_the_one_that_serves_and_takes_over_when_it_ends(
    kubelet: Kubelet, server: ApiServer, start: Start, tmp_path: Path
) -> None:
    server.allowed.add("system:node:n")
    first = start("log")
    kubelet.wait_for_devices(2)
    start("next")
    log = tmp_path / "next"
    wait_for(lambda: "standing by: another allocator holds" in log.read_text(), log)
    assert len(kubelet.registered) == 2
    first.terminate()
    assert first.wait(90) == 0
    kubelet.wait_for_devices(4)
    assert sorted(len(devices) for _, devices in kubelet.offers.values()) == [1, 2]
    assert all(kubelet.lists), "no list of devices was ever empty"


def test_pods_that_only_the_kubelet_knows_are_no_obstacle_to_the_first_pod_after_a_restart(
    kubelet: Kubelet, server: ApiServer, start: Start
) -> None:
    """They were there before the devices were, so none of them asks for any."""
    server.allowed.add("system:node:n")
    static = podresources.PodResources(namespace="kube-system", name="static")
    kubelet.pods = podresources.ListPodResourcesResponse(pod_resources=[static])
    start("log")
    kubelet.wait_for_devices(2)
    first = podresources.PodResources(namespace="ns", name="p")
    container = {"name": "c", "resources": {"limits": {keys.I915: "1"}}}
    metadata = {"namespace": "ns", "name": "p", "uid": "u", "annotations": {"gas-container-cards": "card0"}}
    server.pods = [{"metadata": metadata, "spec": {"containers": [container]}}]
    kubelet.pods = podresources.ListPodResourcesResponse(pod_resources=[static, first])
    kubelet.registered.sort(key=lambda each: each.resource_name == keys.I915)
    ask = wire.ContainerAllocateRequest(devices_ids=["card0-1"])
    request = wire.AllocateRequest(container_requests=[ask])
    (answer,) = kubelet.call("Allocate", request, wire.AllocateResponse).container_responses
    assert [each.host_path for each in answer.devices] == ["/dev/dri/card0", "/dev/dri/renderD128"]


class Asked(Plugin):
    """A plugin that the kubelet asks until a time, with pauses of so many seconds."""

    def __init__(self, until: float, pauses: float) -> None:
        self.until = until
        self.pauses = pauses
        self.now = 0.0

    def is_asked(self, seconds: float) -> bool:
        return self.now < self.until and seconds >= self.pauses

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.promise("O44")
@pytest.mark.parametrize(
    ("until", "pauses", "ends"),
    [(0, 0, 0), (1.5, 0, 1.5), (60, 0.1, 2.0), (60, 0, 8.0)],
    ids=["nobody asks", "one call", "calls with pauses", "a call without end"],
)
def test_an_allocator_that_is_stopped_serves_on_until_the_kubelet_asks_for_nothing(
    until: float, pauses: float, ends: float
) -> None:
    plugin = Asked(until, pauses)
    finish_calls([plugin], lambda: plugin.now, plugin.sleep)
    assert plugin.now == pytest.approx(ends, abs=0.05)


@pytest.mark.promise("O35")
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


@pytest.mark.promise("I33")
def test_it_takes_back_that_it_knows_whom_it_serves_when_it_ends(
    server: ApiServer, process: Popen[str], log: Path
) -> None:
    server.allowed.add("system:node:n")
    wait_for(lambda: server.reported.get(keys.IDENTIFIES_PODS_ANNOTATION) == keys.IDENTIFIED, log)
    process.terminate()
    assert process.wait(90) == 0
    assert server.reported[keys.IDENTIFIES_PODS_ANNOTATION] is None
