"""What a pod takes of nodes between its plan, its binding and its end."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.sweeper.pods import decode, job_pod, no_size, pod_json
from webhook.configuration.settings import Settings
from webhook.inquiry.cluster_state import ClusterReading
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Snapshot
from webhook.scheduling.pod_mix import PARTS
from webhook.sweeper.observe.snapshotter import Snapshotter

GPU = "nvidia.com/gpu"


def node(name: str, **labels: str) -> Node:
    raw = {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {GPU: "8", "pods": "110"}}}
    return msgspec.convert(raw, Node)


@pytest.mark.promise("R6")
def test_what_is_planned_and_not_released_is_there_for_the_next_pass() -> None:
    waiting = job_pod(1)
    view = Snapshotter(_planned(waiting), Settings()).view()
    assert view.planned[waiting.metadata.uid].node == "n1"


def test_a_planned_pod_is_in_the_mix_once_as_one_that_only_waits_is() -> None:
    first, second = (
        decode(pod_json(f"a{gpus}", containers=[{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}]))
        for gpus in (1, 2)
    )
    cluster = _planned(first)
    snapshotter = Snapshotter(replace(cluster, pods=(first, second)), Settings())
    mix = snapshotter.snapshot(snapshotter.view()).mix
    assert {each.thousandths: each.count for each in mix.classes} == {1000: PARTS // 2, 2000: PARTS // 2}


def _planned(*pods: Pod) -> ClusterReading:
    """A cluster of n1 and n2 in which these pods are planned on n1."""
    entries = [PlannedPod(name=pod.metadata.name, uid=pod.metadata.uid, node="n1") for pod in pods]
    placement = Placement(metadata=Metadata(namespace="ns", name="p"), spec=PlacementSpec(pods=entries))
    return ClusterReading(pods, {name: node(name) for name in ("n1", "n2")}, {"ns/p": placement}, no_size)


@pytest.mark.parametrize(
    ("spec", "taken"),
    [({}, {"n1": 0, "n2": 0}), ({"nodeName": "n2"}, {"n1": 0, "n2": 8})],
    ids=["waiting for the scheduler", "bound elsewhere"],
)
def test_a_pod_whose_gate_another_client_removed_uses_no_capacity_where_it_was_planned(
    spec: dict[str, Any], taken: dict[str, int]
) -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {GPU: "8"}}}
    free = decode(pod_json("a", schedulingGates=[], containers=[container], **spec))
    snapshotter = Snapshotter(_planned(free), Settings())
    assert used(snapshotter.snapshot(snapshotter.view())) == taken


def used(snapshot: Snapshot) -> dict[str, int]:
    return {name: 8 - state.free[GPU] for name, state in snapshot.nodes.items()}


@pytest.mark.promise("D12")
def test_a_pod_that_is_being_deleted_uses_capacity_until_it_is_gone() -> None:
    container = {"name": "c", "image": "x", "resources": {"requests": {GPU: "8"}}}
    metadata = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    leaving = decode(
        pod_json("a", schedulingGates=[], containers=[container], nodeName="n1", metadata=metadata)
    )
    snapshotter = Snapshotter(ClusterReading((leaving,), {"n1": node("n1")}, {}, no_size), Settings())
    assert used(snapshotter.snapshot(snapshotter.view())) == {"n1": 8}
