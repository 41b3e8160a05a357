"""Jobs of which the Job controller makes PodGroups (WorkloadWithJob): planned by topogate, bound as one."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.installation import installed_on
from tests.support import create_namespace, delete_namespace, wait_for_pods

OPTED_IN = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
GPU = "nvidia.com/gpu"


def job(cluster: Cluster, namespace: str, count: int) -> None:
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "8"}}}
    annotations = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block", "local.topogate.io/run-for": "600s"}
    template = {
        "metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    spec = {"completionMode": "Indexed", "completions": count, "parallelism": count, "template": template}
    body = {"metadata": {"name": "train"}, "spec": spec}
    cluster.api().request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=body)


@pytest.fixture(scope="module")
def installed(native_jobs_cluster: Cluster) -> Iterator[Installation]:
    """Two blocks of 16 nodes with eight GPUs each."""
    with installed_on(native_jobs_cluster, nodes.Shape(nodes=32, blocks=2, subblocks=2)) as installation:
        yield installation


def nodes_of(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]]


def test_a_job_of_which_the_controller_makes_a_pod_group_is_bound_in_its_block(
    installed: Installation,
) -> None:
    cluster = installed.cluster
    api, namespace = cluster.api(), create_namespace(cluster, OPTED_IN)
    job(cluster, namespace, 16)
    pods = wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 16, "all to be bound", 60)
    assert all("schedulingGroup" in pod["spec"] for pod in pods)
    placements = api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements")["items"]
    assert [each["spec"]["gang"] for each in placements] == ["Job/train"]
    there = api.json("GET", "/api/v1/nodes")["items"]
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in there}
    assert len({labels[name]["topology.gke.io/cluster"] for name in nodes_of(pods)}) == 1
    delete_namespace(cluster, namespace)
