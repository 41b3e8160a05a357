"""GPU pods that were created without a gate, by the cause. Pure, but for UngatedPods.

The webhook fails open by default, so that its failure stops no pod. A GPU pod of an opted-in namespace that
it has missed holds GPUs that were given to no gang: it is counted, and its owner gets an Event. So does the
owner of a pod that got its GPUs from another webhook, but such a pod is not counted: the webhook works.

A pod that admission leaves alone is not reported, nor one that was created for a node, or before its
namespace opted in.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.decide.admission_followup import (
    is_left_to_others,
    is_opted_out,
    is_served,
    resources_of,
)
from webhook.sweeper.decide.orders import Warn
from webhook.sweeper.observe.creator_fields import CreatorFields, NotReadNowError

LASTS_SECONDS: Final = 3600.0
"""A pod counts for at most this long after admission missed it."""
MOST_READS: Final = 16
"""So many pods are read in one pass: one for each controller, as its pods have one template."""
_SLOW_SECONDS: Final = 1.0
"""After a read that took so long no further one is begun in the pass, nor after one that failed."""


class UngatedCause(StrEnum):
    """Why a pod has no gate."""

    MISSED = "missed"
    """The webhook was not called, did not answer, or what it wrote was removed by another."""
    GPUS_ADDED = "gpus-added"
    """Another webhook added the GPUs."""
    FOR_A_NODE = "for-a-node"
    """Its creator named the node."""


Ungated = Mapping[UngatedCause, Mapping[str, Sequence[Pod]]]
"""By cause and namespace, pods without a gate."""
Reported = frozenset[tuple[UngatedCause, str]]
"""The causes and namespaces of which an Event was written."""
ReadCreatorFields = Callable[[Pod], CreatorFields | None]
"""See read_creator_fields; raises NotReadNowError."""


class _Created(NamedTuple):
    pod: Pod
    at: float


@dataclass
class _ServedNamespaces:
    """Since when namespaces are served. names: those of the last pass, None before the first one."""

    names: Set[str] | None = None
    served: Set[str] = frozenset()
    since: dict[str, float] = field(default_factory=dict)

    def update(self, policy: Policy, labels: NamespaceLabels, now: float) -> None:
        """Record which namespaces have opted in since the last pass; a new one may have been created so."""
        served = {name for name in labels if is_served(name, policy, labels)}
        opted_in = (served - self.served) & (self.names or set())
        since = {name: at for name, at in self.since.items() if name in served}
        self.since = since | dict.fromkeys(opted_in, now)
        self.names, self.served = frozenset(labels), served

    def covers(self, created: _Created) -> bool:
        """Whether a pod was created in a namespace that was served by then."""
        namespace = created.pod.metadata.namespace
        return namespace in self.served and created.at >= self.since.get(namespace, created.at)


class UngatedPods:
    """Those created in the last hour, since this process watches. on_pod runs in the thread of the watch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds from anywhere."""
        self._clock = clock
        self._created: dict[str, _Created] = {}
        self._causes: dict[tuple[str, str], UngatedCause] = {}
        self._namespaces = _ServedNamespaces()

    def on_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Record a pod when first seen, before its gate can have been removed; forget a deleted one."""
        if after is None:
            if before is not None:
                self._created.pop(before.metadata.uid, None)
        elif before is None and not after.spec.scheduling_gates:
            self._created[after.metadata.uid] = _Created(after, self._clock())

    def by_cause(
        self,
        policy: Policy,
        labels: NamespaceLabels,
        read: ReadCreatorFields,
        had_gate: Callable[[Pod], bool] = lambda _: False,
    ) -> Ungated:
        """Those that admission would have gated. labels: of namespaces, by name.

        had_gate: whether a plan names a pod, or it was left to kube-scheduler. Such a pod had a gate: it was
        created and released while this process had no watch.
        """
        now = self._clock()
        self._namespaces.update(policy, labels, now)
        pods = []
        for uid, created in list(self._created.items()):
            is_old = created.at < now - LASTS_SECONDS
            is_missed = _is_for_us(created.pod, policy) and not had_gate(created.pod)
            if is_old or not self._namespaces.covers(created) or not is_missed:
                self._created.pop(uid, None)
            else:
                pods.append(created.pod)
        self._find_causes(pods, policy, read)
        found: dict[UngatedCause, dict[str, list[Pod]]] = {}
        for pod in pods:
            cause = self._causes.get(_controller_of(pod))
            if cause in _WHY:
                found.setdefault(cause, {}).setdefault(pod.metadata.namespace, []).append(pod)
        return found

    def _find_causes(self, pods: Sequence[Pod], policy: Policy, read: ReadCreatorFields) -> None:
        """Read one pod of each controller that is not known yet; the others are read in later passes."""
        by_controller = {_controller_of(pod): pod for pod in pods}
        self._causes = {
            controller: cause for controller, cause in self._causes.items() if controller in by_controller
        }
        unread = [each for each in by_controller.items() if each[0] not in self._causes]
        for controller, pod in unread[:MOST_READS]:
            begun = self._clock()
            try:
                self._causes[controller] = cause_of(read(pod), policy)
            except NotReadNowError:
                return  # the next pass reads it again
            if self._clock() - begun >= _SLOW_SECONDS:
                return


