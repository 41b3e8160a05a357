"""Gangs that go for more important ones: whole, through the eviction API, and to come again as gangs.

On a real control plane; its nodes have 8 GPUs.
"""

import pytest

from hack.local.cluster import Cluster
from tests.support import wait_for_pods
from tests.sweeper.at_work import (
    Pods,
    create_job,
    create_pod,
    is_gated,
    named,
    run_all,
    sweep,
    template,
)
from tests.sweeper.mortal import AFTER, BEFORE, Death, MortalApi, sweep_until
from webhook.configuration.settings import Settings
from webhook.kube import placements

SETTINGS = Settings(broken_seconds=1)


def fill(cluster: Cluster, namespace: str) -> None:
    """A gang of low priority with a pod on each of two nodes."""
    create_job(cluster.api(), namespace, "low", 2, template(8, priorityClassName="low"))
    wait_for_pods(cluster, namespace, lambda pods: len(pods) == 2, "the pods of the low gang")
    path = placements.path(namespace)

    def runs(pods: Pods) -> bool:
        """Whether it runs, and its Placement says so: a pod that is gone before that may never have run."""
        (placement,) = cluster.api().json("GET", path)["items"] or [{}]
        return run_all(pods, "low", 2) and bool(placement.get("status", {}).get("complete"))

    sweep(cluster, namespace, SETTINGS, runs, "the low gang to run")


def bound(pods: Pods, prefix: str) -> Pods:
    """Those on nodes that have not ended."""
    own = [pod for pod in named(pods, prefix) if pod["spec"].get("nodeName")]
    return [pod for pod in own if pod["status"]["phase"] not in ("Succeeded", "Failed")]


def waits_whole(pods: Pods, prefix: str, count: int) -> bool:
    """Whether all pods of a gang have been recreated, and wait."""
    own = [pod for pod in named(pods, prefix) if pod["status"]["phase"] == "Pending"]
    return len(own) == count and all(map(is_gated, own))


def high_runs_and_low_waits(cluster: Cluster, namespace: str) -> None:
    """Sweep until the more important gang has its place, and the other waits as a whole."""
    sweep(
        cluster,
        namespace,
        SETTINGS,
        lambda pods: run_all(pods, "high", 1) and waits_whole(pods, "low", 2),
        "the high gang to run, and the low one to wait",
    )


@pytest.mark.promise("O180", "O184")
def test_a_job_that_blocks_one_pod_is_evicted_whole_and_waits_as_a_gang(
    two_nodes: Cluster, namespace: str
) -> None:
    body = template(8, priorityClassName="low")
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec = {
        "completionMode": "Indexed",
        "parallelism": 2,
        "completions": 2,
        "backoffLimit": 0,  # evictions are no failures of it
        "podFailurePolicy": {"rules": [ignored]},
        "template": {**body, "spec": {**body["spec"], "restartPolicy": "Never"}},
    }
    two_nodes.api().request(
        "POST",
        f"/apis/batch/v1/namespaces/{namespace}/jobs",
        body={"metadata": {"name": "low"}, "spec": spec},
    )
    sweep(two_nodes, namespace, SETTINGS, lambda pods: run_all(pods, "low", 2), "the low gang to run")
    create_job(two_nodes.api(), namespace, "high", 1, template(8, priorityClassName="high"))
    high_runs_and_low_waits(two_nodes, namespace)
    job = two_nodes.api().json("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/low")
    assert "conditions" not in job["status"]


@pytest.mark.promise("O194", "R101")
def test_what_kube_scheduler_leaves_of_a_gang_is_evicted_as_well(two_nodes: Cluster, namespace: str) -> None:
    fill(two_nodes, namespace)
    create_pod(two_nodes.api(), namespace, "other", template(8, gated=False, priorityClassName="high"))
    sweep(
        two_nodes,
        namespace,
        SETTINGS,
        lambda pods: run_all(pods, "other", 1) and not bound(pods, "low"),
        "what is left of the low gang to go",
    )


@pytest.mark.promise("I1")
@pytest.mark.parametrize(
    ("moment", "write"), [(AFTER, "POST pod low-1 #1"), (BEFORE, "POST pod low-0 #1")], ids=["first", "last"]
)
def test_whichever_eviction_a_sweeper_dies_at_the_next_one_finishes_what_it_began(
    two_nodes: Cluster, namespace: str, moment: str, write: str
) -> None:
    fill(two_nodes, namespace)
    create_job(two_nodes.api(), namespace, "high", 1, template(8, priorityClassName="high"))
    api = two_nodes.api()

    def is_done() -> bool:
        pods: Pods = api.json("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return run_all(pods, "high", 1) and not bound(pods, "low")

    first = mortal(two_nodes, Death(moment, write))
    assert not sweep_until(first, SETTINGS, is_done, 120)
    assert sweep_until(mortal(two_nodes, None), SETTINGS, is_done, 120)


def mortal(cluster: Cluster, death: Death | None) -> MortalApi:
    api = MortalApi.connect(cluster.kubeconfig, user_agent="test-sweeper")
    assert isinstance(api, MortalApi)
    api.prepare(death)
    return api
