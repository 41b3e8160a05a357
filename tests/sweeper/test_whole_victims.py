"""Gangs that go for more important ones: whole, through the eviction API, and to come again as gangs.

On a real control plane; its nodes have 8 GPUs.
"""

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
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

SETTINGS = Settings(broken_seconds=1)


def fill(cluster: Cluster, namespace: str, *, annotations: dict[str, str] | None = None) -> None:
    """A gang of low priority with a pod on each of two nodes."""
    body = template(8, priorityClassName="low", annotations=annotations)
    create_job(cluster.api(), namespace, "low", 2, body)
    wait_for_pods(cluster, namespace, lambda pods: len(pods) == 2, "the pods of the low gang")
    sweep(cluster, namespace, SETTINGS, lambda pods: run_all(pods, "low", 2), "the low gang to run")


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


@pytest.mark.promise("O184")
def test_a_stateful_set_that_blocks_is_evicted_whole_and_waits_as_a_gang(
    two_nodes: Cluster, namespace: str
) -> None:
    body = template(8, priorityClassName="low")
    body["metadata"]["labels"] = {"app": "low"}
    spec = {
        "replicas": 2,
        "serviceName": "low",
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {"app": "low"}},
        "template": body,
    }
    api = two_nodes.api()
    api.request(
        "POST",
        f"/apis/apps/v1/namespaces/{namespace}/statefulsets",
        body={"metadata": {"name": "low"}, "spec": spec},
    )
    sweep(two_nodes, namespace, SETTINGS, lambda pods: run_all(pods, "low", 2), "the low gang to run")
    create_job(api, namespace, "high", 1, template(8, priorityClassName="high"))
    high_runs_and_low_waits(two_nodes, namespace)


@pytest.mark.promise("O180")
def test_an_elastic_gang_loses_only_what_it_can_spare(two_nodes: Cluster, namespace: str) -> None:
    fill(two_nodes, namespace, annotations={keys.GANG_MIN_SIZE_ANNOTATION: "1"})
    create_job(two_nodes.api(), namespace, "high", 1, template(8, priorityClassName="high"))
    pods = sweep(
        two_nodes,
        namespace,
        SETTINGS,
        lambda pods: run_all(pods, "high", 1) and len(named(pods, "low")) == 2,
        "the high gang to run",
    )
    assert len(bound(pods, "low")) == 1


@pytest.mark.promise("S16", "O180")
def test_a_gang_is_left_alone_that_a_budget_keeps_where_another_suffices(
    two_nodes: Cluster, namespace: str
) -> None:
    api = two_nodes.api()
    given = template(8, priorityClassName="low")
    given["metadata"]["labels"] = {"app": "kept"}
    create_job(api, namespace, "a-kept", 1, given)
    create_job(api, namespace, "b-free", 1, template(8, priorityClassName="low"))
    sweep(
        two_nodes,
        namespace,
        SETTINGS,
        lambda pods: run_all(pods, "a-kept", 1) and run_all(pods, "b-free", 1),
        "both to run",
    )
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    api.request(
        "POST",
        f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
        body={"metadata": {"name": "keep"}, "spec": budget},
    )
    create_job(api, namespace, "high", 1, template(8, priorityClassName="high"))
    pods = sweep(
        two_nodes, namespace, SETTINGS, lambda pods: run_all(pods, "high", 1), "the high gang to run"
    )
    assert run_all(pods, "a-kept", 1)


@pytest.mark.promise("O192")
@pytest.mark.parametrize("other_fails", [False, True], ids=["another suffices", "nothing else helps"])
def test_a_job_that_would_fail_for_it_is_evicted_only_where_nothing_else_helps(
    two_nodes: Cluster, namespace: str, other_fails: bool
) -> None:
    api = two_nodes.api()
    for name, fails in (("a-fails", True), ("b-other", other_fails)):
        pod = template(8, priorityClassName="low", restartPolicy="Never")
        spec = {"completionMode": "Indexed", "parallelism": 1, "completions": 1, "template": pod}
        body = {"metadata": {"name": name}, "spec": {**spec, **({"backoffLimit": 0} if fails else {})}}
        api.request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=body)
    sweep(
        two_nodes,
        namespace,
        SETTINGS,
        lambda pods: run_all(pods, "a-fails", 1) and run_all(pods, "b-other", 1),
        "both to run",
    )
    create_job(api, namespace, "high", 1, template(8, priorityClassName="high"))
    pods = sweep(
        two_nodes, namespace, SETTINGS, lambda pods: run_all(pods, "high", 1), "the high gang to run"
    )
    assert other_fails or run_all(pods, "a-fails", 1)


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


@pytest.mark.promise("O194")
def test_what_is_left_of_a_gang_stays_where_that_is_switched_off(two_nodes: Cluster, namespace: str) -> None:
    fill(two_nodes, namespace)
    create_pod(two_nodes.api(), namespace, "other", template(8, gated=False, priorityClassName="high"))
    given = Settings(evict_broken=False, broken_seconds=0)
    sweep(
        two_nodes,
        namespace,
        given,
        lambda pods: run_all(pods, "other", 1) and any(map(is_gated, named(pods, "low"))),
        "the other pod to run",
    )
    seen = 0

    def looked_again(pods: Pods) -> bool:
        nonlocal seen
        seen += 1
        return seen > 5

    pods = sweep(two_nodes, namespace, given, looked_again, "some more passes")
    assert len(bound(pods, "low")) == 1


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
