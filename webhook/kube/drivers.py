"""CSI drivers as narrow structs: how many volumes nodes can attach, and how much storage capacity is left."""

from webhook.kube.affinity import LabelSelector
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct

NODES = "/apis/storage.k8s.io/v1/csinodes"
DRIVERS = "/apis/storage.k8s.io/v1/csidrivers"
CAPACITIES = "/apis/storage.k8s.io/v1/csistoragecapacities"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"


class VolumeCount(Struct, frozen=True):
    """How many volumes of a driver a node can attach; None for any number."""

    count: int | None = None


class NodeDriver(Struct, frozen=True):
    """A driver on a node."""

    name: str = ""
    allocatable: VolumeCount | None = None


class CSINodeSpec(Struct, frozen=True):
    """The drivers on a node."""

    drivers: tuple[NodeDriver, ...] = ()


class CSINode(Struct, frozen=True):
    """The CSI drivers of a node, under the node's name."""

    metadata: Metadata
    spec: CSINodeSpec = CSINodeSpec()


class CSIDriverSpec(Struct, frozen=True):
    """storage_capacity: whether a volume can be provisioned only where capacity is published."""

    storage_capacity: bool | None = None


class CSIDriver(Struct, frozen=True):
    """A driver."""

    metadata: Metadata
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(Struct, frozen=True):
    """The capacity of a class for a new volume on the selected nodes (None: no nodes)."""

    metadata: Metadata
    node_topology: LabelSelector | None = None
    storage_class_name: str = ""
    capacity: str | int | None = None
    maximum_volume_size: str | int | None = None


class AttachedSource(Struct, frozen=True):
    """The attached PersistentVolume, by name."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(Struct, frozen=True):
    """The volume, the node and the driver of an attachment."""

    attacher: str = ""
    node_name: str = ""
    source: AttachedSource = AttachedSource()


class VolumeAttachment(Struct, frozen=True):
    """A volume that is attached to a node, or will be."""

    metadata: Metadata
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
