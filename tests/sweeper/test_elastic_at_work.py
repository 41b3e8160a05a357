"""Elastic gangs on the real API server: at least the minimum at once, as many as fit, and no pod undone."""

from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.definitions import define, wait_served
from tests.support import delete, register_nodes, wait_for_pods
from tests.sweeper.at_work import Pods, create_job, create_pod, named, run_all, sweep, template
from webhook.configuration.settings import Settings
from webhook.kube.client import MERGE_PATCH

SETTINGS = Settings(settle_seconds=0.5, patience_seconds=1, rollback_seconds=1, reserve_seconds=0)
"""A program that undid anything would do it within the test."""


@pytest.fixture
def five_nodes(definitions: Cluster, namespace: str) -> Cluster:
    """Five nodes of 8 GPUs, one of which is in use by others."""
    register_nodes(definitions, nodes.grid(nodes.Shape(nodes=5, blocks=1, subblocks=1)))
    create_pod(definitions.api(), namespace, "busy", template(8, gated=False))
    wait_for_pods(definitions, namespace, lambda pods: run_all(pods, "busy", 1), "the other's pod")
    return definitions


def running(pods: Pods, prefix: str) -> Pods:
    return [pod for pod in named(pods, prefix) if pod["status"]["phase"] == "Running"]


def uids(pods: Pods) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


class Watched:
    """Sees that so many pods run for some passes, and that none of those that ran is ever gone."""

    def __init__(self, count: int, passes: int) -> None:
        self.count = count
        self.passes = passes
        self.ran: set[str] = set()

    def __call__(self, pods: Pods) -> bool:
        now = uids(running(pods, "train"))
        assert self.ran <= now, "a pod that ran was deleted"
        self.ran |= now
        assert len(now) <= self.count
        self.passes -= len(now) == self.count
        return self.passes <= 0


def pod_of_group(number: int) -> dict[str, Any]:
    body = template(8)
    body["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    return body


@pytest.mark.promise("R43")
def test_of_a_pod_group_as_many_run_as_fit_and_the_others_join_as_capacity_comes(
    five_nodes: Cluster, namespace: str, defined: list[str]
) -> None:
    api = five_nodes.api()
    defined.append(define(five_nodes, "PodGroup", "scheduling.x-k8s.io", "v1alpha1"))
    wait_served(five_nodes, "scheduling.x-k8s.io/v1alpha1", "PodGroup")
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups"
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "train"}}
    api.request("POST", path, body={**group, "spec": {"minMember": 2}})
    for number in range(5):
        create_pod(api, namespace, f"train-{number}", pod_of_group(number))
    watched = Watched(4, passes=30)
    sweep(five_nodes, namespace, SETTINGS, watched, "four of five to run and stay")
    (placement,) = api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements")["items"]
    assert placement["spec"]["minimum"] == 2
    assert placement["status"]["state"] == "Bound"
    assert "4 of 5 pods have nodes, 2 are enough" in placement["status"]["reason"]
    delete(api, f"/api/v1/namespaces/{namespace}/pods/busy")
    grown = Watched(5, passes=1)
    grown.ran = watched.ran
    sweep(five_nodes, namespace, SETTINGS, grown, "all five to run")


