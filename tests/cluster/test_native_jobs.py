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

from hack.local import native_gangs, nodes
from hack.local.build import ROOT
from hack.local.cluster import Cluster
from hack.local.controlplane import free_port
from hack.local.install import Installation
from labeler.contract import keys
from tests.cluster.native_jobs import CONTAINER, OPTED_IN, POLICY, job, take_a_planned_node
from tests.installation import installed_on
from tests.support import create_namespace, delete_namespace, wait_for_pods
from webhook.inquiry.findings import State
from webhook.inquiry.left_gangs import examine
from webhook.kube.client import MERGE_PATCH


@pytest.fixture(scope="module")
def installed(native_jobs_cluster: Cluster) -> Iterator[Installation]:
    """Two blocks of 16 nodes with eight GPUs each."""
    with installed_on(native_jobs_cluster, nodes.Shape(nodes=32, blocks=2, subblocks=2)) as installation:
        yield installation


def nodes_of(pods: list[dict[str, Any]]) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"]]


def assert_planned(cluster: Cluster, namespace: str, gang: str, pods: list[dict[str, Any]]) -> None:
    """There is one Placement, of this gang, and the pods are in one block."""
    api = cluster.api()
    placements = api.json("GET", f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements")["items"]
    assert [each["spec"]["gang"] for each in placements] == [gang]
    there = api.json("GET", "/api/v1/nodes")["items"]
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in there}
    assert len({labels[name]["topology.gke.io/cluster"] for name in nodes_of(pods)}) == 1


def test_a_job_of_which_the_controller_makes_a_pod_group_is_bound_in_its_block(
    installed: Installation,
) -> None:
    cluster = installed.cluster
    namespace = create_namespace(cluster, OPTED_IN)
    job(cluster, namespace, 16)
    pods = wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 16, "all to be bound", 60)
    assert all("schedulingGroup" in pod["spec"] for pod in pods)
    assert_planned(cluster, namespace, "Job/train", pods)
    delete_namespace(cluster, namespace)


def refused(pod: dict[str, Any]) -> bool:
    return any(each.get("reason") == "Unschedulable" for each in pod["status"].get("conditions", ()))


def test_while_a_planned_node_is_taken_by_a_foreign_pod_none_of_the_gang_is_bound(
    installed: Installation,
) -> None:
    cluster = installed.cluster
    namespace, foreign = create_namespace(cluster, OPTED_IN), create_namespace(cluster)
    cluster.stop("kube-scheduler")
    job(cluster, namespace, 16)
    take_a_planned_node(cluster, namespace, foreign)
    cluster.start("kube-scheduler")
    pods = wait_for_pods(
        cluster, namespace, lambda pods: any(map(refused, pods)), "kube-scheduler to refuse the group"
    )
    assert nodes_of(pods) == []
    delete_namespace(cluster, foreign)
    wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 16, "all to be bound")
    delete_namespace(cluster, namespace)


LABELS: Final = {
    "JobSet": {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": "u"},
    "LeaderWorkerSet": {
        "leaderworkerset.sigs.k8s.io/name": "train",
        "leaderworkerset.sigs.k8s.io/group-key": "k",
    },
}


@pytest.mark.parametrize("kind", LABELS)
def test_pods_as_a_controller_makes_them_with_a_pod_group_are_bound_in_their_block(
    installed: Installation, kind: str
) -> None:
    """The controllers of JobSet and LeaderWorkerSet are not here: the test makes their pods and PodGroups."""
    cluster = installed.cluster
    api, namespace = cluster.api(), create_namespace(cluster, OPTED_IN)
    for group in ("leader", "workers"):
        api.request("POST", native_gangs.path(api, namespace), body=native_gangs.pod_group(api, group, 4))
    for number in range(8):
        group = "leader" if number < 4 else "workers"
        metadata = {
            "name": f"train-{number}",
            "labels": LABELS[kind],
            "annotations": {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block"},
        }
        spec = {"containers": [CONTAINER], "schedulingGroup": {"podGroupName": group}}
        body = {"metadata": metadata, "spec": spec}
        api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)
    pods = wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 8, "all to be bound")
    assert_planned(cluster, namespace, f"{kind}/train", pods)
    delete_namespace(cluster, namespace)


@contextmanager
def sweeping(cluster: Cluster, policy: Path) -> Iterator[int]:
    """A sweeper with another policy, beside that of the installation; yields the port of its metrics."""
    port = free_port()
    program = [sys.executable, "-m", "webhook.sweeper.main", "--no-leader-election"]
    options = ["--kubeconfig", str(cluster.kubeconfig), "--policy", str(policy)]
    metrics = ["--metrics-address", "127.0.0.1", "--metrics-port", str(port)]
    with subprocess.Popen([*program, *options, *metrics], cwd=ROOT) as process:
        try:
            yield port
        finally:
            process.terminate()


def test_where_the_policy_leaves_a_job_its_owner_an_administrator_and_a_metric_tell_of_it(
    installed: Installation, tmp_path: Path
) -> None:
    cluster = installed.cluster
    api, namespace = cluster.api(), create_namespace(cluster)  # not held, as it has not opted in yet
    job(cluster, namespace, 2)
    wait_for_pods(cluster, namespace, lambda pods: len(nodes_of(pods)) == 2, "both to be bound")
    body = {"metadata": {"labels": OPTED_IN}}
    api.request("PATCH", f"/api/v1/namespaces/{namespace}", body=body, content_type=MERGE_PATCH)
    before = api.json("GET", POLICY)["data"]["policy.yaml"]
    leaving = f"{before}\nnativeGangs: leave\n"

    def told() -> bool:
        events = api.json("GET", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
        about = [each["regarding"]["kind"] for each in events if each["reason"] == "LeftToKubeScheduler"]
        return "Job" in about

    (tmp_path / "policy.yaml").write_text(leaving)
    with sweeping(cluster, tmp_path / "policy.yaml") as port:
        cluster.wait_for("the Job's Event", told, 60)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert "\ntopogate_native_gang_pods_left 2.0\n" in answer.read().decode()
    for text, state in ((leaving, State.ODD), (before, State.WELL)):
        data = {"data": {"policy.yaml": text}}
        api.request("PATCH", POLICY, body=data, content_type=MERGE_PATCH)
        (finding,) = examine(api, datetime.now(UTC))
        assert finding.state is state
        assert (f"{namespace}/Job/train" in finding.sentence) is (state is State.ODD)
    delete_namespace(cluster, namespace)
