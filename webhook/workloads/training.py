"""The pods of training jobs and Ray clusters: Kubeflow's jobs, of both generations, and RayCluster. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from webhook.kube.containers import Container, Resources
from webhook.kube.struct import Labels, Struct
from webhook.workloads import marks
from webhook.workloads.additions import PodTemplate, PodTemplateSpec
from webhook.workloads.builtin import Owner
from webhook.workloads.pod_sets import OwnedPods, PodSet, one_if_unset, template_at
from webhook.workloads.ranks import Rank


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


def training_job_pods(owner: TrainingJob) -> OwnedPods:
    """The pods of all roles; size: of those that have not succeeded, None without roles."""
    statuses = owner.status.replica_statuses or {}
    sets, size = [], 0
    for field, roles in _roles(owner.spec).items():
        for role, spec in roles.items():
            status = statuses.get(role)
            size += max(0, _replicas(spec) - (status.succeeded if status else 0))
            sets.append(_set_of_role(owner, field, role, spec or ReplicaSpec()))
    return OwnedPods(size if sets else None, tuple(sets), _minimum(owner.spec))


def _set_of_role(owner: TrainingJob, field: str, role: str, spec: ReplicaSpec) -> PodSet:
    """The pods of a role.

    The MPI operator numbers workers without their role. If the launcher also works, it is number 0 and the
    workers begin at 1. It may be created only when the workers are Ready.
    """
    name, marked = role.lower(), {marks.JOB_ROLE: role.lower(), marks.REPLICA_TYPE: role.lower()}
    prefix: Rank = (name,)
    stage = first = 0
    leads = name == "launcher"
    if field == _MPI:
        del marked[marks.REPLICA_TYPE]
        works = owner.spec.run_launcher_as_worker
        first = int(works and not leads)
        prefix = prefix if leads and not works else ()
        stage = int(leads and owner.spec.launcher_creation_policy == "WaitForWorkersReady")
    return PodSet(
        f"{owner.metadata.name}-{name}",
        spec.template,
        range(first, first + _replicas(spec)),
        template_at("spec", field, role, "template"),
        prefix=prefix,
        labels={marks.TRAINING_JOB_NAME_LABEL: owner.metadata.name, **marked},
        index_key="" if prefix == ("launcher",) else marks.REPLICA_INDEX,
        stage=stage,
    )


def _minimum(spec: TrainingJobSpec) -> int | None:
    """schedulingPolicy.minAvailable; else elasticPolicy's least number of workers, plus all other roles."""
    policy = spec.run_policy and spec.run_policy.scheduling_policy
    if policy and policy.min_available and policy.min_available > 0:
        return policy.min_available
    workers = (spec.elastic_policy and spec.elastic_policy.min_replicas) or 0
    return workers + _pods_beside_workers(spec) if workers > 0 else None


def _pods_beside_workers(spec: TrainingJobSpec) -> int:
    roles = ((role.lower(), each) for roles in _roles(spec).values() for role, each in roles.items())
    return sum(_replicas(each) for role, each in roles if role != "worker")


def _replicas(spec: ReplicaSpec | None) -> int:
    return 1 if spec is None else one_if_unset(spec.replicas)


_MPI: Final = "mpiReplicaSpecs"


def _roles(spec: TrainingJobSpec) -> Mapping[str, Roles]:
    """The roles by the field that has them."""
    return {
        "pytorchReplicaSpecs": spec.pytorch_replica_specs,
        "tfReplicaSpecs": spec.tf_replica_specs,
        _MPI: spec.mpi_replica_specs,
        "xgbReplicaSpecs": spec.xgb_replica_specs,
        "paddleReplicaSpecs": spec.paddle_replica_specs,
        "jaxReplicaSpecs": spec.jax_replica_specs,
    }


class _Trainer(Struct, frozen=True):
    num_nodes: int | None = None
    resources_per_node: Resources | None = None


class TrainJobSpec(Struct, frozen=True):
    """The trainer, with its number of nodes, and what is added to its pods."""

    trainer: _Trainer | None = None
    labels: Labels = msgspec.field(default_factory=dict)
    annotations: Labels = msgspec.field(default_factory=dict)


