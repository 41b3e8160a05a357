"""Claims, volumes and storage classes as narrow structs: what decides on which nodes a volume can be used."""

from webhook.kube.affinity import LabelSelector, NodeSelector
from webhook.kube.objects import Metadata, Resources
from webhook.kube.struct import Quantities, Struct

CLAIMS = "/api/v1/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


class ClaimSpec(Struct, frozen=True):
    """What a claim asks for; volume_name once it has been given a volume, or its author has chosen one."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] = []
    resources: Resources = Resources()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"


class Phase(Struct, frozen=True):
    """How far a claim or a volume is: Pending, Available, Bound, Released, Lost, Failed."""

    phase: str = ""


class PersistentVolumeClaim(Struct, frozen=True):
    """A claim."""

    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()


class ClaimReference(Struct, frozen=True):
    """The claim that a volume is kept for; uid "" where its author has named the claim alone."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Struct, frozen=True):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class VolumeSpec(Struct, frozen=True):
    """What a volume has, and where."""

    capacity: Quantities = {}
    access_modes: list[str] = []
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimReference | None = None


class PersistentVolume(Struct, frozen=True):
    """A volume."""

    metadata: Metadata
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()


class TopologyRequirement(Struct, frozen=True):
    """Values of a node's label, one of which it must have."""

    key: str = ""
    values: list[str] = []


class TopologyTerm(Struct, frozen=True):
    """Requirements on labels that must all hold."""

    match_label_expressions: list[TopologyRequirement] = []


class StorageClass(Struct, frozen=True):
    """How volumes of a class come to be; without allowed topologies they can be made for any node."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: list[TopologyTerm] = []
