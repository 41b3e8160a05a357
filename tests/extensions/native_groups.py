"""PodGroups, and pods that name them."""

from typing import Any

import msgspec

from labeler.contract import keys
from tests.sweeper.cluster import gpu_pod
from webhook.kube.objects import Pod
from webhook.workloads.native_gangs import NativePodGroup

BLOCK, RACK, HOST = keys.TOPOLOGY_FAMILIES[0]


def group(minimum: int | None = 2, key: str = "", **spec: Any) -> NativePodGroup:
    constraints = {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}
    policy = {"basic": {}} if minimum is None else {"gang": {"minCount": minimum}}
    body = {"metadata": {"name": "g"}, "spec": {"schedulingPolicy": policy, **constraints, **spec}}
    return msgspec.convert(body, NativePodGroup)


def pods(count: int, name: str = "g", job: str = "", node: str = "", **annotations: str) -> list[Pod]:
    found = []
    for number in range(count):
        called = f"{job or name}-{number}"
        labels = {"batch.kubernetes.io/job-name": job} if job else {}
        metadata = {"uid": called, "labels": labels, "annotations": annotations, "namespace": "in"}
        spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": name}}
        found.append(gpu_pod(called, node=node, metadata=metadata, **spec))
    return found