@pytest.mark.promise("R43")
def test_an_elastic_job_below_its_minimum_waits_and_one_that_is_scaled_loses_no_pod(
    five_nodes: Cluster, namespace: str
) -> None:
    api, settings = five_nodes.api(), SETTINGS
    body = template(8, annotations={keys.GANG_MIN_SIZE_ANNOTATION: "3"})
    create_job(api, namespace, "train", 3, body)
    job = f"/apis/batch/v1/namespaces/{namespace}/jobs/train"
    first = Watched(3, passes=1)
    sweep(five_nodes, namespace, settings, first, "three to run")

    api.request("PATCH", job, body={"spec": {"parallelism": 6, "completions": 6}}, content_type=MERGE_PATCH)
    scaled = Watched(4, passes=30)
    scaled.ran = first.ran
    pods = sweep(five_nodes, namespace, settings, scaled, "one more to run, and no other to go")
    by_rank = sorted(
        (int(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"]), pod["spec"]["nodeName"])
        for pod in running(pods, "train")
    )
    assert [rank for rank, _ in by_rank] == [0, 1, 2, 3]

    create_job(api, namespace, "other", 3, body)

    def waits(pods: Pods) -> bool:
        assert not running(pods, "other")
        path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
        states = {each["spec"].get("gang"): each.get("status", {}) for each in api.json("GET", path)["items"]}
        return bool(states.get("Job/other", {}).get("state") == "Waiting")

    sweep(five_nodes, namespace, settings, waits, "a gang below its minimum to wait")


RAY_WORKERS = {"groupName": "w", "minReplicas": 1, "maxReplicas": 10}


@pytest.mark.promise("R230")
@pytest.mark.parametrize(
    ("kind", "group", "spec", "mark"),
    [
        pytest.param(
            "RayCluster",
            "ray.io",
            {"workerGroupSpecs": [{**RAY_WORKERS, "replicas": 6}]},
            {"ray.io/cluster": "train"},
            id="RayCluster",
        ),
        pytest.param(
            "PyTorchJob",
            "kubeflow.org",
            {"elasticPolicy": {"minReplicas": 1}, "pytorchReplicaSpecs": {"Worker": {"replicas": 6}}},
            {"training.kubeflow.org/job-name": "train"},
            id="PyTorchJob elastic",
        ),
        pytest.param(
            "PyTorchJob",
            "kubeflow.org",
            {
                "runPolicy": {"schedulingPolicy": {"minAvailable": 2}},
                "pytorchReplicaSpecs": {"Worker": {"replicas": 6}},
            },
            {"training.kubeflow.org/job-name": "train"},
            id="PyTorchJob minAvailable",
        ),
    ],
)
def test_of_a_gang_with_a_minimum_of_its_owner_s_as_many_run_as_fit(
    five_nodes: Cluster,
    namespace: str,
    defined: list[str],
    kind: str,
    group: str,
    spec: dict[str, Any],
    mark: dict[str, str],
) -> None:
    defined.append(define(five_nodes, kind, group, "v1"))
    wait_served(five_nodes, f"{group}/v1", kind)
    api, path = five_nodes.api(), f"/apis/{group}/v1/namespaces/{namespace}/{kind.lower()}s"
    body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "train"}, "spec": spec}
    api.request("POST", path, body=body)
    for number in range(6):
        each = template(8)
        each["metadata"]["labels"] = mark
        create_pod(api, namespace, f"train-{number}", each)
    pods = sweep(five_nodes, namespace, SETTINGS, Watched(4, 5), "four of six to run")
    assert len(running(pods, "train")) == 4


@pytest.mark.promise("R230")
def test_an_autoscaled_cluster_grows_by_as_many_as_fit(
    five_nodes: Cluster, namespace: str, defined: list[str]
) -> None:
    defined.append(define(five_nodes, "RayCluster", "ray.io", "v1"))
    wait_served(five_nodes, "ray.io/v1", "RayCluster")
    api = five_nodes.api()
    spec = {"enableInTreeAutoscaling": True, "workerGroupSpecs": [{**RAY_WORKERS, "replicas": 2}]}
    body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "train"}, "spec": spec}
    api.request("POST", f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters", body=body)

    def workers(numbers: range) -> None:
        for number in numbers:
            each = template(8)
            each["metadata"]["labels"] = {"ray.io/cluster": "train"}
            create_pod(api, namespace, f"train-{number}", each)

    workers(range(2))
    sweep(five_nodes, namespace, SETTINGS, Watched(2, 1), "two to run")
    workers(range(2, 6))
    pods = sweep(five_nodes, namespace, SETTINGS, Watched(4, 5), "two more to run")
    assert {pod["metadata"]["name"] for pod in running(pods, "train")} > {"train-0", "train-1"}
