"""Jobs of which the Job controller makes PodGroups (WorkloadWithJob): planned by topogate, bound as one."""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from hack.local import native_gangs
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.install import Installation
from labeler.contract import keys
from tests.cluster.native_jobs import (
    CONTAINER,
    GANGS,
    OPTED_IN,
    create_gang,
    installed_on_shape,
    job,
    take_a_planned_node,
)
from tests.support import create_namespace, delete_namespace, wait_for_pods
from webhook.configuration.cluster import KEY, path_of
from webhook.inquiry.findings import State
from webhook.inquiry.left_gangs import examine
from webhook.kube.client import MERGE_PATCH

BLOCK, SUBBLOCK = keys.PRERELEASE_TOPOLOGY[:2]


@pytest.fixture(scope="module")
def installed(native_jobs_cluster: Cluster) -> Iterator[Installation]:
    with installed_on_shape(native_jobs_cluster) as installation:
        yield installation


def nodes_of(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]]


def placements(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    return list(cluster.api().json("GET", path)["items"])


def labels_of(cluster: Cluster, key: str) -> dict[str, str | None]:
    """The value of a label of each node."""
    there = cluster.api().json("GET", "/api/v1/nodes")["items"]
    return {each["metadata"]["name"]: each["metadata"]["labels"].get(key) for each in there}


def assert_bound_as_planned(cluster: Cluster, namespace: str, pods: list[dict[str, Any]]) -> None:
    """Each pod is on the node of its gang's Placement, and each gang in one block."""
    blocks = labels_of(cluster, BLOCK)
    planned = [
        {pod["uid"]: pod["node"] for pod in each["spec"]["pods"]} for each in placements(cluster, namespace)
    ]
    for plan in planned:
        assert len({blocks[node] for node in plan.values()}) == 1
    assert {uid: node for plan in planned for uid, node in plan.items()} == {
        pod["metadata"]["uid"]: pod["spec"]["nodeName"] for pod in pods
    }


PLANS: Final = {"Job": ["Job/train"]} | {
    kind: ["JobSet/train"] if kind.startswith("JobSet") else ["LeaderWorkerSet/train"] * 2 for kind in GANGS
}
"""The gangs that have a Placement."""


@pytest.mark.promise("R272")
@pytest.mark.parametrize("kind", PLANS)
def test_the_pods_of_pod_groups_are_bound_where_their_gang_is_planned(
    installed: Installation, kind: str
) -> None:
    cluster = installed.cluster
    namespace = create_namespace(cluster, OPTED_IN)
    create_gang(cluster, namespace, kind)
    pods = wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 8, "all to be bound")
    assert all("schedulingGroup" in pod["spec"] for pod in pods)
    assert [each["spec"]["gang"] for each in placements(cluster, namespace)] == PLANS[kind]
    assert_bound_as_planned(cluster, namespace, pods)
    delete_namespace(cluster, namespace)


@pytest.mark.kubernetes("1.37")
def test_a_job_that_asks_for_no_gang_is_bound_pod_by_pod_where_it_is_planned(
    installed: Installation,
) -> None:
    """The Job controller of 1.37 makes such a PodGroup as well, one without a minimum."""
    cluster = installed.cluster
    namespace = create_namespace(cluster, OPTED_IN)
    job(cluster, namespace, 8)
    pods = wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 8, "all to be bound")
    (group,) = cluster.api().json("GET", native_gangs.path(cluster.api(), namespace))["items"]
    assert group["spec"]["schedulingPolicy"] == {"basic": {}}
    assert_bound_as_planned(cluster, namespace, pods)
    delete_namespace(cluster, namespace)


def refused(pod: dict[str, Any]) -> bool:
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))


@pytest.mark.promise("R272")
@pytest.mark.parametrize("kind", ["Job", "LeaderWorkerSet in one PodGroup"])
def test_while_a_planned_node_is_taken_by_a_foreign_pod_none_of_the_gang_is_bound(
    installed: Installation, kind: str
) -> None:
    cluster = installed.cluster
    namespace, foreign = create_namespace(cluster, OPTED_IN), create_namespace(cluster)
    cluster.stop("kube-scheduler")
    create_gang(cluster, namespace, kind)
    take_a_planned_node(cluster, namespace, foreign)
    cluster.start("kube-scheduler")
    pods = wait_for_pods(
        cluster, namespace, lambda pods: any(map(refused, pods)), "kube-scheduler to refuse the group"
    )
    assert nodes_of(pods) == []
    delete_namespace(cluster, foreign)
    wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 8, "all to be bound")
    delete_namespace(cluster, namespace)


