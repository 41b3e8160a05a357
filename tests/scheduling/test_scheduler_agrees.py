"""Our verdict on "may and can this pod run on this node" against the real kube-scheduler's, at random.

Each pair is a node of its own and a pod that is pinned to it, so the scheduler judges that pair alone.
"""

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest

from hack.local.cluster import Cluster
from hack.local.nodes import SimulatedNode
from tests.scheduling.agreement import CLIENTS, decoded, is_scheduled, judged, register, steady
from tests.support import delete
from webhook.kube import objects
from webhook.kube.client import Api, ApiError
from webhook.placement import Snapshot, capacity
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of

PAIRS = int(os.environ.get("TOPOGATE_PAIRS", "160"))
"""As in the other agreement tests: what every run can afford; a night can draw 400, or 4,000."""
LABELS = {
    "zone": ("a", "b"),
    "size": ("1", "5", "05", "x", "10", "9223372036854775807", "9223372036854775808"),
    "odd": ("",),
}
BOUNDS = ("3", "5", "07", "-1", "9223372036854775806", "9223372036854775808", "+4", "x")
RUNTIMES = {"heavy": {"cpu": "600m", "memory": "300Mi"}, "odd": {"cpu": "100u", "memory": "1500m"}}
"""RuntimeClasses and the overhead that admission writes into their pods."""
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")


def node_body(dice: random.Random, name: str) -> dict[str, Any]:
    body = SimulatedNode(name, ("b", "s", name), False, dice.choice((0, 1, 4))).manifest()
    body["metadata"]["labels"] |= {k: dice.choice(v) for k, v in LABELS.items() if dice.random() < 0.6}
    resources = {"cpu": dice.choice(("2", "1500m")), "memory": "1Gi", "pods": dice.choice(("1", "2", "110"))}
    body["status"]["allocatable"] = body["status"]["allocatable"] | resources
    body["spec"] = {"taints": taints(dice), "unschedulable": dice.random() < 0.1}
    return body


def taints(dice: random.Random) -> list[dict[str, str]]:
    if dice.random() < 0.6:
        return []
    value, effect = dice.choice(("", "v", "7")), dice.choice(EFFECTS)
    return [{"key": dice.choice(("k", "l")), "value": value, "effect": effect}]


def toleration(dice: random.Random) -> dict[str, str]:
    operator = dice.choice(("", "Equal", "Exists"))
    key = dice.choice(("k", "l", "node.kubernetes.io/unschedulable", ""))
    made = {"operator": "Exists" if not key else operator, "effect": dice.choice(("", *EFFECTS))}
    if key:
        made["key"] = key
    if made["operator"] != "Exists":
        made["value"] = dice.choice(("", "v", "7"))
    return made


def requirement(dice: random.Random) -> dict[str, Any]:
    key = dice.choice((*LABELS, "absent"))
    operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Gt", "Lt", "Lt"))
    key = "size" if operator in ("Gt", "Lt") and dice.random() < 0.7 else key
    values: list[str] = []
    if operator in ("In", "NotIn"):
        values = dice.sample(("a", "b", "5", "05", ""), dice.randint(1, 2))
    elif operator in ("Gt", "Lt"):
        values = [dice.choice(BOUNDS)]
    return {"key": key, "operator": operator, "values": values}


def term(dice: random.Random, node: str) -> dict[str, Any]:
    operator = dice.choice(("In", "In", "In", "NotIn"))
    fields = [{"key": "metadata.name", "operator": operator, "values": [node]}]
    expressions = [requirement(dice) for _ in range(dice.choice((0, 1, 1, 2)))]
    return {"matchFields": fields, "matchExpressions": expressions}


def resources(dice: random.Random) -> dict[str, Any]:
    cpu, memory = ("100m", "0.5", "1", "100u"), ("1Mi", "600Mi", "1e9", "1500m")
    amounts = {"cpu": dice.choice(cpu), "memory": dice.choice(memory)}
    found = {dice.choice(("requests", "limits")): {k: v for k, v in amounts.items() if dice.random() < 0.7}}
    if dice.random() < 0.3:
        found.setdefault("limits", {})["nvidia.com/gpu"] = str(dice.randint(0, 3))
    return found


def container(dice: random.Random, name: str) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": resources(dice)}


def pod_level(dice: random.Random) -> dict[str, Any]:
    """Requests and limits of the whole pod; the API server refuses those that its containers exceed."""
    found: dict[str, Any] = {}
    for kind in dice.choice((("requests",), ("limits",), ("requests", "limits"))):
        amounts = {
            "cpu": dice.choice(("1", "1500m", "1900m", "2100m")),
            "memory": dice.choice(("900Mi", "1Gi")),
        }
        found[kind] = {key: value for key, value in amounts.items() if dice.random() < 0.7}
    return found


