"""Kubernetes' own gang scheduling on the local control plane: it is on where it was asked for."""

from typing import Any

from hack.local import native_gangs, nodes
from hack.local.cluster import Cluster
from tests.support import create_namespace, delete_namespace, register_nodes, wait_for_pods

POD = {
    "restartPolicy": "Never",
    "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
}


def bound(pods: list[dict[str, Any]]) -> int:
    return sum("nodeName" in pod["spec"] for pod in pods)


def test_kube_scheduler_binds_the_pods_of_a_pod_group_as_one(native_cluster: Cluster) -> None:
    api, namespace = native_cluster.api(), create_namespace(native_cluster)
    register_nodes(native_cluster, nodes.grid(nodes.Shape(nodes=2, blocks=1, subblocks=1)))
    api.request("POST", native_gangs.path(api, namespace), body=native_gangs.pod_group(api, "three", 3))
    member = POD | {"schedulingGroup": {"podGroupName": "three"}}
    for name in ("a", "b", "c"):
        api.request(
            "POST", f"/api/v1/namespaces/{namespace}/pods", body={"metadata": {"name": name}, "spec": member}
        )
    waiting = wait_for_pods(
        native_cluster,
        namespace,
        lambda pods: all(pod["status"].get("conditions") for pod in pods),
        "kube-scheduler to refuse each pod",
    )
    assert bound(waiting) == 0

    register_nodes(native_cluster, nodes.grid(nodes.Shape(nodes=3, blocks=1, subblocks=1))[2:])
    wait_for_pods(native_cluster, namespace, lambda pods: bound(pods) == 3, "all three to be bound")
    delete_namespace(native_cluster, namespace)


def test_the_job_controller_makes_pod_groups_where_that_was_asked_for(native_jobs_cluster: Cluster) -> None:
    api, namespace = native_jobs_cluster.api(), create_namespace(native_jobs_cluster)
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, "template": {"spec": POD}}
    api.request(
        "POST",
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        body={"metadata": {"name": "train"}, "spec": spec},
    )
    pods = wait_for_pods(native_jobs_cluster, namespace, lambda pods: len(pods) == 2, "the Job's pods")
    names = {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods}
    groups = api.json("GET", native_gangs.path(api, namespace))["items"]
    assert names == {group["metadata"]["name"] for group in groups}
    delete_namespace(native_jobs_cluster, namespace)
