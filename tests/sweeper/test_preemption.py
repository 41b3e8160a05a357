"""What is never preempted: a gang that was placed in the same pass, the holder of a share of a card, a pod
that is not bound yet, a pod of a DaemonSet.
"""

from typing import Any

import pytest

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import wait_for_pods
from tests.sweeper.at_work import (
    GPU,
    Pods,
    create_job,
    is_gated,
    named,
    run_all,
    sweep,
    template,
)
from webhook.configuration.settings import Settings


def waits(cluster: Cluster, namespace: str, gang: str) -> bool:
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    return any(
        each["spec"]["gang"] == gang and each.get("status", {}).get("state") == "Waiting"
        for each in cluster.api().json("GET", path)["items"]
    )


def test_a_gang_does_not_preempt_a_more_important_one_that_was_placed_in_the_same_pass(
    heterogeneous_nodes: Cluster, namespace: str
) -> None:
    api = heterogeneous_nodes.api()
    create_job(api, namespace, "first", 2, template(8, priorityClassName="high"))
    create_job(api, namespace, "second", 2, template(8, priorityClassName="low"))
    wait_for_pods(heterogeneous_nodes, namespace, lambda pods: len(pods) == 4, "the pods of both gangs")

    def is_settled(pods: Pods) -> bool:
        return run_all(pods, "first", 2) and waits(heterogeneous_nodes, namespace, "Job/second")

    pods = sweep(
        heterogeneous_nodes, namespace, Settings(), is_settled, "the first to run and the second to wait"
    )
    assert all(is_gated(pod) for pod in named(pods, "second"))


def shares(millicores: int, **spec: Any) -> dict[str, Any]:
    body = template(0, **spec)
    limits = {keys.I915: "1", keys.MILLICORES: str(millicores)}
    body["spec"]["containers"][0]["resources"]["limits"] = limits
    return body


@pytest.mark.promise("O199")
def test_a_share_that_fits_no_card_waits_for_less_important_ones_instead_of_preempting_them(
    heterogeneous_nodes: Cluster, namespace: str
) -> None:
    # kube-scheduler knows no cards: it sees 800 of 2000 millicores free, and would evict nobody for 700.
    api = heterogeneous_nodes.api()
    create_job(api, namespace, "low", 2, shares(600, priorityClassName="low"))
    sweep(
        heterogeneous_nodes, namespace, Settings(), lambda pods: run_all(pods, "low", 2), "both shares to run"
    )
    create_job(api, namespace, "high", 1, shares(700, priorityClassName="high"))
    wait_for_pods(heterogeneous_nodes, namespace, lambda pods: len(pods) == 3, "the third pod")
    pods = sweep(
        heterogeneous_nodes,
        namespace,
        Settings(),
        lambda _: waits(heterogeneous_nodes, namespace, "Job/high"),
        "the third to wait",
    )
    assert run_all(pods, "low", 2)
    assert all(is_gated(pod) for pod in named(pods, "high"))


def test_pods_that_are_released_but_not_bound_yet_are_preempted_only_once_they_are_bound(
    heterogeneous_nodes: Cluster, namespace: str
) -> None:
    # kube-scheduler evicts bound pods alone: others would stay behind, pinned to a node that is full.
    api = heterogeneous_nodes.api()
    create_job(api, namespace, "low", 2, template(8, priorityClassName="low"))
    with heterogeneous_nodes.paused("kube-scheduler"):
        sweep(
            heterogeneous_nodes,
            namespace,
            Settings(),
            lambda pods: are_released(pods, "low", 2),
            "both to be released",
        )
        create_job(api, namespace, "high", 2, template(8, priorityClassName="high"))
        wait_for_pods(heterogeneous_nodes, namespace, lambda pods: len(pods) == 4, "the pods of both gangs")
        pods = sweep(
            heterogeneous_nodes,
            namespace,
            Settings(),
            lambda _: waits(heterogeneous_nodes, namespace, "Job/high"),
            "high to wait",
        )
        assert all(is_gated(pod) for pod in named(pods, "high"))
    sweep(
        heterogeneous_nodes,
        namespace,
        Settings(),
        lambda pods: run_all(pods, "high", 2),
        "high to run in their place",
    )


def are_released(pods: Pods, prefix: str, count: int) -> bool:
    return [is_gated(pod) for pod in named(pods, prefix)] == [False] * count


def test_pods_of_a_daemonset_are_not_preempted_since_they_come_again(
    heterogeneous_nodes: Cluster, namespace: str
) -> None:
    api = heterogeneous_nodes.api()
    container = {"name": "c", "image": "x", "resources": {"limits": {GPU: "1"}}}
    spec = {"containers": [container], "priorityClassName": "low"}
    daemons = {
        "metadata": {"name": "daemon"},
        "spec": {
            "selector": {"matchLabels": {"app": "daemon"}},
            "template": {"metadata": {"labels": {"app": "daemon"}}, "spec": spec},
        },
    }
    api.request("POST", f"/apis/apps/v1/namespaces/{namespace}/daemonsets", body=daemons)

    def run_where_gpus_are(pods: Pods) -> bool:  # the third one waits on the node without
        return [pod["status"]["phase"] for pod in named(pods, "daemon")].count("Running") == 2

    wait_for_pods(heterogeneous_nodes, namespace, run_where_gpus_are, "the DaemonSet's pods to run")
    create_job(api, namespace, "high", 2, template(8, priorityClassName="high"))
    pods = sweep(
        heterogeneous_nodes,
        namespace,
        Settings(),
        lambda _: waits(heterogeneous_nodes, namespace, "Job/high"),
        "high to wait",
    )
    assert run_where_gpus_are(pods)
    assert all(is_gated(pod) for pod in named(pods, "high"))
