"""Claims, volumes and storage classes: narrow structs with the fields that limit the nodes of a volume."""

from typing import Final

import msgspec
from msgspec.structs import force_setattr

from webhook.kube.affinity import LabelSelector, NodeSelector
from webhook.kube.containers import Resources
from webhook.kube.objects import Metadata
from webhook.kube.struct import Quantities, Struct

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
CLASS_BEFORE_IT_WAS_A_FIELD: Final = "volume.beta.kubernetes.io/storage-class"
_ANNOTATIONS: Final = frozenset({BIND_COMPLETED, SELECTED_NODE, CLASS_BEFORE_IT_WAS_A_FIELD})
"""Annotations by Kubernetes' controllers on claims (k8s.io/component-helpers, storage/volume)."""

_LONGEST: Final = 253
"""Characters of their values, which are names."""


class ClaimMetadata(Metadata, frozen=True):
    """A claim's metadata, with only the annotations that decide where its volume is."""

    def __post_init__(self) -> None:
        """Drop the other annotations, and values that are too long for a name."""
        used = {
            key: text
            for key, text in self.annotations.items()
            if key in _ANNOTATIONS and len(text) <= _LONGEST
        }
        force_setattr(self, "annotations", used)


class ClaimSpec(Struct, frozen=True):
    """A claim's spec; volume_name is set once it is bound to a volume, or by its author."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] = []
    resources: Resources = Resources()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""


class Phase(Struct, frozen=True):
    """The phase of a claim or a volume: Pending, Available, Bound, Released, Lost, Failed."""

    phase: str = ""


class PersistentVolumeClaim(Struct, frozen=True):
    """A claim."""

    metadata: ClaimMetadata
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class ClaimReference(Struct, frozen=True):
    """The claim that a volume is reserved for; uid is "" if the volume's author named only the claim."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Struct, frozen=True):
    """The nodes that can reach a volume."""

    required: NodeSelector | None = None


class CsiSource(Struct, frozen=True):
    """The volume of a CSI driver, by the driver's name for it."""

    driver: str = ""
    volume_handle: str = ""


class AwsVolume(Struct, frozen=True):
    """An in-tree AWS volume: "vol-1", or "aws://ZONE/vol-1"."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class GceVolume(Struct, frozen=True):
    """An in-tree GCE disk."""

    pd_name: str = ""


class AzureSource(Struct, frozen=True):
    """An in-tree Azure disk."""

    disk_uri: str = msgspec.field(default="", name="diskURI")


class VolumeIdSource(Struct, frozen=True):
    """An in-tree volume of Cinder or Portworx."""

    volume_id: str = msgspec.field(default="", name="volumeID")


class VolumeSpec(Struct, frozen=True):
    """A volume's spec. Of its sources only those that nodes can attach in limited numbers."""

    capacity: Quantities = {}
    access_modes: list[str] = []
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None
    volume_attributes_class_name: str = ""
    csi: CsiSource | None = None
    aws_elastic_block_store: AwsVolume | None = None
    gce_persistent_disk: GceVolume | None = None
    azure_disk: AzureSource | None = None
    cinder: VolumeIdSource | None = None
    portworx_volume: VolumeIdSource | None = None


class PersistentVolume(Struct, frozen=True):
    """A volume."""

    metadata: Metadata
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()


class TopologyRequirement(Struct, frozen=True):
    """A node label and the values that are allowed."""

    key: str = ""
    values: list[str] = []


class TopologyTerm(Struct, frozen=True):
    """Requirements on labels that must all hold."""

    match_label_expressions: list[TopologyRequirement] = []


class StorageClass(Struct, frozen=True):
    """How volumes of a class are provisioned: without allowed_topologies, for any node."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] = []
