"""The real node is one: its pods are looked at inside their containers, and nothing of it is left behind."""

import os
import time
from pathlib import Path

import pytest

from hack.local import devices, node, nodes
from hack.local.cluster import Cluster
from hack.local.controlplane import Ports
from hack.local.devices import PlayedCard
from tests.node.conftest import containers, pod
from tests.support import create_namespace, register_nodes


def start(cluster: Cluster, namespace: str, *pods: str) -> None:
    for each in pods:
        cluster.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=each)
    cluster.kubectl("wait", "-n", namespace, "--for=condition=Ready", "pod", "--all", "--timeout=120s")


def inside(cluster: Cluster, namespace: str, name: str, *command: str) -> str:
    return cluster.kubectl("exec", "-n", namespace, name, "--", *command).stdout


def test_a_container_runs_as_its_pod_asks_which_logs_and_exec_show(real_cluster: Cluster) -> None:
    namespace = create_namespace(real_cluster)
    command = ["sh", "-c", "echo started; exec sleep 1000"]
    settings = {"runAsUser": 65532, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    limits = {"limits": {"memory": "64Mi"}}
    start(
        real_cluster,
        namespace,
        pod("one", command=command, securityContext=settings, resources=limits),
    )
    assert real_cluster.kubectl("logs", "-n", namespace, "one").stdout == "started\n"
    assert inside(real_cluster, namespace, "one", "id", "-u") == "65532\n"
    assert "CapEff:\t0000000000000000" in inside(real_cluster, namespace, "one", "cat", "/proc/1/status")
    assert "1000" in inside(real_cluster, namespace, "one", "cat", "/proc/1/cmdline")


def test_pods_reach_each_other_through_a_service_and_the_api_server_through_its_own(
    real_cluster: Cluster,
) -> None:
    namespace = create_namespace(real_cluster)
    serve = ["sh", "-c", "echo hello > /dev/shm/index.html; exec httpd -f -p 8080 -h /dev/shm"]
    start(real_cluster, namespace, pod("web", command=serve), pod("client"))
    real_cluster.kubectl("label", "-n", namespace, "pod", "web", "app=web")
    real_cluster.kubectl("create", "service", "clusterip", "web", "-n", namespace, "--tcp=80:8080")
    address = real_cluster.kubectl(
        "get", "service", "web", "-n", namespace, "-o", "jsonpath={.spec.clusterIP}"
    ).stdout

    def answers() -> bool:
        got = real_cluster.kubectl(
            "exec", "-n", namespace, "client", "--", "wget", "-q", "-O", "-", f"http://{address}", check=False
        )
        return got.stdout == "hello\n"

    real_cluster.wait_for("an answer through the Service", answers)
    # Spoken to without TLS, the API server says so itself: the address leads to it.
    refused = real_cluster.kubectl(
        "exec", "-n", namespace, "client", "--", "sh", "-c",
        "wget -q -O - http://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/ 2>&1", check=False,
    )  # fmt: skip
    assert "400 Bad Request" in refused.stdout


def test_simulated_pods_stay_with_kwok_and_real_ones_with_the_kubelet(real_cluster: Cluster) -> None:
    namespace = create_namespace(real_cluster)
    register_nodes(real_cluster, nodes.grid(nodes.Shape(nodes=2, blocks=1, subblocks=1)))
    start(real_cluster, namespace, pod("real"))
    simulated = pod("simulated").replace(
        f'"nodeSelector": {{"{node.REAL_LABEL}": ""}}', '"nodeName": "node-b0-s0-h00"'
    )
    start(real_cluster, namespace, simulated)
    addresses = {
        name: real_cluster.kubectl(
            "get", "pod", name, "-n", namespace, "-o", "jsonpath={.status.podIP}"
        ).stdout
        for name in ("real", "simulated")
    }
    assert addresses["real"].startswith("10.244.")
    assert addresses["real"] in inside(real_cluster, namespace, "real", "cat", "/proc/net/fib_trie")
    assert not addresses["simulated"].startswith("10.244.")
    assert len(containers(real_cluster)) == 2  # the real pod's one, and what holds its namespaces


def test_played_cards_are_seen_in_a_container_until_they_are_pulled_out(real_cluster: Cluster) -> None:
    cards = [PlayedCard(0), PlayedCard(1)]
    devices.plug(real_cluster.namespaces, cards)
    try:
        namespace = create_namespace(real_cluster)
        mounted = [{"name": "sys", "mountPath": "/sys"}]
        text = pod("one", volumeMounts=mounted).replace(
            '"containers"',
            f'"volumes": [{{"name": "sys", "hostPath": {{"path": "{devices.SYSFS}"}}}}], "containers"',
        )
        start(real_cluster, namespace, text)
        look = ("ls", "/sys/class/drm")
        assert inside(real_cluster, namespace, "one", *look).split() == [
            "card0",
            "card1",
            "renderD128",
            "renderD129",
        ]
        assert (
            inside(real_cluster, namespace, "one", "cat", "/sys/class/drm/card1/device/vendor") == "0x8086\n"
        )
        devices.unplug(real_cluster.namespaces, cards[:1])
        assert inside(real_cluster, namespace, "one", *look).split() == ["card1", "renderD129"]
    finally:
        devices.unplug(real_cluster.namespaces, cards)


def test_a_killed_kubelet_started_again_finds_its_containers(real_cluster: Cluster) -> None:
    namespace = create_namespace(real_cluster)
    start(real_cluster, namespace, pod("one"))
    before = sorted(containers(real_cluster))
    real_cluster.running["kubelet"].send(9)
    real_cluster.start("kubelet")
    start(real_cluster, namespace, pod("two"))
    assert set(before) < set(containers(real_cluster))


def test_nothing_is_left_of_a_cluster_that_was_killed_and_another_stands_beside_it(
    real_cluster: Cluster, tmp_path: Path
) -> None:
    other = Cluster.up(tmp_path / "other", real_node=True)
    try:
        namespace = create_namespace(other)
        start(other, namespace, pod("one"))
        assert len(containers(other)) == 2
        assert not containers(real_cluster)
        within = Path(f"/proc/{other.namespaces.holder}/ns/net").readlink()
        other.running["namespaces"].send(9)
        deadline = time.monotonic() + 90
        while any(other.alive.values()) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [name for name, alive in other.alive.items() if alive] == []
        assert within not in networks()
    finally:
        other.down()
    assert other.real is not None
    assert not list(Path("/sys/fs/cgroup").glob(f"**{other.real.cgroup}"))
    assert "/other/" not in Path("/proc/self/mountinfo").read_text()


class OtherPortsError(Exception):
    """Others were asked for."""


def test_a_port_that_is_taken_outside_is_given_up_for_others(
    real_control_plane: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Ports] = []

    def with_one_taken() -> Ports:
        if given:
            raise OtherPortsError
        given.append(real_control_plane.ports)
        return given[0]

    monkeypatch.setattr(Ports, "free", with_one_taken)
    with pytest.raises(OtherPortsError):
        Cluster.up(tmp_path / "other", real_node=True)


def networks() -> set[Path]:
    """The network namespaces of all processes."""
    found: set[Path] = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(path.readlink())
        except OSError:
            continue  # it has just ended
    return found


def test_without_root_one_sentence_reports_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Exception, match="a real node needs root"):
        Cluster.up(tmp_path / "cluster", real_node=True)
    assert not (tmp_path / "cluster").exists()


def test_missing_packages_are_named_in_one_line_to_type(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = node.lacking()
    assert problem is not None
    assert "apt-get install --no-install-recommends busybox-static containerd" in problem
