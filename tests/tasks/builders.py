"""Tasks, Jobs, pods and rules for the tests of the pure core."""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from hack.local.build import ROOT
from labeler.contract import keys
from webhook.configuration.file import parse
from webhook.kube.objects import Metadata, PriorityClass
from webhook.kube.placements import Placement
from webhook.policy.values import Policy
from webhook.tasks.desired_job import TaskRules
from webhook.tasks.task_objects import Task, TaskJob, TaskPod

NOW: Final = datetime(2026, 11, 21, 12, tzinfo=UTC)
CLASSES: Final = {
    name: PriorityClass(metadata=Metadata(name=name), value=value)
    for name, value in (("gpu-low-priority", 1), ("gpu-medium-priority", 10), ("gpu-high-priority", 100))
}
POLICY_TEXT: Final = """
apiVersion: topogate.io/v1beta1
kind: Configuration
gpus: {resources: [nvidia.com/gpu, nvidia.com/mig-*, amd.com/gpu]}
tiers:
  - {name: low, priorityClassName: gpu-low-priority}
  - {name: medium, priorityClassName: gpu-medium-priority}
  - {name: high, priorityClassName: gpu-high-priority}
models:
  - {name: RTX 4090, labels: {nvidia.com/gpu.product: NVIDIA-GeForce-RTX-4090}, resources: [nvidia.com/gpu]}
  - name: H100
    labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    resources: [nvidia.com/mig-*, nvidia.com/gpu]
  - {name: MI300X, labels: {amd.com/gpu.product-name: MI300X}, resources: [amd.com/gpu]}
namespaces:
  rules:
    capped: {maximumTier: medium, defaultTier: low}
    steered: {defaultModel: MI300X}
"""


def policy(*excluded: str) -> Policy:
    """The policy of these tests; pods of excluded namespaces get no gate."""
    return parse(f"{POLICY_TEXT}  excluded: [{', '.join(excluded)}]\n").policy


def rules(**more: Any) -> TaskRules:
    return TaskRules(**{"policy": policy(), "classes": CLASSES, **more})


def task(
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    *,
    namespace: str = "team",
    **meta: Any,
) -> Task:
    metadata = {"name": "train", "namespace": namespace, "uid": "uid-1", "generation": 1, **meta}
    return msgspec.convert({"metadata": metadata, "spec": spec or {}, "status": status or {}}, Task)


def job(
    spec: dict[str, Any] | None = None,
    status: dict[str, Any] | None = None,
    *,
    attempt: int = 0,
    class_name: str = "",
    owner: str = "uid-1",
    **meta: Any,
) -> TaskJob:
    labels = {keys.TASK_ATTEMPT_LABEL: str(attempt), keys.TASK_CLASS_LABEL: class_name}
    owners = [{"kind": "GPUTask", "name": "train", "uid": owner, "controller": True}] if owner else []
    metadata = {
        "name": "train", "namespace": "team", "uid": "job-1", "labels": labels, "ownerReferences": owners,
        **meta,
    }  # fmt: skip
    return msgspec.convert({"metadata": metadata, "spec": spec or {}, "status": status or {}}, TaskJob)


def pod(
    rank: int = 0,
    phase: str = "Pending",
    node: str = "",
    *,
    gated: bool = False,
    of: str = "job-1",
    **status: Any,
) -> TaskPod:
    body = {
        "metadata": {
            "name": f"train-{rank}-x",
            "namespace": "team",
            "uid": f"pod-{rank}",
            "labels": {keys.TASK_UID_LABEL: "uid-1", "batch.kubernetes.io/job-completion-index": str(rank)},
            "ownerReferences": [{"kind": "Job", "name": "train", "uid": of, "controller": True}],
            **({"annotations": status.pop("annotations")} if "annotations" in status else {}),
        },
        "spec": {"nodeName": node, "schedulingGates": [{"name": keys.GATE}] if gated else []},
        "status": {"phase": phase, **status},
    }
    return msgspec.convert(body, TaskPod)


def placement(state: str, reason: str) -> Placement:
    body = {
        "metadata": {"name": "p"},
        "spec": {"gang": "Job/train"},
        "status": {"state": state, "reason": reason},
    }
    return msgspec.convert(body, Placement)


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class Clock:
    """Time that passes when it is asked to, for the controller and for its queue."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


def documents(path: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / path).read_text()
