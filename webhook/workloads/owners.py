"""Which owners make gangs, and which make pods that do not wait for one another. Pure.

The gangs are those of kinds.WORKLOADS; here are the others, and what the operator says of further kinds.
An owner of which nobody says anything makes a gang: to wait for too many is seen, to run a part is not.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from webhook.kube.objects import OwnerReference
from webhook.workloads.kinds import WORKLOADS

NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}(?:\.[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)?")
"""A kind of owner as operators write it: Kind of the core group, or Kind.group."""


@dataclass(frozen=True)
class LooseOwner:
    """A kind of owner whose pods do not wait for one another.

    group: None where that holds of the kind in every group.
    """

    kind: str
    group: str | None = None

    @property
    def name(self) -> str:
        """As docs and settings call it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def is_of(self, owner: OwnerReference) -> bool:
        """Whether an owner is of this kind."""
        return owner.kind == self.kind and self.group in (None, owner.group)


LOOSE_OWNERS: Final = (
    LooseOwner("ReplicaSet"),
    LooseOwner("DaemonSet"),
    LooseOwner("Node"),
    LooseOwner("ReplicationController", ""),
    LooseOwner("CloneSet", "apps.kruise.io"),
    LooseOwner("Workflow", "argoproj.io"),
    LooseOwner("TaskRun", "tekton.dev"),
    LooseOwner("Pod", ""),
)
"""The last is the driver of a Spark application, which makes the executors."""

_GANG_KINDS: Final = frozenset(each.kind for each in WORKLOADS)


class Makes(Enum):
    """What pods an owner makes."""

    GANG = auto()
    LOOSE = auto()
    UNKNOWN = auto()


@dataclass(frozen=True)
class OwnerRules:
    """What the operator says of owners, beside what is known.

    gang_labels: keys of pod labels, of which the first that a pod has makes one gang of those with the same
    value, where neither annotations nor a known owner says so. gang_owners, loose_owners: further kinds, as
    NAME has it, which go before what is known.
    """

    gang_labels: tuple[str, ...] = ()
    gang_owners: frozenset[str] = frozenset()
    loose_owners: frozenset[str] = frozenset()

    def makes(self, owner: OwnerReference) -> Makes:
        """What pods an owner makes."""
        if self.is_named_loose(owner):
            return Makes.LOOSE
        if owner.kind_and_group in self.gang_owners:
            return Makes.GANG
        if any(each.is_of(owner) for each in LOOSE_OWNERS):
            return Makes.LOOSE
        return Makes.GANG if owner.kind in _GANG_KINDS else Makes.UNKNOWN

    def is_named_loose(self, owner: OwnerReference | None) -> bool:
        """Whether the operator says that pods of such an owner do not wait, whatever their labels say."""
        return owner is not None and owner.kind_and_group in self.loose_owners


KNOWN_RULES: Final = OwnerRules()
"""What is known without an operator."""