@pytest.mark.promise("R282")
@pytest.mark.kubernetes("1.37")
def test_a_gang_of_a_composite_group_is_bound_by_kube_scheduler_and_its_owner_gets_an_event(
    installed: Installation,
) -> None:
    cluster = installed.cluster
    api, namespace = cluster.api(), create_namespace(cluster, OPTED_IN)
    workload = {"workloadName": "w", "templateName": "whole"}
    spec = {"workloadRef": workload, "schedulingPolicy": {"gang": {"minGroupCount": 1}}}
    path = f"/apis/scheduling.k8s.io/v1alpha3/namespaces/{namespace}/compositepodgroups"
    api.request("POST", path, body={"metadata": {"name": "whole"}, "spec": spec})
    group = native_gangs.pod_group(api, "g", 4)
    group["spec"] |= {
        "parentCompositePodGroupName": "whole",
        "workloadRef": {**workload, "templateName": "g"},
    }
    api.request("POST", native_gangs.path(api, namespace), body=group)
    for number in range(4):
        spec = {"containers": [CONTAINER], "schedulingGroup": {"podGroupName": "g"}}
        pod = {"metadata": {"name": f"g-{number}"}, "spec": spec}
        api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=pod)
    pods = wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 4, "all to be bound")
    assert [each["spec"].get("affinity") for each in pods] == [None] * 4
    query = {"fieldSelector": "reason=LeftToKubeScheduler"}
    events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    cluster.wait_for("the Event", lambda: bool(api.json("GET", events, query=query)["items"]))
    delete_namespace(cluster, namespace)


@contextmanager
def sweeping(cluster: Cluster, file: Path) -> Iterator[int]:
    """A sweeper with another configuration, beside the installation's; yields the port of its metrics."""
    port = free_port()
    program = [sys.executable, "-m", "webhook.sweeper.main", "--no-leader-election"]
    options = ["--kubeconfig", str(cluster.kubeconfig), "--config", str(file)]
    metrics = ["--metrics-address", "127.0.0.1", "--metrics-port", str(port)]
    with subprocess.Popen([*program, *options, *metrics], cwd=ROOT) as process:
        try:
            yield port
        finally:
            process.terminate()


@pytest.mark.promise("O108")
@pytest.mark.parametrize("kind", ["Job", "LeaderWorkerSet with a PodGroup for each replica"])
def test_where_the_configuration_leaves_a_gang_its_owner_an_administrator_and_a_metric_see_it(
    installed: Installation, tmp_path: Path, kind: str
) -> None:
    cluster = installed.cluster
    api, namespace = cluster.api(), create_namespace(cluster)  # not held, as it has not opted in yet
    create_gang(cluster, namespace, kind)
    wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 8, "all to be bound")
    body = {"metadata": {"labels": OPTED_IN}}
    api.request("PATCH", f"/api/v1/namespaces/{namespace}", body=body, content_type=MERGE_PATCH)
    before = api.json("GET", path_of())["data"][KEY]
    leaving = f"{before}\ngangs: {{native: leave}}\n"

    def is_reported() -> bool:
        events = api.json("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        about = [each["regarding"]["kind"] for each in events if each["reason"] == "LeftToKubeScheduler"]
        return len(about) >= len(PLANS[kind]) and (kind != "Job" or "Job" in about)

    (tmp_path / KEY).write_text(leaving)
    with sweeping(cluster, tmp_path / KEY) as port:
        cluster.wait_for("the Event", is_reported)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "\ntopogate_ignored_topology_requests 8.0\n" in answer.read().decode()
    for text, state in ((leaving, State.ODD), (before, State.WELL)):
        data = {"data": {KEY: text}}
        api.request("PATCH", path_of(), body=data, content_type=MERGE_PATCH)
        (finding,) = examine(api, datetime.now(UTC))
        assert finding.state is state
        assert (f"{namespace}/{PLANS[kind][0]}" in finding.sentence) is (state is State.ODD)
    assert placements(cluster, namespace) == []
    delete_namespace(cluster, namespace)
