"""GPU pods of opted-in namespaces that were created without a gate: admission was not asked, or too slow.

The webhook fails open by default, so that its failure stops no pod. What came past it meanwhile holds GPUs
that no gang was given, and its owner should hear of it.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Final

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Pod
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.sweeper.decide.model_labels import is_opted_out, resources_of
from webhook.sweeper.decide.orders import Warn
from webhook.sweeper.observe.view import PROTECTED
from webhook.workloads.native_gangs import group_name
from webhook.workloads.pod_group_names import bind_group_of

LASTS_SECONDS: Final = 3600.0
"""For so long a pod counts, at most: what admission missed longer ago is over."""


class UngatedPods:
    """Those created in the last hour, since this process watches. on_pod runs in the thread of the watch."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """clock: seconds from anywhere."""
        self._clock = clock
        self._created: dict[str, tuple[Pod, float]] = {}

    def on_pod(self, before: Pod | None, after: Pod | None) -> None:
        """Note a pod at its first sight, when nobody can have taken its gate yet; forget one that is gone."""
        if after is None:
            if before is not None:
                self._created.pop(before.metadata.uid, None)
        elif before is None and not after.spec.scheduling_gates:
            self._created[after.metadata.uid] = (after, self._clock())

    def by_namespace(self, policy: Policy, labels: NamespaceLabels) -> Mapping[str, list[Pod]]:
        """Those that admission would have gated. labels: of namespaces, by name."""
        since = self._clock() - LASTS_SECONDS
        found: dict[str, list[Pod]] = {}
        for uid, (pod, created) in list(self._created.items()):
            if created < since or not _is_for_us(pod, policy, labels):
                self._created.pop(uid, None)
            else:
                found.setdefault(pod.metadata.namespace, []).append(pod)
        return found


def warn_of_ungated(
    found: Mapping[str, Sequence[Pod]], warned: Set[str]
) -> tuple[tuple[Warn, ...], frozenset[str]]:
    """One warning for a namespace, until none of its pods counts any more; and whose have been told.

    found: pods by namespace. warned: namespaces whose pods have been told of.
    """
    return tuple(_warning(name, pods) for name, pods in found.items() if name not in warned), frozenset(found)


def _warning(namespace: str, pods: Sequence[Pod]) -> Warn:
    return Warn(
        pods[0],
        EventReason.PODS_NOT_GATED,
        f"GPU pods of namespace {namespace} are created without a gate, {pods[0].metadata.name} "
        "among them: the API server got no answer from the admission webhook in time. They hold GPUs "
        "beside all plans. Ask your administrator for more webhook replicas, or for the component "
        "in-process-gate, which gates pods without the webhook",
    )


def is_served(namespace: str, policy: Policy, labels: NamespaceLabels) -> bool:
    """Whether admission holds pods of a namespace. labels: of namespaces, by name."""
    if namespace in PROTECTED or namespace in policy.excluded_namespaces:
        return False
    return labels.get(namespace, {}).get(keys.INJECTION_LABEL) == keys.INJECTION_ENABLED


def _is_for_us(pod: Pod, policy: Policy, labels: NamespaceLabels) -> bool:
    if not is_served(pod.metadata.namespace, policy, labels):
        return False
    if is_opted_out(pod) or _is_left_to_others(pod, policy):
        return False
    return any(map(policy.is_gpu_resource, resources_of(pod)))


def _is_left_to_others(pod: Pod, policy: Policy) -> bool:
    """Whether admission leaves it alone, whatever it asks for."""
    owner = pod.metadata.controller
    return (
        keys.MIRROR_POD_ANNOTATION in pod.metadata.annotations
        or (owner is not None and owner.kind == "DaemonSet")
        or (pod.spec.scheduling_group is not None and not _is_adopted(pod, policy))
        or (bool(pod.spec.scheduler_name) and pod.spec.scheduler_name not in policy.scheduler_names)
    )


def _is_adopted(pod: Pod, policy: Policy) -> bool:
    """Whether admission holds the pods of its PodGroup as it holds others."""
    return bool(bind_group_of(pod)) or (policy.adopts_native_gangs and bool(group_name(pod.spec)))
