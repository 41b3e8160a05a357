"""hack/cluster as a person types it: up, what it prints, a gang, and down."""

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.local.build import ROOT
from hack.local.cluster import Cluster
from tests.support import listened_on, wait_for_pods

pytestmark = pytest.mark.cluster
NAME = "played-with"


def hack_cluster(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "hack/cluster", *words, "--name", NAME],
        env={**os.environ, "TOPOGATE_CLUSTERS": str(folder)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("clusters")


@pytest.fixture(scope="module")
def printed(folder: Path) -> Iterator[str]:
    """What is printed for a person to paste into a shell, as long as the cluster is up."""
    up = hack_cluster(folder, "up", "--topogate", "--nodes", "8", "--blocks", "2", "--subblocks", "2")
    assert up.returncode == 0, up.stderr
    try:
        yield up.stdout
    finally:
        hack_cluster(folder, "down")


@pytest.fixture(scope="module")
def up(folder: Path, printed: str) -> Cluster:
    return Cluster.load(folder / NAME)


def pasted(printed: str, *commands: str) -> subprocess.CompletedProcess[str]:
    """Commands in a shell that has run what was printed."""
    script = "\n".join(["set -e", printed, *commands])
    return subprocess.run(
        ["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


def test_what_is_printed_opts_a_namespace_in_and_a_gang_of_the_examples_is_placed(
    printed: str, up: Cluster
) -> None:
    applied = pasted(printed, "kubectl apply -f manifests/examples/01-indexed-job.yaml")
    assert applied.returncode == 0, applied.stderr
    pods = wait_for_pods(
        up, "default", lambda pods: [each["status"]["phase"] for each in pods] == ["Running"] * 4, "the gang"
    )
    assert len({each["spec"]["nodeName"][: len("node-b0")] for each in pods}) == 1, "one block"


@pytest.mark.promise("O9")
def test_kubectl_topogate_is_the_command(printed: str, folder: Path) -> None:
    pasted(printed)  # the first time it labels the namespace, and says so
    own = shlex.quote(str(ROOT / ".venv/bin/topogate"))
    maps = [pasted(printed, f"{each} map") for each in ("kubectl topogate", "topogate", own)]
    assert [each.returncode for each in maps] == [0, 0, 0], [each.stderr for each in maps]
    assert maps[0].stdout == maps[1].stdout == maps[2].stdout != ""
    assert f"\n{folder}/" in pasted(printed, "command -v topogate").stdout


def test_nothing_listens_on_anything_but_loopback(up: Cluster) -> None:
    found = listened_on({process.pid for process in up.running.values()})
    assert found
    assert [str(address) for address in found if not address.is_loopback] == []


def test_its_status_names_each_program(folder: Path, up: Cluster) -> None:
    status = hack_cluster(folder, "status")
    assert status.returncode == 0
    assert {line.split()[0] for line in status.stdout.splitlines()[1:]} == up.running.keys()
    assert {"etcd", "kube-apiserver", "kube-scheduler", "topogate-sweeper"} <= up.running.keys()


def test_a_second_one_of_the_name_is_refused(folder: Path, up: Cluster) -> None:
    again = hack_cluster(folder, "up")
    assert (again.returncode, "is already up" in again.stderr) == (1, True)
    assert all(up.alive.values())


def test_down_leaves_no_process_and_no_file(folder: Path, up: Cluster) -> None:
    """The last of this file: what it stands on is gone then."""
    assert hack_cluster(folder, "down").returncode == 0
    assert not any(up.alive.values())
    assert not (folder / NAME).exists()
