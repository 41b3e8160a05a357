"""Gangs whose controllers make pods in stages, on the real API server: planned by what they will be.

The cluster is so that the tightest place for the first pods alone is not where the whole gang fits.
"""

from collections.abc import Callable
from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import delete, register_nodes
from tests.sweeper.at_work import Pods, create_pod, named, run_all, sweep, template
from tests.sweeper.sets import IN_ORDER, begin_jobset, in_two_stages, replicated
from webhook.configuration.settings import Settings
from webhook.kube.client import Api

SETTINGS = Settings(settle_seconds=30, patience_seconds=30)
"""Nobody may settle: a test that waited for it would not end in time."""


@pytest.fixture
def fragmented(definitions: Cluster, namespace: str) -> Cluster:
    """Two blocks of two subblocks of three nodes; of the first block one node in each subblock is free."""
    register_nodes(definitions, nodes.grid(nodes.Shape(nodes=12, blocks=2, subblocks=2)))
    for subblock in range(2):
        for host in range(2):
            pin = {"kubernetes.io/hostname": f"node-b0-s{subblock}-h{host:02}"}
            name = f"busy-{subblock}-{host}"
            create_pod(definitions.api(), namespace, name, template(8, gated=False, nodeSelector=pin))
    definitions.wait_for(
        "the others' pods to run",
        lambda: run_all(
            definitions.api().json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"], "busy", 4
        ),
    )
    return definitions


def nodes_by_rank(pods: Pods) -> list[str]:
    def rank(pod: dict[str, Any]) -> tuple[int, int]:
        labels = pod["metadata"]["labels"]
        index = int(labels["batch.kubernetes.io/job-completion-index"])
        return int(labels["jobset.sigs.k8s.io/job-global-index"]), index

    return [pod["spec"]["nodeName"] for pod in sorted(pods, key=rank)]


@pytest.mark.promise("R72")
@pytest.mark.parametrize(
    ("start", "annotations"),
    [("InOrder", {}), ("dependsOn", {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"})],
    ids=["InOrder", "dependsOn, required"],
)
def test_a_jobset_in_stages_runs_where_all_of_it_fits_best(
    fragmented: Cluster, namespace: str, defined: list[str], start: str, annotations: dict[str, str]
) -> None:
    body = template(8, annotations=annotations)
    behind: dict[str, Any] = {}
    if start == "dependsOn":
        behind = {"dependsOn": [{"name": "leader", "status": "Ready"}]}
    parts = [replicated("leader", 1, body), replicated("workers", 5, body, **behind)]
    create = begin_jobset(fragmented, namespace, defined, parts, **({} if behind else IN_ORDER))
    all_run = in_two_stages(create, "train-leader", 6)
    pods = sweep(fragmented, namespace, SETTINGS, all_run, "the whole JobSet to run")
    found = nodes_by_rank(named(pods, "train"))
    assert found == [f"node-b1-s{subblock}-h{host:02}" for subblock in range(2) for host in range(3)]


@pytest.mark.promise("R72")
def test_an_ordered_statefulset_does_not_settle_between_its_pods(fragmented: Cluster, namespace: str) -> None:
    body = template(8)
    body["metadata"] = {"labels": {"app": "train"}}
    spec = {
        "replicas": 4,
        "serviceName": "train",
        "selector": {"matchLabels": {"app": "train"}},
        "template": body,
    }
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    fragmented.api().request("POST", path, body={"metadata": {"name": "train"}, "spec": spec})
    pods = sweep(fragmented, namespace, SETTINGS, lambda pods: run_all(pods, "train", 4), "all to run")
    found = [
        pod["spec"]["nodeName"] for pod in sorted(named(pods, "train"), key=lambda p: p["metadata"]["name"])
    ]
    assert found == sorted(found), "in the order of the topology"
    assert {name[:7] for name in found} == {"node-b1"}, "one block holds all of it"


def limit_range(api: Api, namespace: str) -> dict[str, Any]:
    """A LimitRange gives each container 60 of a node's 96 CPUs."""
    limits = [{"type": "Container", "default": {"cpu": "60"}, "defaultRequest": {"cpu": "60"}}]
    path = f"/api/v1/namespaces/{namespace}/limitranges"
    api.request("POST", path, body={"metadata": {"name": "each"}, "spec": {"limits": limits}})
    return {}


def runtime_class(api: Api, namespace: str) -> dict[str, Any]:
    """A RuntimeClass takes 50 for each pod."""
    body = {"metadata": {"name": "kata"}, "handler": "x", "overhead": {"podFixed": {"cpu": "50"}}}
    path = "/apis/node.k8s.io/v1/runtimeclasses"
    delete(api, f"{path}/kata")
    api.request("POST", path, body=body)
    return {"runtimeClassName": "kata"}


def stateful_set(
    cluster: Cluster, namespace: str, _: list[str], body: dict[str, Any]
) -> Callable[[Pods], bool]:
    made = {**body, "metadata": {**body["metadata"], "labels": {"app": "train"}}}
    spec = {"replicas": 2, "serviceName": "train", "selector": {"matchLabels": {"app": "train"}}}
    path = f"/apis/apps/v1/namespaces/{namespace}/statefulsets"
    cluster.api().request(
        "POST", path, body={"metadata": {"name": "train"}, "spec": {**spec, "template": made}}
    )
    return lambda pods: run_all(pods, "train", 2)


def job_set(
    cluster: Cluster, namespace: str, defined: list[str], body: dict[str, Any]
) -> Callable[[Pods], bool]:
    parts = [replicated("leader", 1, body), replicated("workers", 1, body)]
    return in_two_stages(begin_jobset(cluster, namespace, defined, parts, **IN_ORDER), "train-leader", 2)


@pytest.mark.promise("R72")
@pytest.mark.parametrize(("begin", "add"), [(stateful_set, limit_range), (job_set, runtime_class)])
def test_a_later_stage_is_asked_for_with_what_is_added_to_its_pods(
    fragmented: Cluster,
    namespace: str,
    defined: list[str],
    begin: Callable[[Cluster, str, list[str], dict[str, Any]], Callable[[Pods], bool]],
    add: Callable[[Api, str], dict[str, Any]],
) -> None:
    annotations = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"}
    body = template(4, annotations=annotations, **add(fragmented.api(), namespace))
    all_run = begin(fragmented, namespace, defined, body)
    pods = sweep(fragmented, namespace, SETTINGS, all_run, "both pods to run", 40)
    found = {pod["spec"]["nodeName"] for pod in named(pods, "train")}
    # By their templates both would fit on the one free node of a subblock of the first block.
    assert len(found) == 2
    assert {name[:7] for name in found} == {"node-b1"}
