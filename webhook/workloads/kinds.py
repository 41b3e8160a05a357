"""The table of all kinds of owners: how each is read, and which pods its controller creates, and when. Pure.

WORKLOADS are the owners of gangs, LOOSE_OWNERS those whose pods do not wait for one another, CREATORS those
that create another owner. A kind is a struct, with only the fields needed for this, one function, and a row
here. What is known of its pods follows from both: see pod_sets.OwnedPods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from webhook.kube.objects import OwnerReference
from webhook.workloads import builtin, loose, native_gangs, sets, training
from webhook.workloads.builtin import Owner
from webhook.workloads.pod_sets import OwnedPods, Path

T = TypeVar("T", bound=Owner)


@dataclass(frozen=True)
class Workload(Generic[T]):
    """A kind of owner.

    kind: the gang's kind, as pods show it. owner: the owner's own kind, if different. group, versions,
    resource: its API; versions are those that topogate can read, the best first. pods: the pods of each gang
    that an owner creates. by_uid: whether pods name the owner's uid, which distinguishes owners of the same
    name. recreates: whether its controller recreates a pod that is deleted, so that topogate may delete one
    that does not start. id_prefix: the prefix of the ids of its gangs, for a kind that several APIs have.
    """

    kind: str
    group: str
    versions: tuple[str, ...]
    resource: str
    struct: type[T]
    pods: Callable[[T], OwnedPods]
    by_uid: bool = False
    recreates: bool = False
    owner: str = ""
    id_prefix: str = ""

    @property
    def owner_name(self) -> str:
        """Its kind and group, as in docs and settings."""
        return f"{self.owner or self.kind}.{self.group}"

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
        training.training_job_pods,
        recreates=True,
        owner=owner,
    )


WORKLOADS: Final[tuple[Workload[Any], ...]] = (
    Workload("Job", "batch", ("v1",), "jobs", builtin.Job, builtin.job_pods, by_uid=True, recreates=True),
    Workload(
        "StatefulSet",
        "apps",
        ("v1",),
        "statefulsets",
        builtin.StatefulSet,
        builtin.stateful_set_pods,
        by_uid=True,
        recreates=True,
    ),
    Workload(
        "JobSet",
        "jobset.x-k8s.io",
        ("v1alpha2",),
        "jobsets",
        sets.JobSet,
        sets.job_set_pods,
        by_uid=True,
    ),
    Workload(
        "LeaderWorkerSet",
        "leaderworkerset.x-k8s.io",
        ("v1",),
        "leaderworkersets",
        sets.LeaderWorkerSet,
        sets.leader_worker_set_pods,
        recreates=True,
    ),
    Workload(
        "PodGroup", "scheduling.x-k8s.io", ("v1alpha1",), "podgroups", sets.PodGroup, sets.pod_group_pods
    ),
    Workload(
        "PodGroup", "scheduling.volcano.sh", ("v1beta1",), "podgroups", sets.PodGroup, sets.pod_group_pods
    ),
    Workload(
        "PodGroup",
        native_gangs.GROUP,
        native_gangs.VERSIONS,
        "podgroups",
        native_gangs.NativePodGroup,
        native_gangs.native_group_pods,
        id_prefix=f"{native_gangs.GROUP}/",
    ),
    Workload(
        "PodClique",
        "grove.io",
        ("v1alpha1",),
        "podcliques",
        sets.PodClique,
        sets.pod_clique_pods,
        by_uid=True,
        recreates=True,
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
        training.train_job_pods,
        by_uid=True,
    ),
    Workload(
        "RayCluster",
        "ray.io",
        ("v1",),
        "rayclusters",
        training.RayCluster,
        training.ray_cluster_pods,
        recreates=True,
    ),
)


@dataclass(frozen=True)
class LooseOwner:
    """A kind of owner whose pods do not wait for one another.

    group: None for the kind in any group. struct, pods: the pods that such an owner creates, for simulate and
    lint; None if only the pods themselves can be simulated. recreates: see Workload.
    """

    kind: str
    group: str | None = None
    struct: Any = None
    pods: Callable[[Any], OwnedPods] | None = None
    recreates: bool = False

    @property
    def name(self) -> str:
        """The name in docs and settings."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def is_of(self, owner: OwnerReference) -> bool:
        """Whether an owner is of this kind; Flyte writes its kind in lower case."""
        return owner.kind.lower() == self.kind.lower() and self.group in (None, owner.group)


def _replicas(kind: str, group: str | None = None) -> LooseOwner:
    return LooseOwner(kind, group, loose.ReplicaOwner, loose.replica_pods, recreates=True)


LOOSE_OWNERS: Final = (
    _replicas("ReplicaSet"),
    LooseOwner("DaemonSet"),
    LooseOwner("Node"),
    _replicas("ReplicationController", ""),
    _replicas("CloneSet", "apps.kruise.io"),
    LooseOwner("BroadcastJob", "apps.kruise.io"),
    LooseOwner("Workflow", "argoproj.io", loose.Workflow, loose.workflow_pods),
    LooseOwner("TaskRun", "tekton.dev"),
    LooseOwner("FlyteWorkflow", "flyte.lyft.com"),
    _replicas("NodeSet", "slinky.slurm.net"),
    LooseOwner("Model", "kubeai.org", recreates=True),
    LooseOwner("DaskWorkerGroup", "kubernetes.dask.org"),
    LooseOwner("Vertex", "numaflow.numaproj.io"),
    LooseOwner("MonoVertex", "numaflow.numaproj.io"),
    LooseOwner("SparkApplication"),
    LooseOwner("EphemeralRunner", "actions.github.com"),
    LooseOwner("Sandbox", "agents.x-k8s.io"),
    LooseOwner("VirtualMachineInstance", "kubevirt.io"),
    LooseOwner("Pod", ""),
)
"""The owner Pod is the driver of a Spark application, which creates the executors. Owners of Deployments are
not listed: their pods are of ReplicaSets."""


@dataclass(frozen=True)
class Creator:
    """A kind of object of which a controller creates one owner of pods.

    version, creates: the API and kind of that owner, which has the same name. spec: where the object has the
    owner's spec.
    """

    kind: str
    group: str
    version: str
    creates: str
    spec: Path


CREATORS: Final = (
    Creator("CronJob", "batch", "batch/v1", "Job", ("spec", "jobTemplate", "spec")),
    Creator("Deployment", "apps", "apps/v1", "ReplicaSet", ("spec",)),
    Creator("RayJob", "ray.io", "ray.io/v1", "RayCluster", ("spec", "rayClusterSpec")),
    Creator("RayService", "ray.io", "ray.io/v1", "RayCluster", ("spec", "rayClusterConfig")),
)
"""A RayJob's pod that submits has no GPUs and is created once the cluster runs, so it is left out."""
