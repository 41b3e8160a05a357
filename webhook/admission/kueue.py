"""Pods that Kueue gates itself: whether it chooses their nodes, or leaves that to others. Pure.

Kueue's topology-aware scheduling puts the gate `kueue.x-k8s.io/topology` into the pod template of a Job that
it starts on nodes of its choice (podset.FromAssignment), writes these nodes' labels into each pod's
nodeSelector, and takes the gate away (TopologyUngater). Its webhook for plain pods, by which it also serves
StatefulSets, Deployments and LeaderWorkerSets, gives each pod both gates, whether a topology is asked for or
not; where it then admits the pod without a choice of nodes, it takes both away (pod_webhook.go and
pod_controller.go of Kueue 0.14).

https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/
"""

from collections.abc import Iterator

from webhook.admission.review import NewPod
from webhook.workloads import marks


def chooses_nodes(pod: NewPod) -> bool:
    """Whether Kueue has chosen the pod's nodes already, and only has yet to say them."""
    gates = _gates(pod)
    return marks.KUEUE_TOPOLOGY_GATE in gates and marks.KUEUE_ADMISSION_GATE not in gates


def warnings(pod: NewPod) -> Iterator[str]:
    """What the author of a pod should know that Kueue may choose nodes for."""
    if marks.KUEUE_TOPOLOGY_GATE in _gates(pod):
        first = f"gate {marks.KUEUE_TOPOLOGY_GATE}: Kueue goes first"
        yield f"{first}; topogate then places the pod on nodes it allows"


def _gates(pod: NewPod) -> set[str]:
    return {gate.name for gate in pod.spec.scheduling_gates or ()}
