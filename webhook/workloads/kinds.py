"""How many pods the controllers of gangs create, and whether they create them all at once. Pure.

Each kind of owner has one struct, with only the fields needed for this. The size is None if the owner leaves
it open: an autoscaled Ray cluster, or a PodGroup without a minimum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from webhook.workloads import builtin as builtin
from webhook.workloads import composite_groups as composite_groups
from webhook.workloads import native_gangs as native_gangs
from webhook.workloads import sets as sets
from webhook.workloads import training as training
from webhook.workloads.builtin import Owner
from webhook.workloads.shape import Shape

T = TypeVar("T", bound=Owner)


def _never(owner: Any) -> bool:
    return False


def _no_number(owner: Any) -> int | None:
    return None


def _no_shape(owner: Any) -> Shape:
    return ()


def _unknown(owner: Any) -> bool | None:
    return None


@dataclass(frozen=True)
class Workload(Generic[T]):
    """A kind of owner.

    kind: the gang's kind, as pods show it. owner: the owner's own kind, if different. group, versions,
    resource: its API; versions are those that topogate can read, the best first. minimum: how many pods are
    enough, None if all are needed. devices: whether any of its pods requests an extended resource, None if
    unknown. by_uid: whether pods name the owner's uid, which distinguishes owners of the same name.
    id_prefix: the prefix of the ids of its gangs, for a kind that several APIs have.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    resource: str
    struct: type[T]
    size: Callable[[T], int | None]
    is_staged: Callable[[T], bool] = _never
    shape: Callable[[T], Shape] = _no_shape
    by_uid: bool = False
    minimum: Callable[[T], int | None] = _no_number
    devices: Callable[[T], bool | None] = _unknown
    owner: str = ""
    id_prefix: str = ""

    @property
    def owner_name(self) -> str:
        """Its kind and group, as in docs and settings."""
        return f"{self.owner or self.kind}.{self.group}"

    @property
    def has_minimum(self) -> bool:
        """Whether it may declare fewer pods than all to be enough."""
        return self.minimum is not _no_number

    @property
    def name(self) -> str:
        """The name that its CustomResourceDefinition has: resource.group."""
        return f"{self.resource}.{self.group}"


def _training(owner: str, *versions: str) -> Workload[training.TrainingJob]:
    return Workload(
        "TrainingJob",
        "kubeflow.org",
        versions or ("v1",),
        f"{owner.lower()}s",
        training.TrainingJob,
        training.training_job_size,
        training.training_job_is_staged,
        training.training_job_shape,
        minimum=training.training_job_minimum,
        owner=owner,
        devices=training.training_job_devices,
    )


WORKLOADS: Final[tuple[Workload[Any], ...]] = (
    Workload(
        "Job",
        "batch",
        ("v1",),
        "jobs",
        builtin.Job,
        builtin.job_size,
        builtin.job_is_staged,
        builtin.job_shape,
        by_uid=True,
        devices=builtin.job_devices,
    ),
    Workload(
        "StatefulSet",
        "apps",
        ("v1",),
        "statefulsets",
        builtin.StatefulSet,
        builtin.stateful_set_size,
        builtin.stateful_set_is_staged,
        builtin.stateful_set_shape,
        by_uid=True,
    ),
    Workload(
        "JobSet",
        "jobset.x-k8s.io",
        ("v1alpha2",),
        "jobsets",
        sets.JobSet,
        sets.job_set_size,
        sets.job_set_is_staged,
        sets.job_set_shape,
        by_uid=True,
        devices=sets.job_set_devices,
    ),
    Workload(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        ("v1",),
        "leaderworkersets",
        sets.LeaderWorkerSet,
        sets.leader_worker_set_size,
        sets.leader_worker_set_is_staged,
        sets.leader_worker_set_shape,
        devices=sets.leader_worker_set_devices,
    ),
    Workload(
        "PodGroup",
        "scheduling.x-k8s.io",
        ("v1alpha1",),
        "podgroups",
        sets.PodGroup,
        sets.pod_group_size,
        minimum=sets.pod_group_size,
    ),
    Workload(
        "PodGroup",
        "scheduling.volcano.sh",
        ("v1beta1",),
        "podgroups",
        sets.PodGroup,
        sets.pod_group_size,
        minimum=sets.pod_group_size,
    ),
    Workload(
        "PodGroup",
        native_gangs.GROUP,
        native_gangs.VERSIONS,
        "podgroups",
        native_gangs.NativePodGroup,
        native_gangs.native_group_size,
        minimum=native_gangs.native_group_size,
        id_prefix=f"{native_gangs.GROUP}/",
    ),
    Workload(
        "CompositePodGroup",
        native_gangs.GROUP,
        composite_groups.VERSIONS,
        "compositepodgroups",
        composite_groups.CompositeGroup,
        _no_number,
        id_prefix=f"{native_gangs.GROUP}/",
    ),
    Workload(
        "PodClique",
        "grove.io",
        ("v1alpha1",),
        "podcliques",
        sets.PodClique,
        sets.pod_clique_size,
        by_uid=True,
        minimum=sets.pod_clique_minimum,
    ),
    _training("PyTorchJob"),
    _training("TFJob"),
    _training("MPIJob", "v2beta1", "v1"),
    _training("XGBoostJob"),
    _training("PaddleJob"),
    _training("JAXJob"),
    Workload(
        "TrainJob",
        "trainer.kubeflow.org",
        ("v1alpha1",),
        "trainjobs",
        training.TrainJob,
        training.train_job_size,
        by_uid=True,
    ),
    Workload(
        "RayCluster",
        "ray.io",
        ("v1",),
        "rayclusters",
        training.RayCluster,
        training.ray_cluster_size,
        minimum=training.ray_cluster_minimum,
    ),
)
