"""A gang with a launcher on CPUs, on the real API server, where GPU nodes have a taint.

The pods and their order of events are those of the controllers; what they carry is what admission leaves.
"""

from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from tests.support import register_nodes
from tests.sweeper.at_work import GPU, Pods, create_pod, named, run_all, sweep, template
from tests.sweeper.sets import define, make
from webhook.configuration.settings import Settings

SETTINGS = Settings(settle_seconds=30, patience_seconds=30)
"""Nobody may settle: a test that waited for it would not end in time."""

WORKER = template(8, tolerations=[{"key": GPU, "operator": "Exists"}])
CPU: dict[str, Any] = {**template(0), "metadata": {"annotations": {}}}
CPU["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}


@pytest.fixture
def tainted(definitions: Cluster) -> Cluster:
    """Two blocks of two subblocks, of each two GPU nodes with the usual taint and one node without GPUs.

    The first block has a GPU node less than the second: there alone four of them fit in two subblocks.
    """
    gpus = [
        each
        for each in nodes.grid(nodes.Shape(nodes=8, blocks=2, subblocks=2))
        if each.name != "node-b0-s0-h01"
    ]
    register_nodes(definitions, gpus, tainted=True)
    plain = [
        nodes.SimulatedNode(f"cpu-b{block}-s{subblock}", (f"b{block}", f"s{subblock}", "cpu"), False, 0)
        for block in range(2)
        for subblock in range(2)
    ]
    register_nodes(definitions, plain)
    return definitions


def where(pods: Pods, prefix: str) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in named(pods, prefix)]


def kubeflow_pod(role: str, index: int | None, body: dict[str, Any]) -> dict[str, Any]:
    labels = {"training.kubeflow.org/job-name": "train", "training.kubeflow.org/job-role": role}
    if index is not None:
        labels["training.kubeflow.org/replica-index"] = str(index)
    return {**body, "metadata": {"labels": labels}}


@pytest.mark.promise("R74")
@pytest.mark.parametrize("policy", ["AtStartup", "WaitForWorkersReady"])
def test_a_launcher_on_cpus_is_placed_beside_its_workers(
    tainted: Cluster, namespace: str, defined: list[str], policy: str
) -> None:
    define(tainted, defined, "MPIJob", "kubeflow.org", "v2beta1")
    roles = {"Launcher": {"replicas": 1, "template": CPU}, "Worker": {"replicas": 4, "template": WORKER}}
    spec = {"mpiReplicaSpecs": roles, "launcherCreationPolicy": policy}
    make(tainted, namespace, "kubeflow.org/v2beta1", "MPIJob", spec)
    api = tainted.api()
    launched: list[str] = []

    def launch() -> None:
        launched.append("launcher")
        create_pod(api, namespace, "train-launcher", kubeflow_pod("launcher", None, CPU))

    if policy == "AtStartup":
        launch()
    for index in range(4):
        create_pod(api, namespace, f"train-worker-{index}", kubeflow_pod("worker", index, WORKER))

    def all_run(pods: Pods) -> bool:
        if run_all(pods, "train-worker", 4) and not launched:
            launch()
        return run_all(pods, "train", 5)

    pods = sweep(tainted, namespace, SETTINGS, all_run, "the MPIJob to run")
    assert sorted(where(pods, "train-worker")) == [
        f"node-b1-s{s}-h{h:02}" for s in range(2) for h in range(2)
    ]
    assert where(pods, "train-launcher")[0].startswith("cpu-b1")
