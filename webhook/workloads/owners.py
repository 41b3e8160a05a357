"""Which owners create gangs, and which create pods that do not wait for one another. Pure.

The tables of kinds list the owners that are known. This module adds the operator's own rules.
The pods of an owner that no rule names are a gang: users notice a gang that waits for too many pods, but not
one that runs with too few.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from webhook.kube.objects import OwnerReference
from webhook.workloads.kinds import LOOSE_OWNERS, WORKLOADS

NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}(?:\.[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)?")
"""A kind of owner as operators write it: Kind for the core group, else Kind.group."""


RECREATING: Final = frozenset(
    {
        *(each.owner_name for each in WORKLOADS if each.recreates),
        *(each.name for each in LOOSE_OWNERS if each.recreates and each.group is not None),
        "ReplicaSet.apps",
        "Job.batch.volcano.sh",
    }
)
"""The kinds whose controllers recreate a pod that is deleted."""

_GANG_KINDS: Final = frozenset(each.kind for each in WORKLOADS)


class Makes(Enum):
    """The pods that an owner creates: a gang, or pods that do not wait for one another."""

    GANG = auto()
    LOOSE = auto()
    UNKNOWN = auto()


@dataclass(frozen=True)
class OwnerRules:
    """The operator's rules about owners, in addition to the built-in ones.

    gang_labels: keys of pod labels. Pods with the same value of the first one that they have are one gang,
    unless an annotation or a known owner names their gang. gang_owners, loose_owners: further kinds, in the
    form of NAME; they override the built-in rules.
    """

    gang_labels: tuple[str, ...] = ()
    gang_owners: frozenset[str] = frozenset()
    loose_owners: frozenset[str] = frozenset()

    def makes(self, owner: OwnerReference) -> Makes:
        """The kind of pods that an owner creates."""
        if self.is_named_loose(owner):
            return Makes.LOOSE
        if owner.kind_and_group in self.gang_owners:
            return Makes.GANG
        if any(each.is_of(owner) for each in LOOSE_OWNERS):
            return Makes.LOOSE
        return Makes.GANG if owner.kind in _GANG_KINDS else Makes.UNKNOWN

    def is_named_loose(self, owner: OwnerReference | None) -> bool:
        """Whether the operator lists this owner in gangs.looseOwners, whatever the labels of its pods."""
        return owner is not None and owner.kind_and_group in self.loose_owners


KNOWN_RULES: Final = OwnerRules()
"""The built-in rules alone."""
