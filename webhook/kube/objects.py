"""Kubernetes objects as narrow structs: only the fields that topogate reads, decoded once at the edge.

The decoder skips unknown fields, so the structs also list the fields that topogate depends on. Maps and lists
that the API server omits are empty here, never None.

An object's author must not control how much memory it takes. A pod may have 256 KiB of annotations, so only
those that topogate reads are kept, up to a limited length. Equal parts are kept once (see sharing), so
decoded values must not be changed.
"""

from collections.abc import Iterable
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from labeler.contract import keys
from webhook.kube import sharing
from webhook.kube.affinity import Affinity, LabelSelector
from webhook.kube.annotation_lengths import node_annotations, read_annotations
from webhook.kube.containers import ActualResources, Container, PodContainerStatus, Resources
from webhook.kube.struct import Labels, Quantities, Struct


class OwnerReference(Struct, frozen=True):
    """An owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False

    @property
    def group(self) -> str:
        """The API group, "" for the core group."""
        group, slash, _version = self.api_version.partition("/")
        return group if slash else ""

    @property
    def kind_and_group(self) -> str:
        """The kind as in settings: "Job.batch", or "ReplicationController" in the core group."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


class Metadata(Struct, frozen=True):
    """Object metadata, without managedFields, and with only the annotations that are read; see annotated."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: list[OwnerReference] = []

    def __post_init__(self) -> None:
        """Drop the other annotations; share the rest with other objects."""
        if self.annotations:
            force_setattr(self, "annotations", self._read_annotations())
        if self.labels:
            force_setattr(self, "labels", sharing.texts(self.labels))
        force_setattr(self, "namespace", sharing.text(self.namespace))
        force_setattr(self, "owner_references", sharing.part("owners", self.owner_references))

    def _read_annotations(self) -> dict[str, str]:
        return read_annotations(self.annotations)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        for owner in self.owner_references:  # faster than a generator: passes ask for it of each pod
            if owner.controller:
                return owner
        return None


class NodeMetadata(Metadata, frozen=True):
    """The metadata of a Node, with the annotations of its allocator."""

    def _read_annotations(self) -> dict[str, str]:
        return node_annotations(self.annotations)


class FieldManager(Struct, frozen=True):
    """A manager of fields, with only its operation: "Update", or "Apply" (server-side apply)."""

    operation: str = ""


class PodMetadata(Metadata, frozen=True):
    """The metadata of a Pod; of managedFields only the operations."""

    managed_fields: tuple[FieldManager, ...] = ()

    def __post_init__(self) -> None:
        """As for any object; also share managed_fields with other pods."""
        super().__post_init__()
        force_setattr(self, "managed_fields", sharing.part("managers", self.managed_fields))

    @property
    def is_applied(self) -> bool:
        """Whether a manager uses server-side apply, or an operation that is unknown here."""
        return any(each.operation != "Update" for each in self.managed_fields)


class NodeTaint(Struct, frozen=True):
    """A node's taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    """A node's spec: cordoning and taints."""

    unschedulable: bool = False
    taints: list[NodeTaint] = []


class Condition(Struct, frozen=True):
    """One condition of a node or a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class NodeStatus(Struct, frozen=True):
    """A node's status; of its conditions only Ready."""

    allocatable: Quantities = {}
    conditions: list[Condition] = []

    def __post_init__(self) -> None:
        """Drop the other conditions; share the rest with other nodes."""
        force_setattr(self, "allocatable", sharing.part("quantities", self.allocatable))
        ready = [each for each in self.conditions if each.type == "Ready"]
        force_setattr(self, "conditions", sharing.part("conditions", ready))


class Node(Struct, frozen=True):
    """A node."""

    metadata: NodeMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodToleration(Struct, frozen=True):
    """A pod's toleration; an empty effect or key matches all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class SchedulingGate(Struct, frozen=True):
    """A scheduling gate of a pod."""

    name: str = ""


class TopologySpreadConstraint(Struct, frozen=True):
    """How evenly the selected pods (None: no pods) must spread over the domains of a label."""

    topology_key: str = ""
    when_unsatisfiable: str = ""
    max_skew: int = 1
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    node_affinity_policy: str = ""
    node_taints_policy: str = ""
    match_label_keys: list[str] = []


class Namespace(Struct, frozen=True):
    """A namespace; only its labels matter."""

    metadata: Metadata


class PodClaim(Struct, frozen=True):
    """A device claim of a pod: by name, or by the template that it is created from.

    In a pod's status: the name of the created claim ("" if none is needed).
    """

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class Volume(Struct, frozen=True):
    """A volume; persistent_volume_claim or ephemeral is set if its storage may be limited to some nodes."""

    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None

    @property
    def is_claimed(self) -> bool:
        """Whether it has a PersistentVolumeClaim."""
        return self.persistent_volume_claim is not None or self.ephemeral is not None


class PodSpec(Struct, frozen=True):
    """A pod's spec; of its volumes only those with a claim."""

    node_name: str = ""
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: list[PodToleration] = []
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Quantities = {}
    resources: Resources = Resources()
    scheduling_gates: list[SchedulingGate] = []
    scheduler_name: str = ""
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    scheduling_group: dict[str, Any] | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()
    volumes: tuple[Volume, ...] = ()

    def __post_init__(self) -> None:
        """Drop the other volumes; share the rest with other pods."""
        if self.volumes:
            claimed = tuple(each for each in self.volumes if each.is_claimed)
            force_setattr(self, "volumes", claimed)
        for name in _SHARED_TEXTS:
            force_setattr(self, name, sharing.text(getattr(self, name)))
        for name in _SHARED_PARTS:
            value = getattr(self, name)
            if value is not None:
                force_setattr(self, name, sharing.part(name, value))


