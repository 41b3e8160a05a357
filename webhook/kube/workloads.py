"""How many pods the controllers of gangs make, and whether they make them all at once. Pure.

One struct for each kind of owner, with only the fields that tell this. Where the owner leaves the number
open (an autoscaled Ray cluster, a PodGroup without a minimum) the size is None: nobody knows it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from labeler.contract import keys
from webhook.kube.objects import Metadata, Struct


class Owner(Struct, frozen=True):
    """Any of them."""

    metadata: Metadata


# --- Job, StatefulSet ------------------------------------------------------------------------------


class JobSpec(Struct, frozen=True):
    """What a Job says of the number of its pods."""

    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None


class JobStatus(Struct, frozen=True):
    """How many of them are done, well or badly."""

    succeeded: int | None = None
    failed: int | None = None


class Job(Owner, frozen=True):
    """batch/v1."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


def job_size(job: Job) -> int | None:
    """Pods that run at once: no more than are still to be completed."""
    return _at_once(job.spec, job.status.succeeded or 0)


def job_failures_left(job: Job) -> int:
    """How many more of its pods may fail (a deleted pod does) before the Job itself fails for good."""
    limit = 6 if job.spec.backoff_limit is None else job.spec.backoff_limit
    return limit - (job.status.failed or 0)


def _at_once(spec: JobSpec, succeeded: int = 0) -> int:
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        return parallelism
    return max(0, min(parallelism, spec.completions - succeeded))


class StatefulSetSpec(Struct, frozen=True):
    """Its number of pods, and whether each waits for the one before it."""

    replicas: int | None = None
    pod_management_policy: str = "OrderedReady"


class StatefulSet(Owner, frozen=True):
    """apps/v1."""

    spec: StatefulSetSpec = StatefulSetSpec()


def stateful_set_size(owner: StatefulSet) -> int | None:
    """spec.replicas, 1 unless said."""
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def stateful_set_is_staged(owner: StatefulSet) -> bool:
    """OrderedReady makes each pod when the one before it is Ready."""
    return owner.spec.pod_management_policy != "Parallel"


# --- JobSet, LeaderWorkerSet -----------------------------------------------------------------------


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
        * _at_once(each.template.spec)
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
    marks = [owner.metadata.annotations, *(each.template.metadata.annotations for each in jobs)]
    if any(keys.JOBSET_EXCLUSIVE in each and keys.JOBSET_NODE_SELECTOR not in each for each in marks):
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
    marks = owner.metadata.annotations
    return (
        owner.spec.startup_policy == "LeaderReady"
        or keys.LWS_EXCLUSIVE in marks
        or keys.LWS_SUBGROUP_EXCLUSIVE in marks
    )


# --- PodGroups -------------------------------------------------------------------------------------


class PodGroupSpec(Struct, frozen=True):
    """How many pods are the least to run."""

    min_member: int | None = None


class PodGroup(Owner, frozen=True):
    """scheduling.x-k8s.io/v1alpha1 (coscheduling) and scheduling.volcano.sh/v1beta1."""

    spec: PodGroupSpec = PodGroupSpec()


def pod_group_size(owner: PodGroup) -> int | None:
    """spec.minMember; pods beyond it join the gang when they come."""
    return owner.spec.min_member or None


# --- Kubeflow --------------------------------------------------------------------------------------


class ReplicaSpec(Struct, frozen=True):
    """So many pods of one role."""

    replicas: int | None = None


class _SchedulingPolicy(Struct, frozen=True):
    min_available: int | None = None


class _RunPolicy(Struct, frozen=True):
    scheduling_policy: _SchedulingPolicy | None = None


Roles = dict[str, ReplicaSpec | None]


class TrainingJobSpec(Struct, frozen=True):
    """Its roles, under the name that each kind gives them."""

    pytorch_replica_specs: Roles = msgspec.field(default_factory=dict)
    tf_replica_specs: Roles = msgspec.field(default_factory=dict)
    mpi_replica_specs: Roles = msgspec.field(default_factory=dict)
    xgb_replica_specs: Roles = msgspec.field(default_factory=dict)
    paddle_replica_specs: Roles = msgspec.field(default_factory=dict)
    jax_replica_specs: Roles = msgspec.field(default_factory=dict)
    run_policy: _RunPolicy | None = None
    launcher_creation_policy: str = "AtStartup"


class _RoleStatus(Struct, frozen=True):
    succeeded: int = 0


class TrainingJobStatus(Struct, frozen=True):
    """How many pods of each role are done."""

    replica_statuses: dict[str, _RoleStatus | None] | None = None


class TrainingJob(Owner, frozen=True):
    """kubeflow.org/v1 PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob; v2beta1 MPIJob."""

    spec: TrainingJobSpec = TrainingJobSpec()
    status: TrainingJobStatus = TrainingJobStatus()


