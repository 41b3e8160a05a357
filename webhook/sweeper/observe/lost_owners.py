"""Which controllers of a pod are lost, at every level: its Job, the JobSet of that, and so on. Pure.

The only owner of an object counts as its controller, as the garbage collector deletes the object after it.

A pod that its controller has left behind (orphan deletion) is recognized by its labels. It waits too, unless
an annotation states the size of its gang: pods, or the Jobs of a JobSet, lose their owner reference one by
one. Until all of a gang have lost it, those that have wait with the others, whatever they state.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from labeler.contract import keys
from webhook.kube.objects import Metadata, OwnerReference, Pod
from webhook.sweeper.observe.membership import LostOwner, has_owners, made_by
from webhook.text import printable
from webhook.workloads import marks
from webhook.workloads.pod_group_names import marked_gang


class OwnerState(Enum):
    """The answer for a controller whose metadata is not at hand."""

    UNCONFIRMED = auto()
    """The API server has not answered yet."""
    ABSENT = auto()
    """It does not exist, or only another one of its name does."""
    UNREADABLE = auto()
    """Its kind is not served, or may not be read."""
    UNDEFINED = auto()
    """It existed, and its kind is served no more: its CustomResourceDefinition is deleted."""


_DELETED: Final = {
    OwnerState.ABSENT: "is deleted",
    OwnerState.UNDEFINED: "is deleted with the definition of its kind",
}

FindOwner = Callable[[str, OwnerReference], Metadata | OwnerState]
"""Takes a namespace and a reference; returns the metadata of exactly this object, or why there is none."""

MOST_LEVELS: Final = 8
"""Owners above this level are not looked at: any user may write a circle of references."""


def lost_owner(pod: Pod, find: FindOwner) -> LostOwner | None:
    """Which owner of a pod is deleted, is being deleted or is unconfirmed; None if all of them exist."""
    reference = owner_of(pod.metadata)
    return lost_by(pod, reference, lost_above(pod.metadata.namespace, reference, find))


def lost_by(pod: Pod, reference: OwnerReference | None, above: LostOwner | None) -> LostOwner | None:
    """reference: of the pod's owner. above: which owner is lost, from that one upwards."""
    has_controller = reference is not None and reference.controller
    return above if above is not None or has_controller else _left_behind(pod)


def one_of_each_owner(pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """Of these pods of a namespace some that stand for the others: the answers of lost_owner and made_by are
    the same for a pod that is left out as for one of them.
    """
    found: dict[object, Pod] = {}
    for pod in pods:
        reference = owner_of(pod.metadata)
        found.setdefault((reference, lost_by(pod, reference, None), made_by(pod)), pod)
    return tuple(found.values())


@dataclass(frozen=True)
class LostOwners:
    """Which controllers of pods are lost, and which of those that have been asked about.

    of: answers for any pod, see lost_owner. by_uid: its answers for the pods of gangs that wait, of which
    some are released. one_of_each: see one_of_each_owner.
    """

    of: Callable[[Pod], LostOwner | None] = has_owners
    by_uid: Mapping[str, LostOwner] = field(default_factory=dict)
    one_of_each: Callable[[Sequence[Pod]], Sequence[Pod]] = one_of_each_owner


def lost_owners(
    groups: Iterable[Sequence[Pod]],
    of: Callable[[Pod], LostOwner | None],
    one_of_each: Callable[[Sequence[Pod]], Sequence[Pod]] = one_of_each_owner,
) -> LostOwners:
    """The answers for these pods, of one namespace in each group; see LostOwners.

    One pod of each owner is asked about where none of a group is lost.
    """
    found = dict[str, LostOwner]()
    for pods in groups:
        if any(of(pod) is not None for pod in one_of_each(pods)):
            found |= _lost_of_group(pods, of)
    return LostOwners(of, found, one_of_each)


def _lost_of_group(pods: Sequence[Pod], of: Callable[[Pod], LostOwner | None]) -> Mapping[str, LostOwner]:
    """The answers for the pods of one gang, and for those that a lost controller of others has left behind.

    These have no owner any more, or only one that has none, below the controller that their labels name.
    """
    found = {pod.metadata.uid: each for pod in pods if (each := of(pod)) is not None}
    lost = {each.uid: each for each in found.values() if each.uid}
    for pod in pods if lost else ():
        if pod.metadata.uid in found:
            continue
        marked = made_by(pod)
        if owner_of(pod.metadata) is None:
            found[pod.metadata.uid] = next(iter(lost.values()))
        elif marked is not None and marked.id in lost:
            found[pod.metadata.uid] = lost[marked.id]
    return found


def owner_of(metadata: Metadata) -> OwnerReference | None:
    """The controller of an object; without one its only owner, with which it is deleted, too."""
    owners = metadata.owner_references
    return metadata.controller or (owners[0] if len(owners) == 1 else None)


def lost_above(namespace: str, reference: OwnerReference | None, find: FindOwner) -> LostOwner | None:
    """The lowest owner that is lost, from this one of a pod upwards."""
    for _ in range(MOST_LEVELS):
        found = find(namespace, reference) if reference is not None else None
        if reference is None or found is None or found is OwnerState.UNREADABLE:
            return None
        name = printable(f"{reference.kind}/{reference.name}")
        owner = f"its {'controller' if reference.controller else 'owner'} {name}"
        if found is OwnerState.UNCONFIRMED:
            return LostOwner(f"the API server is asked whether {owner} exists", False, reference.uid)
        if isinstance(found, OwnerState):
            return LostOwner(f"{owner} {_DELETED[found]}, {SO}", True, reference.uid)
        if found.deletion_timestamp:
            return LostOwner(f"{owner} is being deleted, {SO}", True, reference.uid)
        reference = owner_of(found)
    return None


def _left_behind(pod: Pod) -> LostOwner | None:
    """The controller that has left a pod behind, by the labels that only such a controller writes."""
    if not pod.metadata.annotations.keys().isdisjoint(marks.GANG_SIZE_KEYS):
        return None
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    name = _marked_controller(labels)
    if not name:
        return None
    # Without a label that names their gang, the number alone would be that of a pod by itself.
    which = (
        "" if marked_gang(labels, annotations) else f"{keys.GANG_ANNOTATION} on them names their gang and "
    )
    return LostOwner(
        f"its controller {printable(name)} is deleted and has left its pods behind, so they are neither "
        f"placed nor released unless {which}"
        f"{keys.GANG_SIZE_ANNOTATION} on them states how many belong together"
    )


def _marked_controller(labels: Mapping[str, str]) -> str:
    """The Job, StatefulSet or operator's object whose labels a pod has; "" without.

    The name of a JobSet or of a RayCluster alone does not count: other programs create such pods, too.
    """
    for operated, name_key, operator_key in marks.OPERATED:
        if operator_key in labels and name_key in labels:
            return f"{operated}/{labels[name_key]}"
    if pod_name := labels.get(marks.STATEFUL_SET_POD_LABEL):
        return f"StatefulSet/{pod_name.rpartition('-')[0]}"
    kind, name, id_ = marked_gang(labels, {}, marks.JOB_LABELS) or ("", "", "")
    return f"{kind}/{name}" if id_ != name else ""


SO: Final = "so its pods are neither placed nor released"
