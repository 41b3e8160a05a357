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
"""The most devices of one claim (AllocationResultsMaxSize)."""
MOST_CONSUMERS: Final = 256
"""The most pods that one claim is reserved for (ResourceClaimReservedForMaxSize)."""


class Attribute(Struct, frozen=True):
    """A device's attribute: one field is set, none for a type that is not supported here (a list)."""

    number: int | None = msgspec.field(default=None, name="int")
    truth: bool | None = msgspec.field(default=None, name="bool")
    string: str | None = None
    version: str | None = None


class CapacityRange(Struct, frozen=True):
    """The range and step that requests are rounded up to."""

    min: str | int | float | None = None
    max: str | int | float | None = None
    step: str | int | float | None = None


class CapacityPolicy(Struct, frozen=True):
    """The amounts that shares of a device can have, and the default of a request without an amount."""

    default: str | int | float | None = None
    valid_values: tuple[str | int | float, ...] = ()
    valid_range: CapacityRange | None = None


class Capacity(Struct, frozen=True):
    """A capacity of a device."""

    value: str | int | float = 0
    request_policy: CapacityPolicy | None = None


class Counter(Struct, frozen=True):
    """An amount that devices of a pool consume together."""

    value: str | int | float = 0


class CounterSet(Struct, frozen=True):
    """Counters of a pool."""

    name: str = ""
    counters: dict[str, Counter] = {}


class CounterConsumption(Struct, frozen=True):
    """The amounts that a device consumes of a set's counters."""

    counter_set: str = ""
    counters: dict[str, Counter] = {}


class DeviceTaint(Struct, frozen=True):
    """A taint of a device: claims need a toleration for it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Device(Struct, frozen=True):
    """A device; node_name, node_selector or all_nodes is set if its slice selects nodes per device."""

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
    """The pool of a slice. Only slices of the highest generation count, once all of them exist."""

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
    """An expression that is true for the selected devices."""

    expression: str = ""


class Selector(Struct, frozen=True):
    """A condition on devices; cel is None for a type that is not supported here."""

    cel: CelSelector | None = None


class ClassSpec(Struct, frozen=True):
    """The devices of a class, and the extended resource that it backs."""

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
    """The capacities that each device must have left."""

    requests: Quantities = {}


class SubRequest(Struct, frozen=True):
    """Requested devices; name is set if this is one of several alternatives."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = EXACT_COUNT
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None


class DeviceRequest(Struct, frozen=True):
    """One request of a claim: exactly this, or the first available alternative."""

    name: str = ""
    exactly: SubRequest | None = None
    first_available: tuple[SubRequest, ...] = ()

    @property
    def choices(self) -> tuple[SubRequest, ...]:
        """The exact request, or its alternatives."""
        return (self.exactly,) if self.exactly is not None else self.first_available


class Constraint(Struct, frozen=True):
    """An attribute that must be equal, or distinct, for the devices of some requests (no names: of all)."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Struct, frozen=True):
    """The requests of a claim; requests is None if kube-scheduler's own claim needs nothing on its node."""

    requests: tuple[DeviceRequest, ...] | None = ()
    constraints: tuple[Constraint, ...] = ()

    @property
    def asked(self) -> tuple[DeviceRequest, ...]:
        """The requests, () if there are none."""
        return self.requests or ()


class DeviceClaimSpec(Struct, frozen=True):
    """A claim's spec."""

    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Struct, frozen=True):
    """A device that is allocated to a claim; with admin access it stays available to others.

    request: the name of its request, followed by a slash and the name of the alternative, if any.
    share_id: of a share of the device; consumed_capacity: the amounts that the share takes.
    """

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: Quantities = {}


class AllocatedDevices(Struct, frozen=True):
    """The devices that are allocated to a claim."""

    results: tuple[AllocatedDevice, ...] = ()


class ClaimAllocation(Struct, frozen=True):
    """The allocation of a claim, and the nodes where it can be used (None: all)."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class Consumer(Struct, frozen=True):
    """A pod that a claim is reserved for."""

    uid: str = ""


class ClaimStatus(Struct, frozen=True):
    """A claim's status."""

    allocation: ClaimAllocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class DeviceClaimMetadata(Metadata, frozen=True):
    """A claim's metadata, with only the annotation of claims for extended resources."""

    def __post_init__(self) -> None:
        """Drop the other annotations."""
        mine = {EXTENDED: self.annotations[EXTENDED]} if EXTENDED in self.annotations else {}
        force_setattr(self, "annotations", mine)


EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that kube-scheduler created for a pod's extended resources (KEP-5004)."""


class ResourceClaim(Struct, frozen=True):
    """A ResourceClaim."""

    metadata: DeviceClaimMetadata
    spec: DeviceClaimSpec = DeviceClaimSpec()
    status: ClaimStatus = ClaimStatus()


class TemplateSpec(Struct, frozen=True):
    """The spec that claims of a template get."""

    spec: DeviceClaimSpec = DeviceClaimSpec()


class ResourceClaimTemplate(Struct, frozen=True):
    """A ResourceClaimTemplate; each pod gets its own claim from it."""

    metadata: Metadata
    spec: TemplateSpec = TemplateSpec()
