"""Pods that may not share a node run where the sweeper puts them: against the real kube-scheduler."""

from typing import Any

import pytest

from hack.local.cluster import Cluster
from tests.support import wait_for_pods
from tests.sweeper.at_work import Pods, create_job, create_pod, named, run_all, sweep, template
from webhook.configuration.settings import Settings

SETTINGS = Settings(bind_seconds=3)  # one that is not bound at once would be deleted and come again


def labelled(app: str, body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "labels": {"app": app}}}


def away_from(app: str) -> dict[str, Any]:
    selector = {"matchLabels": {"app": app}}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def on_host_port(port: int, body: dict[str, Any]) -> dict[str, Any]:
    """With host networking every port of a container is one of the node's."""
    container = {**body["spec"]["containers"][0], "ports": [{"containerPort": port}]}
    return {**body, "spec": {**body["spec"], "containers": [container], "hostNetwork": True}}


def nodes_of(pods: Pods, prefix: str) -> list[str]:
    return sorted(pod["spec"].get("nodeName", "") for pod in named(pods, prefix))


def uids(pods: Pods) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


@pytest.mark.parametrize("rule", ["anti-affinity", "host port"])
def test_a_gang_whose_pods_may_not_meet_has_a_node_each_beside_one_that_it_may_not_meet_either(
    three_nodes: Cluster, namespace: str, rule: str
) -> None:
    api = three_nodes.api()
    body = labelled("x", template(1))
    if rule == "host port":
        body = on_host_port(8080, body)
    else:
        body["spec"]["affinity"] = away_from("x")
    there = {**body, "spec": {**body["spec"], "nodeName": "node-b0-s0-h01", "schedulingGates": []}}
    create_pod(api, namespace, "there", there)
    create_job(api, namespace, "train", 2, body)
    before = wait_for_pods(three_nodes, namespace, lambda pods: len(pods) == 3, "three pods")
    pods = sweep(three_nodes, namespace, SETTINGS, lambda pods: run_all(pods, "train", 2), "the gang to run")
    assert nodes_of(pods, "train") == ["node-b0-s0-h00", "node-b0-s0-h02"]
    assert uids(pods) == uids(before)


def test_a_gang_that_a_pod_there_repels_keeps_off_its_node(three_nodes: Cluster, namespace: str) -> None:
    api = three_nodes.api()
    keeper = labelled("y", template(0, gated=False, affinity=away_from("x"), nodeName="node-b0-s0-h00"))
    create_pod(api, namespace, "there", keeper)
    create_job(api, namespace, "train", 4, labelled("x", template(4)))
    before = wait_for_pods(three_nodes, namespace, lambda pods: len(pods) == 5, "five pods")
    pods = sweep(three_nodes, namespace, SETTINGS, lambda pods: run_all(pods, "train", 4), "the gang to run")
    assert nodes_of(pods, "train") == ["node-b0-s0-h01"] * 2 + ["node-b0-s0-h02"] * 2
    assert uids(pods) == uids(before)
