"""Pods with volumes go where those can be used, on the real API server with its real volume controllers."""

from collections.abc import Iterator
from typing import Any

import pytest

from hack.local import nodes
from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import register_nodes
from tests.sweeper.at_work import Pods, create_pod, named, run_all, sweep, template
from webhook.configuration.settings import Settings
from webhook.kube.drivers import NODES
from webhook.kube.volume_objects import CLASSES, VOLUMES

SETTINGS = Settings(settle_seconds=0.5, patience_seconds=1, reserve_seconds=0)
LAST = ("node-b1-s0-h00", "node-b1-s0-h01")
"""Nodes that nobody would choose: others come first by name, and either block has capacity."""


@pytest.fixture
def local_volumes(definitions: Cluster, namespace: str) -> Iterator[Cluster]:
    """Four nodes in two blocks, a volume on each of the last two, and a class with the namespace's name."""
    api = definitions.api()
    register_nodes(definitions, nodes.grid(nodes.Shape(nodes=4, blocks=2, subblocks=1)))
    later = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    api.request("POST", CLASSES, body={"metadata": {"name": namespace}, **later})
    for node in LAST:
        api.request("POST", VOLUMES, body=volume(node, namespace))
    yield definitions
    for path in (VOLUMES, CLASSES, NODES):
        api.request("DELETE", path)


def volume(node: str, class_name: str) -> dict[str, Any]:
    there = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "metadata": {"name": f"{class_name}-on-{node}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [there]}]}},
        },
    }


def claim(class_name: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": class_name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {"metadata": {"name": "data"}, "spec": spec}


def places(pods: Pods) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods}


def with_volume(name: str, **volume: Any) -> dict[str, Any]:
    body = template(8, volumes=[{"name": name, **volume}])
    body["metadata"]["labels"] = {"app": "x"}
    return body


@pytest.mark.promise("R106")
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_every_pod_gets_to_a_node_where_its_volume_is(
    local_volumes: Cluster, namespace: str, kind: str
) -> None:
    api = local_volumes.api()
    spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "x"}}, "replicas": 2}
    if kind == "StatefulSet":
        spec |= {"serviceName": "x", "podManagementPolicy": "Parallel"}
        spec |= {"volumeClaimTemplates": [claim(namespace)], "template": with_volume("scratch", emptyDir={})}
    else:
        ephemeral = {"volumeClaimTemplate": {"spec": claim(namespace)["spec"]}}
        spec["template"] = with_volume("data", ephemeral=ephemeral)
    path = f"/apis/apps/v1/namespaces/{namespace}/{kind.lower()}s"
    api.request("POST", path, body={"metadata": {"name": "x"}, "spec": spec})
    pods = sweep(local_volumes, namespace, SETTINGS, lambda pods: run_all(pods, "x", 2), "two pods to run")
    assert places(pods) == set(LAST)


def test_a_pod_whose_claim_is_missing_waits_with_the_reason_and_runs_when_it_comes(
    local_volumes: Cluster, namespace: str
) -> None:
    api = local_volumes.api()
    create_pod(api, namespace, "lone", with_volume("v", persistentVolumeClaim={"claimName": "data"}))

    def is_reported(pods: Pods) -> bool:
        path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
        reasons = [each.get("status", {}).get("reason", "") for each in api.json("GET", path)["items"]]
        return any('there is no PersistentVolumeClaim "data"' in reason for reason in reasons)

    pods = sweep(local_volumes, namespace, SETTINGS, is_reported, "the reason to be told")
    assert [gate["name"] for gate in pods[0]["spec"]["schedulingGates"]] == [keys.GATE]
    api.request("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", body=claim(namespace))
    pods = sweep(local_volumes, namespace, SETTINGS, lambda pods: run_all(pods, "lone", 1), "it to run")
    assert places(named(pods, "lone")) < set(LAST)
