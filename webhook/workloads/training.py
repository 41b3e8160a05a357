"""Owners of training and Ray clusters: Kubeflow's jobs, of both generations, and RayCluster. Pure."""

import msgspec

from webhook.kube.struct import Struct
from webhook.workloads.additions import PodTemplate
from webhook.workloads.builtin import Owner
from webhook.workloads.ranks import Rank
from webhook.workloads.shape import Part, Shape, any_asks_for_devices


class ReplicaSpec(Struct, frozen=True):
    """The pods of one role."""

    replicas: int | None = None
    template: PodTemplate = PodTemplate()


class _SchedulingPolicy(Struct, frozen=True):
    min_available: int | None = None


class _RunPolicy(Struct, frozen=True):
    scheduling_policy: _SchedulingPolicy | None = None


class _ElasticPolicy(Struct, frozen=True):
    min_replicas: int | None = None


Roles = dict[str, ReplicaSpec | None]


class TrainingJobSpec(Struct, frozen=True):
    """The roles, in the field that each kind has for them."""

    pytorch_replica_specs: Roles = msgspec.field(default_factory=dict)
    tf_replica_specs: Roles = msgspec.field(default_factory=dict)
    mpi_replica_specs: Roles = msgspec.field(default_factory=dict)
    xgb_replica_specs: Roles = msgspec.field(default_factory=dict)
    paddle_replica_specs: Roles = msgspec.field(default_factory=dict)
    jax_replica_specs: Roles = msgspec.field(default_factory=dict)
    run_policy: _RunPolicy | None = None
    elastic_policy: _ElasticPolicy | None = None
    launcher_creation_policy: str = "AtStartup"
    run_launcher_as_worker: bool = False


class _RoleStatus(Struct, frozen=True):
    succeeded: int = 0


class TrainingJobStatus(Struct, frozen=True):
    """How many pods of each role have succeeded."""

    replica_statuses: dict[str, _RoleStatus | None] | None = None


class TrainingJob(Owner, frozen=True):
    """kubeflow.org/v1 PyTorchJob, TFJob, MPIJob, XGBoostJob, PaddleJob, JAXJob; v2beta1 MPIJob."""

    spec: TrainingJobSpec = TrainingJobSpec()
    status: TrainingJobStatus = TrainingJobStatus()


def training_job_size(owner: TrainingJob) -> int | None:
    """The pods of all roles that have not succeeded."""
    statuses = owner.status.replica_statuses or {}
    roles = _roles(owner.spec)
    total = 0
    for role, spec in roles.items():
        status = statuses.get(role)
        total += max(0, _replicas(spec) - (status.succeeded if status else 0))
    return total if roles else None


def training_job_minimum(owner: TrainingJob) -> int | None:
    """schedulingPolicy.minAvailable; else elasticPolicy's least number of workers, plus all other roles."""
    policy = owner.spec.run_policy and owner.spec.run_policy.scheduling_policy
    if policy and policy.min_available and policy.min_available > 0:
        return policy.min_available
    elastic = owner.spec.elastic_policy
    if elastic is None or not elastic.min_replicas or elastic.min_replicas < 0:
        return None
    others = (spec for role, spec in _roles(owner.spec).items() if role.lower() != "worker")
    return elastic.min_replicas + sum(map(_replicas, others))


def _replicas(spec: ReplicaSpec | None) -> int:
    return 1 if spec is None or spec.replicas is None else spec.replicas


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
    """Whether an MPIJob's launcher is created only when the workers are Ready."""
    return owner.spec.launcher_creation_policy == "WaitForWorkersReady"


def training_job_shape(owner: TrainingJob) -> Shape:
    """The stages of an MPIJob whose launcher waits: first the workers, then the launcher.

    The operator numbers workers without their role. If the launcher also works, it is number 0 and the
    workers begin at 1.
    """
    if not training_job_is_staged(owner):
        return ()
    works = owner.spec.run_launcher_as_worker
    parts: list[Part] = []
    for role, spec in _roles(owner.spec).items():
        count = _replicas(spec)
        leads = role.lower() == "launcher"
        first = int(works and not leads)
        groups: tuple[Rank, ...] = ((),) if works or not leads else ((role.lower(),),)
        template = spec.template if spec else PodTemplate()
        parts.append(Part(role, int(leads), template, range(first, first + count), groups))
    return tuple(parts)


def training_job_devices(owner: TrainingJob) -> bool:
    """Whether the template of any role asks for devices."""
    return any_asks_for_devices(spec.template for spec in _roles(owner.spec).values() if spec)


class _Trainer(Struct, frozen=True):
    num_nodes: int | None = None


class TrainJobSpec(Struct, frozen=True):
    """The trainer, with its number of nodes."""

    trainer: _Trainer | None = None


class TrainJob(Owner, frozen=True):
    """trainer.kubeflow.org/v1alpha1. A JobSet creates most of its pods, and then has their number."""

    spec: TrainJobSpec = TrainJobSpec()


def train_job_size(owner: TrainJob) -> int | None:
    """spec.trainer.numNodes; None if its runtime decides."""
    return owner.spec.trainer.num_nodes if owner.spec.trainer else None


class WorkerGroup(Struct, frozen=True):
    """Replicas of one or more hosts (pods) each."""

    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool = False


class RayClusterSpec(Struct, frozen=True):
    """The groups of workers."""

    worker_group_specs: list[WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None


class RayCluster(Owner, frozen=True):
    """ray.io/v1."""

    spec: RayClusterSpec = RayClusterSpec()


def ray_cluster_size(owner: RayCluster) -> int | None:
    """The head and all workers, within each group's minimum and maximum; None if it is autoscaled."""
    if owner.spec.enable_in_tree_autoscaling:
        return None
    groups = owner.spec.worker_group_specs or []
    return 1 + sum(_workers(group, max(group.replicas or 0, group.min_replicas or 0)) for group in groups)


def ray_cluster_minimum(owner: RayCluster) -> int | None:
    """The head, and the minimum replicas of each group; None if a replica has several hosts.

    A part of such a replica is useless, and nothing here says which pods form one replica.
    """
    groups = owner.spec.worker_group_specs or []
    if any((group.num_of_hosts or 1) > 1 for group in groups):
        return None
    return 1 + sum(_workers(group, group.min_replicas or 0) for group in groups)


def _workers(group: WorkerGroup, replicas: int) -> int:
    """The pods of a group with so many replicas, capped at its maximum."""
    if group.max_replicas is not None:
        replicas = min(replicas, group.max_replicas)
    return 0 if group.suspend else max(0, replicas) * (group.num_of_hosts or 1)
