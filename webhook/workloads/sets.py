"""Owners of sets of pods of other projects: JobSet, LeaderWorkerSet, PodGroups, Grove's PodClique. Pure."""

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from webhook.kube.struct import Struct
from webhook.workloads import marks
from webhook.workloads.additions import PodTemplate
from webhook.workloads.builtin import JobSpec, Owner, at_once
from webhook.workloads.ranks import Rank
from webhook.workloads.shape import MOST_PODS, Part, Shape, any_asks_for_devices


class _Annotated(Struct, frozen=True):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _JobTemplate(Struct, frozen=True):
    metadata: _Annotated = _Annotated()
    spec: JobSpec = JobSpec()


class _Dependency(Struct, frozen=True):
    name: str = ""
    status: str = "Ready"


class ReplicatedJob(Struct, frozen=True):
    """Jobs of one template."""

    name: str = ""
    replicas: int | None = None
    template: _JobTemplate = _JobTemplate()
    depends_on: list[_Dependency] | None = None


class _StartupPolicy(Struct, frozen=True):
    startup_policy_order: str = "AnyOrder"


class JobSetSpec(Struct, frozen=True):
    """The Jobs, and the order of their creation."""

    replicated_jobs: list[ReplicatedJob] = msgspec.field(default_factory=list)
    startup_policy: _StartupPolicy | None = None


class _ReplicatedJobStatus(Struct, frozen=True):
    name: str = ""
    succeeded: int = 0


class JobSetStatus(Struct, frozen=True):
    """How many Jobs of each template have succeeded."""

    replicated_jobs_status: list[_ReplicatedJobStatus] = msgspec.field(default_factory=list)


class JobSet(Owner, frozen=True):
    """jobset.x-k8s.io/v1alpha2."""

    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


def job_set_size(owner: JobSet) -> int | None:
    """The pods of all its Jobs that have not succeeded."""
    done = _ended(owner)
    return sum(
        max(0, (1 if each.replicas is None else each.replicas) - done.get(each.name, 0))
        * at_once(each.template.spec)
        for each in owner.spec.replicated_jobs
    )


def job_set_is_staged(owner: JobSet) -> bool:
    """Whether Jobs start in order, depend on others, or have followers that wait for their leader's node.

    Followers wait with exclusive topology, unless the nodes are labelled beforehand (node-selector strategy).
    """
    policy = owner.spec.startup_policy
    if policy is not None and policy.startup_policy_order == "InOrder":
        return True
    return _is_exclusive(owner) or any(each.depends_on for each in owner.spec.replicated_jobs)


def job_set_shape(owner: JobSet) -> Shape:
    """A part for each template, in the order of creation of its Jobs.

    Jobs that wait until others have completed never run beside them, so the plan does not include them. The
    first pod of an exclusive Job is created first, and the others once it has a node.
    """
    jobs = owner.spec.replicated_jobs
    if not job_set_is_staged(owner):
        return ()
    if sum(1 if each.replicas is None else max(0, each.replicas) for each in jobs) > MOST_PODS:
        return ()
    policy = owner.spec.startup_policy
    in_order = policy is not None and policy.startup_policy_order == "InOrder"
    stages = _stages(owner)
    parts = []
    begin = 0
    for number, each in enumerate(jobs):
        replicas = 1 if each.replicas is None else each.replicas
        groups = tuple((job,) for job in range(begin, begin + replicas))
        begin += replicas
        stage = number if in_order else stages.get(each.name)
        if stage is not None:
            parts += _parts_of(owner, each, stage, groups)
    return tuple(parts)


def _parts_of(owner: JobSet, each: ReplicatedJob, stage: int, groups: tuple[Rank, ...]) -> list[Part]:
    written = _exclusive(owner, each)
    template = _annotated(each.template.spec.template, written)
    count, ended = at_once(each.template.spec), _ended(owner).get(each.name, 0)
    if each.template.spec.completion_mode == "NonIndexed":
        ended = len(groups)  # its pods are indistinguishable, so none counts as missing

    def part(indices: range, follows: bool = False) -> Part:
        return Part(each.name, stage, template, indices, groups, follows, marks.JOB_GLOBAL_INDEX, ended)

    if not _has_followers(written):
        return [part(range(count))]
    return [part(range(min(1, count))), part(range(1, count), follows=True)]


def _ended(owner: JobSet) -> dict[str, int]:
    """How many Jobs of each template have succeeded."""
    return {each.name: each.succeeded for each in owner.status.replicated_jobs_status}


def _annotated(template: PodTemplate, written: dict[str, str], **labels: str) -> PodTemplate:
    """The template with what its controller adds."""
    metadata = template.metadata
    metadata = replace(
        metadata, annotations={**metadata.annotations, **written}, labels={**metadata.labels, **labels}
    )
    return replace(template, metadata=metadata)


def job_set_devices(owner: JobSet) -> bool:
    """Whether pods that run at once ask for devices; Jobs that wait for a completion do not count."""
    stages = _stages(owner)
    jobs = owner.spec.replicated_jobs
    return any_asks_for_devices(each.template.spec.template for each in jobs if each.name in stages)