def cause_of(fields: CreatorFields | None, policy: Policy) -> UngatedCause:
    """Why a GPU pod has no gate. fields: that its creator wrote, None where that is unknown."""
    if fields is None:
        return UngatedCause.MISSED
    if fields.names_node:
        return UngatedCause.FOR_A_NODE
    is_asked = any(map(policy.is_gpu_resource, fields.resources))
    return UngatedCause.MISSED if is_asked else UngatedCause.GPUS_ADDED


def warn_of_ungated(found: Ungated, warned: Reported) -> tuple[tuple[Warn, ...], Reported]:
    """One warning for a cause in a namespace, until none of its pods counts any more; and those reported.

    warned: the causes and namespaces that were reported.
    """
    pods = {(cause, name): pods for cause, by_name in found.items() for name, pods in by_name.items()}
    new = (_warning(*key, pods[key]) for key in pods if key not in warned)
    return tuple(new), frozenset(pods)


def _warning(cause: UngatedCause, namespace: str, pods: Sequence[Pod]) -> Warn:
    what = f"GPU pods of namespace {namespace} are created without a gate, {pods[0].metadata.name} among them"
    return Warn(
        pods[0],
        EventReason.PODS_NOT_GATED,
        f"{what}: {_WHY[cause]}. They use GPUs that no plan knows of. {_REMEDY[cause]}",
    )


_WHY: Final = {
    UngatedCause.MISSED: "the API server did not call the admission webhook, or got no answer in time, or "
    "another webhook removed the gate afterwards",
    UngatedCause.GPUS_ADDED: "another webhook adds the GPUs, and topogate's is not called after it",
}
_REMEDY: Final = {
    UngatedCause.MISSED: "Ask your administrator to run topogate doctor, and for more webhook replicas or "
    "the component in-process-gate, which gates pods without the webhook",
    UngatedCause.GPUS_ADDED: "Ask your administrator to give that webhook's configuration a name that sorts "
    "before topogate, and to run topogate doctor if it has one",
}


def _controller_of(pod: Pod) -> tuple[str, str]:
    """The namespace and the uid of a pod's controller, or of the pod itself."""
    owner = pod.metadata.controller
    return pod.metadata.namespace, owner.uid if owner is not None else pod.metadata.uid


def _is_for_us(pod: Pod, policy: Policy) -> bool:
    if is_opted_out(pod) or is_left_to_others(pod, policy) or _is_created_for_a_node(pod):
        return False
    return any(map(policy.is_gpu_resource, resources_of(pod)))


def _is_created_for_a_node(pod: Pod) -> bool:
    """Whether its creator, or a webhook, has set the node: a binding also sets a condition."""
    return bool(pod.spec.node_name) and not any(each.type == "PodScheduled" for each in pod.status.conditions)
