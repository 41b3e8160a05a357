"""How many pods the controllers of gangs make, and whether they make them all at once. Pure.

One struct for each kind of owner, with only the fields that tell this. Where the owner leaves the number
open (an autoscaled Ray cluster, a PodGroup without a minimum) the size is None: nobody knows it.
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


def _unsaid(owner: Any) -> int | None:
    return None


def _untold(owner: Any) -> Shape:
    return ()


def _unknown(owner: Any) -> bool | None:
    return None


@dataclass(frozen=True)
class Workload(Generic[T]):
    """A kind of owner. kind: of the gang, as pods show it; group, versions, resource: where it is served.

    owner: its own kind, where that is another one.
    versions: those that we can read, the best first. minimum: how many pods are enough, None where all are
    needed. devices: whether any of its pods asks for an extended resource, None where that is not known.
    by_uid: whether pods name the owner's uid, so that a later owner of the same name is distinguished.
    id_prefix: what the ids of gangs of this kind begin with, which tells them from those of another API's.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    resource: str
    struct: type[T]
    size: Callable[[T], int | None]
    is_staged: Callable[[T], bool] = _never
    shape: Callable[[T], Shape] = _untold
    by_uid: bool = False
    minimum: Callable[[T], int | None] = _unsaid
    devices: Callable[[T], bool | None] = _unknown
    owner: str = ""
    id_prefix: str = ""

    @property
    def owner_name(self) -> str:
        """Its kind and group, as docs and settings write it."""
        return f"{self.owner or self.kind}.{self.group}"

    @property
    def has_minimum(self) -> bool:
        """Whether it may say that fewer pods than all are enough."""
        return self.minimum is not _unsaid

    @property
    def name(self) -> str:
        """As people and CustomResourceDefinitions say it."""
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
        _unsaid,
        id_prefix=f"{native_gangs.GROUP}/",
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
