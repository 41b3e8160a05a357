"""Pods without GPUs that are part of a gang which may have some: held back, to be placed beside these.

Whether the gang has some, its owner knows, and of owners the sweeper: if not, it releases such a pod at once.
Nothing of it is changed but the gate: the priority and nodes of what runs on CPUs alone are not ours to set.
"""

from typing import Final

from labeler.contract import keys
from webhook.admission import patch
from webhook.admission.review import NewPod
from webhook.policy.values import Policy
from webhook.workloads import marks

_LABELS: Final = frozenset(marks.CPU_POD_LABELS)


def is_cpu_only_member(pod: NewPod, policy: Policy) -> bool:
    """Whether a pod that asks for no GPU goes beside others.

    Not one of which its author says more, by a wish or by a gate of his own: that one asks to be placed.
    """
    labels = pod.metadata.labels
    if not labels or _LABELS.isdisjoint(labels) or not keys.WISH_ANNOTATIONS.isdisjoint(pod.annotations):
        return False
    return all(gate == _gate_of(policy) for gate in _served(pod, policy))


def gate(pod: NewPod, policy: Policy) -> list[patch.Operation]:
    """Hold it back, unless it is held already."""
    if _served(pod, policy):
        return []
    return [patch.append(("spec", "schedulingGates"), pod.spec.scheduling_gates, {"name": _gate_of(policy)})]


def _gate_of(policy: Policy) -> str:
    """By this name the sweeper knows it, whatever the policy calls the gate of the others."""
    return policy.gate_prefix + keys.GATE_NAME


def _served(pod: NewPod, policy: Policy) -> list[str]:
    return [each.name for each in pod.spec.scheduling_gates or () if policy.serves_gate(each.name)]
