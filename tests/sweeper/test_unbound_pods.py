"""How many released pods kube-scheduler does not bind, as passes show it in the metrics."""

from typing import Any

import msgspec
import pytest

from tests.sweeper.clock import Clock
from tests.sweeper.empty_api import Empty
from tests.sweeper.pods import decode, pod_json
from tests.sweeper.preemptions import plan
from webhook.configuration.settings import Avoid, BadNodes, Settings
from webhook.kube.collection import Listing
from webhook.kube.objects import Node, Pod
from webhook.sweeper.context import Pass
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.repair.repair import NOT_BOUND
from webhook.sweeper.sweep import Sweeper

SETTINGS = Settings(bind_seconds=100, bad_nodes=BadNodes(Avoid.OFF))
READY = {"type": "Ready", "status": "True"}
NODE = {
    "metadata": {"name": "n0"},
    "status": {"allocatable": {"nvidia.com/gpu": "8", "pods": "110"}, "conditions": [READY]},
}
NO_NODE = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
WAITS = "waiting for minCount pods from a gang to be scheduled"


def released(reason: str = "", message: str = "", **spec: Any) -> Pod:
    """A pod that is pinned to the node. reason, message: of its condition PodScheduled."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    pod = pod_json(**{"schedulingGates": [], "affinity": {"nodeAffinity": required}, **spec})
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    pod["status"]["conditions"] = [condition]
    return decode(pod)


def shown(pod: Pod, seconds: float) -> float | None:
    """The metric once a sweeper has seen this pod for so long."""
    cache, clock, metrics = ClusterCache(Empty()), Clock(), Metrics()
    cache.nodes._replace(Listing("1", {"n0": msgspec.convert(NODE, Node)}))
    cache.pods._replace(Listing("1", {"ns/p": pod}))
    cache.placements._replace(Listing("1", dict([plan("g", {pod.metadata.uid: "n0"})])))
    sweeper = Sweeper(Pass(Empty(), cache, SETTINGS, metrics, clock=clock))
    try:
        for _ in range(2):
            sweeper.sweep()
            clock.now += seconds
    finally:
        sweeper.close()
        cache.stop()
    assert metrics.registry.get_sample_value("topogate_repairs_total", {"cause": NOT_BOUND}) == 0
    return metrics.registry.get_sample_value("topogate_unbound_pods")


@pytest.mark.promise("O206")
@pytest.mark.parametrize(
    "pod",
    [
        released(),
        released("Unschedulable", NO_NODE),
        released("Unschedulable", WAITS, schedulingGroup={"podGroupName": "g"}),
    ],
    ids=["untried", "its node is taken", "waits for its PodGroup"],
)
def test_released_pods_that_stay_unbound_are_counted_once_bind_seconds_are_over(pod: Pod) -> None:
    assert shown(pod, 99) == 0
    assert shown(pod, 100) == 1


def test_pods_that_are_bound_or_have_other_gates_are_not_counted() -> None:
    assert shown(released(nodeName="n0"), 1000) == 0
    assert shown(released(schedulingGates=[{"name": "example.com/hold"}]), 1000) == 0
