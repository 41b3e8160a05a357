"""The volume counts of nodes for waiting pods: attach limits and free volumes, as resources. Pure.

A ReadWriteOncePod claim, which only one pod may use, keeps all other pods waiting, as in kube-scheduler's
plugin VolumeRestrictions. The module storage finds the nodes that can use a volume.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.kube.objects import Node, Pod
from webhook.placement.model import NodeInfo, PodClass, Usage, vector
from webhook.scheduling.attach_limits import AttachLimits
from webhook.scheduling.free_volumes import FreeVolumes
from webhook.scheduling.storage import Storage

BY_ONE_POD: Final = "ReadWriteOncePod"

VolumeClaim = tuple[str, str]
"""Namespace and name."""

Completed = dict[str, tuple[NodeInfo, Mapping[str, int], NodeInfo]]
"""By name: a node, its amounts for volumes, and the node with these amounts."""


@dataclass
class VolumeCounts:
    """The volume resources of one pass. completed: nodes of earlier passes, so that equal nodes stay one
    object.

    by_one: by uid the ReadWriteOncePod claims of waiting pods, by namespace and name.
    """

    limits: AttachLimits
    free: FreeVolumes
    completed: Completed
    problems: Mapping[str, str] = field(default_factory=dict)
    by_one: Mapping[str, tuple[VolumeClaim, ...]] = field(default_factory=dict)
    _classes: dict[object, tuple[PodClass, PodClass]] = field(default_factory=dict)
    """The class with volume amounts, by the id of the class, which it keeps alive, and by the amounts."""

    def pod_class(self, pod: Pod, pod_class: PodClass) -> PodClass:
        """The pod's class with the amounts of its volumes, or with their problem."""
        if pod_class.problem or not pod.spec.volumes:
            return pod_class
        uid = pod.metadata.uid
        problem = self.problems.get(uid) or self.free.problems.get(uid, "")
        if problem:
            return PodClass((), pod_class.rules, problem=problem)
        asked, beside = self.limits.takes(pod)
        asked |= self.free.takes(pod)
        if not asked and not beside:
            return pod_class
        key = id(pod_class), tuple(asked.items()), tuple(beside.items())
        known = self._classes.get(key)
        if known is None:
            requests = vector({**dict(pod_class.requests), **asked})
            taken = vector({**dict(pod_class.beside), **beside})
            made = replace(pod_class, requests=requests, beside=taken)
            known = self._classes[key] = pod_class, made
        return known[1]

    def with_promised(self, pods: Iterable[Pod]) -> "VolumeCounts":
        """The same after waiting pods got their nodes, for the next pods."""
        return replace(self, free=self.free.with_promised(pods))

    def are_late(self, pods: Iterable[Pod]) -> bool:
        """Whether promises since may leave too few free volumes for these pods, so that a recount is due."""
        return any(self.free.is_late(pod) for pod in pods if pod.spec.volumes)

    def usage(self, pod: Pod, node: str, usage: Usage) -> Usage:
        """The pod's usage with the amounts of its volumes."""
        if not pod.spec.volumes:
            return usage
        taken = {**self.limits.uses(pod, node), **self.free.takes(pod)}
        return replace(usage, requests={**usage.requests, **taken}) if taken else usage

    def node(self, node: NodeInfo) -> NodeInfo:
        """The node with its amounts for volumes; the same object while nothing changes."""
        has: Mapping[str, int] = self.limits.on(node.name)
        if self.free.kind_sets:
            has = {**has, **self.free.on(node.name)}
        known = self.completed.get(node.name)
        if known is None or known[0] is not node or known[1] != has:
            known = node, has, replace(node, allocatable={**node.allocatable, **has})
            self.completed[node.name] = known
        return known[2]


def volume_counts(
    storage: Storage,
    nodes: Mapping[str, Node],
    waiting: Mapping[str, Sequence[Pod]],
    assigned: Sequence[tuple[Pod, str]],
    most: int,
    completed: Completed,
) -> VolumeCounts | None:
    """The volume resources for waiting pods, None if no volume is counted.

    waiting: pods by gang. assigned: pods with their nodes. most: the most resources of each type, since every
    node has an amount of each.
    """
    claimed = _with_volumes(waiting)
    if not claimed:
        completed.clear()
        return None
    there = [(pod, node) for pod, node in assigned if pod.spec.volumes]
    users = [pod for pod, _ in there]
    limits = AttachLimits(storage, claimed, there, most)
    free = FreeVolumes(storage, nodes, claimed, users, most)
    by_one = _claims_by_uid(storage, claimed)
    problems = _by_one_pod(storage, claimed, users) if by_one else {}
    if not (limits.sets or free.kind_sets or free.problems or by_one):
        completed.clear()
        return None
    for name in completed.keys() - nodes.keys():
        del completed[name]
    return VolumeCounts(limits, free, completed, problems, by_one)


def _with_volumes(waiting: Mapping[str, Sequence[Pod]]) -> dict[str, list[Pod]]:
    """The pods with volumes, by gang; gangs without any are omitted."""
    return {
        gang: with_volumes
        for gang, pods in waiting.items()
        if (with_volumes := [pod for pod in pods if pod.spec.volumes])
    }


def _claims_by_uid(
    storage: Storage, waiting: Mapping[str, Sequence[Pod]]
) -> dict[str, tuple[VolumeClaim, ...]]:
    """By uid the ReadWriteOncePod claims of waiting pods."""
    return {
        pod.metadata.uid: names
        for pods in waiting.values()
        for pod in pods
        if (names := tuple(_claims_by_one(storage, pod)))
    }


def _by_one_pod(
    storage: Storage, waiting: Mapping[str, Sequence[Pod]], assigned: Sequence[Pod]
) -> dict[str, str]:
    """By uid why a pod waits for a ReadWriteOncePod claim: a pod uses it, or its gang needs it twice."""
    there = {name: pod for pod in assigned for name in _claims_by_one(storage, pod)}
    found: dict[str, str] = {}
    for pods in waiting.values():
        users = dict(there)
        for pod in pods:
            for name in _claims_by_one(storage, pod):
                user = users.setdefault(name, pod)
                if user is not pod:
                    found[pod.metadata.uid] = used_by(name, user.metadata.name)
    return found


def used_by(claim: VolumeClaim, user: str) -> str:
    """Why a pod waits for a ReadWriteOncePod claim: another pod uses it."""
    return f'the PersistentVolumeClaim "{claim[1]}" is {BY_ONE_POD}, and pod {user} uses it'


def _claims_by_one(storage: Storage, pod: Pod) -> Iterator[VolumeClaim]:
    """The ReadWriteOncePod claims of a pod."""
    for volume in pod.spec.volumes:
        claim = storage.claim_of(pod, volume) if volume.ephemeral is None else None
        if claim is not None and BY_ONE_POD in claim.spec.access_modes:
            yield claim.metadata.namespace, claim.metadata.name
