"""Makes the pods of JobSets, LeaderWorkerSets and PyTorchJobs as their controllers do, which are not here.

Only what topogate reads is made: names, numbers and marks of pods, and who owns them. A JobSet's child Jobs
are real ones, whose pods the real Job controller makes. Sources: jobset.sigs.k8s.io, lws.sigs.k8s.io and
the training operator of Kubeflow, each in the version that the example names.
"""

import copy
from typing import Any

from webhook.kube.client import Api

Object = dict[str, Any]
JOBSET = "jobset.sigs.k8s.io"
LWS = "leaderworkerset.sigs.k8s.io"
TRAINING = "training.kubeflow.org"


def make_pods(api: Api, namespace: str, owner: Object) -> None:
    """What the controller of this kind does at once when an object of it is made."""
    for made in _MAKERS[owner["kind"]](owner):
        made["metadata"]["ownerReferences"] = [_reference(owner)]
        path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        if made["kind"] == "Pod":
            path = f"/api/v1/namespaces/{namespace}/pods"
        api.request("POST", path, body=made)


def _reference(owner: Object) -> Object:
    metadata = owner["metadata"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"]}
    return named | {"uid": metadata["uid"], "controller": True, "blockOwnerDeletion": True}


def _marked(template: Object, labels: dict[str, str], annotations: dict[str, str]) -> Object:
    made: Object = copy.deepcopy(template)
    metadata = made.setdefault("metadata", {})
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    metadata["annotations"] = {**metadata.get("annotations", {}), **annotations}
    return made


def _pod(name: str, template: Object, labels: dict[str, str], annotations: dict[str, str]) -> Object:
    made = _marked(template, labels, annotations)
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {**made["metadata"], "name": name}}


def _jobs_of_a_jobset(owner: Object) -> list[Object]:
    jobs: list[Object] = []
    for replicated in owner["spec"]["replicatedJobs"]:
        for index in range(replicated["replicas"]):
            marks = {
                f"{JOBSET}/jobset-name": owner["metadata"]["name"],
                f"{JOBSET}/jobset-uid": owner["metadata"]["uid"],
                f"{JOBSET}/replicatedjob-name": replicated["name"],
                f"{JOBSET}/job-index": str(index),
                f"{JOBSET}/job-global-index": str(len(jobs)),
                f"{JOBSET}/restart-attempt": "0",
            }
            spec = copy.deepcopy(replicated["template"]["spec"])
            spec["template"] = _marked(spec["template"], marks, marks)
            name = f"{owner['metadata']['name']}-{replicated['name']}-{index}"
            metadata = {"name": name, "labels": marks, "annotations": marks}
            jobs.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    return jobs


def _pods_of_a_leaderworkerset(owner: Object) -> list[Object]:
    spec, name = owner["spec"], owner["metadata"]["name"]
    size = spec["leaderWorkerTemplate"]["size"]
    pods = []
    for group in range(spec["replicas"]):
        for index in range(size):
            role = "workerTemplate" if index else "leaderTemplate"
            labels = {
                f"{LWS}/name": name,
                f"{LWS}/group-index": str(group),
                f"{LWS}/group-key": f"{group:040x}",
                f"{LWS}/worker-index": str(index),
            }
            annotations = {f"{LWS}/size": str(size)}
            pod_name = f"{name}-{group}-{index}" if index else f"{name}-{group}"
            pods.append(_pod(pod_name, spec["leaderWorkerTemplate"][role], labels, annotations))
    return pods


def _pods_of_a_pytorchjob(owner: Object) -> list[Object]:
    name = owner["metadata"]["name"]
    pods = []
    for role, replicas in owner["spec"]["pytorchReplicaSpecs"].items():
        for index in range(replicas["replicas"]):
            labels = {
                f"{TRAINING}/job-name": name,
                f"{TRAINING}/operator-name": "pytorchjob-controller",
                f"{TRAINING}/replica-type": role.lower(),
                f"{TRAINING}/replica-index": str(index),
            }
            labels |= {f"{TRAINING}/job-role": "master"} if role == "Master" else {}
            pods.append(_pod(f"{name}-{role.lower()}-{index}", replicas["template"], labels, {}))
    return pods


_MAKERS = {
    "JobSet": _jobs_of_a_jobset,
    "LeaderWorkerSet": _pods_of_a_leaderworkerset,
    "PyTorchJob": _pods_of_a_pytorchjob,
}