def training_job_size(owner: TrainingJob) -> int | None:
    """Pods of all roles that are not done, or the minimum that its scheduling policy names."""
    policy = owner.spec.run_policy and owner.spec.run_policy.scheduling_policy
    if policy and policy.min_available:
        return policy.min_available
    statuses = owner.status.replica_statuses or {}
    roles = _roles(owner.spec)
    total = 0
    for role, spec in roles.items():
        wanted = 1 if spec is None or spec.replicas is None else spec.replicas
        status = statuses.get(role)
        total += max(0, wanted - (status.succeeded if status else 0))
    return total if roles else None


def _roles(spec: TrainingJobSpec) -> Roles:
    return {
        **spec.pytorch_replica_specs,
        **spec.tf_replica_specs,
        **spec.mpi_replica_specs,
        **spec.xgb_replica_specs,
        **spec.paddle_replica_specs,
        **spec.jax_replica_specs,
    }


def training_job_is_staged(owner: TrainingJob) -> bool:
    """An MPIJob's launcher may be made only when its workers are Ready."""
    return owner.spec.launcher_creation_policy == "WaitForWorkersReady"


class _Trainer(Struct, frozen=True):
    num_nodes: int | None = None


class TrainJobSpec(Struct, frozen=True):
    """Its nodes."""

    trainer: _Trainer | None = None


class TrainJob(Owner, frozen=True):
    """trainer.kubeflow.org/v1alpha1. Its pods are mostly a JobSet's, and then that tells their number."""

    spec: TrainJobSpec = TrainJobSpec()


def train_job_size(owner: TrainJob) -> int | None:
    """spec.trainer.numNodes; without it its runtime decides."""
    return owner.spec.trainer.num_nodes if owner.spec.trainer else None


# --- Ray -------------------------------------------------------------------------------------------


class WorkerGroup(Struct, frozen=True):
    """So many replicas of so many hosts."""

    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool = False


class RayClusterSpec(Struct, frozen=True):
    """Its groups of workers."""

    worker_group_specs: list[WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None


class RayCluster(Owner, frozen=True):
    """ray.io/v1."""

    spec: RayClusterSpec = RayClusterSpec()


def ray_cluster_size(owner: RayCluster) -> int | None:
    """The head and all workers, each group's replicas within its bounds; None where it is autoscaled."""
    if owner.spec.enable_in_tree_autoscaling:
        return None
    total = 1
    for group in owner.spec.worker_group_specs or []:
        replicas = max(group.replicas or 0, group.min_replicas or 0)
        if group.max_replicas is not None:
            replicas = min(replicas, max(group.max_replicas, 0))
        total += 0 if group.suspend else replicas * (group.num_of_hosts or 1)
    return total


# --- the table -------------------------------------------------------------------------------------

T = TypeVar("T", bound=Owner)


def _never(owner: Any) -> bool:
    return False


@dataclass(frozen=True)
class Workload(Generic[T]):
    """A kind of owner. kind: of the gang, as pods show it; group, versions, resource: where it is served.

    versions: those that we can read, the best first. by_uid: whether pods name the owner's uid, so that
    a later owner of the same name is told apart.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    resource: str
    struct: type[T]
    size: Callable[[T], int | None]
    is_staged: Callable[[T], bool] = _never
    by_uid: bool = False

    @property
    def name(self) -> str:
        """As people and CustomResourceDefinitions say it."""
        return f"{self.resource}.{self.group}"


def _training(resource: str, *versions: str) -> Workload[TrainingJob]:
    return Workload(
        "TrainingJob",
        "kubeflow.org",
        versions or ("v1",),
        resource,
        TrainingJob,
        training_job_size,
        training_job_is_staged,
    )


WORKLOADS: Final[tuple[Workload[Any], ...]] = (
    Workload("Job", "batch", ("v1",), "jobs", Job, job_size, by_uid=True),
    Workload(
        "StatefulSet",
        "apps",
        ("v1",),
        "statefulsets",
        StatefulSet,
        stateful_set_size,
        stateful_set_is_staged,
        by_uid=True,
    ),
    Workload(
        "JobSet",
        "jobset.x-k8s.io",
        ("v1alpha2",),
        "jobsets",
        JobSet,
        job_set_size,
        job_set_is_staged,
        by_uid=True,
    ),
    Workload(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        ("v1",),
        "leaderworkersets",
        LeaderWorkerSet,
        leader_worker_set_size,
        leader_worker_set_is_staged,
    ),
    Workload("PodGroup", "scheduling.x-k8s.io", ("v1alpha1",), "podgroups", PodGroup, pod_group_size),
    Workload("PodGroup", "scheduling.volcano.sh", ("v1beta1",), "podgroups", PodGroup, pod_group_size),
    _training("pytorchjobs"),
    _training("tfjobs"),
    _training("mpijobs", "v2beta1", "v1"),
    _training("xgboostjobs"),
    _training("paddlejobs"),
    _training("jaxjobs"),
    Workload(
        "TrainJob",
        "trainer.kubeflow.org",
        ("v1alpha1",),
        "trainjobs",
        TrainJob,
        train_job_size,
        by_uid=True,
    ),
    Workload("RayCluster", "ray.io", ("v1",), "rayclusters", RayCluster, ray_cluster_size),
)
