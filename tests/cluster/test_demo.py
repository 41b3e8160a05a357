"""hack/demo as a person types it, with all that it can do beside a real node."""

import copy
import os
import re
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import pytest

from hack.demos import demo, workload
from hack.local import nodes
from hack.local.build import ROOT, cache_folder, programs
from hack.local.cluster import Cluster

pytestmark = pytest.mark.cluster
SECONDS = 300.0


@dataclass(frozen=True)
class Shown:
    """What one run has shown. page: of the address that it ended with; status: it was interrupted there."""

    printed: str
    page: str
    status: int
    cluster: Cluster
    home: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """One run in which the sweeper is killed, the page is looked at, and the cluster is kept."""
    programs()  # built before anything is waited for
    clusters = tmp_path_factory.mktemp("clusters")
    home = tmp_path_factory.mktemp("home")
    environment = {**os.environ, "TOPOGATE_CLUSTERS": str(clusters), "HOME": str(home)}
    environment |= {"XDG_CACHE_HOME": str(cache_folder().parent)}
    lines: list[str] = []
    page = ""
    with subprocess.Popen(
        [ROOT / "hack/demo", "--keep", "--kill-sweeper", "--ui"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as running:
        patience = threading.Timer(SECONDS, running.kill)
        patience.start()
        assert running.stdout is not None
        for line in running.stdout:
            lines.append(line)
            if line.startswith("http://127.0.0.1:"):
                browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
                page = browser.open(line.strip(), timeout=SECONDS).read().decode()
                os.killpg(running.pid, signal.SIGINT)
        status = running.wait(SECONDS)
        patience.cancel()
    try:
        yield Shown("".join(lines), page, status, Cluster.load(clusters / "demo"), home)
    finally:
        down = [str(ROOT / "hack/cluster"), "down", "--name", "demo"]
        subprocess.run(down, env=environment, check=True, capture_output=True)


def test_the_demo_ends_as_it_should_be_though_its_sweeper_was_killed(shown: Shown) -> None:
    assert shown.status == 0, shown.printed
    assert "NOT AS IT SHOULD BE" not in shown.printed
    assert re.search(r"^As it should be, after \d+ s\.$", shown.printed, re.MULTILINE)
    assert re.search(r"-sweeper-\S+ ended; \d+ of 16 pods of the gang were released", shown.printed)


def test_its_table_has_a_row_for_each_pod(shown: Shown) -> None:
    head, *rows = re.findall(
        r"^(?:POD|train-\d|intel-[ab]|urgent|opted-out|cpu-only) .*$|^train-\d.*$",
        shown.printed,
        re.MULTILINE,
    )
    assert head.split()[:4] == ["POD", "RANK", "NODE", "BLOCK/SUBBLOCK/HOST"]
    assert len(rows) == workload.GANG_SIZE + 5
    assert (
        "The gang runs in 1 block, 2 subblocks; the best possible is 1 block, 2 subblocks." in shown.printed
    )


def test_it_can_end_with_the_page(shown: Shown) -> None:
    assert "<title>" in shown.page
    assert "topogate" in shown.page


def test_it_can_leave_its_cluster_up(shown: Shown) -> None:
    assert f"export KUBECONFIG={shown.cluster.kubeconfig} " in shown.printed
    job = shown.cluster.kubectl("get", "job", workload.GANG, "-n", workload.NAMESPACE, "-o", "name")
    assert job.stdout == f"job.batch/{workload.GANG}\n"


def test_a_running_cluster_knows_its_topogate_so_that_down_ends_it(shown: Shown) -> None:
    programs_of_topogate = {"topogate-webhook", "topogate-sweeper", "topogate-tasks"}
    assert {name for name in programs_of_topogate if not shown.cluster.alive.get(name)} == set()


def test_it_leaves_nothing_in_the_home_folder_outside_of_its_caches(shown: Shown) -> None:
    assert list(shown.home.rglob("*")) == []


Body = dict[str, Any]
SPOILT: dict[str, tuple[str, Callable[[Body], Any], str]] = {
    "a pod that does not run": ("train-3", lambda pod: pod["status"].update(phase="Pending"), "does not run"),
    "a pod elsewhere": ("train-3", lambda pod: pod["spec"].update(nodeName="node-b0-s0-h00"), "is spread"),
    "a pod without pin": ("intel-a", lambda pod: pod["spec"].pop("affinity"), "not placed by the sweeper"),
    "another card": (
        "intel-b",
        lambda pod: pod["metadata"]["annotations"].update({"gas-container-cards": "card1"}),
        "do not share one card",
    ),
    "no class": ("urgent", lambda pod: pod["spec"].pop("priorityClassName"), "urgent has priority"),
    "no model": ("urgent", lambda pod: pod["spec"].pop("nodeSelector"), "has no node selector"),
    "a class": ("cpu-only", lambda pod: pod["spec"].update(priority=1), "cpu-only has priority"),
}


def test_it_names_what_is_not_as_it_should_be(shown: Shown) -> None:
    path = f"/api/v1/namespaces/{workload.NAMESPACE}/pods"
    pods = shown.cluster.api().json("GET", path)["items"]
    places = {node.name: node for node in nodes.grid(demo.SHAPE)}
    assert workload.faults(pods, places) == []
    found: dict[str, list[str]] = {}
    for case, (name, spoil, _) in SPOILT.items():
        spoilt = copy.deepcopy(pods)
        (one,) = (pod for pod in spoilt if f"{pod['metadata']['name']}-".startswith(f"{name}-"))
        spoil(one)
        found[case] = workload.faults(spoilt, places)
    unnamed = {case: faults for case, faults in found.items() if SPOILT[case][2] not in " ".join(faults)}
    assert unnamed == {}


def without_what_differs(line: str) -> str:
    """A line of the demo without the ends of pods' names, times, and nodes that depend on each other.

    kube-scheduler chooses the node of two pods, and topogate places single pods and the task beside them.
    """
    line = re.sub(r"^(\w+-\d+)-\w{5}\b", r"\1", line)
    line = re.sub(r"\b\d+\.\d\d$|\b\d+s$", "TIME", line.strip())
    line = re.sub(r"^((?:cpu-only|opted-out|urgent) +-) +\S+ +\S+", r"\1", line)
    return re.sub(r"\s+", " ", re.sub(r"^(finetune .* Running) +\S+", r"\1", line))


def test_the_page_shows_what_it_prints(shown: Shown) -> None:
    """Failed? Run hack/demo, and copy its table and the task into docs/users/try.md."""
    page = (ROOT / "docs/users/try.md").read_text()
    (block,) = re.findall(r"^```\n(POD +RANK.*?)^```", page, re.MULTILINE | re.DOTALL)
    printed = {without_what_differs(line) for line in shown.printed.splitlines()}
    wanted = [without_what_differs(line) for line in block.splitlines() if line not in ("", "...")]
    assert [line for line in wanted if line not in printed] == []
