"""The local control plane itself: it starts, it is real, and nothing of it stays behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hack.local import nodes
from hack.local.build import NoControlPlaneError, Programs, programs
from hack.local.cluster import Cluster, ClusterError
from hack.local.processes import started
from tests.support import register_nodes, wait_for_pods


def test_pods_bound_by_the_real_scheduler_run_on_simulated_nodes(cluster: Cluster, namespace: str) -> None:
    register_nodes(cluster, nodes.grid(nodes.Shape(nodes=2, blocks=1, subblocks=1)))
    container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    for name in ("a", "b"):
        cluster.api().request(
            "POST",
            f"/api/v1/namespaces/{namespace}/pods",
            body={"metadata": {"name": name}, "spec": {"containers": [container]}},
        )
    pods = wait_for_pods(
        cluster,
        namespace,
        lambda pods: [pod["status"]["phase"] for pod in pods] == ["Running"] * 2,
        "two running pods",
    )
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node-b0-s0-h00", "node-b0-s0-h01"}


def test_pods_of_a_job_succeed_only_where_they_ask_for_it(cluster: Cluster, namespace: str) -> None:
    register_nodes(cluster, nodes.grid(nodes.Shape(nodes=1, blocks=1, subblocks=1)))
    for name, annotations in (("ends", {"local.topogate.io/run-for": "1s"}), ("stays", {})):
        template = {
            "metadata": {"annotations": annotations},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]},
        }
        cluster.api().request(
            "POST",
            f"/apis/batch/v1/namespaces/{namespace}/jobs",
            body={"metadata": {"name": name}, "spec": {"template": template}},
        )
    pods = wait_for_pods(
        cluster,
        namespace,
        lambda pods: any(pod["status"]["phase"] == "Succeeded" for pod in pods),
        "a pod that succeeded",
    )
    phases = {
        pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]: pod["status"]["phase"] for pod in pods
    }
    assert phases == {"ends": "Succeeded", "stays": "Running"}


@pytest.fixture
def assets_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment names a folder with what kubebuilder's assets have, and no more."""
    binary = programs().commands["etcd"][0]
    assets = tmp_path / "assets"
    assets.mkdir()
    for name in ("etcd", "kube-apiserver", "kubectl"):
        (assets / name).symlink_to(binary)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))


@pytest.mark.cluster
@pytest.mark.usefixtures("assets_alone")
def test_a_killed_cluster_of_kubebuilder_assets_leaves_no_process_and_the_next_has_an_api_server(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "killed"
    script = (
        "import pathlib, time; from hack.local.cluster import Cluster\n"
        f"Cluster.up(pathlib.Path({str(folder)!r}), tied=True); print('up', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline().strip() == "up"
        finally:
            owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 90
    while any(Cluster.load(folder).alive.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(Cluster.load(folder).alive.values())

    again = Cluster.up(folder, tied=True)
    try:
        assert again.alive == {"etcd": True, "kube-apiserver": True}
        assert again.kubectl("get", "namespaces", "-o", "name").stdout.startswith("namespace/default")
    finally:
        again.down()
    assert not folder.exists()


def test_a_program_of_a_test_does_not_outlive_a_killed_run() -> None:
    script = "from hack.local.processes import open_tied; import time\n"
    script += "print(open_tied(['sleep', '600']).pid, flush=True); time.sleep(600)"
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    program = started(int(owner.stdout.readline()))
    assert program.alive
    owner.kill()
    owner.wait()
    owner.stdout.close()
    deadline = time.monotonic() + 90
    while program.alive and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not program.alive


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ClusterError, match="holds no cluster"):
        Cluster.up(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def _assets(folder: Path, names: tuple[str, ...]) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def test_kubebuilder_assets_are_used_instead_of_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _assets(tmp_path / "assets", ("etcd", "kube-apiserver", "kubectl"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    found: Programs = programs()
    assert found.commands["etcd"] == [str(tmp_path / "assets" / "etcd")]
    assert found.missing == ["kube-controller-manager", "kube-scheduler", "kwok"]


def test_kubebuilder_assets_without_an_api_server_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _assets(tmp_path / "assets", ("etcd", "kubectl"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    with pytest.raises(NoControlPlaneError, match="has no kube-apiserver"):
        programs()
