"""Devices and claims on them as narrow structs: resource.k8s.io/v1, Dynamic Resource Allocation."""

from typing import Any, Final

import msgspec
from msgspec.structs import force_setattr

from webhook.kube.affinity import NodeSelector
from webhook.kube.objects import Metadata
from webhook.kube.struct import Quantities, Struct

GROUP: Final = "/apis/resource.k8s.io/v1"
SLICES: Final = f"{GROUP}/resourceslices"
CLASSES: Final = f"{GROUP}/deviceclasses"
CLAIMS: Final = f"{GROUP}/resourceclaims"
TEMPLATES: Final = f"{GROUP}/resourceclaimtemplates"

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
MOST_DEVICES: Final = 32
"""What one claim may be given (AllocationResultsMaxSize)."""
MOST_CONSUMERS: Final = 256
"""For how many pods one claim may be reserved (ResourceClaimReservedForMaxSize)."""


class Attribute(Struct, frozen=True):
    """A device's attribute: one of these has a value; none for a kind that is not known here (a list)."""

    number: int | None = msgspec.field(default=None, name="int")
    truth: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class CapacityRange(Struct, frozen=True):
    """The amounts between which a request is rounded up, by steps."""

    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None


class CapacityPolicy(Struct, frozen=True):
    """How a request for a share is read: what is given where it names no amount, and what may be given."""

    default: str | int | float | None = None
    valid_values: tuple[str | int | float, ...] = ()
    valid_range: CapacityRange | None = None


class Capacity(Struct, frozen=True):
    """An amount of something on a device."""

    value: str | int | float = 0
    request_policy: CapacityPolicy | None = None


class Counter(Struct, frozen=True):
    """An amount that devices of a pool use up together."""

    value: str | int | float = 0


class CounterSet(Struct, frozen=True):
    """Counters of a pool."""

    name: str = ""
    counters: dict[str, Counter] = {}


class CounterConsumption(Struct, frozen=True):
    """What a device uses up of a set's counters."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Struct, frozen=True):
    """Keeps claims that do not tolerate it off a device."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Device(Struct, frozen=True):
    """A device; node_name, node_selector and all_nodes where each device of a slice says where it is."""

    name: str = ""
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False
    node_allocatable_resource_mappings: dict[str, Any] | None = None


class SlicePool(Struct, frozen=True):
    """The pool that a slice is part of. Only slices of the highest generation count, once all are there."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(Struct, frozen=True):
    """Devices of one driver in one pool, and the nodes that can use them."""

    driver: str = ""
    pool: SlicePool = SlicePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Struct, frozen=True):
    """A ResourceSlice."""

    metadata: Metadata
    spec: SliceSpec = SliceSpec()


class CelSelector(Struct, frozen=True):
    """An expression that is true of the devices that are meant."""

    expression: str = ""


class Selector(Struct, frozen=True):
    """A condition on devices; None where it is of a kind that is not known here."""

    cel: CelSelector | None = None


class ClassSpec(Struct, frozen=True):
    """Which devices are of a class, and the extended resource that it stands for."""

    selectors: tuple[Selector, ...] = ()
    extended_resource_name: str = ""


class DeviceClass(Struct, frozen=True):
    """A DeviceClass."""

    metadata: Metadata
    spec: ClassSpec = ClassSpec()


class DeviceToleration(Struct, frozen=True):
    """A toleration of device taints; an empty key or effect means all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class CapacityRequirements(Struct, frozen=True):
    """How much of its capacities each device must have left."""

    requests: Quantities = {}


class SubRequest(Struct, frozen=True):
    """Devices that are asked for; name is that of an alternative among others."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(Struct, frozen=True):
    """One request of a claim: exactly this, or the first of some that can be had."""

    name: str = ""
    exactly: SubRequest | None = None
    first_available: tuple[SubRequest, ...] = ()

    @property
    def choices(self) -> tuple[SubRequest, ...]:
        """Exactly this, or the alternatives."""
        return (self.exactly,) if self.exactly is not None else self.first_available


class Constraint(Struct, frozen=True):
    """What the devices of some requests (none named: of all) must have in common, or not."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Struct, frozen=True):
    """All that a claim asks for; null where kube-scheduler's own claim asks for nothing on its node."""

    requests: tuple[DeviceRequest, ...] | None = ()
    constraints: tuple[Constraint, ...] = ()

    @property
    def asked(self) -> tuple[DeviceRequest, ...]:
        """The requests."""
        return self.requests or ()


class DeviceClaimSpec(Struct, frozen=True):
    """A claim's spec."""

    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Struct, frozen=True):
    """A device that a claim has been given; one given for admin access is taken from nobody.

    request: the name of its request, and after a slash that of the alternative.
    share_id: of a share of it; consumed_capacity: what the share takes.
    """

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: Quantities = {}


class AllocatedDevices(Struct, frozen=True):
    """What a claim has been given."""

    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(Struct, frozen=True):
    """What a claim has been given, and on which nodes it can be used (None: on all)."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class Consumer(Struct, frozen=True):
    """For whom a claim is reserved."""

    uid: str = ""


class ClaimStatus(Struct, frozen=True):
    """How far a claim is."""

    allocation: ClaimAllocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class DeviceClaimMetadata(Metadata, frozen=True):
    """A claim's metadata: of its annotations the one that says that it stands for an extended resource."""

    def __post_init__(self) -> None:
        """Forget the other annotations."""
        mine = {EXTENDED: self.annotations[EXTENDED]} if EXTENDED in self.annotations else {}
        force_setattr(self, "annotations", mine)


EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of a claim that kube-scheduler has made for a pod's extended resources (KEP-5004)."""


class ResourceClaim(Struct, frozen=True):
    """A ResourceClaim."""

    metadata: DeviceClaimMetadata
    spec: DeviceClaimSpec = DeviceClaimSpec()
    status: ClaimStatus = ClaimStatus()


class TemplateSpec(Struct, frozen=True):
    """What the claims of a template will be."""

    spec: DeviceClaimSpec = DeviceClaimSpec()


class ResourceClaimTemplate(Struct, frozen=True):
    """A ResourceClaimTemplate, of which each pod gets a claim of its own."""

    metadata: Metadata
    spec: TemplateSpec = TemplateSpec()
