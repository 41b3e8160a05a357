"""Kubernetes' own gang scheduling on the local control plane: that it is on, and what it does at binding.

These are the facts on which a gang that topogate plans and kube-scheduler binds as one would rest.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.local import native_gangs, nodes
from hack.local.cluster import Cluster
from tests.support import create_namespace, delete_namespace, register_nodes, wait_for_pods
from webhook.kube.client import ApiError

pytestmark = pytest.mark.when_changed("hack/controlplane", "hack/local/native_gangs.py")
"""No change of topogate makes these facts of Kubernetes false."""

POD = {
    "restartPolicy": "Never",
    "containers": [{"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
}
GATE = "example.com/hold"
JSON_PATCH = "application/json-patch+json"


class Group:
    """A PodGroup of which two pods are bound together or none, in a namespace and on nodes of its own."""

    def __init__(self, cluster: Cluster, slots: int) -> None:
        """slots: nodes, each with capacity for one pod."""
        self.cluster, self.api = cluster, cluster.api()
        self.namespace = create_namespace(cluster)
        self.pods = f"/api/v1/namespaces/{self.namespace}/pods"
        self.path = native_gangs.path(self.api, self.namespace)
        self.add_nodes(0, slots)

    def add_nodes(self, there: int, slots: int) -> None:
        register_nodes(self.cluster, nodes.grid(nodes.Shape(nodes=slots, blocks=1, subblocks=1))[there:])

    def create(self) -> None:
        self.api.request("POST", self.path, body=native_gangs.pod_group(self.api, "two", 2))

    def add(self, name: str, **spec: object) -> None:
        member = POD | {"schedulingGroup": {"podGroupName": "two"}} | spec
        self.api.request("POST", self.pods, body={"metadata": {"name": name}, "spec": member})

    def patch(self, name: str, *operations: dict[str, Any]) -> None:
        self.api.request("PATCH", f"{self.pods}/{name}", body=list(operations), content_type=JSON_PATCH)

    def release(self, name: str) -> None:
        self.patch(name, {"op": "remove", "path": "/spec/schedulingGates"})

    def wait_for(self, bound: set[str]) -> None:
        """Wait until these pods are bound, and see that no other is."""
        pods = wait_for_pods(
            self.cluster, self.namespace, lambda pods: bound <= names_of_bound(pods), f"{bound} to be bound"
        )
        assert names_of_bound(pods) == bound


def names_of_bound(pods: list[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods if "nodeName" in pod["spec"]}


@pytest.fixture
def group(native_cluster: Cluster) -> Iterator[Group]:
    """One without its PodGroup, beside two nodes."""
    made = Group(native_cluster, slots=2)
    yield made
    delete_namespace(native_cluster, made.namespace)


def test_pods_wait_without_a_word_for_a_pod_group_that_is_not_there_yet(group: Group) -> None:
    group.add_nodes(2, 3)
    for name in ("a", "b"):
        group.add(name)
    group.add("later", schedulingGroup=None)
    group.wait_for({"later"})
    for name in ("a", "b"):
        status = group.api.json("GET", f"{group.pods}/{name}")["status"]
        assert not status.get("conditions"), status

    group.create()
    group.wait_for({"a", "b", "later"})


def test_a_released_pod_waits_for_those_of_its_group_that_are_gated(group: Group) -> None:
    group.add_nodes(2, 3)
    group.create()
    for name in ("a", "b"):
        group.add(name, schedulingGates=[{"name": GATE}])
    group.release("a")
    group.add("later", schedulingGroup=None)
    group.wait_for({"later"})

    group.release("b")
    group.wait_for({"a", "b", "later"})


@pytest.mark.parametrize("group_of_pod", [{}, {"schedulingGroup": {"podGroupName": "other"}}])
def test_the_group_of_a_pod_is_fixed_at_its_creation(group: Group, group_of_pod: dict[str, Any]) -> None:
    body = {"metadata": {"name": "a"}, "spec": POD | group_of_pod | {"schedulingGates": [{"name": GATE}]}}
    group.api.request("POST", group.pods, body=body)
    with pytest.raises(ApiError) as caught:
        group.patch("a", {"op": "add", "path": "/spec/schedulingGroup", "value": {"podGroupName": "two"}})
    assert caught.value.status == 422


def test_an_api_server_without_the_feature_drops_the_group_of_a_pod(cluster: Cluster, namespace: str) -> None:
    spec = POD | {"schedulingGroup": {"podGroupName": "two"}, "schedulingGates": [{"name": GATE}]}
    body = {"metadata": {"name": "a"}, "spec": spec}
    made = cluster.api().json("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)
    assert "schedulingGroup" not in made["spec"]
    assert made["spec"]["schedulingGates"] == [{"name": GATE}]


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