def _stages(owner: JobSet) -> dict[str, int]:
    """The stage of each template by its dependencies; templates that wait for a completion have none."""
    done = _ended(owner)
    completed = {
        each.name
        for each in owner.spec.replicated_jobs
        if done.get(each.name, 0) >= (1 if each.replicas is None else each.replicas)
    }
    stages: dict[str, int] = {}
    for each in owner.spec.replicated_jobs:  # a Job may depend on earlier ones alone
        behind = [
            other
            for other in each.depends_on or []
            if not (other.status == "Complete" and other.name in completed)
        ]
        if all(other.status == "Ready" and other.name in stages for other in behind):
            stages[each.name] = max((stages[other.name] + 1 for other in behind), default=0)
    return stages


def _exclusive(owner: JobSet, each: ReplicatedJob) -> dict[str, str]:
    """The annotations about exclusive topology that the controller writes on the pods of a Job."""
    written = {**owner.metadata.annotations, **each.template.metadata.annotations}
    return {
        key: written[key] for key in (marks.JOBSET_EXCLUSIVE, marks.JOBSET_NODE_SELECTOR) if key in written
    }


def _has_followers(written: Mapping[str, str]) -> bool:
    return marks.JOBSET_EXCLUSIVE in written and marks.JOBSET_NODE_SELECTOR not in written


def _is_exclusive(owner: JobSet) -> bool:
    return any(_has_followers(_exclusive(owner, each)) for each in owner.spec.replicated_jobs)


class _SubGroupPolicy(Struct, frozen=True):
    sub_group_size: int | None = None


class _LeaderWorkerTemplate(Struct, frozen=True):
    size: int | None = None
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()
    sub_group_policy: _SubGroupPolicy | None = None


class LeaderWorkerSetSpec(Struct, frozen=True):
    """The size of each group, and when the workers of a group are created."""

    leader_worker_template: _LeaderWorkerTemplate = _LeaderWorkerTemplate()
    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(Owner, frozen=True):
    """leaderworkerset.x-k8s.io/v1."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


def leader_worker_set_size(owner: LeaderWorkerSet) -> int | None:
    """The pods of one group with its leader: a group is a gang."""
    size = owner.spec.leader_worker_template.size
    return 1 if size is None else size


def leader_worker_set_is_staged(owner: LeaderWorkerSet) -> bool:
    """Whether workers are created when the leader is Ready, or (exclusive topology) when it has a node."""
    return owner.spec.startup_policy == "LeaderReady" or marks.LWS_EXCLUSIVE in owner.metadata.annotations


def leader_worker_set_shape(owner: LeaderWorkerSet) -> Shape:
    """The stages of a group whose workers wait: first the leader, then the workers by subgroup."""
    size = leader_worker_set_size(owner) or 1
    if not leader_worker_set_is_staged(owner) or size > MOST_PODS:
        return ()
    template = owner.spec.leader_worker_template
    there = owner.metadata.annotations
    both: tuple[str, ...] = (marks.LWS_EXCLUSIVE, marks.LWS_SUBGROUP_EXCLUSIVE)
    written = {key: there[key] for key in both if key in there}
    leader = _annotated(template.leader_template or template.worker_template, written)
    parts = [Part("leader", 0, leader, range(1))]
    for number, indices in _subgroups(template.sub_group_policy, size):
        labels = {} if number is None else {marks.SUBGROUP_INDEX: str(number)}
        worker = _annotated(template.worker_template, written, **labels)
        parts.append(Part("worker", 1, worker, indices))
    return tuple(parts)


def subgroup_of(index: int, size: int, each: int) -> int:
    """The subgroup of a pod, as LeaderWorkerSet counts. size: of the group; each: of a subgroup."""
    # If the workers alone divide into subgroups, the leader joins the first one as an additional pod.
    first = int((size - 1) % each == 0 and size % each != 0)
    return max(0, index - first) // each


def _subgroups(policy: _SubGroupPolicy | None, size: int) -> list[tuple[int | None, range]]:
    """The workers of each subgroup by their indices."""
    each = policy.sub_group_size if policy is not None else None
    if each is None or each < 1:
        return [(None, range(1, size))]
    found: dict[int, list[int]] = {}
    for index in range(1, size):
        found.setdefault(subgroup_of(index, size, each), []).append(index)
    return [(number, range(indices[0], indices[-1] + 1)) for number, indices in found.items()]


def leader_worker_set_devices(owner: LeaderWorkerSet) -> bool:
    """Whether the template of the leader or of the workers asks for devices."""
    template = owner.spec.leader_worker_template
    return any_asks_for_devices(
        [template.leader_template or template.worker_template, template.worker_template]
    )


class PodGroupSpec(Struct, frozen=True):
    """The least number of pods to run."""

    min_member: int | None = None


class PodGroup(Owner, frozen=True):
    """scheduling.x-k8s.io/v1alpha1 (coscheduling) and scheduling.volcano.sh/v1beta1."""

    spec: PodGroupSpec = PodGroupSpec()


def pod_group_size(owner: PodGroup) -> int | None:
    """spec.minMember; later pods join the gang when they are created."""
    return owner.spec.min_member or None


class PodCliqueSpec(Struct, frozen=True):
    """The number of pods; at least min_available of them are to start together, all where it is not set."""

    replicas: int = 1
    min_available: int | None = None


class PodClique(Owner, frozen=True):
    """grove.io/v1alpha1: the pods of one role of a PodCliqueSet."""

    spec: PodCliqueSpec = PodCliqueSpec()


def pod_clique_size(owner: PodClique) -> int | None:
    """spec.replicas, 1 by default."""
    return owner.spec.replicas


def pod_clique_minimum(owner: PodClique) -> int | None:
    """spec.minAvailable; None for all."""
    return owner.spec.min_available or None
