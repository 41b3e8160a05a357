"""What kube-scheduler says of pods and nodes that were drawn, to compare our verdict with."""

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from hack.local.cluster import Cluster
from tests.support import wait_for_pods
from webhook.kube import objects

CLIENTS = 8


def create(cluster: Cluster, made: Iterable[tuple[str, dict[str, Any]]]) -> None:
    """Create objects, each given with the path of its collection, a few at a time."""
    api = cluster.api()
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda each: api.request("POST", each[0], body=each[1]), made))


def items(cluster: Cluster, path: str) -> list[dict[str, Any]]:
    """The objects of a collection."""
    found: list[dict[str, Any]] = cluster.api().json("GET", path)["items"]
    return found


def register(cluster: Cluster, nodes: Sequence[dict[str, Any]]) -> None:
    """Create nodes and wait until the node controller is done with them."""
    create(cluster, (("/api/v1/nodes", body) for body in nodes))
    steady(cluster, {node["metadata"]["name"] for node in nodes})


def judged(cluster: Cluster, namespaces: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The pods of these namespaces by name, once kube-scheduler has decided on each."""
    found: dict[str, dict[str, Any]] = {}
    for namespace in namespaces:
        pods = wait_for_pods(
            cluster,
            namespace,
            lambda pods: all(is_scheduled(pod) is not None for pod in pods),
            "a verdict on each pod",
            120,
        )
        found |= {pod["metadata"]["name"]: pod for pod in pods}
    return found


def is_scheduled(pod: dict[str, Any]) -> bool | None:
    """Whether kube-scheduler bound it; None while it has not decided."""
    if pod["spec"].get("nodeName"):
        return True
    conditions = {c["type"]: c for c in pod.get("status", {}).get("conditions", [])}
    return False if conditions.get("PodScheduled", {}).get("reason") == "Unschedulable" else None


def steady(cluster: Cluster, names: set[str]) -> dict[str, dict[str, Any]]:
    """The nodes once the node controller has set the taints that follow from their state."""

    def settled() -> bool:
        found.clear()
        found.update({n["metadata"]["name"]: n for n in cluster.api().json("GET", "/api/v1/nodes")["items"]})
        for name in names:
            spec = found[name].get("spec", {})
            keys = {taint["key"] for taint in spec.get("taints", [])}
            cordoned = "node.kubernetes.io/unschedulable" in keys
            if "node.kubernetes.io/not-ready" in keys or cordoned != bool(spec.get("unschedulable")):
                return False
        return True

    found: dict[str, dict[str, Any]] = {}
    cluster.wait_for("taints that follow from the nodes' state", settled, 60 + len(names))
    return found


def decoded(pod: dict[str, Any]) -> objects.Pod:
    return msgspec.convert(pod, objects.Pod)


def create_pods(cluster: Cluster, pods: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Create pods; returns them, by name, as the API server has them."""
    api = cluster.api()

    def post(pod: dict[str, Any]) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        return msgspec.json.decode(api.request("POST", path, body=pod), type=dict[str, Any])

    with ThreadPoolExecutor(CLIENTS) as pool:
        return {made["metadata"]["name"]: made for made in pool.map(post, pods)}


def as_created(cluster: Cluster, pods: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pods as the API server would have them."""
    api = cluster.api()
    found = []
    for pod in pods:
        path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        answer = api.request("POST", path, query={"dryRun": "All"}, body=pod)
        found.append(msgspec.json.decode(answer, type=dict[str, Any]))
    return found
