"""Nodes in subblocks, on the first of which a pod of a gang runs while the other waits."""

import msgspec

from tests.sweeper.cluster import Nodes, gpu_pod
from webhook.kube.objects import Node, Pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def member(name: str, node: str = "") -> Pod:
    """A pod of a gang of two that wants one subblock, gated or running where it was pinned to."""
    annotations = {"topogate.io/gang": "g", "topogate.io/required-topology": "subblock"}
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}} if node else {}
    return gpu_pod(name, node=node, metadata={"annotations": annotations}, affinity=affinity)


def subblocks(*sizes: int) -> Nodes:
    """Nodes of one GPU in subblocks of these sizes, n0 in the first. a of the gang is on n0, and b waits."""
    cluster = Nodes(sum(sizes), member("a", "n0"), member("b"))
    numbers = [number for number, size in enumerate(sizes) for _ in range(size)]
    for name, number in zip(list(cluster.nodes), numbers, strict=True):
        body = msgspec.to_builtins(cluster.nodes[name])
        body["metadata"]["labels"] = {
            "topology.gke.io/cluster": "b",
            "topology.gke.io/rack": f"s{number}",
            "topology.gke.io/host": name,
        }
        cluster.nodes[name] = msgspec.convert(body, Node)
    return cluster
