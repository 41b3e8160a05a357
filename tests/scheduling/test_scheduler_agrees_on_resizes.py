"""What pods take of their nodes while they are resized, against the real kube-scheduler's count, at random.

Each node has one resident. By our count the rest of the node is known to the thousandth of a CPU and to the
byte: kube-scheduler must bind a pod that asks for all of it, and refuse one that asks for a little more.
"""

import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from labeler.contract import keys
from tests.scheduling.agreement import CLIENTS, create, decoded, is_scheduled, judged, register
from tests.support import create_namespace, delete_namespace, wait_for_pods
from webhook.kube.client import Api, ApiError
from webhook.scheduling import convert

PODS = int(os.environ.get("TOPOGATE_PAIRS", "80"))
CPU, MEMORY = 64_000, 64 * 2**30
"""Of each node, in thousandths and bytes."""
OVERHEAD = {"cpu": "600m", "memory": "300Mi"}
TOLERATES_ALL = [{"operator": "Exists"}]
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"


def amounts(dice: random.Random) -> dict[str, str]:
    """Of cpu and memory, one missing now and then."""
    found = {"cpu": f"{dice.randint(1, 6000)}m", "memory": str(dice.randint(1, 6 * 2**30))}
    return {name: each for name, each in found.items() if dice.random() < 0.9}


def resident(dice: random.Random, node: str) -> dict[str, Any]:
    containers = [
        {"name": f"c{number}", "image": "x", "resources": {"requests": amounts(dice)}}
        for number in range(dice.randint(1, 3))
    ]
    init: list[dict[str, Any]] = [
        {"name": f"i{number}", "image": "x", "resources": {"requests": amounts(dice)}}
        for number in range(dice.choice((0, 1, 2, 3)))
    ]
    for each in init:
        if dice.random() < 0.6:
            each["restartPolicy"] = "Always"
    spec: dict[str, Any] = {
        "nodeName": node,
        "tolerations": TOLERATES_ALL,
        "containers": containers,
        "initContainers": init,
        "terminationGracePeriodSeconds": 600,
    }
    if dice.random() < 0.3:
        spec["resources"] = {"requests": {"cpu": "26", "memory": f"{26 * 2**30}"}}
    if dice.random() < 0.2:
        spec["runtimeClassName"] = "heavy"
    metadata: dict[str, Any] = {"name": f"resident-{node}"}
    if dice.random() < 0.1:
        metadata["annotations"] = {keys.MIRROR_POD_ANNOTATION: "x"}
    return {"metadata": metadata, "spec": spec}


def reported(dice: random.Random, container: dict[str, Any], settled: bool) -> dict[str, Any]:
    """A container's status; settled: it has what it requests."""
    requests = container["resources"].get("requests", {})
    status = {"name": container["name"], "image": "x", "imageID": "x", "ready": True, "restartCount": 0}
    status["state"] = {"running": {}}
    if settled or dice.random() < 0.8:
        status["resources"] = {"requests": requests if settled or dice.random() < 0.3 else amounts(dice)}
    if not settled and dice.random() < 0.8:
        status["allocatedResources"] = requests if dice.random() < 0.3 else amounts(dice)
    return status


def reports(dice: random.Random, pod: dict[str, Any], settled: bool) -> dict[str, Any]:
    """The status of a pod that is resized, in any state of that."""
    spec = pod["spec"]
    status: dict[str, Any] = {
        "phase": "Running",
        "containerStatuses": [reported(dice, each, settled) for each in spec["containers"]],
        "initContainerStatuses": [reported(dice, each, settled) for each in spec.get("initContainers", [])],
    }
    if settled:
        return status
    if dice.random() < 0.7:
        status["resources"] = {"requests": amounts(dice)}
    if dice.random() < 0.7:
        status["allocatedResources"] = amounts(dice)
    reason = dice.choice(("Infeasible", "Infeasible", "Deferred", "Other", ""))
    if reason:
        own = {"type": "PodResizePending", "status": dice.choice(("True", "False")), "reason": reason}
        status["conditions"] = [*pod["status"].get("conditions", []), own]
    return status


def resized(dice: random.Random, spec: dict[str, Any]) -> dict[str, Any]:
    """Other requests of what the pod requests already, of containers and sidecars and of the pod."""

    def other(each: dict[str, Any]) -> dict[str, Any]:
        asked, drawn = each["resources"].get("requests", {}), amounts(dice)
        return {
            "name": each["name"],
            "resources": {"requests": {k: drawn.get(k, v) for k, v in asked.items()}},
        }

    sidecars = [each for each in spec.get("initContainers", []) if each.get("restartPolicy")]
    found: dict[str, Any] = {"containers": list(map(other, spec["containers"]))}
    if sidecars:
        found["initContainers"] = list(map(other, sidecars))
    if spec.get("resources"):
        found["resources"] = {"requests": {"cpu": str(dice.randint(25, 40))}}
    return found


def patch(api: Api, path: str, body: dict[str, Any], kind: str) -> None:
    api.request("PATCH", path, body=body, content_type=kind)


