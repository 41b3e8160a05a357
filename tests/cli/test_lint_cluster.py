"""What `topogate lint --cluster` says of what no node can give, by the nodes alone."""

from typing import Any

import msgspec
import pytest

from tests.cli.jobs import job, pod_spec
from tests.ui.scenes import node_objects
from webhook.inquiry.lint_cluster import ClusterRules
from webhook.inquiry.simulation import shipped_rules
from webhook.kube.objects import Node

LAUNCHER: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "x"}]}}


def bare(node: Node) -> Node:
    """The node without its labels."""
    return msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, labels={}))


LABELLED = tuple(node_objects().values())
UNLABELLED = tuple(map(bare, LABELLED))


def faults(document: dict[str, Any], nodes: tuple[Node, ...]) -> list[str]:
    found = ClusterRules(shipped_rules(), nodes).faults([document], "m.yaml")
    return [str(each).removeprefix("m.yaml: ") for each in found]


def launched(workers: dict[str, Any]) -> dict[str, Any]:
    """An MPIJob whose launcher asks for no GPU."""
    replicas = {
        "Launcher": {"replicas": 1, "template": LAUNCHER},
        "Worker": {"replicas": 2, "template": workers},
    }
    spec = {"mpiReplicaSpecs": replicas}
    return {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob", "metadata": {"name": "m"}, "spec": spec}


def test_each_template_of_a_job_is_looked_at() -> None:
    assert faults(launched({"spec": pod_spec(9)}), LABELLED) == [
        "MPIJob/m: a pod asks for 9 nvidia.com/gpu, and no node that it may use has more than 8"
    ]
    assert faults(launched({"spec": pod_spec(8)}), LABELLED) == []


@pytest.mark.promise("R240")
@pytest.mark.parametrize(
    ("annotations", "level"),
    [
        ({"required_topology": "block"}, "block"),
        ({"required_topology": "topology.gke.io/rack"}, "topology.gke.io/rack"),
        ({"spread_topology": "subblock:2"}, "subblock"),
    ],
    ids=["required", "required by a label", "spread"],
)
def test_a_level_on_nodes_without_topology_labels_is_a_fault(annotations: dict[str, str], level: str) -> None:
    wrong = job(8, 4, None, **annotations)
    assert faults(wrong, UNLABELLED) == [
        f"Job/train: it asks for domains of the level {level}, "
        "and no node that it may use has topology labels"
    ]
    assert faults(wrong, LABELLED) == []


@pytest.mark.parametrize(
    ("pods", "annotations", "expected"),
    [
        (9, {}, "the nodes that it may use have no capacity for 9 pods, even when they are empty"),
        (5, {"required_topology": "block"}, "no block has capacity for 5 pods, even when it is empty"),
        (4, {"required_topology": "block"}, ""),
        (9, {"gang_min_size": "8"}, ""),
    ],
    ids=["more than the cluster", "more than a block", "a block", "a part of it is enough"],
)
def test_a_gang_that_does_not_fit_into_the_empty_cluster_is_a_fault(
    pods: int, annotations: dict[str, str], expected: str
) -> None:
    assert faults(job(8, pods, None, **annotations), LABELLED) == (
        [f"Job/train: {expected}"] if expected else []
    )


@pytest.mark.parametrize("annotations", [{}, {"required_topology": "node"}, {"preferred_topology": "block"}])
def test_what_needs_no_domain_is_no_fault_on_nodes_without_labels(annotations: dict[str, str]) -> None:
    assert faults(job(8, 4, None, **annotations), UNLABELLED) == []
