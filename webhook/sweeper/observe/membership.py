"""Which pods belong to one gang, and which of them are CPU-only pods. Pure.

A gang is recognized by what its controller writes on its pods; the user's own annotations override that.
Namespaces are part of the identity, and so is the controller's uid: a Job that is recreated under the same
name is another gang.

CPU-only pods are pods of a gang that ask for no GPU while others do: launchers, drivers, leaders. Such a pod
waits for the others and is placed beside them, but does not influence their places: often it may not even run
on their nodes, since it lacks a toleration. A pod that names a level, slices or a domain of its own is a
member like the others.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.text import printable
from webhook.workloads import marks, native_gangs
from webhook.workloads.own_domains import own_domain_labels
from webhook.workloads.owners import KNOWN_RULES, Makes, OwnerRules
from webhook.workloads.pod_group_names import marked_gang, native_group_of
from webhook.workloads.pod_sets import asks_for_devices


@dataclass(frozen=True, order=True)
class GangKey:
    """A gang's identity. kind and name are for people; `id` (a uid or its equivalent) decides.

    name is as an author wrote it, with characters escaped that would control a terminal or break a log line.
    """

    namespace: str
    kind: str
    name: str
    id: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"

    @cached_property
    def placement_name(self) -> str:
        """The name of its Placement: readable, and different for two gangs of one name."""
        digest = hashlib.sha256(f"{self.kind}\0{self.name}\0{self.id}".encode()).hexdigest()[:8]
        readable = re.sub(r"[^a-z0-9-]+", "-", f"{self.kind}-{self.name}".lower()).strip("-")
        return f"{readable[:200]}-{digest}"

    @cached_property
    def placement_key(self) -> str:
        """The key of its Placement: "namespace/name"."""
        return f"{self.namespace}/{self.placement_name}"


class LostOwner(NamedTuple):
    """A pod's controller, at some level, does not exist: the pod is neither placed nor released.

    Pods of a deleted controller are deleted one by one: those that are left are no smaller gang.
    is_confirmed: whether the API server says so, else it has not answered yet. uid: of the controller, ""
    where only a label names it.
    """

    sentence: str
    is_confirmed: bool = True
    uid: str = ""


def has_owners(pod: Pod) -> LostOwner | None:
    """Every controller exists: where nothing is known of them."""
    return None


def controller_of(pod: Pod, gang: GangKey) -> GangKey:
    """The identity of a pod and its successors: its gang, or, for a pod that is a gang alone, its owner."""
    owner = pod.metadata.controller
    if gang.kind != "Pod" or owner is None:
        return gang
    return GangKey(gang.namespace, owner.kind, owner.name, owner.uid)


def made_by(pod: Pod) -> GangKey | None:
    """The gang that a pod's controller makes, whatever gang others have put it into; None without one."""
    metadata, owner = pod.metadata, pod.metadata.controller
    found = marked_gang(metadata.labels, metadata.annotations, marks.CONTROLLER_LABELS)
    if found is not None:
        return GangKey(metadata.namespace, found[0], printable(found[1]), found[2])
    return GangKey(metadata.namespace, owner.kind, owner.name, owner.uid) if owner is not None else None


def key_of(pod: Pod, rules: OwnerRules = KNOWN_RULES) -> GangKey:
    """The gang that a pod belongs to; a pod without any mark is a gang of its own.

    Labels of the operator's choice come after a pod's own annotations and known owners, which are more
    specific than the name of a release. A pod's PodGroup comes before such labels too, whatever its owner is.
    A gang that a controller has marked is larger (a JobSet has a PodGroup for each of its parts) and comes
    first.
    """
    metadata = pod.metadata
    own = metadata.annotations.get(keys.GANG_ANNOTATION)
    if own:
        return GangKey(metadata.namespace, "Gang", printable(own), own)
    owner = metadata.controller
    marked = None if rules.is_named_loose(owner) else _marked_gang(pod)
    if grouped := marked or _native_gang(pod):
        return grouped
    makes = rules.makes(owner) if owner is not None else Makes.UNKNOWN
    labelled = _labelled_gang(pod, rules) if makes is Makes.UNKNOWN else None
    if labelled is not None:
        return labelled
    if owner is not None and makes is not Makes.LOOSE:
        return GangKey(metadata.namespace, owner.kind, owner.name, owner.uid)
    return GangKey(metadata.namespace, "Pod", metadata.name, metadata.uid)


def _labelled_gang(pod: Pod, rules: OwnerRules) -> GangKey | None:
    """The gang of the pods with the same value of a label of the operator's choice."""
    for label in rules.gang_labels:
        if value := pod.metadata.labels.get(label):
            return GangKey(pod.metadata.namespace, "Group", printable(value), f"{label}={value}")
    return None


def _marked_gang(pod: Pod) -> GangKey | None:
    """The gang that its controller writes on the pod, None where it writes none."""
    found = marked_gang(pod.metadata.labels, pod.metadata.annotations)
    return GangKey(pod.metadata.namespace, found[0], printable(found[1]), found[2]) if found else None


def _native_gang(pod: Pod) -> GangKey | None:
    """The gang of the PodGroup that a pod names by itself, None if it names none."""
    name, namespace = native_group_of(pod), pod.metadata.namespace
    if not name:
        return None
    return GangKey(namespace, "PodGroup", printable(name), f"{native_gangs.GROUP}/{name}")


def unknown_owner(pod: Pod, gang: GangKey, rules: OwnerRules) -> str:
    """The kind and group of the unknown owner that makes a pod's gang; "" where another mark does."""
    owner = pod.metadata.controller
    if owner is None or (gang.kind, gang.id) != (owner.kind, owner.uid):
        return ""
    return owner.kind_and_group if rules.makes(owner) is Makes.UNKNOWN else ""


_OWN_REQUESTS: Final = frozenset(
    {
        keys.REQUIRED_TOPOLOGY_ANNOTATION,
        keys.PREFERRED_TOPOLOGY_ANNOTATION,
        keys.SLICE_TOPOLOGY_ANNOTATION,
        keys.SPREAD_TOPOLOGY_ANNOTATION,
    }
)


def cpu_pods(pods: Sequence[Pod], others_come: bool) -> frozenset[str]:
    """uids of the gang's CPU-only pods.

    others_come: whether pods that ask for extended resources are still to be created, and planned. Where no
    pod of the gang asks for any, these are the pods that were gated only because of their gang. Pods with
    annotations of their own, or whose author wrote the gate, are a gang of their own right.
    """
    plain = [pod for pod in pods if not asks_for_devices(pod.spec)]
    if not plain:
        return frozenset()
    if others_come or len(plain) < len(pods):
        return frozenset(
            pod.metadata.uid
            for pod in plain
            if _OWN_REQUESTS.isdisjoint(pod.metadata.annotations) and not own_domain_labels(pod)
        )
    return frozenset(pod.metadata.uid for pod in plain if _gated_for_its_labels(pod))


def _gated_for_its_labels(pod: Pod) -> bool:
    """Whether admission gated it though it asks for nothing of ours, see admission.cpu_only_members."""
    metadata = pod.metadata
    return (
        any(gate.name.endswith(keys.GATE_NAME) for gate in pod.spec.scheduling_gates)
        and keys.REQUEST_ANNOTATIONS.isdisjoint(metadata.annotations)
        and not metadata.labels.keys().isdisjoint(marks.CPU_POD_LABELS)
    )