def create_possible(api: Api, path: str, node: str) -> None:
    """Create the first of a sequence of random pods for a node that the API server accepts."""
    dice = random.Random(f"pod for {node}")
    for _ in range(50):
        try:
            api.request("POST", path, body=pod_body(dice, node))
        except ApiError as error:
            if error.status != 422:
                raise
        else:
            return
    raise AssertionError(f"50 pods for {node} were refused")


@pytest.fixture
def runtimes(cluster: Cluster) -> Iterator[None]:
    """RuntimeClasses with overhead: a pod cannot name its overhead itself."""
    api, path = cluster.api(), "/apis/node.k8s.io/v1/runtimeclasses"
    for name, overhead in RUNTIMES.items():
        body = {"metadata": {"name": name}, "handler": "x", "overhead": {"podFixed": overhead}}
        api.request("POST", path, body=body)
    yield
    for name in RUNTIMES:
        delete(api, f"{path}/{name}")


def resident(node: str) -> dict[str, Any]:
    """A pod that is on a node already."""
    takes = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    spec = {"containers": [takes], "nodeName": node, "tolerations": [{"operator": "Exists"}]}
    return {"metadata": {"name": f"resident-{node}"}, "spec": spec}


def pod_body(dice: random.Random, node: str) -> dict[str, Any]:
    containers = [container(dice, f"c{number}") for number in range(dice.randint(1, 3))]
    init = [container(dice, f"i{number}") for number in range(dice.choice((0, 0, 1, 2)))]
    for one in init:
        if dice.random() < 0.5:
            one["restartPolicy"] = "Always"
    pinned = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    terms = [term(dice, node) for _ in range(dice.choice((1, 1, 2)))] if dice.random() < 0.4 else [pinned]
    selector = {key: dice.choice(values) for key, values in LABELS.items() if dice.random() < 0.03}
    more: dict[str, Any] = {"resources": pod_level(dice)} if dice.random() < 0.4 else {}
    if dice.random() < 0.2:
        more["runtimeClassName"] = dice.choice(sorted(RUNTIMES))
    return {
        "metadata": {"name": f"pod-{node}", "labels": {"for": node}},
        "spec": {
            **more,
            "containers": containers,
            "initContainers": init,
            "nodeSelector": selector | {"kubernetes.io/hostname": node},
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
                }
            },
            "tolerations": [toleration(dice) for _ in range(dice.choice((0, 1, 2)))],
        },
    }


@pytest.mark.promise("R105", "I22")
@pytest.mark.usefixtures("runtimes")
def test_our_decision_on_a_pod_and_a_node_is_kube_scheduler_s(cluster: Cluster, namespace: str) -> None:
    dice = random.Random(1)
    api = cluster.api()
    names = [f"n{number}" for number in range(PAIRS)]
    bodies = [node_body(dice, name) for name in names]
    fillers = [name for name in names if dice.random() < 0.3]
    path = f"/api/v1/namespaces/{namespace}/pods"
    register(cluster, bodies)
    for name in fillers:
        api.request("POST", path, body=resident(name))
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(lambda name: create_possible(api, path, name), names))
    by_name = judged(cluster, [namespace])
    state = steady(cluster, set(names))
    usage = [(name, convert.usage_of(decoded(by_name[f"resident-{name}"]))) for name in fillers]
    nodes = [node_of(msgspec.convert(body, objects.Node)) for body in state.values()]
    snapshot = Snapshot.build(nodes, usage)
    decisions = {name: is_scheduled(by_name[f"pod-{name}"]) for name in names}
    for name in names:
        pod = by_name[f"pod-{name}"]
        kind, place = convert.pod_class_of(decoded(pod)), snapshot.nodes[name]
        reason = capacity.reason_against_node(kind, place) or capacity.shortage(kind, place)
        conditions = pod["status"].get("conditions")
        assert (reason == "") == decisions[name], (reason, conditions, pod["spec"], state[name])
    bound = sum(map(bool, decisions.values()))
    assert PAIRS // 5 < bound < PAIRS * 4 // 5, f"{bound} of {PAIRS} bound: the pairs do not tell enough"
    specs = [by_name[f"pod-{name}"]["spec"] for name in names]
    for field in ("resources", "overhead"):
        with_field = sum(bool(spec.get(field)) for spec in specs)
        assert with_field > PAIRS // 20, f"only {with_field} pods have {field}"
