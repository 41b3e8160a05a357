"""What the allocator knows of cards and pods, as plain values. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MONITORING_ID: Final = "all"
"""The one device of a ``_monitoring`` resource (Intel's device plugin): it shows every card, takes none."""

PodName = tuple[str, str]
"""Namespace and name."""


class Refusal(Exception):
    """A container gets no devices; the message is a sentence for the pod's owner."""


@dataclass(frozen=True)
class LocalCard:
    """One card as containers get it.

    number: as in its name cardN. nodes: its device files on the node (/dev/dri/card0, /dev/dri/renderD128).
    links: further paths to show read-only beside them. pci_address: "0000:3a:00.0", "" if unknown.
    problem: why it must not be handed out, "" for a healthy card.
    """

    number: int
    resource: str
    nodes: tuple[str, ...]
    links: tuple[str, ...] = ()
    pci_address: str = ""
    tiles: int = 1
    problem: str = ""
    name: str = ""
    """What the card is called in device ids and CDI names; "card" and its number if empty.

    Its PCI address as long as the driver does not report its name.
    """

    @property
    def label(self) -> str:
        """The card's name in device ids."""
        return self.name or f"card{self.number}"

    @property
    def is_nameless(self) -> bool:
        """Whether its PCI address stands for a name that is not known."""
        return bool(self.name) and self.name == self.pci_address


def device_id(card: LocalCard | str, share: int) -> str:
    """The id of one share of a card: ``card0-3``."""
    return f"{card if isinstance(card, str) else card.label}-{share}"


def card_of(device: str) -> str:
    """The name of the card that a device id is a share of."""
    return device.rpartition("-")[0]


@dataclass(frozen=True)
class Edits:
    """What a container is started with.

    environment: variables. nodes: device files of the node. links: paths shown read-only. cdi: names of CDI
    devices, which stand for all of that where the container runtime is to do it.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()


@dataclass(frozen=True)
class LocalContainer:
    """A container of a pod: its whole-numbered limits, and ZE_FLAT_DEVICE_HIERARCHY of its spec.

    hierarchy is None where the spec does not set it, and "?" where it may come from elsewhere (valueFrom,
    envFrom, another variable). masked: the spec sets ZE_AFFINITY_MASK itself.
    """

    name: str
    asks: Mapping[str, int]
    hierarchy: str | None = None
    masked: bool = False

    def wants(self, resource: str) -> int:
        """How many devices of a resource."""
        return self.asks.get(resource, 0)


@dataclass(frozen=True)
class LocalPod:
    """A pod of this node as the API server has it."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[LocalContainer, ...] = ()
    init: tuple[LocalContainer, ...] = ()
    """Init containers that end before the next one starts."""
    sidecars: tuple[LocalContainer, ...] = ()
    """Init containers that keep running (restartPolicy Always)."""
    over: bool = False
    """It has succeeded or failed."""
    started: bool = False
    """The kubelet has admitted it, by status.startTime."""

    @property
    def key(self) -> PodName:
        """Namespace and name, as the kubelet lists it."""
        return self.namespace, self.name

    def __str__(self) -> str:
        """How people name it."""
        return f"{self.namespace}/{self.name}"


Listing = Mapping[PodName, Mapping[str, Mapping[str, tuple[str, ...]]]]
"""The kubelet's word: pod -> container -> resource -> device ids. Ordinary init containers are not in it."""
