"""Jobs of eight GPUs a pod on a control plane whose kube-scheduler knows gangs, and a node that is taken."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from hack.local import native_gangs, nodes
from hack.local.build import kubernetes_version
from hack.local.cluster import Cluster
from hack.local.install import Installation
from labeler.contract import keys
from tests.installation import installed_for
from tests.support import clean, register_nodes, wait_for_pods

OPTED_IN: Final = {keys.INJECTION_LABEL: keys.INJECTION_ENABLED}
SHAPE: Final = nodes.Shape(nodes=16, blocks=2, subblocks=2)
"""Two blocks of eight nodes with eight GPUs each."""
GPU: Final = "nvidia.com/gpu"
CONTAINER: Final = {"name": "c", "image": "x", "resources": {"limits": {GPU: "8"}}}
ANNOTATIONS: Final = {keys.REQUIRED_TOPOLOGY_ANNOTATION: "block", "local.topogate.io/run-for": "600s"}


@contextmanager
def installed_on_shape(
    cluster: Cluster, components: tuple[str, ...] = (), *, base: str = "base", more: str = ""
) -> Iterator[Installation]:
    """topogate on nodes of SHAPE, with the labels that their labelers would write."""
    clean(cluster)
    grid = nodes.grid(SHAPE)
    register_nodes(cluster, grid)
    with installed_for(cluster, grid, components, base=base, more=more) as installation:
        yield installation


def bound(pods: list[dict[str, Any]]) -> set[str]:
    """The names of those that are bound."""
    return {pod["metadata"]["name"] for pod in pods if "nodeName" in pod["spec"]}


def job(cluster: Cluster, namespace: str, count: int, **more: object) -> None:
    """Create the Job "train", which requires a block. more: of its spec."""
    template = {
        "metadata": {"annotations": ANNOTATIONS},
        "spec": {"restartPolicy": "Never", "containers": [CONTAINER]},
    }
    spec = {"completionMode": "Indexed", "completions": count, "parallelism": count, "template": template}
    spec |= more
    body = {"metadata": {"name": "train"}, "spec": spec}
    cluster.api().request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=body)


def _gang_policy() -> dict[str, Any]:
    """What a Job's spec says for a PodGroup that is bound as one.

    In 1.36 nothing: an Indexed Job whose parallelism equals its completions has one. From 1.37 on a Job has
    to ask for it, else each of its pods is bound by itself (buildWorkloadItem in job_scheduling_manager.go).
    """
    if int(kubernetes_version().split(".")[1]) <= native_gangs.FIRST_MINOR:
        return {}
    return {"scheduling": {"schedulingPolicy": {"gang": {}}}}


GANGS: Final[Mapping[str, Callable[[int], tuple[dict[str, str], str]]]] = {
    "JobSet in one PodGroup": lambda number: (_of_jobset("workers"), "train"),
    "JobSet with a PodGroup for each ReplicatedJob": lambda number: (
        (_of_jobset("leader"), "train-leader") if number < 2 else (_of_jobset("workers"), "train-workers")
    ),
    "JobSet with a PodGroup for each Job": lambda number: (
        _of_jobset("workers"),
        f"train-workers-{number // 4}",
    ),
    "LeaderWorkerSet in one PodGroup": lambda number: (_of_leader_worker_set(number), "train-lws"),
    "LeaderWorkerSet with a PodGroup for each replica": lambda number: (
        _of_leader_worker_set(number),
        f"train-{number // 4}-1",
    ),
    "LeaderWorkerSet with a PodGroup for each role": lambda number: (
        _of_leader_worker_set(number),
        f"train-{number // 4}-{'worker' if number % 4 else 'leader'}-1",
    ),
}
"""The labels and the PodGroup of the pods 0 to 15 of gangs that other projects make.

Their controllers are not here. As of August 2026 they make no PodGroups by themselves: users of JobSet 0.12
make one for all of it (its page on workload-aware scheduling). The others are what is being built:
keps/969-WAS-integration of JobSet, keps/666-gang-scheduling-in-lws of LeaderWorkerSet.
"""


def _of_jobset(replicated_job: str) -> dict[str, str]:
    return {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/jobset-uid": "u",
        "jobset.sigs.k8s.io/replicatedjob-name": replicated_job,
    }


def _of_leader_worker_set(number: int) -> dict[str, str]:
    """Two replicas of four pods."""
    return {
        "leaderworkerset.sigs.k8s.io/name": "train",
        "leaderworkerset.sigs.k8s.io/group-key": f"k{number // 4}",
        "leaderworkerset.sigs.k8s.io/group-index": str(number // 4),
        "leaderworkerset.sigs.k8s.io/worker-index": str(number % 4),
    }


def create_gang(cluster: Cluster, namespace: str, kind: str) -> None:
    """Make the eight pods of a kind of GANGS, or of a Job of which the Job controller makes the PodGroup."""
    if kind == "Job":
        job(cluster, namespace, 8, **_gang_policy())
        return
    api, members = cluster.api(), [GANGS[kind](number) for number in range(8)]
    for name, count in Counter(name for _, name in members).items():
        api.request("POST", native_gangs.path(api, namespace), body=native_gangs.pod_group(api, name, count))
    for number, (labels, name) in enumerate(members):
        metadata = {"name": f"train-{number}", "labels": labels, "annotations": ANNOTATIONS}
        spec = {"containers": [CONTAINER], "schedulingGroup": {"podGroupName": name}}
        body = {"metadata": metadata, "spec": spec}
        api.request("POST", f"/api/v1/namespaces/{namespace}/pods", body=body)


def take_a_planned_node(cluster: Cluster, namespace: str, foreign: str) -> None:
    """Once all eight pods of the namespace are released, a pod "thief" of another one takes a node of theirs.

    kube-scheduler must be stopped: one that is only paused may go by what it knew.
    """
    wait_for_pods(
        cluster,
        namespace,
        lambda pods: len(pods) == 8 and not any(pod["spec"].get("schedulingGates") for pod in pods),
        "all to be released",
    )
    api = cluster.api()
    path = f"/apis/topogate.io/v1alpha1/namespaces/{namespace}/placements"
    taken = api.json("GET", path)["items"][0]["spec"]["pods"][0]["node"]
    body = {"metadata": {"name": "thief"}, "spec": {"nodeName": taken, "containers": [CONTAINER]}}
    api.request("POST", f"/api/v1/namespaces/{foreign}/pods", body=body)
