"""The pods that a manifest's workloads create at once, each named and labelled as its controller would."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from webhook.inquiry import custom_kinds, defaults, members
from webhook.inquiry.admitted import AdmissionRules
from webhook.inquiry.members import Described, InputError, name_of
from webhook.kube.objects import OwnerReference
from webhook.tasks.task_objects import Task
from webhook.tasks.wanted import RefusedError, TaskRules, job_wanted
from webhook.workloads.kinds import WORKLOADS, Workload
from webhook.workloads.owners import KNOWN_RULES, Makes

__all__ = ["Described", "InputError", "is_loose", "minimum_of", "name_of", "owner_of", "pods_of", "size_of"]

Spec = Mapping[str, Any]
_Of = Callable[[Spec, Spec, str, str], Iterator[Described]]
"""The pods of an object: of its spec, the object, its name and "source: name"."""


def pods_of(document: Spec, source: str, rules: AdmissionRules) -> Iterator[Described]:
    """The pods that a workload creates at once: itself, or its template times its parallelism or replicas.

    rules: turn a GPUTask into a Job. Raises InputError.
    """
    kind, name = str(document.get("kind")), name_of(document)
    where = f"{source}: {name}"
    if kind == "Pod":
        yield name, None, document
        return
    if kind == "GPUTask":
        document, kind = _job_of(document, where, rules), "Job"
    if kind not in _KINDS and not isinstance(document.get("spec"), dict):
        return
    spec = members.part(document, "spec", where)
    of_kind = _KINDS.get(kind)
    if of_kind is None and any(key.endswith("ReplicaSpecs") for key in spec):
        of_kind = _of_roles
    if of_kind is not None:
        yield from of_kind(spec, document, name, where)
    elif "template" in spec or "jobTemplate" in spec:
        raise InputError(f"{where}: cannot count the pods of {kind} {name}; pass its pods instead")


def is_loose(document: Spec) -> bool:
    """Whether the pods of an object do not wait for one another."""
    owner = owner_of(document)
    return owner is not None and KNOWN_RULES.makes(owner) is Makes.LOOSE


def size_of(document: Spec) -> int | None:
    """How many pods its controller creates, None if that is not known."""
    found = _workload_of(document)
    return found[0].pods(found[1]).size if found else None


def minimum_of(document: Spec) -> tuple[str, int] | None:
    """The kind of the gang that an object creates, and how many pods are enough; None if all are needed."""
    if document.get("kind") == "RayJob":
        spec = document.get("spec")
        cluster = spec.get("rayClusterSpec") if isinstance(spec, dict) else None
        document = {**document, "kind": "RayCluster", "spec": cluster}
    found = _workload_of(document)
    enough = found[0].pods(found[1]).minimum if found else None
    return None if found is None or enough is None else (found[0].kind, enough)


def owner_of(document: Spec) -> OwnerReference | None:
    """The owner of the pods of an object, None for a pod."""
    kind, version = str(document.get("kind")), str(document.get("apiVersion") or "")
    if kind == "Pod":
        return None
    if kind == "Deployment":
        kind = "ReplicaSet"
    elif kind in ("CronJob", "GPUTask"):
        kind, version = "Job", "batch/v1"
    name = name_of(document)
    return OwnerReference(api_version=version, kind=kind, name=name, uid=f"{kind}/{name}", controller=True)


def _workload_of(document: Spec) -> tuple[Workload[Any], Any] | None:
    """What the sweeper knows of the kind, and the object as the sweeper reads it."""
    kind = document.get("kind")
    group = str(document.get("apiVersion") or "").rpartition("/")[0]
    for each in WORKLOADS:
        if (each.owner or each.kind) == kind and each.group == group:
            try:
                return each, msgspec.convert({"metadata": {}, **document}, each.struct)
            except msgspec.ValidationError:
                return None
    return None


def _job_of(document: Spec, where: str, rules: AdmissionRules) -> Mapping[str, Any]:
    """The Job for a GPUTask."""
    try:
        task = msgspec.convert(
            {**document, "metadata": {"namespace": "default", **document["metadata"]}}, Task
        )
        return job_wanted(task, TaskRules(rules.policy, rules.classes))
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise InputError(f"{where}: is not a valid GPUTask: {error}") from None
    except RefusedError as error:
        raise InputError(f"{where}: {error}") from None


def _of_job(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    body = members.template(spec, where)
    yield from members.copies(
        name, members.job_size(spec), defaults.labelled(body, defaults.job_labels(name))
    )


def _of_cron_job(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    job = members.part(members.part(spec, "jobTemplate", where), "spec", where)
    yield from _of_job(job, document, name, where)


def _of_replicas(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    yield from members.copies(name, members.number(spec.get("replicas"), 1), members.template(spec, where))


def _of_roles(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    """The pods of a job of Kubeflow's training operator."""
    roles = next(key for key in spec if key.endswith("ReplicaSpecs"))
    for role in members.part(spec, roles, where):
        of_role = members.part(members.part(spec, roles, where), role, where)
        body = defaults.labelled(
            members.template(of_role, where), defaults.training_labels(name, role.lower())
        )
        for pod, _, each in members.copies(
            f"{name}-{role.lower()}", members.number(of_role.get("replicas"), 1), body
        ):
            yield pod, None, each


def _of_jobset(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    parts = members.parts(spec, "replicatedJobs", where)
    jobs = sum(members.number(part.get("replicas"), 1) for part in parts)
    rank = number = 0
    for part in parts:
        job_template = members.part(part, "template", where)
        job = members.part(job_template, "spec", where)
        written = defaults.exclusive_annotations(document) | defaults.exclusive_annotations(job_template)
        size = members.job_size(job)
        # Any number of replicas without pods has no pods.
        for replica in range(members.number(part.get("replicas"), 1) if size else 0):
            prefix = f"{name}-{part.get('name', '')}-{replica}"
            labels = defaults.jobset_labels(name, str(part.get("name", "")), number + replica, jobs)
            body = defaults.labelled(
                members.template(job, where), labels | defaults.job_labels(prefix), written
            )
            for pod, _, each in members.copies(prefix, size, body):
                yield pod, rank, each
                rank += 1
        number += members.number(part.get("replicas"), 1)


def _of_group(spec: Spec, document: Spec, name: str, where: str) -> Iterator[Described]:
    both = members.part(spec, "leaderWorkerTemplate", where)
    size = members.number(both.get("size"), 1)
    policy = members.part(both, "subGroupPolicy", where)
    written = defaults.exclusive_annotations(document)
    for group in range(members.number(spec.get("replicas"), 1) if size else 0):
        for index in range(size):
            leads = index == 0 and both.get("leaderTemplate") is not None
            body = members.part(both, "leaderTemplate" if leads else "workerTemplate", where)
            labels = defaults.group_labels(name, policy, size, index, group)
            suffix = f"-{index}" if index else ""
            yield f"{name}-{group}{suffix}", index, defaults.labelled(body, labels, written)


_KINDS: Final[dict[str, _Of]] = {
    "Job": _of_job,
    "CronJob": _of_cron_job,
    "JobSet": _of_jobset,
    "LeaderWorkerSet": _of_group,
    "StatefulSet": _of_replicas,
    "Deployment": _of_replicas,
    "ReplicaSet": _of_replicas,
    "ReplicationController": _of_replicas,
    "RayCluster": custom_kinds.of_ray_cluster,
    "RayJob": custom_kinds.of_ray_job,
    "TrainJob": custom_kinds.of_train_job,
    "Workflow": custom_kinds.of_workflow,
    "PodClique": custom_kinds.of_pod_clique,
}
