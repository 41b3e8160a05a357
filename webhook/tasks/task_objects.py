"""GPUTasks and their objects in the cluster, as structs of the fields that are read."""

from typing import Any, Final

import msgspec

from webhook.kube.objects import Condition, Metadata, SchedulingGate
from webhook.kube.struct import Struct

GROUP_VERSION: Final = "falldio.com/v1"
KIND: Final = "GPUTask"
ALL: Final = "/apis/falldio.com/v1/gputasks"
ALL_JOBS: Final = "/apis/batch/v1/jobs"
ALL_PODS: Final = "/api/v1/pods"
NAMESPACES: Final = "/api/v1/namespaces"
RESTRICTED: Final = "pod-security.kubernetes.io/enforce=restricted"
"""Namespaces where the API server accepts no pod that may run as root."""

PENDING: Final = "Pending"
WAITING: Final = "Waiting"
RUNNING: Final = "Running"
SUSPENDED: Final = "Suspended"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
FINAL: Final = (SUCCEEDED, FAILED)

NEVER: Final = "Never"
Amount = str | int | None
"""A quantity as its author wrote it; quotation marks around a number do not matter."""


class TaskMetadata(Metadata, frozen=True):
    """Metadata with the generation, which counts the changes of spec."""

    generation: int = 0


class TopologyRequest(Struct, frozen=True):
    """Topology requests, each the name of a level or ""."""

    required: str = ""
    preferred: str = ""
    slice: str = ""
    slice_size: int = 0


class Variable(Struct, frozen=True):
    """One variable of the environment."""

    name: str
    value: str = ""


class TaskSpec(Struct, frozen=True):
    """What the user wrote, with the defaults of the definition. template: an unchanged pod template."""

    memory: Amount = None
    cpu: Amount = None
    gpu: str = ""
    gpu_amount: str | int = msgspec.field(default="1", name="gpu-amount")
    priority: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Variable, ...] = ()
    workers: int = 1
    suspend: bool = False
    restart_policy: str = NEVER
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    attempt: int = 0
    topology: TopologyRequest = TopologyRequest()
    template: dict[str, Any] | None = None


class TaskCondition(Struct, frozen=True):
    """One condition; status is "True" or "False"."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class TaskStatus(Struct, frozen=True, omit_defaults=True):
    """The state of a task. Times are RFC 3339 in UTC. The fields are described in the definition."""

    observed_generation: int = 0
    attempt: int = 0
    phase: str = ""
    reason: str = ""
    job: str = ""
    node: str = ""
    nodes: tuple[str, ...] = ()
    cards: str = ""
    running: int = 0
    restarts: int = 0
    start_time: str | None = None
    finish_time: str | None = None
    conditions: tuple[TaskCondition, ...] = ()


class Task(Struct, frozen=True):
    """A GPUTask."""

    metadata: TaskMetadata
    spec: TaskSpec = TaskSpec()
    status: TaskStatus = TaskStatus()

    @property
    def key(self) -> str:
        """ "namespace/name"."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_finished(self) -> bool:
        """Whether the end of the current attempt has been recorded."""
        return self.status.phase in FINAL and self.status.attempt == self.spec.attempt


# --- what was made of it ------------------------------------------------------------------------------


class JobCondition(Struct, frozen=True):
    """One condition of a Job."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class TaskJobSpec(Struct, frozen=True):
    """The fields of a Job's spec that may change."""

    suspend: bool = False
    active_deadline_seconds: int | None = None


class TaskJobStatus(Struct, frozen=True):
    """The progress of a Job."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    completion_time: str | None = None
    conditions: tuple[JobCondition, ...] = ()


class TaskJob(Struct, frozen=True):
    """A Job."""

    metadata: Metadata
    spec: TaskJobSpec = TaskJobSpec()
    status: TaskJobStatus = TaskJobStatus()

    @property
    def end(self) -> JobCondition | None:
        """The condition that the Job has ended, with all its pods."""
        over = (each for each in self.status.conditions if each.status == "True")
        return next((each for each in over if each.type in ("Complete", "Failed")), None)


class ContainerStateWaiting(Struct, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Runs(Struct, frozen=True):
    """Since when a container runs, or ran."""

    started_at: str | None = None


class ContainerState(Struct, frozen=True):
    """At most one of the three is set."""

    waiting: ContainerStateWaiting | None = None
    running: Runs | None = None
    terminated: Runs | None = None


class ContainerStatus(Struct, frozen=True):
    """The state of a container."""

    restart_count: int = 0
    state: ContainerState = ContainerState()


class WorkerSpec(Struct, frozen=True):
    """The fields of a worker's pod that are read."""

    node_name: str = ""
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class WorkerStatus(Struct, frozen=True):
    """The state of a worker's pod."""

    phase: str = ""
    start_time: str | None = None
    conditions: tuple[Condition, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class TaskPod(Struct, frozen=True):
    """A pod of a task's Job."""

    metadata: Metadata
    spec: WorkerSpec = WorkerSpec()
    status: WorkerStatus = WorkerStatus()

    @property
    def is_over(self) -> bool:
        """Whether all its containers have ended."""
        return self.status.phase in FINAL


class TaskNamespace(Struct, frozen=True):
    """A namespace, of which only the name is read."""

    metadata: Metadata


def path(namespace: str, name: str = "") -> str:
    """The path of a namespace's GPUTasks, or of one of them."""
    return f"/apis/{GROUP_VERSION}/namespaces/{namespace}/gputasks" + (f"/{name}" if name else "")


def jobs_path(namespace: str, name: str = "") -> str:
    """The path of a namespace's Jobs, or of one of them."""
    return f"/apis/batch/v1/namespaces/{namespace}/jobs" + (f"/{name}" if name else "")


def pod_path(pod: TaskPod) -> str:
    """Where a pod lives."""
    return f"{NAMESPACES}/{pod.metadata.namespace}/pods/{pod.metadata.name}"