_SHARED_TEXTS: Final = ("node_name", "scheduler_name", "priority_class_name", "preemption_policy")
_SHARED_PARTS: Final = (
    "node_selector",
    "affinity",
    "tolerations",
    "containers",
    "init_containers",
    "overhead",
    "scheduling_gates",
    "topology_spread_constraints",
)


DISRUPTION: Final = "DisruptionTarget"
"""The condition of a pod that is evicted, preempted or lost with its node."""

_CONDITIONS: Final = ("PodScheduled", DISRUPTION)
_STARTED: Final = ("Running", "Failed")


class PodStatus(Struct, frozen=True):
    """A pod's status; its conditions are PodScheduled, DisruptionTarget, an infeasible resize, and not Ready.

    reason, message: why the whole pod failed; kept for failed pods only. start_time: when the kubelet
    first accepted or refused it; kept for failed and running pods, and for those that may be moved.
    resources, allocated_resources: the pod's actual resources, and those that the kubelet has allocated; kept
    if they differ from the pod-level requests (spec.resources).
    """

    phase: str = ""
    conditions: list[Condition] = []
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[PodClaim, ...] = ()
    container_statuses: tuple[PodContainerStatus, ...] = ()
    init_container_statuses: tuple[PodContainerStatus, ...] = ()
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    resources: ActualResources | None = None
    allocated_resources: Quantities | None = None

    def __post_init__(self) -> None:
        """Drop the other conditions; share the rest with other pods."""
        if self.phase != "Failed":
            force_setattr(self, "reason", "")
            force_setattr(self, "message", "")
        stored = [each for each in self.conditions if each.type in _CONDITIONS or _is_infeasible(each)]
        if self.phase == "Running" and any(map(_is_unready, self.conditions)):
            stored.append(_UNREADY)
        force_setattr(self, "conditions", sharing.part("conditions", stored))
        force_setattr(self, "phase", sharing.text(self.phase))
        if self.start_time is not None:
            force_setattr(self, "start_time", sharing.text(self.start_time))

    @property
    def is_unready(self) -> bool:
        """Whether the kubelet reports that the pod runs and is not ready."""
        return any(map(_is_unready, self.conditions))

    @property
    def resize_is_infeasible(self) -> bool:
        """Whether the kubelet refuses to resize the pod, so that the requests in its spec do not count."""
        return any(map(_is_infeasible, self.conditions))


def _is_infeasible(condition: Condition) -> bool:
    # Like kube-scheduler, ignore the condition's status.
    return condition.type == "PodResizePending" and condition.reason == "Infeasible"


_UNREADY: Final = Condition("Ready", "False")


def _is_unready(condition: Condition) -> bool:
    return condition.type == "Ready" and condition.status != "True"


class Pod(Struct, frozen=True):
    """A pod; of its container statuses only those of failed, troubled or resizing containers."""

    metadata: PodMetadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        """Drop the other statuses."""
        spec, status = self.spec, self.status
        if status.phase not in _STARTED and keys.MOVABLE_ANNOTATION not in self.metadata.annotations:
            force_setattr(status, "start_time", None)  # else each start would be two changes
        if status.container_statuses:
            force_setattr(
                status, "container_statuses", _with_trouble(status.container_statuses, spec.containers)
            )
        if status.init_container_statuses:
            found = _with_trouble(status.init_container_statuses, spec.init_containers)
            force_setattr(status, "init_container_statuses", found)
        if (status.resources is not None or status.allocated_resources) and not self._is_resized:
            force_setattr(status, "resources", None)
            force_setattr(status, "allocated_resources", None)

    @property
    def _is_resized(self) -> bool:
        """Whether the pod's actual or allocated resources differ from its pod-level requests."""
        if self.status.resources is None:
            return False
        actual, allocated = self.status.resources.requests, self.status.allocated_resources or {}
        wanted = self.spec.resources.requests.items()
        return any(actual.get(name) != each or allocated.get(name, each) != each for name, each in wanted)


def _with_trouble(
    statuses: Iterable[PodContainerStatus], containers: list[Container]
) -> tuple[PodContainerStatus, ...]:
    """The statuses of troubled and of resizing containers; only the latter with resources."""
    requests = {each.name: each.resources.requests for each in containers}
    found = []
    for each in statuses:
        if each.is_resized(requests.get(each.name, {})):
            found.append(each)
        elif each.is_troubled:
            found.append(replace(each, resources=None, allocated_resources=None))
    return tuple(found)


class PriorityClass(Struct, frozen=True):
    """A PriorityClass; its value and preemption policy never change while it exists."""

    metadata: Metadata
    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    global_default: bool = False


class ListMetadata(Struct, frozen=True):
    """The version of a list, and the token of its next page."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


T = TypeVar("T")


class ObjectList(Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMetadata = ListMetadata()
    items: list[T] = []
