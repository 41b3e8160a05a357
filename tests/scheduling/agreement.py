"""What kube-scheduler says of pods and nodes that were drawn, to compare our verdict with."""

from typing import Any

import msgspec

from hack.local.cluster import Cluster
from webhook.kube import objects


def verdict(pod: dict[str, Any]) -> bool | None:
    """Whether kube-scheduler bound it; None while it has not said."""
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
    cluster.wait_for("taints that follow from the nodes' state", settled, 60)
    return found


def decoded(pod: dict[str, Any]) -> objects.Pod:
    return msgspec.convert(pod, objects.Pod)
