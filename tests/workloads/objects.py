"""Workloads of every kind, as their controllers write them."""

from typing import Any

import msgspec

from webhook.workloads.kinds import WORKLOADS, Workload

BY_NAME: dict[str, Workload[Any]] = {workload.name: workload for workload in WORKLOADS}


GPU = "nvidia.com/gpu"
SET = "statefulsets.apps"
JOBSET = "jobsets.jobset.x-k8s.io"
LWS = "leaderworkersets.leaderworkerset.x-k8s.io"
MPI = "mpijobs.kubeflow.org"
IN_ORDER = {"startupPolicyOrder": "InOrder"}


def read(name: str, spec: dict[str, Any], status: dict[str, Any], annotations: dict[str, str]) -> Any:
    body = {
        "metadata": {"name": "x", "namespace": "here", "uid": "u", "annotations": annotations},
        "spec": spec,
        "status": status,
    }
    return msgspec.json.decode(msgspec.json.encode(body), type=BY_NAME[name].struct)


def replicated(name: str, replicas: int, parallelism: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {"parallelism": parallelism, "completions": parallelism}},
        **more,
    }
