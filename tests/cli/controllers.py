"""What controllers make of the objects of a manifest, as plain objects: pods as the API server has them.

Written from the documentation and the code of each project, apart from webhook.inquiry, which is what the
tests compare it with. Names have no random parts.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from tests.manifests import controllers
from webhook.inquiry.admission_outcome import AdmissionRules, admit
from webhook.inquiry.defaults import defaulted
from webhook.kube.objects import Pod
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts
from webhook.sweeper.observe.owner_sizes import facts_of
from webhook.tasks.desired_job import TaskRules, job_wanted
from webhook.tasks.task_objects import Task
from webhook.workloads.kinds import WORKLOADS

Object = dict[str, Any]
TRAINING_KINDS: Final = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob")


class World:
    """The pods and the owners that there are once controllers have seen the objects of a manifest."""

    def __init__(self, documents: list[Object], rules: AdmissionRules) -> None:
        self.rules = rules
        self.owners: list[Object] = []
        self.pods: list[Pod] = []
        self.refusals: list[str] = []
        for document in documents:
            self._see(copy.deepcopy(document))

    def owner_facts(self, key: GangKey) -> OwnerFacts:
        """What the owner of a gang says, as the sweeper reads it from the API server."""
        for owner in self.owners:
            if owner["metadata"]["name"] != key.name:
                continue
            for workload in WORKLOADS:
                kind, group = workload.owner or workload.kind, owner["apiVersion"].rpartition("/")[0]
                if (workload.kind, kind, workload.group) == (key.kind, owner["kind"], group):
                    return facts_of([workload.pods(msgspec.convert(owner, workload.struct))])
        return OwnerFacts()

    def _see(self, document: Object) -> None:
        metadata = document["metadata"]
        metadata.update(namespace="default", uid=f"uid-{document['kind']}-{metadata['name']}")
        self.owners.append(document)
        for made in _MAKERS.get(document["kind"], _nothing)(document, self.rules):
            if made["kind"] == "Pod":
                self._create(made, document)
            else:
                self._see(made)

    def _create(self, pod: Object, owner: Object) -> None:
        """Admit a pod, and store it if it is not refused."""
        metadata = pod.setdefault("metadata", {})
        metadata["namespace"] = "default"
        if owner is not pod:
            reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
            named = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
            metadata["ownerReferences"] = [reference | named]
        found = admit(defaulted(pod), "default", self.rules)
        if found.is_denied:
            self.refusals.append(found.decision.denial or "")
            return
        created = {"uid": f"uid-{metadata['name']}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        body = {**found.pod, "metadata": {**found.pod["metadata"], **created}, "status": {"phase": "Pending"}}
        self.pods.append(msgspec.convert(body, Pod))


def _nothing(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    yield from ()


def _pod(name: str, template: Mapping[str, Any], **labels: str) -> Object:
    made: Object = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(dict(template))}
    metadata = made.setdefault("metadata", {})
    metadata["name"] = name
    metadata["labels"] = {**metadata.get("labels", {}), **labels}
    return made


def _itself(pod: Object, rules: AdmissionRules) -> Iterator[Object]:
    yield pod


def _of_job(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    spec, name = owner["spec"], owner["metadata"]["name"]
    labels = {
        "batch.kubernetes.io/job-name": name, "job-name": name,
        "batch.kubernetes.io/controller-uid": owner["metadata"]["uid"],
        "controller-uid": owner["metadata"]["uid"],
    }  # fmt: skip
    at_once = spec.get("parallelism", 1)
    for index in range(min(at_once, spec.get("completions", at_once))):
        ranked = {"batch.kubernetes.io/job-completion-index": str(index)}
        own = ranked if spec.get("completionMode") == "Indexed" else {}
        yield _pod(f"{name}-{index}", spec["template"], **labels, **own)


def _job(name: str, spec: Object) -> Object:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def _of_cron_job(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    yield _job(owner["metadata"]["name"], owner["spec"]["jobTemplate"]["spec"])


def _of_task(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    task = msgspec.convert(owner, Task)
    yield job_wanted(task, TaskRules(rules.policy, rules.classes)) | {"apiVersion": "batch/v1", "kind": "Job"}


def _of_replicas(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    for index in range(owner["spec"].get("replicas", 1)):
        own = {"apps.kubernetes.io/pod-index": str(index)} if owner["kind"] == "StatefulSet" else {}
        yield _pod(f"{owner['metadata']['name']}-{index}", owner["spec"]["template"], **own)


def _of_deployment(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    yield {**copy.deepcopy(owner), "kind": "ReplicaSet"}


def _of_job_set(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    written = owner["metadata"].get("annotations", {})
    for job in controllers._jobs_of_a_jobset(owner):
        metadata = job["spec"]["template"]["metadata"]
        metadata["annotations"] |= written
        yield job


def _of_group(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    yield from controllers._pods_of_a_leaderworkerset(owner)


def _of_training_job(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    (replicas,) = (value for key, value in owner["spec"].items() if key.endswith("ReplicaSpecs"))
    yield from controllers._pods_of_a_pytorchjob({**owner, "spec": {"pytorchReplicaSpecs": replicas}})


def _of_train_job(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    trainer = owner["spec"]["trainer"]
    container = {"name": "node", "image": "x", "resources": trainer["resourcesPerNode"]}
    count = trainer["numNodes"]
    job = {
        "completionMode": "Indexed", "parallelism": count, "completions": count,
        "template": {"spec": {"containers": [container], "restartPolicy": "Never"}},
    }  # fmt: skip
    parts = [{"name": "node", "replicas": 1, "template": {"spec": job}}]
    metadata = {"name": owner["metadata"]["name"]}
    yield {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata,
        "spec": {"replicatedJobs": parts},
    }  # fmt: skip


def _of_ray_cluster(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    name, spec = owner["metadata"]["name"], owner["spec"]
    own = {"ray.io/cluster": name}
    head = {"ray.io/node-type": "head", "ray.io/group": "headgroup"}
    yield _pod(f"{name}-head", spec["headGroupSpec"]["template"], **own, **head)
    for group in spec["workerGroupSpecs"]:
        labels = {**own, "ray.io/node-type": "worker", "ray.io/group": group["groupName"]}
        for index in range(group["replicas"] * group.get("numOfHosts", 1)):
            yield _pod(f"{name}-{group['groupName']}-{index}", group["template"], **labels)


def _of_ray_job(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    metadata = {"name": owner["metadata"]["name"]}
    spec = owner["spec"].get("rayClusterSpec") or owner["spec"]["rayClusterConfig"]
    yield {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


def _of_workflow(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    for each in owner["spec"]["templates"]:
        template = {"spec": {"containers": [{"name": "main", **each["container"]}]}}
        yield _pod(f"{owner['metadata']['name']}-{each['name']}", template)


def _of_pod_clique(owner: Object, rules: AdmissionRules) -> Iterator[Object]:
    for index in range(owner["spec"].get("replicas", 1)):
        labels = {"grove.io/podclique": owner["metadata"]["name"], "grove.io/podclique-pod-index": str(index)}
        yield _pod(f"{owner['metadata']['name']}-{index}", {"spec": owner["spec"]["podSpec"]}, **labels)


_MAKERS: Final[dict[str, Callable[[Object, AdmissionRules], Iterator[Object]]]] = {
    "Pod": _itself,
    "Job": _of_job,
    "CronJob": _of_cron_job,
    "GPUTask": _of_task,
    "StatefulSet": _of_replicas,
    "ReplicaSet": _of_replicas,
    "ReplicationController": _of_replicas,
    "Deployment": _of_deployment,
    "JobSet": _of_job_set,
    "LeaderWorkerSet": _of_group,
    "TrainJob": _of_train_job,
    "RayCluster": _of_ray_cluster,
    "RayJob": _of_ray_job,
    "RayService": _of_ray_job,
    "CloneSet": _of_replicas,
    "NodeSet": _of_replicas,
    "Workflow": _of_workflow,
    "PodClique": _of_pod_clique,
    **dict.fromkeys(TRAINING_KINDS, _of_training_job),
}
