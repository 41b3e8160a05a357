"""JobSets and LeaderWorkerSets as their controllers make them, on the real API server, stage by stage.

The test, or Kubernetes' own Job controller, makes the pods when the real controllers would make them. At the
end, pods with a domain of their own as plain values, for tests without an API server.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from hack.local.cluster import Cluster
from labeler.contract import keys
from tests.definitions import define as install_definition
from tests.definitions import wait_served
from tests.sweeper.at_work import Pods, create_pod, named, run_all, template
from tests.sweeper.cluster import Nodes, Placing, gpu_pod
from tests.sweeper.pods import decode
from webhook.extensions.exclusive_topology.domain_owners import lost_domains
from webhook.extensions.exclusive_topology.exclusive_topology import divide_gang
from webhook.kube.objects import Pod
from webhook.placement import Topology
from webhook.sweeper.decide.plan import with_valid_plans, without_plans
from webhook.sweeper.decide.refusing_nodes import RefusingNodes
from webhook.sweeper.decide.release_queue import SentReleases
from webhook.sweeper.observe.view import View
from webhook.workloads import marks


def define(cluster: Cluster, defined: list[str], kind: str, group: str, version: str) -> None:
    """Serve another project's kind; the fixture `defined` removes it."""
    defined.append(install_definition(cluster, kind, group, version))
    wait_served(cluster, f"{group}/{version}", kind)


def make(
    cluster: Cluster,
    namespace: str,
    version: str,
    kind: str,
    spec: dict[str, Any],
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    """Make the owner "train"."""
    path = f"/apis/{version}/namespaces/{namespace}/{kind.lower()}s"
    metadata = {"name": "train", "annotations": annotations or {}}
    body = {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
    made: dict[str, Any] = cluster.api().json("POST", path, body=body)
    return made


# --- JobSet ---------------------------------------------------------------------------------------


def replicated(name: str, count: int, body: dict[str, Any], replicas: int = 1, **more: Any) -> dict[str, Any]:
    """Jobs of `count` pods each, as a JobSet names them."""
    spec = {"completionMode": "Indexed", "parallelism": count, "completions": count, "template": body}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def job(name: str, number: int, count: int, gang: dict[str, str], body: dict[str, Any]) -> dict[str, Any]:
    """A Job of the JobSet "train" as its controller makes it."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/jobset-uid": gang["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": name,
        "jobset.sigs.k8s.io/job-global-index": str(number),
        JOB_KEY: f"key-train-{number}",
    }
    metadata = {**body["metadata"], "labels": labels}
    pod = {"metadata": metadata, "spec": {**body["spec"], "restartPolicy": "Never"}}
    spec = {"completionMode": "Indexed", "parallelism": count, "completions": count, "template": pod}
    return {"metadata": {"name": f"train-{name}-0", "labels": labels}, "spec": spec}


def begin_jobset(
    cluster: Cluster, namespace: str, defined: list[str], parts: list[dict[str, Any]], **more: Any
) -> Callable[[int], None]:
    """Make a JobSet of these parts; returns what makes the Job of one of them, in the order of the list."""
    define(cluster, defined, "JobSet", "jobset.x-k8s.io", "v1alpha2")
    spec = {"replicatedJobs": parts, **more}
    metadata = make(cluster, namespace, "jobset.x-k8s.io/v1alpha2", "JobSet", spec)["metadata"]

    def create(number: int) -> None:
        part = parts[number]
        own = part["template"]["spec"]
        body = job(part["name"], number, own["parallelism"], metadata, own["template"])
        cluster.api().request("POST", f"/apis/batch/v1/namespaces/{namespace}/jobs", body=body)

    return create


def in_two_stages(create: Callable[[int], None], prefix: str, count: int) -> Callable[[Pods], bool]:
    """Make a JobSet's first Job, and the second once pods with this prefix run. Returns whether all run."""
    create(0)
    begun: list[int] = []

    def all_run(pods: Pods) -> bool:
        if run_all(pods, prefix, 1) and not begun:  # only now does the controller go on
            begun.append(1)
            create(1)
        return run_all(pods, "train", count)

    return all_run


IN_ORDER: dict[str, Any] = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


# --- LeaderWorkerSet ------------------------------------------------------------------------------


def lws_pod(index: int, size: int) -> dict[str, Any]:
    """A pod of a group as it stands after LeaderWorkerSet's own admission."""
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "train",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "leaderworkerset.sigs.k8s.io/group-key": "key-of-group-0",
        "leaderworkerset.sigs.k8s.io/worker-index": str(index),
    }
    body = template(8, annotations={"leaderworkerset.sigs.k8s.io/size": str(size)})
    body["metadata"]["labels"] = labels
    return body


# --- the affinity that both controllers' webhooks write -------------------------------------------


def affinity(key: str, own: str, over: str, **where: Any) -> dict[str, Any]:
    """Together with pods of the same label over a topology key, and apart from those of another."""

    def term(*expressions: dict[str, Any]) -> dict[str, Any]:
        return {"labelSelector": {"matchExpressions": list(expressions)}, "topologyKey": over, **where}

    mine = term({"key": key, "operator": "In", "values": [own]})
    others = term({"key": key, "operator": "Exists"}, {"key": key, "operator": "NotIn", "values": [own]})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"podAffinity": {required: [mine]}, "podAntiAffinity": {required: [others]}}


