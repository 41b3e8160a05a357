"""Elastic gangs on the real API server: at least the minimum at once, as many as fit, and no pod undone."""

from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from tests.definitions import define, wait_served
from tests.support import delete, register_nodes, wait_for_pods
from tests.sweeper.at_work import Pods, create_pod, named, run_all, sweep, template
from webhook.configuration.settings import Settings
from webhook.kube.client import Api

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


def reasons(api: Api, path: str) -> str:
    """Why the gangs of a namespace wait."""
    return " ".join(each["status"]["reason"] for each in api.json("GET", path)["items"] if "status" in each)


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
    for number in range(5):
        create_pod(api, namespace, f"train-{number}", pod_of_group(number))
    placements = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    missing = "PodGroup train of these pods does not exist"
    sweep(five_nodes, namespace, SETTINGS, lambda _: missing in reasons(api, placements), "the reason")
    path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{namespace}/podgroups"
    group = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "metadata": {"name": "train"}}
    api.request("POST", path, body={**group, "spec": {"minMember": 2}})
    watched = Watched(4, passes=30)
    sweep(five_nodes, namespace, SETTINGS, watched, "four of five to run and stay")
    (placement,) = api.json("GET", placements)["items"]
    assert placement["spec"]["minimum"] == 2
    assert placement["status"]["state"] == "Bound"
    assert "4 of 5 pods have nodes, 2 are enough" in placement["status"]["reason"]
    delete(api, f"/api/v1/namespaces/{namespace}/pods/busy")
    grown = Watched(5, passes=1)
    grown.ran = watched.ran
    sweep(five_nodes, namespace, SETTINGS, grown, "all five to run")
