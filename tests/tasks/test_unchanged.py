"""GPUTasks and their three PriorityClasses as they have always been written, on a cluster whose nodes say
their model by the label falldio.com/gpu, and their GPUs by the resource of that name or by NVIDIA's: applied
unchanged, with topogate at work."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from hack.local.cluster import Cluster
from hack.local.install import Installation
from hack.local.nodes import SimulatedNode
from tests.installation import installed_for
from tests.support import clean
from webhook.tasks import task_objects

RESOURCE: Final = "falldio.com/gpu"
CLASSES: Final = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: gpu-low-priority}
value: 1
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: gpu-medium-priority}
value: 10
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: gpu-high-priority}
value: 100
"""
TASK: Final = """
apiVersion: falldio.com/v1
kind: GPUTask
metadata:
  name: NAME
spec:
  memory: 16gi
  cpu: '8'
  gpu: rtx4090
  gpu-amount: 'AMOUNT'
  priority: PRIORITY
"""


@pytest.fixture(
    scope="module",
    params=[("falldio", "nvidia.com/gpu"), ("falldio-resource", RESOURCE)],
    ids=lambda each: each[0],
)
def installed(module_cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Installation]:
    """Two nodes of eight GPUs, one of that model, which an operator labelled by hand."""
    component, resource = request.param
    models = {"other": "a100", "right": "rtx4090"}
    nodes = {name: SimulatedNode(name, ("b", "s", name), False, 8) for name in models}
    with installed_for(module_cluster, list(nodes.values()), (component,)) as installation:
        for name, node in nodes.items():
            body = node.manifest({"falldio.com/gpu": models[name]})
            for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
                amounts.pop("nvidia.com/gpu", None)
                amounts[resource] = "8"
            module_cluster.api().request("POST", "/api/v1/nodes", body=body)
        yield installation
    clean(module_cluster)


class Team:
    """A namespace in which manifests are applied."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.api = cluster.api()

    def apply(self, manifest: str) -> None:
        self.cluster.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=manifest)

    def start(self, name: str, amount: str, priority: str) -> None:
        words = {"NAME": name, "AMOUNT": amount, "PRIORITY": priority}
        text = TASK
        for word, value in words.items():
            text = text.replace(word, value)
        self.apply(text)

    def status(self, name: str) -> dict[str, Any]:
        return dict(self.api.json("GET", task_objects.path(self.namespace, name)).get("status") or {})

    def wait_for(self, name: str, phase: str) -> None:
        self.cluster.wait_for(f"{name} to be {phase}", lambda: self.status(name).get("phase") == phase)

    def pods(self) -> list[dict[str, Any]]:
        return list(self.api.json("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"])


@pytest.fixture
def team(installed: Installation, opted_in: str) -> Team:
    return Team(installed.cluster, opted_in)


def test_a_task_runs_on_a_node_of_its_model_and_deleting_it_stops_it(team: Team) -> None:
    team.apply(CLASSES)
    team.start("train", "1", "gpu-low-priority")
    team.wait_for("train", "Running")
    (pod,) = team.pods()
    assert pod["spec"]["nodeName"] == "right" == team.status("train")["node"]
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("gpu-low-priority", 1)
    team.cluster.kubectl("delete", "gputask", "train", "-n", team.namespace)
    team.cluster.wait_for("its pod to be gone", lambda: not team.pods())


def test_a_higher_priority_preempts_a_lower_one_where_both_do_not_fit(team: Team) -> None:
    team.apply(CLASSES)
    team.start("low", "8", "gpu-low-priority")
    team.wait_for("low", "Running")
    team.start("high", "8", "gpu-high-priority")
    team.wait_for("high", "Running")
    team.wait_for("low", "Waiting")
    assert team.status("low")["reason"]
