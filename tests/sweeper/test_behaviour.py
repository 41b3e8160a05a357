"""What the sweeper does when the cluster is not as it should be: preempt, reserve nodes, repair, roll back.

In this process, against the real API server with kube-scheduler and controllers.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import delete, wait_for_pods
from tests.sweeper.at_work import (
    Pods,
    create_job,
    create_large_behind_blocker,
    create_pod,
    is_gated,
    named,
    run_all,
    sweep,
    template,
)
from webhook.configuration.settings import Settings
from webhook.kube.client import STRATEGIC_MERGE_PATCH
from webhook.workloads import marks

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PINNED = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-b0-s0-h00"]}]}


def test_a_gang_that_only_pods_of_lower_priority_block_runs_in_their_place(
    two_nodes: Cluster, namespace: str
) -> None:
    api = two_nodes.api()
    for index in range(2):
        create_pod(api, namespace, f"low-{index}", template(8, gated=False, priorityClassName="low"))
    wait_for_pods(two_nodes, namespace, lambda pods: run_all(pods, "low", 2), "two running pods")
    create_job(api, namespace, "high", 2, template(8, priorityClassName="high"))
    pods = sweep(two_nodes, namespace, Settings(), lambda pods: run_all(pods, "high", 2), "the gang to run")
    assert named(pods, "low") == []


@pytest.mark.promise("O99")
def test_a_large_gang_that_has_waited_holds_its_nodes_against_smaller_ones(
    two_nodes: Cluster, namespace: str
) -> None:
    api = two_nodes.api()
    create_large_behind_blocker(two_nodes, namespace)
    settings = Settings(reserve_seconds=0)
    created: list[str] = []

    def add_small_ones_and_delete_the_blocker(pods: Pods) -> bool:
        if len(named(pods, "large")) == 2 and not created:
            created.append("small")
            create_pod(api, namespace, "small", template(1))
        elif len(created) == 1 and named(pods, "small"):
            created.append("a pass with it has gone by")
        elif len(created) == 2:
            assert is_gated(named(pods, "small")[0]), "the small gang took what the large one waits for"
            created.append("blocker gone")
            delete(api, f"/api/v1/namespaces/{namespace}/pods/blocker")
        return run_all(pods, "large", 2)

    pods = sweep(
        two_nodes, namespace, settings, add_small_ones_and_delete_the_blocker, "the large gang to run"
    )
    assert len(created) == 3
    assert is_gated(named(pods, "small")[0])


@pytest.mark.promise("R122", "O91")
def test_a_released_pod_whose_node_is_deleted_is_recreated_and_placed_elsewhere(
    two_nodes: Cluster, namespace: str
) -> None:
    api = two_nodes.api()
    create_job(api, namespace, "one", 1, template(8))
    with two_nodes.paused("kube-scheduler"):
        (pod,) = sweep(
            two_nodes, namespace, Settings(), lambda pods: bool(pods) and not is_gated(pods[0]), "its release"
        )
        terms = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        node = terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]
        delete(api, f"/api/v1/nodes/{node}")
        sweep(
            two_nodes,
            namespace,
            Settings(),
            lambda pods: any(other["metadata"]["uid"] != pod["metadata"]["uid"] for other in pods),
            "another pod in its place",
        )
    pods = sweep(
        two_nodes, namespace, Settings(), lambda pods: run_all(pods, "one", 1), "it to run elsewhere"
    )
    assert pods[0]["spec"]["nodeName"] != node


def partly_release(cluster: Cluster, namespace: str, job: str, settings: Settings) -> None:
    """Let the gang of a Job be released and one of its nodes go, so that only the rest comes to run."""
    # Started again: one that was only held still would bind by what it had seen, to a node that is gone.
    cluster.stop("kube-scheduler")
    try:
        pods = sweep(
            cluster,
            namespace,
            settings,
            lambda pods: bool(named(pods, job)) and not any(map(is_gated, named(pods, job))),
            "release",
        )
        delete(cluster.api(), f"/api/v1/nodes/{pinned_to(named(pods, job)[-1])}")
    finally:
        cluster.start("kube-scheduler")
    count = len(pods) - 1
    wait_for_pods(
        cluster,
        namespace,
        lambda pods: sum(pod["status"]["phase"] == "Running" for pod in named(pods, job)) == count,
        "the rest to run",
    )


def running(cluster: Cluster, namespace: str) -> set[str]:
    """uids of the pods that run."""
    pods = cluster.api().json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    return {pod["metadata"]["uid"] for pod in pods if pod["status"]["phase"] == "Running"}


def pinned_to(pod: dict[str, Any]) -> str:
    """The node that a released pod was sent to."""
    (term,) = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    name: str = term["matchFields"][-1]["values"][0]
    return name


@pytest.mark.promise("O97")
def test_a_gang_whose_rest_finds_no_place_beside_it_is_recreated_whole_where_all_of_it_fits_elsewhere(
    two_subblocks: Cluster, namespace: str
) -> None:
    settings = Settings(rollback_seconds=0.5)
    together = template(8, annotations={keys.REQUIRED_TOPOLOGY_ANNOTATION: "subblock"})
    create_job(two_subblocks.api(), namespace, "three", 3, together)
    partly_release(two_subblocks, namespace, "three", settings)
    before = running(two_subblocks, namespace)
    assert before

    def went_back(pods: Pods) -> bool:
        # The Job recreates them at its own pace, ten seconds and more after a failure.
        return not before & {pod["metadata"]["uid"] for pod in pods}

    sweep(two_subblocks, namespace, settings, went_back, "the part that ran to go", 90)


@pytest.mark.promise("O225", "W12")
def test_gates_of_the_configured_prefix_are_served_and_the_usual_ones_left(
    two_nodes: Cluster, namespace: str
) -> None:
    ours, theirs = template(8), template(8)
    ours["spec"]["schedulingGates"] = [{"name": "example.com/wait-topogate"}]
    ours["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [PINNED]}}}
    create_pod(two_nodes.api(), namespace, "theirs", theirs)
    create_pod(two_nodes.api(), namespace, "ours", ours)
    settings = Settings(gate_prefix="example.com/wait-")
    pods = sweep(two_nodes, namespace, settings, lambda pods: run_all(pods, "ours", 1), "it to run")
    assert is_gated(named(pods, "theirs")[0])


@pytest.mark.promise("O7")
def test_a_member_that_topogate_never_gated_is_not_deleted(two_nodes: Cluster, namespace: str) -> None:
    api = two_nodes.api()
    gang = {keys.GANG_ANNOTATION: "mpi", keys.GANG_SIZE_ANNOTATION: "4"}
    launcher = template(0, gated=False, annotations=gang)
    launcher["spec"]["containers"][0]["resources"] = {}
    create_job(api, namespace, "launcher", 1, launcher)
    (before,) = wait_for_pods(two_nodes, namespace, lambda pods: run_all(pods, "launcher", 1), "the launcher")
    create_job(api, namespace, "workers", 3, template(8, annotations=gang))
    passes: list[int] = []

    def many_passes_have_gone_by(pods: Pods) -> bool:
        passes.append(len(pods))
        return len(passes) > 15

    pods = sweep(
        two_nodes, namespace, Settings(rollback_seconds=0.1), many_passes_have_gone_by, "some passes"
    )
    assert [pod["metadata"]["uid"] for pod in named(pods, "launcher")] == [before["metadata"]["uid"]]


UNUSUAL: list[tuple[dict[str, str], str]] = [
    ({keys.GANG_SIZE_ANNOTATION: "9" * 5000}, "1"),
    ({marks.JOB_INDEX_KEY: "9" * 5000}, "1"),
    ({keys.GAS_TIMESTAMP_ANNOTATION: "9" * 20}, "1"),
    ({}, "1e1002"),
]
"""Annotations and CPUs: a size and a rank of 5,000 digits, a time stamp out of reach, too many CPUs."""


@pytest.mark.promise("S2")
def test_an_unusual_pod_of_one_tenant_stops_nobody_else(two_nodes: Cluster, namespace: str) -> None:
    for number, (annotations, quantity) in enumerate(UNUSUAL):
        for gated in (True, False):
            unusual = template(0, gated=gated, annotations=annotations)
            unusual["spec"]["containers"][0]["resources"] = {"requests": {"cpu": quantity}}
            if not gated:
                unusual["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [PINNED]}}}
            create_pod(two_nodes.api(), namespace, f"odd-{number}-{'gated' if gated else 'pinned'}", unusual)
    create_job(two_nodes.api(), namespace, "other", 2, template(8))
    sweep(two_nodes, namespace, Settings(), lambda pods: run_all(pods, "other", 2), "the other gang to run")


def wait_for_a_later_second(cluster: Cluster, pods: Pods) -> None:
    """Until a gang that is created is younger than these pods: their age is in whole seconds."""
    newest = max(pod["metadata"]["creationTimestamp"] for pod in pods)
    cluster.wait_for("the next second", lambda: f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}" > newest)


@pytest.mark.promise("R242", "O103")
def test_a_gang_behind_a_foreign_gate_takes_no_capacity_from_one_that_may_run(
    two_nodes: Cluster, namespace: str
) -> None:
    api = two_nodes.api()
    quota = {"name": "kueue.x-k8s.io/admission"}
    waiting = template(8)
    waiting["spec"]["schedulingGates"].append(quota)
    create_job(api, namespace, "held", 2, waiting)
    there = wait_for_pods(two_nodes, namespace, lambda pods: len(pods) == 2, "the pods that are held")
    wait_for_a_later_second(two_nodes, there)
    create_job(api, namespace, "admitted", 2, template(8))
    pods = sweep(two_nodes, namespace, Settings(), lambda pods: run_all(pods, "admitted", 2), "the other")
    assert all(is_gated(pod) for pod in named(pods, "held"))
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    api.request("DELETE", f"{jobs}/admitted", query={"propagationPolicy": "Background"})
    for pod in named(pods, "held"):
        gates = {"spec": {"schedulingGates": [{"$patch": "delete", **quota}]}}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
        api.request("PATCH", path, body=gates, content_type=STRATEGIC_MERGE_PATCH)
    sweep(two_nodes, namespace, Settings(), lambda pods: run_all(pods, "held", 2), "the first, once let go")