def resize(cluster: Cluster, namespace: str, pod: dict[str, Any]) -> bool:
    """Put a resident into a random state of a resize; returns whether its spec was changed."""
    api, name = cluster.api(), pod["metadata"]["name"]
    dice = random.Random(name)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    patch(api, f"{path}/status", {"status": reports(dice, pod, settled=True)}, MERGE)
    done = False
    if keys.MIRROR_POD_ANNOTATION not in pod["metadata"].get("annotations", {}) and dice.random() < 0.8:
        try:
            patch(api, f"{path}/resize", {"spec": resized(dice, pod["spec"])}, STRATEGIC)
            done = True
        except ApiError as error:
            if error.status not in (403, 422):  # as the whole pod may not request less than its containers
                raise
    patch(api, f"{path}/status", {"status": reports(dice, pod, settled=False)}, MERGE)
    if dice.random() < 0.1:
        api.request("DELETE", path)
    return done


def node_body(name: str) -> dict[str, Any]:
    body = SimulatedNode(name, ("b", "s", name), False, 0).manifest()
    body["status"]["allocatable"] |= {"cpu": f"{CPU}m", "memory": str(MEMORY)}
    body["status"]["declaredFeatures"] = ["InPlacePodLevelResourcesVerticalScaling"]
    return body


def probe(name: str, node: str, cpu: int, memory: int) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": {"cpu": f"{cpu}m", "memory": str(memory)}},
    }
    spec = {
        "containers": [container],
        "nodeSelector": {keys.HOSTNAME_LABEL: node},
        "tolerations": TOLERATES_ALL,
    }
    return {"metadata": {"name": f"{name}-{node}"}, "spec": spec}


def probed(
    cluster: Cluster, name: str, free: dict[str, tuple[int, int]], more: Callable[[str], tuple[int, int]]
) -> dict[str, bool | None]:
    """By node, whether kube-scheduler binds a pod that asks for what is free there, and so much more."""
    namespace = create_namespace(cluster)
    path = f"/api/v1/namespaces/{namespace}/pods"
    bodies = [
        probe(name, node, cpu + more(node)[0], memory + more(node)[1]) for node, (cpu, memory) in free.items()
    ]
    create(cluster, ((path, body) for body in bodies))
    found = judged(cluster, [namespace])
    decisions = {node: is_scheduled(found[f"{name}-{node}"]) for node in free}
    delete_namespace(cluster, namespace)
    return decisions


@pytest.mark.promise("R105")
def test_a_pod_that_is_resized_takes_what_kube_scheduler_counts(cluster: Cluster, namespace: str) -> None:
    api, dice = cluster.api(), random.Random(1)
    names = [f"n{number}" for number in range(PODS)]
    overhead = {"metadata": {"name": "heavy"}, "handler": "x", "overhead": {"podFixed": OVERHEAD}}
    api.request("POST", "/apis/node.k8s.io/v1/runtimeclasses", body=overhead)
    path = f"/api/v1/namespaces/{namespace}/pods"
    register(cluster, [node_body(name) for name in names])
    create(cluster, ((path, resident(dice, name)) for name in names))
    pods = wait_for_pods(
        cluster,
        namespace,
        lambda pods: all(each["status"].get("phase") == "Running" for each in pods),
        "the residents to run",
    )
    with cluster.paused("kwok"), ThreadPoolExecutor(CLIENTS) as pool:
        changed = sum(pool.map(lambda pod: resize(cluster, namespace, pod), pods))
        pods = api.json("GET", path)["items"]
        assert len(pods) == PODS
        takes = {each["spec"]["nodeName"]: convert.usage_of(decoded(each)).requests for each in pods}
        free = {
            name: (CPU - each.get("cpu", 0), MEMORY - each.get("memory", 0)) for name, each in takes.items()
        }
        over = probed(cluster, "over", free, lambda node: random.Random(node).choice(((1, 0), (0, 1))))
        exact = probed(cluster, "exact", free, lambda node: (0, 0))
    api.request("DELETE", "/apis/node.k8s.io/v1/runtimeclasses/heavy")
    by_node = {each["spec"]["nodeName"]: each for each in pods}
    wrong = [
        (over[name], exact[name], takes[name], by_node[name])
        for name in names
        if (over[name], exact[name]) != (False, True)
    ]
    assert wrong == []
    assert changed > PODS // 3, f"the specs of only {changed} pods were changed"
    by_spec = [convert.requests_of(decoded(each).spec) for each in pods]
    differ = sum(takes[each["spec"]["nodeName"]] != spec for each, spec in zip(pods, by_spec, strict=True))
    assert differ > PODS // 2, f"only {differ} pods take other amounts than their specs request"
    ending = sum(bool(each["metadata"].get("deletionTimestamp")) for each in pods)
    static = sum(keys.MIRROR_POD_ANNOTATION in each["metadata"].get("annotations", {}) for each in pods)
    of_pods = sum(bool(decoded(each).status.resources) for each in pods)
    assert min(ending, static, of_pods) > PODS // 40, (ending, static, of_pods)
