"""The pods of sets of other projects: JobSet, LeaderWorkerSet, PodGroups, Grove's PodClique. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import msgspec

from webhook.kube.struct import Struct
from webhook.workloads import marks
from webhook.workloads.additions import PodTemplate, PodTemplateSpec
from webhook.workloads.builtin import (
    JOB_NAME_KEYS,
    Job,
    JobSpec,
    Owner,
    at_once,
    has_followers,
    job_completed,
)
from webhook.workloads.pod_sets import MOST_PODS, OwnedPods, PodSet, TemplatePath, one_if_unset, template_at


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

    @property
    def jobs(self) -> int:
        """The number of its Jobs."""
        return one_if_unset(self.replicas)


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


def job_set_pods(owner: JobSet) -> OwnedPods:
    """The pods of all its Jobs; size: of those that have not succeeded.

    Jobs start in order, or once others are ready. Jobs that wait until others have completed never run beside
    them. With exclusive topology, the first pod of a Job is created first, and the others once it has a node.
    """
    ended, stages, phases = _ended(owner), _stages(owner), _phases(owner.spec.replicated_jobs)
    sets: list[PodSet] = []
    size = begin = 0
    for number, each in enumerate(owner.spec.replicated_jobs):
        groups = range(begin, begin + each.jobs)
        when = stages.get(each.name), phases[each.name]
        sets += _sets_of(owner, number, groups, *when, ended.get(each.name, 0))
        size += max(0, each.jobs - ended.get(each.name, 0)) * at_once(each.template.spec)
        begin = groups.stop
    return OwnedPods(size, tuple(sets))


def completed_beside(owner: JobSet, jobs: Iterable[Job]) -> int:
    """How many completed pods the size of a JobSet counts, since their Jobs have not succeeded yet.

    jobs: its Jobs.
    """
    completed = Counter[str]()
    for job in jobs:
        completed[job.metadata.labels.get(marks.REPLICATED_JOB_LABEL, "")] += job_completed(job)
    ended = _ended(owner)
    return sum(
        max(0, completed[each.name] - ended.get(each.name, 0) * at_once(each.template.spec))
        for each in owner.spec.replicated_jobs
    )


def _sets_of(
    owner: JobSet, number: int, groups: range, stage: int | None, phase: int, ended: int
) -> Iterator[PodSet]:
    """The pods of the Jobs of one template: all at once, or leaders and those that follow them.

    number: of the template. ended: how many of its Jobs have succeeded.
    """
    each = owner.spec.replicated_jobs[number]
    job, count, written = each.template.spec, at_once(each.template.spec), _exclusive(owner, each)
    indexed = job.completion_mode != "NonIndexed"

    def pod_set(indices: range, follows: bool = False, leads: bool = False) -> PodSet:
        return PodSet(
            f"{owner.metadata.name}-{each.name}",
            job.template,
            indices,
            template_at("spec", "replicatedJobs", number, "template", "spec", "template"),
            groups,
            labels={
                marks.JOBSET_NAME_LABEL: owner.metadata.name,
                marks.REPLICATED_JOB_LABEL: each.name,
                marks.JOBS_OF_JOBSET: str(sum(other.jobs for other in owner.spec.replicated_jobs)),
            },
            annotations=written,
            index_key=marks.JOB_INDEX_KEY if indexed else "",
            group_key=marks.JOB_GLOBAL_INDEX,
            group_name_keys=JOB_NAME_KEYS,
            stage=stage,
            follows=follows,
            # Pods without an index are indistinguishable, so none counts as missing.
            ended=ended if indexed else len(groups),
            completions=None if leads else job.completions,
            phase=phase,
        )

    if not has_followers(written):
        yield pod_set(range(count))
    else:
        yield pod_set(range(min(1, count)), leads=True)
        yield pod_set(range(1, count), follows=True)


def _ended(owner: JobSet) -> dict[str, int]:
    """How many Jobs of each template have succeeded."""
    return {each.name: each.succeeded for each in owner.status.replicated_jobs_status}


def _stages(owner: JobSet) -> dict[str, int]:
    """The stage of each template by its order or dependencies; those that wait for a completion have none."""
    policy, jobs = owner.spec.startup_policy, owner.spec.replicated_jobs
    if policy is not None and policy.startup_policy_order == "InOrder":
        return {each.name: number for number, each in enumerate(jobs)}
    ended = _ended(owner)
    return _stages_behind(jobs, {each.name for each in jobs if ended.get(each.name, 0) >= each.jobs})


def _stages_behind(jobs: Sequence[ReplicatedJob], completed: Set[str]) -> dict[str, int]:
    stages: dict[str, int] = {}
    for each in jobs:  # a Job may depend on earlier ones alone
        behind = [
            other
            for other in each.depends_on or []
            if not (other.status == "Complete" and other.name in completed)
        ]
        if all(other.status == "Ready" and other.name in stages for other in behind):
            stages[each.name] = max((stages[other.name] + 1 for other in behind), default=0)
    return stages


def _phases(jobs: Sequence[ReplicatedJob]) -> dict[str, int]:
    """The phase of each template by its name, see PodSet.phase."""
    phases: dict[str, int] = {}
    for each in jobs:
        behind = (phases.get(other.name, 0) + (other.status == "Complete") for other in each.depends_on or [])
        phases[each.name] = max(behind, default=0)
    return phases


def _exclusive(owner: JobSet, each: ReplicatedJob) -> dict[str, str]:
    """The annotations about exclusive topology that the controller writes on the pods of a Job."""
    written = {**owner.metadata.annotations, **each.template.metadata.annotations}
    return _of_keys(written, marks.JOBSET_EXCLUSIVE, marks.JOBSET_NODE_SELECTOR)


def _of_keys(annotations: Mapping[str, str], *found: str) -> dict[str, str]:
    return {key: annotations[key] for key in found if key in annotations}


class _SubGroupPolicy(Struct, frozen=True):
    sub_group_size: int | None = None
    type: str = ""


class _LeaderWorkerTemplate(Struct, frozen=True):
    size: int | None = None
    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()
    sub_group_policy: _SubGroupPolicy | None = None


class LeaderWorkerSetSpec(Struct, frozen=True):
    """The number and the size of the groups, and when the workers of a group are created."""

    replicas: int | None = None
    leader_worker_template: _LeaderWorkerTemplate = _LeaderWorkerTemplate()
    startup_policy: str = "LeaderCreated"


class LeaderWorkerSet(Owner, frozen=True):
    """leaderworkerset.x-k8s.io/v1."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()


