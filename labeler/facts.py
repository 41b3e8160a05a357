"""What a source finds out about a node, and how the facts of several sources become one.

A field that is None was not reported by the source; an empty one was reported as empty.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

NO_CARD: Final = -1


@dataclass(frozen=True)
class Gpu:
    """One GPU of a node, as the kernel numbers it.

    card: the number in its name cardN; NO_CARD for a GPU whose driver makes no drm device.
    memory_bytes: local memory of the whole card, 0 where the card has none or does not report it.
    pci_path: names of its PCI ancestors from the root ("pci0000:00") down. skipped: why it must not be used,
    "" for a card in use (an SR-IOV physical function is there, yet only its virtual functions serve); broken:
    whether that is a fault of the card. former_model: its name by the rules of the release before.
    compute_partition, memory_partition: modes of AMD's GPUs as amdgpu spells them, "" where it has none.
    split_by_mig: it is split into MIG instances.
    """

    card: int
    vendor: str
    model: str = ""
    driver: str = ""
    device_id: str = ""
    numa_node: int | None = None
    tiles: int = 1
    memory_bytes: int = 0
    integrated: bool = False
    pci_path: tuple[str, ...] = ()
    skipped: str = ""
    broken: bool = False
    address: str = ""
    former_model: str = ""
    compute_partition: str = ""
    memory_partition: str = ""
    split_by_mig: bool = False


@dataclass(frozen=True)
class Facts:
    """A node's place (coarsest level first), its GPUs, and annotations with its identity in its cloud.

    broken: a sentence for each GPU that is there and cannot be used, also for one that cannot be described.
    accelerators: how many there are of each kind that is not counted as a GPU.
    """

    topology: tuple[str, ...] | None = None
    gpus: tuple[Gpu, ...] | None = None
    identity: Mapping[str, str] | None = field(default=None, hash=False)
    broken: tuple[str, ...] | None = None
    accelerators: Mapping[str, int] | None = field(default=None, hash=False)


class SourceError(Exception):
    """A source cannot answer now, which is not the same as answering that there is nothing.

    facts: what it knows all the same.
    """

    def __init__(self, message: str, facts: Facts | None = None) -> None:
        super().__init__(message)
        self.facts = facts or Facts()


def merge(sources_facts: Iterable[Facts]) -> Facts:
    """Of each field the first value that a source gave; identities are joined, earlier keys win."""
    merged: dict[str, Any] = {}
    for facts in sources_facts:
        for name in (item.name for item in fields(Facts)):
            value = getattr(facts, name)
            if value is None:
                continue
            if name == "identity":
                merged[name] = {**value, **merged.get(name, {})}
            else:
                merged.setdefault(name, value)
    return Facts(**merged)
