"""CPU-only pods of a gang that may have GPU pods: gated, to be placed near these.

Only the owner knows whether the gang has GPU pods, and only the sweeper reads owners: if it has none, the
sweeper releases such a pod at once. The pod gets nothing but the gate: priority and nodes of CPU-only
workloads are not ours to set.
"""

from typing import Final

from labeler.contract import keys
from webhook.admission.review import NewPod
from webhook.policy.values import Policy
from webhook.workloads import marks

_LABELS: Final = frozenset(marks.CPU_POD_LABELS)


def is_cpu_only_member(pod: NewPod, policy: Policy) -> bool:
    """Whether a pod that asks for no GPU is placed near others.

    Not a pod with a topology request or a gate from its author: that one asks to be placed itself.
    """
    labels = pod.metadata.labels
    if not labels or _LABELS.isdisjoint(labels) or not keys.REQUEST_ANNOTATIONS.isdisjoint(pod.annotations):
        return False
    return not any(policy.serves_gate(gate.name) for gate in pod.spec.scheduling_gates or ())
