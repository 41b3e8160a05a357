"""The node's pods are read whatever else they say."""

import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from labeler.allocator.masks import AFFINITY_MASK, HIERARCHY, UNKNOWN
from labeler.allocator.pods import NodePods, decode_pods
from labeler.allocator.values import LocalContainer, LocalPod
from labeler.api import ApiClient
from tests.support import serving


@pytest.mark.parametrize(
    ("variable", "hierarchy"),
    [
        ({"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, None),
        ({"name": HIERARCHY, "valueFrom": {"configMapKeyRef": {"name": "x", "key": "y"}}}, UNKNOWN),
        ({"name": HIERARCHY, "value": "$(MODE)"}, UNKNOWN),
        ({"name": HIERARCHY, "value": "FLAT"}, "FLAT"),
    ],
)
def test_a_variable_that_comes_from_elsewhere_hides_no_pod(
    variable: dict[str, object], hierarchy: str | None
) -> None:
    container = {"name": "main", "env": [variable], "resources": {"limits": {"gpu.intel.com/i915": "1"}}}
    pod = {
        "metadata": {"name": "a", "namespace": "b", "uid": "c"},
        "spec": {"containers": [container]},
        "status": {"phase": "Pending"},
    }
    (found,) = decode_pods(json.dumps({"items": [pod]}).encode())
    assert [each.hierarchy for each in found.containers] == [hierarchy]


def item(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
        "spec": {"containers": [{"name": "c", **container}]},
    }


def decode(*items: dict[str, Any]) -> tuple[LocalPod, ...]:
    return decode_pods(json.dumps({"kind": "PodList", "items": items}).encode())


@pytest.mark.parametrize(
    ("variables", "hierarchy"),
    [
        ([("OTHER", "FLAT")], None),
        ([(HIERARCHY, "FLAT"), (HIERARCHY, "COMPOSITE")], "COMPOSITE"),
        ([(HIERARCHY, "COMPOSITE"), ("OTHER", "x")], "COMPOSITE"),
    ],
)
def test_of_several_variables_of_one_name_the_last_counts(
    variables: list[tuple[str, str]], hierarchy: str | None
) -> None:
    (pod,) = decode(item(env=[{"name": name, "value": value} for name, value in variables]))
    assert pod.containers[0].hierarchy == hierarchy


@pytest.mark.promise("O45")
@pytest.mark.parametrize(
    ("source", "variables", "hierarchy"),
    [
        ({"configMapRef": {"name": "x"}}, [], UNKNOWN),
        ({"secretRef": {"name": "x"}, "prefix": "ZE_"}, [], UNKNOWN),
        ({"secretRef": {"name": "x"}, "prefix": "DB_"}, [], None),
        ({"configMapRef": {"name": "x"}}, [{"name": HIERARCHY, "value": "FLAT"}], "FLAT"),
    ],
    ids=["any names", "its beginning", "other names", "the list goes before"],
)
def test_a_hierarchy_that_a_whole_config_map_may_bring_is_not_known(
    source: dict[str, Any], variables: list[dict[str, str]], hierarchy: str | None
) -> None:
    (pod,) = decode(item(envFrom=[source], env=variables))
    assert pod.containers[0].hierarchy == hierarchy


def test_limits_of_extended_resources_are_whole_numbers() -> None:
    limits = {"gpu.intel.com/i915": "2", "example.com/many": "1k", "cpu": "100m", "memory": "1Gi"}
    (pod,) = decode(item(resources={"limits": limits}))
    assert pod.containers == (LocalContainer("c", {"gpu.intel.com/i915": 2, "example.com/many": 1000}),)


def test_a_mask_of_the_containers_own_is_seen() -> None:
    (masked,) = decode(item(env=[{"name": AFFINITY_MASK, "value": "0"}]))
    (other,) = decode(item(env=[{"name": "OTHER", "value": "0"}]))
    assert (masked.containers[0].masked, other.containers[0].masked) == (True, False)


@pytest.mark.parametrize(
    ("status", "over", "started"),
    [
        ({}, False, False),
        ({"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"}, False, True),
        ({"phase": "Failed"}, True, False),
        ({"phase": "Succeeded", "startTime": "2026-01-01T00:00:00Z"}, True, True),
    ],
)
def test_the_state_of_a_pod_is_read(status: dict[str, str], over: bool, started: bool) -> None:
    (pod,) = decode(item() | {"status": status})
    assert (pod.over, pod.started) == (over, started)


def test_sidecars_are_distinguished_from_other_init_containers() -> None:
    whole = item()
    whole["spec"]["initContainers"] = [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}]
    (pod,) = decode(whole)
    assert ([each.name for each in pod.init], [each.name for each in pod.sidecars]) == (["i"], ["s"])


def test_of_the_annotations_only_those_of_cards_stay() -> None:
    whole = item()
    whole["metadata"]["annotations"] = {"gas-container-cards": "card1", "example.com/other": "x" * 1000}
    (pod,) = decode(whole)
    assert pod.annotations == {"gas-container-cards": "card1"}


def test_what_is_no_list_of_pods_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_pods(b'{"kind": "Status", "message": "no"}')


class Server(ThreadingHTTPServer):
    """Lists pods as the API server does, by pages where it is asked to."""

    daemon_threads = True

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.limits: list[int] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                assert query["fieldSelector"] == ["spec.nodeName=node-1"]
                first, limit = int(query.get("continue", [""])[0] or 0), int(query.get("limit", ["0"])[0])
                server.limits.append(limit)
                end = first + limit if limit else len(server.items)
                rest = {"continue": str(end)} if end < len(server.items) else {}
                body = json.dumps({"metadata": rest, "items": server.items[first:end]}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # the reader had enough

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    with serving(made):
        yield made


@pytest.mark.parametrize(
    ("count", "kilobytes", "limits"),
    [
        (20, 1, [0]),
        (20, 240, [0, 128, 16, 16]),
        (8, 900, [0, 128, 16, 4, 4]),
        (4, 2500, [0, 128, 16, 4, 1, 1, 1, 1]),
        (2, 8000, [0, 128, 16, 4, 1, 1]),
    ],
)
def test_pods_of_any_size_are_read_by_pages_where_they_are_too_large_at_once(
    server: Server, tmp_path: Path, count: int, kilobytes: int, limits: list[int]
) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    for number in range(count):
        large = item(args=["x" * (kilobytes << 10)])
        large["metadata"]["name"] = f"p{number}"
        server.items.append(large)
    client = ApiClient(f"http://127.0.0.1:{server.server_port}", token, None)
    found = NodePods(client, "node-1").now()
    assert [pod.name for pod in found] == [f"p{number}" for number in range(count)]
    assert server.limits == limits


READS_ONCE = """
import re, sys
from pathlib import Path
from labeler.allocator import program
from labeler.allocator.pods import NodePods
from labeler.api import ApiClient
pods = NodePods(ApiClient(sys.argv[1], Path(sys.argv[2]), None), "node-1").now()
most = re.search(r"VmHWM:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1]
print(len(pods), int(most) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_large_pods_of_any_tenant_do_not_cost_the_allocator_60_mb(server: Server, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    for number in range(60):
        large = item(args=["x" * 1024] * 700)
        large["metadata"] |= {"name": f"p{number}", "annotations": {"note": "y" * (200 << 10)}}
        server.items.append(large)
    command = [sys.executable, "-c", READS_ONCE, f"http://127.0.0.1:{server.server_port}", str(token)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert int(output[0]) == 60
    assert int(output[1]) < 56 * 10**6, "and 4 MB for what a served allocator has beside"
