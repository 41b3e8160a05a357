"""Owners that make sets of pods by other controllers: JobSet, LeaderWorkerSet, and PodGroups. Pure."""

import msgspec

from webhook.kube.struct import Struct
from webhook.workloads import marks
from webhook.workloads.builtin import JobSpec, Owner, at_once


class _Annotated(Struct, frozen=True):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _JobTemplate(Struct, frozen=True):
    metadata: _Annotated = _Annotated()
    spec: JobSpec = JobSpec()


class _Dependency(Struct, frozen=True):
    name: str = ""


class ReplicatedJob(Struct, frozen=True):
    """So many Jobs of one template."""

    name: str = ""
    replicas: int | None = None
    template: _JobTemplate = _JobTemplate()
    depends_on: list[_Dependency] | None = None


class _StartupPolicy(Struct, frozen=True):
    startup_policy_order: str = "AnyOrder"


class JobSetSpec(Struct, frozen=True):
    """Its Jobs, and in which order they are made."""

    replicated_jobs: list[ReplicatedJob] = msgspec.field(default_factory=list)
    startup_policy: _StartupPolicy | None = None


class _ReplicatedJobStatus(Struct, frozen=True):
    name: str = ""
    succeeded: int = 0


class JobSetStatus(Struct, frozen=True):
    """How many Jobs of each template are done."""

    replicated_jobs_status: list[_ReplicatedJobStatus] = msgspec.field(default_factory=list)


class JobSet(Owner, frozen=True):
    """jobset.x-k8s.io/v1alpha2."""

    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


def job_set_size(owner: JobSet) -> int | None:
    """The pods of all its Jobs that are not done."""
    done = {status.name: status.succeeded for status in owner.status.replicated_jobs_status}
    return sum(
        max(0, (1 if each.replicas is None else each.replicas) - done.get(each.name, 0))
        * at_once(each.template.spec)
        for each in owner.spec.replicated_jobs
    )


def job_set_is_staged(owner: JobSet) -> bool:
    """Jobs in order, Jobs that depend on others, or followers that wait until their leader is bound.

    The last is exclusive topology, unless its nodes are labelled beforehand (the node-selector strategy).
    """
    policy = owner.spec.startup_policy
    if policy is not None and policy.startup_policy_order == "InOrder":
        return True
    jobs = owner.spec.replicated_jobs
    written = [owner.metadata.annotations, *(each.template.metadata.annotations for each in jobs)]
    if any(marks.JOBSET_EXCLUSIVE in each and marks.JOBSET_NODE_SELECTOR not in each for each in written):
        return True
    return any(each.depends_on for each in jobs)


class _LeaderWorkerTemplate(Struct, frozen=True):
    size: int | None = None


class LeaderWorkerSetSpec(Struct, frozen=True):
    """The size of each of its groups, and when the workers of a group are made."""

    leader_worker_template: _LeaderWorkerTemplate = _LeaderWorkerTemplate()
    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(Owner, frozen=True):
    """leaderworkerset.x-k8s.io/v1."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


def leader_worker_set_size(owner: LeaderWorkerSet) -> int | None:
    """Pods of one group, its leader included: a group is a gang."""
    size = owner.spec.leader_worker_template.size
    return 1 if size is None else size


def leader_worker_set_is_staged(owner: LeaderWorkerSet) -> bool:
    """The workers are made when the leader is Ready, or (exclusive topology) when it has a node."""
    written = owner.metadata.annotations
    return (
        owner.spec.startup_policy == "LeaderReady"
        or marks.LWS_EXCLUSIVE in written
        or marks.LWS_SUBGROUP_EXCLUSIVE in written
    )


class PodGroupSpec(Struct, frozen=True):
    """How many pods are the least to run."""

    min_member: int | None = None


class PodGroup(Owner, frozen=True):
    """scheduling.x-k8s.io/v1alpha1 (coscheduling) and scheduling.volcano.sh/v1beta1."""

    spec: PodGroupSpec = PodGroupSpec()


def pod_group_size(owner: PodGroup) -> int | None:
    """spec.minMember; pods beyond it join the gang when they come."""
    return owner.spec.min_member or None
