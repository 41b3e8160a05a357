"""A node that an autoscaler is about to remove is given to nobody, whatever the pod tolerates."""

import msgspec
import pytest

from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node
from webhook.kube.placements import Placement
from webhook.scheduling.nodes import LEAVING_TAINTS

TOLERATES_ALL = [{"operator": "Exists"}]


def marked(name: str, taint: str) -> Node:
    status = {"allocatable": {"nvidia.com/gpu": "1", "pods": "110"}}
    spec = {"taints": [{"key": taint, "effect": "NoSchedule"}] if taint else []}
    return msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec, "status": status}, Node)


@pytest.mark.parametrize("taint", sorted(LEAVING_TAINTS))
def test_a_pod_that_tolerates_every_taint_is_placed_elsewhere(taint: str) -> None:
    cluster = Nodes(2, gpu_pod("p", tolerations=TOLERATES_ALL))
    cluster.nodes["n0"] = marked("n0", taint)
    placing = Placing(cluster, Settings(settle_seconds=0))
    placing.one()
    assert places(placing.one()) == {"p": "n1"}


@pytest.mark.parametrize(("taint", "holds"), [("", True), ("ToBeDeletedByClusterAutoscaler", False)])
def test_a_plan_for_a_node_that_is_marked_since_does_not_hold(taint: str, holds: bool) -> None:
    pod = gpu_pod("p", tolerations=TOLERATES_ALL)
    cluster = Nodes(1, pod)
    cluster.nodes["n0"] = marked("n0", taint)
    entry = {"name": "p", "uid": pod.metadata.uid, "node": "n0"}
    body = {"metadata": {"name": "x", "namespace": "ns"}, "spec": {"gang": "Pod/p", "pods": [entry]}}
    cluster.placements["ns/x"] = msgspec.convert(body, Placement)
    view = Placing(cluster, Settings()).view()
    assert (pod.metadata.uid in view.planned) is holds