def leader_worker_set_pods(owner: LeaderWorkerSet) -> OwnedPods:
    """A group, its leader and the workers by subgroup: each group is a gang.

    Workers are created when the leader is Ready, or (exclusive topology) when it has a node.
    """
    template, annotations = owner.spec.leader_worker_template, owner.metadata.annotations
    size = one_if_unset(template.size)
    waits = owner.spec.startup_policy == "LeaderReady" or marks.LWS_EXCLUSIVE in annotations
    policy = template.sub_group_policy or _SubGroupPolicy()

    def pod_set(of: str, body: PodTemplate, indices: range, subgroup: int | None) -> PodSet:
        own = {} if subgroup is None else {marks.SUBGROUP_INDEX: str(subgroup)}
        leads = indices.start == 0
        return PodSet(
            owner.metadata.name,
            body,
            indices,
            template_at("spec", "leaderWorkerTemplate", of),
            labels={marks.LEADER_WORKER_SET_NAME_LABEL: owner.metadata.name, **own},
            annotations=_of_keys(annotations, marks.LWS_EXCLUSIVE, marks.LWS_SUBGROUP_EXCLUSIVE),
            index_key=marks.WORKER_INDEX,
            is_numbered=not leads,
            stage=int(waits and not leads),
        )

    leader, worker, of = template.leader_template, template.worker_template, "workerTemplate"
    first = None if policy.type == "LeaderExcluded" else _subgroup_of(policy, 0, size)
    sets = [pod_set("leaderTemplate" if leader else of, leader or worker, range(min(1, size)), first)]
    sets += (pod_set(of, worker, indices, number) for number, indices in _subgroups(policy, size))
    gangs = one_if_unset(owner.spec.replicas)
    return OwnedPods(size, tuple(sets), gangs=gangs, gang_key=marks.LEADER_WORKER_SET_GROUP_LABEL)


def _subgroup_of(policy: _SubGroupPolicy, index: int, size: int) -> int | None:
    """The subgroup of a pod of a group of this size, as LeaderWorkerSet counts; None without subgroups."""
    each = policy.sub_group_size
    return None if each is None or each < 1 else subgroup_of(index, size, each)


def subgroup_of(index: int, size: int, each: int) -> int:
    """The subgroup of a pod. size: of the group; each: of a subgroup."""
    # If the workers alone divide into subgroups, the leader joins the first one as an additional pod.
    first = int((size - 1) % each == 0 and size % each != 0)
    return max(0, index - first) // each


def _subgroups(policy: _SubGroupPolicy, size: int) -> list[tuple[int | None, range]]:
    """The workers of each subgroup by their indices; of a group that is too large, without subgroups."""
    if size > MOST_PODS or _subgroup_of(policy, 0, size) is None:
        return [(None, range(1, size))]
    found: dict[int | None, list[int]] = {}
    for index in range(1, size):
        found.setdefault(_subgroup_of(policy, index, size), []).append(index)
    return [(number, range(indices[0], indices[-1] + 1)) for number, indices in found.items()]


class PodGroupSpec(Struct, frozen=True):
    """The least number of pods to run."""

    min_member: int | None = None


class PodGroup(Owner, frozen=True):
    """scheduling.x-k8s.io/v1alpha1 (coscheduling) and scheduling.volcano.sh/v1beta1."""

    spec: PodGroupSpec = PodGroupSpec()


def pod_group_pods(owner: PodGroup) -> OwnedPods:
    """spec.minMember of them; later pods join the gang when they are created."""
    return OwnedPods(owner.spec.min_member or None, minimum=owner.spec.min_member or None)


class PodCliqueSpec(Struct, frozen=True):
    """The pods; at least min_available of them are to start together, all where it is not set."""

    replicas: int = 1
    min_available: int | None = None
    pod_spec: PodTemplateSpec = PodTemplateSpec()


class PodClique(Owner, frozen=True):
    """grove.io/v1alpha1: the pods of one role of a PodCliqueSet."""

    spec: PodCliqueSpec = PodCliqueSpec()


def pod_clique_pods(owner: PodClique) -> OwnedPods:
    """spec.replicas pods with the labels of the PodClique, of which spec.minAvailable are enough."""
    pods = PodSet(
        owner.metadata.name,
        PodTemplate(owner.metadata, owner.spec.pod_spec),
        range(owner.spec.replicas),
        TemplatePath(("metadata",), ("spec", "podSpec")),
        index_key=marks.PODCLIQUE_INDEX,
    )
    return OwnedPods(owner.spec.replicas, (pods,), owner.spec.min_available or None)
