"""A cluster with gangs that wait, and what topogate explain says of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from hack.local import nodes
from tests.broken_nodes import refused
from tests.sweeper.pods import decode, pod_json
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.explanation import explain
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.sweeper.observe.gangs import OwnerFacts, key_of
from webhook.workloads import marks

GRID = nodes.grid(nodes.Shape(nodes=4, blocks=2, subblocks=1))
BLOCK = "topology.gke.io/cluster"
GPU = {"resources": {"requests": {"nvidia.com/gpu": "8"}}}


def job_pods(count: int, **metadata: Any) -> list[Pod]:
    """Gated 8-GPU pods of an indexed Job."""
    made = []
    for index in range(count):
        own = {
            "uid": f"u{index}",
            "labels": {
                marks.JOB_NAME_LABEL: "train",
                "batch.kubernetes.io/controller-uid": "j",
                marks.JOB_INDEX_KEY: str(index),
            },
            "ownerReferences": [{"kind": "Job", "name": "train", "uid": "j", "controller": True}],
            **metadata,
        }
        made.append(decode(pod_json(f"train-{index}", containers=[{"name": "c", **GPU}], metadata=own)))
    return made


def busy_pod(node: str, priority: int = 0) -> Pod:
    """A foreign pod that takes all GPUs of a node."""
    pod = pod_json(
        f"busy-{node}",
        nodeName=node,
        schedulingGates=[],
        containers=[{"name": "c", **GPU}],
        priority=priority,
    )
    return decode({**pod, "status": {"phase": "Running"}})


def cluster(pods: list[Pod], parallelism: int = 0) -> ClusterReading:
    made = {node.name: msgspec.convert(node.manifest(node.topology_labels), Node) for node in GRID}
    return ClusterReading(tuple(pods), made, {}, lambda _: OwnerFacts(parallelism or None))


def with_placement(
    reading: ClusterReading, pod: Pod, *, status: Mapping[str, Any] | None = None, **spec: Any
) -> ClusterReading:
    """The reading with the Placement of the gang of a pod, and no other. spec: its further fields."""
    key = key_of(pod)
    body = {
        "metadata": {"namespace": key.namespace, "name": key.placement_name, "uid": "p"},
        "spec": {"gang": f"{key.kind}/{key.name}", **spec},
        "status": status or {},
    }
    return replace(reading, placements={key.placement_key: msgspec.convert(body, Placement)})


def explained(
    of: ClusterReading, name: str = "train-0", settings: Settings | None = None, namespace: str = "ns"
) -> str:
    return "\n".join(explain(of, namespace, name, settings or Settings()))


def planned(pods: list[Pod], *others: Pod, entries: Mapping[str, str] | None = None) -> ClusterReading:
    """The first pods are planned for a node each. entries: uid -> node instead."""
    entries = entries or {each.metadata.uid: GRID[number].name for number, each in enumerate(pods)}
    planned = [{"name": uid, "uid": uid, "node": node} for uid, node in entries.items()]
    return with_placement(cluster([*pods, *others], parallelism=len(pods)), pods[0], pods=planned)


def refused_by_kubelet(pod: Pod, at: str | None = None) -> Pod:
    """A pod of its Job that the kubelet of the first node refused. at: when it was created, and refused."""
    body: dict[str, Any] = msgspec.to_builtins(pod)
    body["metadata"] |= {"uid": "refused", "name": "refused", "creationTimestamp": at}
    body["spec"] |= {"nodeName": GRID[0].name, "schedulingGates": []}
    status: dict[str, Any] = {"containerStatuses": [], "startTime": at}
    return decode({**body, "status": refused("OutOfcpu", "OutOfcpu") | status})
