"""Pods that Kueue gates itself: whether it chooses their nodes, or leaves that to others. Pure.

Kueue's topology-aware scheduling puts the gate `kueue.x-k8s.io/topology` into the pod template of a Job that
it starts on nodes of its choice (podset.FromAssignment), writes these nodes' labels into each pod's
nodeSelector, and removes the gate (TopologyUngater). Its webhook for plain pods, which also serves
StatefulSets, Deployments and LeaderWorkerSets, gives each pod both gates, with or without a topology request;
if it then admits the pod without choosing nodes, it removes both (pod_webhook.go and pod_controller.go of
Kueue 0.14).

https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/
"""

from collections.abc import Iterator

from webhook.admission.review import NewPod
from webhook.workloads import marks


def chooses_nodes(pod: NewPod) -> bool:
    """Whether Kueue has already chosen the pod's nodes, and has only to write them."""
    gates = _gates(pod)
    return marks.KUEUE_TOPOLOGY_GATE in gates and marks.KUEUE_ADMISSION_GATE not in gates


def warnings(pod: NewPod) -> Iterator[str]:
    """The warning for the author of a pod for which Kueue may choose nodes."""
    if marks.KUEUE_TOPOLOGY_GATE in _gates(pod):
        gate = marks.KUEUE_TOPOLOGY_GATE
        yield f"topogate places pods that Kueue has still to admit (gate {gate}) on nodes that Kueue allows"


def _gates(pod: NewPod) -> set[str]:
    return {gate.name for gate in pod.spec.scheduling_gates or ()}
