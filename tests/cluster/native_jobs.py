"""Jobs of eight GPUs a pod on a control plane whose kube-scheduler knows gangs, and a node that is taken."""

from typing import Final

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.support import wait_for_pods

OPTED_IN: Final = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
GPU: Final = "nvidia.com/gpu"
CONTAINER: Final = {"name": "c", "image": "x", "resources": {"limits": {GPU: "8"}}}
ANNOTATIONS: Final = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block", "local.topogate.io/run-for": "600s"}
POLICY: Final = "/api/v1/namespaces/topogate-system/configmaps/topogate-policy"


def job(cluster: Cluster, namespace: str, count: int) -> None:
    """Create the Job "train", which requires a block."""
    template = {
        "metadata": {"annotations": ANNOTATIONS},
        "spec": {"restartPolicy": "Never", "containers": [CONTAINER]},
    }
    spec = {"completionMode": "Indexed", "completions": count, "parallelism": count, "template": template}
    body = {"metadata": {"name": "train"}, "spec": spec}
    cluster.api().request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=body)


def take_a_planned_node(cluster: Cluster, namespace: str, foreign: str) -> None:
    """Once all 16 pods of the namespace are released, a pod "thief" of another one takes a node of theirs.

    kube-scheduler must be stopped: one that is only paused may go by what it knew.
    """
    wait_for_pods(
        cluster,
        namespace,
        lambda pods: len(pods) == 16 and not any(pod["spec"].get("schedulingGates") for pod in pods),
        "all to be released",
    )
    api = cluster.api()
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    taken = api.json("GET", path)["items"][0]["spec"]["pods"][0]["node"]
    body = {"metadata": {"name": "thief"}, "spec": {"nodeName": taken, "containers": [CONTAINER]}}
    api.request("POST", f"/api/v1/namespaces/{foreign}/pods", body=body)
