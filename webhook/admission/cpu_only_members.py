"""CPU-only pods of a gang that may have GPU pods: gated, to be placed near these.

Only the owner knows whether the gang has GPU pods, and only the sweeper reads owners: if it has none, the
sweeper releases such a pod at once. The pod gets nothing but the gate: priority and nodes of CPU-only
workloads are not ours to set.
"""

from typing import Final

from labeler.contract import keys
from webhook.admission import patch
from webhook.admission.review import NewPod
from webhook.policy.values import Policy
from webhook.workloads import marks

_LABELS: Final = frozenset(marks.CPU_POD_LABELS)


def is_cpu_only_member(pod: NewPod, policy: Policy) -> bool:
    """Whether a pod that asks for no GPU is placed near others.

    Not a pod with a topology request or a gate from its author: that one asks to be placed itself.
    """
    labels = pod.metadata.labels
    if not labels or _LABELS.isdisjoint(labels) or not keys.WISH_ANNOTATIONS.isdisjoint(pod.annotations):
        return False
    return all(gate == _gate_of(policy) for gate in _served(pod, policy))


def gate(pod: NewPod, policy: Policy) -> list[patch.Operation]:
    """Gate it, unless it is gated already."""
    if _served(pod, policy):
        return []
    return [patch.append(("spec", "schedulingGates"), pod.spec.scheduling_gates, {"name": _gate_of(policy)})]


def _gate_of(policy: Policy) -> str:
    """The gate's name by which the sweeper knows such a pod, whatever gate the policy gives to others."""
    return policy.gate_prefix + keys.GATE_NAME


def _served(pod: NewPod, policy: Policy) -> list[str]:
    return [each.name for each in pod.spec.scheduling_gates or () if policy.serves_gate(each.name)]