class TrainJob(Owner, frozen=True):
    """trainer.kubeflow.org/v1alpha1. A JobSet creates most of its pods, and then has their number."""

    spec: TrainJobSpec = TrainJobSpec()


_BY_RUNTIME: Final = "its runtime sets the pods' requests; set trainer.resourcesPerNode, or pass the JobSet"


def train_job_pods(owner: TrainJob) -> OwnedPods:
    """spec.trainer.numNodes pods; None if its runtime decides, which also sets requests that it lacks."""
    trainer, name = owner.spec.trainer or _Trainer(), owner.metadata.name
    if trainer.resources_per_node is None:
        return OwnedPods(trainer.num_nodes, not_described=_BY_RUNTIME)
    container = Container(name="node", resources=trainer.resources_per_node)
    nodes = PodSet(
        f"{name}-node",
        PodTemplate(spec=PodTemplateSpec(containers=[container])),
        range(one_if_unset(trainer.num_nodes)),
        at=None,
        groups=range(1),
        labels={**owner.spec.labels, marks.JOBSET_NAME_LABEL: name},
        annotations=owner.spec.annotations,
        index_key=marks.JOB_INDEX_KEY,
        group_key=marks.JOB_GLOBAL_INDEX,
    )
    return OwnedPods(trainer.num_nodes, (nodes,))


class _HeadGroup(Struct, frozen=True):
    template: PodTemplate = PodTemplate()


class WorkerGroup(Struct, frozen=True):
    """Replicas of one or more hosts (pods) each."""

    group_name: str = "workers"
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    num_of_hosts: int | None = None
    suspend: bool = False
    template: PodTemplate = PodTemplate()

    @property
    def size(self) -> int:
        """The pods that it has."""
        return self._pods(max(self.replicas or 0, self.min_replicas or 0))

    @property
    def minimum(self) -> int:
        """The pods that it needs."""
        return self._pods(self.min_replicas or 0)

    def _pods(self, replicas: int) -> int:
        """The pods of so many replicas, capped at its maximum."""
        if self.max_replicas is not None:
            replicas = min(replicas, self.max_replicas)
        return 0 if self.suspend else max(0, replicas) * (self.num_of_hosts or 1)


class RayClusterSpec(Struct, frozen=True):
    """The head, and the groups of workers."""

    head_group_spec: _HeadGroup = _HeadGroup()
    worker_group_specs: list[WorkerGroup] | None = None
    enable_in_tree_autoscaling: bool | None = None


class RayCluster(Owner, frozen=True):
    """ray.io/v1."""

    spec: RayClusterSpec = RayClusterSpec()


def ray_cluster_pods(owner: RayCluster) -> OwnedPods:
    """The head, and each group's replicas within its bounds; size: None if it is autoscaled.

    The head and the minimum replicas of each group are enough, unless a replica has several hosts. A part of
    such a replica is useless, and nothing here says which pods form one replica.
    """
    name, groups = owner.metadata.name, owner.spec.worker_group_specs or []
    labels = {marks.RAY_CLUSTER_LABEL: name}
    head = PodSet(
        f"{name}-head",
        owner.spec.head_group_spec.template,
        range(1),
        template_at("spec", "headGroupSpec", "template"),
        labels={**labels, marks.RAY_NODE_TYPE: marks.RAY_HEAD, marks.RAY_GROUP: "headgroup"},
        is_numbered=False,
    )
    workers = (
        PodSet(
            f"{name}-{each.group_name}",
            each.template,
            range(each.size),
            template_at("spec", "workerGroupSpecs", number, "template"),
            labels={**labels, marks.RAY_NODE_TYPE: "worker", marks.RAY_GROUP: each.group_name},
        )
        for number, each in enumerate(groups)
    )
    sets = (head, *workers)
    minimum = 1 + sum(each.minimum for each in groups)
    has_hosts = any((each.num_of_hosts or 1) > 1 for each in groups)
    size = None if owner.spec.enable_in_tree_autoscaling else sum(each.count for each in sets)
    return OwnedPods(size, sets, None if has_hosts else minimum)
