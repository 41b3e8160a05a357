"""What CSI drivers can do, as narrow structs: how many volumes nodes take, and how much capacity is left."""

from webhook.kube.affinity import LabelSelector
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct

NODES = "/apis/storage.k8s.io/v1/csinodes"
DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
CAPACITIES = "/apis/storage.k8s.io/v1/csistoragecapacities"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class VolumeCount(Struct, frozen=True):
    """How many volumes of a driver a node takes; None for any number."""

    count: int | None = None


class NodeDriver(Struct, frozen=True):
    """A driver on a node."""

    name: str = ""
    allocatable: VolumeCount | None = None


class CSINodeSpec(Struct, frozen=True):
    """The drivers on a node."""

    drivers: tuple[NodeDriver, ...] = ()


class CSINode(Struct, frozen=True):
    """What CSI drivers tell of a node; it has the node's name."""

    metadata: Metadata
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Struct, frozen=True):
    """storage_capacity: whether capacity must be published where a volume is to be made."""

    storage_capacity: bool | None = None


class CSIDriver(Struct, frozen=True):
    """A driver."""

    metadata: Metadata
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Struct, frozen=True):
    """How much capacity a class has for one more volume on the nodes of the selector (None: none)."""

    metadata: Metadata
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None


class AttachedSource(Struct, frozen=True):
    """What is attached: a PersistentVolume by its name."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Struct, frozen=True):
    """Which volume is attached to which node, by which driver."""

    attacher: str = ""
    node_name: str = ""
    source: AttachedSource = AttachedSource()


class VolumeAttachment(Struct, frozen=True):
    """A volume that is attached to a node, or is to be."""

    metadata: Metadata
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
