"""Kubernetes objects as narrow structs: only the fields that topogate reads, decoded once at the edge.

Unknown fields are skipped by the decoder, so a struct here is also the list of what we depend on.
Maps and lists that the API server leaves out are empty here, never None.

What is kept for as long as an object lives is not for its author to choose: of annotations, of which a pod
may have 256 KiB, only those that topogate reads, and only to a length that makes sense.
"""

import hashlib
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import force_setattr

from labeler.contract import keys

SHORT_ANNOTATION: Final = 1024
"""Characters that are read of a name, a number or a list of cards or containers."""

LONG_ANNOTATION: Final = 16 * 1024
"""Characters that are read of an allocation: 16 cards with 2 tiles each in 50 containers take 12,000."""

Labels = dict[str, str]
Quantities = dict[str, str | int | float]
"""Resource name -> Kubernetes quantity as written ("500m", "8", 8)."""


class Struct(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """Base of all of these: frozen, camelCase on the wire, never part of a reference cycle."""


class OwnerReference(Struct, frozen=True):
    """Who made an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


OTHER_ANNOTATIONS: Final[Labels] = {"": ""}
"""Stands for annotations of which none is read: that there are any decides how one is added (RFC 6902)."""

_TOO_LONG: Final = "(too long: "


def kept_annotations(annotations: Labels) -> Labels:
    """Those that are read. In the place of one that is too long stands what is_too_long knows again.

    Two different values do not get the same substitute.
    """
    kept = {}
    for key, value in annotations.items():
        most = SHORT_ANNOTATION if key in keys.SHORT_ANNOTATIONS else LONG_ANNOTATION
        if most == SHORT_ANNOTATION or key in keys.LONG_ANNOTATIONS:
            kept[key] = value if len(value) <= most else _substitute(value, most)
    return kept or (OTHER_ANNOTATIONS if annotations else annotations)


def is_too_long(value: str) -> bool:
    """Whether this stands for an annotation that was too long to be read."""
    return value.startswith(_TOO_LONG)


def _substitute(value: str, most: int) -> str:
    digest = hashlib.sha256(value.encode()).hexdigest()[:16]
    return f"{_TOO_LONG}{len(value)} of at most {most} characters; {digest})"


class Metadata(Struct, frozen=True):
    """Object metadata, without managedFields; of annotations those that are read, see kept_annotations."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels = {}
    annotations: Labels = {}
    owner_references: list[OwnerReference] = []

    def __post_init__(self) -> None:
        """Forget the other annotations."""
        if self.annotations:
            force_setattr(self, "annotations", kept_annotations(self.annotations))

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, if any."""
        return next((owner for owner in self.owner_references if owner.controller), None)


class Taint(Struct, frozen=True):
    """A node's taint."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(Struct, frozen=True):
    """What an administrator says of a node."""

    unschedulable: bool = False
    taints: list[Taint] = []


class Condition(Struct, frozen=True):
    """One condition of a node or a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class NodeStatus(Struct, frozen=True):
    """What the kubelet says of a node."""

    allocatable: Quantities = {}
    conditions: list[Condition] = []


class Node(Struct, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Struct, frozen=True):
    """Requests and limits of a container or of a whole pod."""

    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(Struct, frozen=True):
    """A port of a container; host_port is 0 where the node's own ports are not touched."""

    host_port: int = 0
    host_ip: str = msgspec.field(default="", name="hostIP")
    protocol: str = ""


class Container(Struct, frozen=True):
    """A container or an init container; restartPolicy Always makes the latter a sidecar.

    Of its ports only those on the host are kept: few have any, and there are many containers.
    """

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str | None = None
    ports: tuple[ContainerPort, ...] = ()

    def __post_init__(self) -> None:
        """Forget the other ports."""
        if self.ports and not all(port.host_port for port in self.ports):
            force_setattr(self, "ports", tuple(port for port in self.ports if port.host_port))


class Toleration(Struct, frozen=True):
    """A pod's toleration; an empty effect or key means all."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


class Requirement(Struct, frozen=True):
    """One requirement of a node selector term."""

    key: str = ""
    operator: str = ""
    values: list[str] = []


class NodeSelectorTerm(Struct, frozen=True):
    """Requirements that must all hold; a term without any matches nothing."""

    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Struct, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] = []


class NodeAffinity(Struct, frozen=True):
    """Which nodes a pod must (and would like to) run on."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class LabelSelector(Struct, frozen=True):
    """Requirements on labels that must all hold; one without any matches everything."""

    match_labels: Labels = {}
    match_expressions: list[Requirement] = []


class PodAffinityTerm(Struct, frozen=True):
    """Pods (None: none) of some namespaces, and the domains in which to be with or without them.

    The API server has merged matchLabelKeys and mismatchLabelKeys into the selector already.
    """

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] = []
    namespace_selector: LabelSelector | None = None


class PodAffinity(Struct, frozen=True):
    """Which pods a pod must be near to; as anti-affinity, which it must not be near to."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] = []


class Affinity(Struct, frozen=True):
    """A pod's affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SchedulingGate(Struct, frozen=True):
    """A gate that holds a pod back from kube-scheduler."""

    name: str = ""


class TopologySpreadConstraint(Struct, frozen=True):
    """How evenly pods are to lie over the domains of a label."""

    topology_key: str = ""
    when_unsatisfiable: str = ""


class Named(Struct, frozen=True):
    """Something of which the name is enough."""

    name: str = ""


class Volume(Struct, frozen=True):
    """A volume; persistent_volume_claim and ephemeral are there where storage may belong to some nodes."""

    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None

    @property
    def is_claimed(self) -> bool:
        """Whether a PersistentVolumeClaim is behind it."""
        return self.persistent_volume_claim is not None or self.ephemeral is not None


class PodSpec(Struct, frozen=True):
    """What a pod asks for. Of its volumes only those are kept that have a claim."""

    node_name: str = ""
    node_selector: Labels = {}
    affinity: Affinity | None = None
    tolerations: list[Toleration] = []
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Quantities = {}
    resources: Resources = Resources()
    scheduling_gates: list[SchedulingGate] = []
    scheduler_name: str = ""
    scheduling_group: dict[str, Any] | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    resource_claims: tuple[Named, ...] = ()
    volumes: tuple[Volume, ...] = ()

    def __post_init__(self) -> None:
        """Forget the other volumes."""
        if self.volumes:
            claims = tuple(each for each in self.volumes if each.is_claimed)
            force_setattr(self, "volumes", claims)


class PodStatus(Struct, frozen=True):
    """How far a pod is."""

    phase: str = ""
    conditions: list[Condition] = []
    nominated_node_name: str = ""


class Pod(Struct, frozen=True):
    """A pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PriorityClass(Struct, frozen=True):
    """A PriorityClass; its value and preemption policy never change while it exists."""

    metadata: Metadata
    value: int = 0
    preemption_policy: str = "PreemptLowerPriority"
    global_default: bool = False


class ListMetadata(Struct, frozen=True):
    """Where a list stands in the history of the API server, and how it goes on."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


T = TypeVar("T")


class ObjectList(Struct, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMetadata = ListMetadata()
    items: list[T] = []