JOB_KEY = marks.EXCLUSIVE_LABELS[0]


def exclusive_member(
    job: int, index: int, over: str, uid: str, jobs: int, of: str = "train"
) -> dict[str, Any]:
    """A pod of a Job that wants a domain, as JobSet's webhook lets it in: a leader, which has affinity."""
    body = template(8, annotations={marks.JOBSET_EXCLUSIVE: over})
    body["metadata"]["labels"] = {
        marks.JOBSET_NAME_LABEL: of,
        "jobset.sigs.k8s.io/jobset-uid": uid,
        marks.JOB_NAME_LABEL: f"{of}-w-{job}",
        marks.JOB_GLOBAL_INDEX: str(job),
        marks.JOBS_OF_JOBSET: str(jobs),
        marks.JOB_INDEX_KEY: str(index),
        JOB_KEY: f"key-{of}-{job}",
    }
    if index == 0:
        body["spec"]["affinity"] = affinity(JOB_KEY, f"key-{of}-{job}", over, namespaceSelector={})
    return body


def follow(
    cluster: Cluster,
    namespace: str,
    pods: Pods,
    followed: set[int],
    count: int,
    over: str,
    uid: str,
    jobs: int,
) -> None:
    """Make the other pods of Jobs whose leaders have nodes, with the selector that JobSet's webhook adds."""
    api = cluster.api()
    for number in set(range(jobs)) - followed:
        leader = named(pods, f"train-{number}-0")
        node = leader[0]["spec"].get("nodeName") if leader else None
        if not node:
            continue
        followed.add(number)
        value = api.json("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"][over]
        for index in range(1, count):
            body = exclusive_member(number, index, over, uid, jobs)
            body["spec"]["nodeSelector"] = {over: value}
            create_pod(api, namespace, f"train-{number}-{index}", body)


# --- pods without an API server -------------------------------------------------------------------


def exclusive(placing: Placing) -> Placing:
    """Passes of a sweeper in which exclusive topology is on."""
    placing.divide = divide_gang
    return placing


def valid_plans(view: View, refusing: RefusingNodes, sent: SentReleases) -> View:
    """The view with the plans that hold in such a sweeper."""
    view = with_valid_plans(view, Topology(), refusing, sent)
    return without_plans(view, lost_domains(view, sent), sent)


def member(
    name: str, job: str, *, over: str = "rack", node: str = "", size: int = 2, priority: int = 0
) -> Pod:
    """A pod of a Job, of a JobSet, that has so many pods and wants a domain of this label."""
    labels = {
        marks.JOBSET_NAME_LABEL: "set",
        marks.JOB_NAME_LABEL: job,
        "batch.kubernetes.io/controller-uid": job,
    }
    annotations = {marks.JOBSET_EXCLUSIVE: over, keys.GANG_SIZE_ANNOTATION: str(size)}
    metadata = {"labels": labels, "annotations": annotations}
    return gpu_pod(name, node=node, metadata=metadata, priority=priority)


def pinned_to(node: str) -> dict[str, Any]:
    """The affinity of a release."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"nodeAffinity": required}


def sent(pod: Pod, node: str) -> Pod:
    """The pod after its release to a node."""
    body = msgspec.to_builtins(pod)
    body["spec"] |= {"schedulingGates": [], "affinity": pinned_to(node)}
    return decode(body)


def racks(*sizes: int, pods: tuple[Pod, ...] = (), key: str = "rack") -> Nodes:
    """Racks r0, r1, ... of so many nodes of one GPU, by a label that is no level of the topology."""
    made = Nodes(sum(sizes), *pods)
    names = iter(list(made.nodes))
    for rack, size in enumerate(sizes):
        for _ in range(size):
            name = next(names)
            node = made.nodes[name]
            metadata = msgspec.structs.replace(node.metadata, labels={key: f"r{rack}"})
            made.nodes[name] = msgspec.structs.replace(node, metadata=metadata)
    return made
