"""Which pods belong together. Pure.

A gang is known by what its controller writes on its pods; the user's own annotations override that.
Namespaces are part of the identity, and so is the controller's uid: a Job that is made again under the
same name is another gang.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.text import printable
from webhook.workloads import marks
from webhook.workloads.kinds import WORKLOADS
from webhook.workloads.ranks import mark

_KNOWN_OWNERS: Final = frozenset((*marks.LOOSE_OWNERS, *(each.kind for each in WORKLOADS)))
"""Controllers of which it is known which of their pods wait for one another."""


@dataclass(frozen=True, order=True)
class GangKey:
    """A gang's identity. kind and name are for people; `id` (a uid or what stands for one) decides.

    name is what an author wrote, with everything escaped that a line of a log or a terminal would obey.
    """

    namespace: str
    kind: str
    name: str
    id: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"

    @property
    def placement_name(self) -> str:
        """The name of its Placement: readable, and different for two gangs of one name."""
        digest = hashlib.sha256(f"{self.kind}\0{self.name}\0{self.id}".encode()).hexdigest()[:8]
        readable = re.sub(r"[^a-z0-9-]+", "-", f"{self.kind}-{self.name}".lower()).strip("-")
        return f"{readable[:200]}-{digest}"

    @property
    def placement_key(self) -> str:
        """Where its Placement stands among all: "namespace/name"."""
        return f"{self.namespace}/{self.placement_name}"


def maker_of(pod: Pod, gang: GangKey) -> GangKey:
    """Who stands for a pod and its successors: its gang; for one that is a gang alone, what made it."""
    owner = pod.metadata.controller
    if gang.kind != "Pod" or owner is None:
        return gang
    return GangKey(gang.namespace, owner.kind, owner.name, owner.uid)


def exclusive_over(pod: Pod) -> str:
    """The node label of which a pod's Job or group has a domain of its own, "" without such a wish."""
    there = pod.metadata.annotations
    return there.get(marks.JOBSET_EXCLUSIVE) or there.get(marks.LWS_EXCLUSIVE) or ""


def key_of(pod: Pod, gang_labels: Sequence[str] = ()) -> GangKey:
    """The gang that a pod belongs to; a pod without any sign of one is a gang of its own.

    gang_labels: labels of the operator's choice, the first that is there counts. They stand behind what a pod
    says itself and behind controllers that are known: those say more than a release's name does.
    """
    metadata = pod.metadata
    own = metadata.annotations.get(keys.GANG_ANNOTATION)
    if own:
        return GangKey(metadata.namespace, "Gang", printable(own), own)
    for kind, name_key, id_key in marks.GANG_LABELS:
        name = mark(pod, name_key)
        if kind == "JobSet" and marks.JOBSET_EXCLUSIVE in metadata.annotations:
            continue  # each of its Jobs has a domain of its own, and waits for none of the others
        if name:
            return GangKey(metadata.namespace, kind, printable(name), mark(pod, id_key) or name)
    owner = metadata.controller
    if owner is None or owner.kind not in _KNOWN_OWNERS:
        for label in gang_labels:
            if value := metadata.labels.get(label):
                return GangKey(metadata.namespace, "Group", printable(value), f"{label}={value}")
    if owner is not None and owner.kind not in marks.LOOSE_OWNERS:
        return GangKey(metadata.namespace, owner.kind, owner.name, owner.uid)
    return GangKey(metadata.namespace, "Pod", metadata.name, metadata.uid)
