"""Pods that replace lost ones go where others hold nodes since, if they ask for no more than those did."""

from dataclasses import replace

import pytest

from tests.sweeper.cluster import Nodes, Placing, gpu_pod, places
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, PlacementSpec
from webhook.kube.plan_pods import PlannedPod
from webhook.sweeper.decide.placement_pass import PlacingMemory
from webhook.sweeper.decide.replacements import Replacements

YOUNG = {
    "creationTimestamp": "2026-06-01T00:00:00Z",
    "annotations": {"topogate.io/gang": "g", "topogate.io/gang-size": "3"},
}


def member(name: str, gpus: int, node: str = "") -> Pod:
    return gpu_pod(name, gpus=gpus, node=node, metadata=YOUNG)


def case_of(*members: Pod) -> Placing:
    """Three nodes of which an older gang waits for all and another pod has the last, and a running gang."""
    older = {
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"topogate.io/gang": "old", "topogate.io/gang-size": "3"},
    }
    waiting = [gpu_pod(f"old-{number}", gpus=8, metadata=older) for number in range(3)]
    cluster = Nodes(3, gpu_pod("runs", gpus=6, node="n2"), *waiting, *members, gpus=8)
    case = Placing(cluster, Settings(reserve_seconds=0, reserve_share=1.0, settle_seconds=0))
    planned = [PlannedPod(each.metadata.name, each.metadata.uid, each.spec.node_name) for each in members]
    key = next(gang.key for gang in Placing(Nodes(1, member("x", 1)), Settings()).gangs())
    spec = PlacementSpec(gang="Gang/g", size=3, pods=planned)
    metadata = Metadata(namespace="ns", name=key.placement_name)
    cluster.placements = {key.placement_key: Placement(metadata=metadata, spec=spec)}
    case.one()
    assert case.reserved == {"n0", "n1", "n2"}
    return case


def after_loss(case: Placing, lost: set[str], *successors: Pod) -> dict[str, str]:
    case.cluster.pods = [pod for pod in case.cluster.pods if pod.metadata.name not in lost]
    case.cluster.pods += successors
    return places(case.one())


HOMOGENEOUS = [member("a", 1, "n0"), member("b", 1, "n1"), member("c", 1, "n2")]


@pytest.mark.promise("O100")
@pytest.mark.parametrize(("gpus", "is_placed"), [(1, True), (7, False)])
def test_only_a_pod_that_asks_for_what_was_lost_is_placed_on_nodes_reserved_for_others(
    gpus: int, is_placed: bool
) -> None:
    assert bool(after_loss(case_of(*HOMOGENEOUS), {"a"}, member("d", gpus))) is is_placed


def test_as_many_as_were_lost_of_a_kind_and_no_more() -> None:
    heterogeneous = [member("a", 7, "n0"), member("b", 1, "n1"), member("c", 1, "n2")]
    both = member("d", 7), member("e", 7)
    assert not after_loss(case_of(*heterogeneous), {"a", "b"}, *both)
    assert after_loss(case_of(*heterogeneous), {"a", "b"}, member("d", 7), member("e", 1))


def test_a_process_that_has_not_seen_the_lost_pods_uses_those_that_are_left() -> None:
    for left, is_placed in ((1, True), (7, False)):
        case = case_of(member("a", 1, "n0"), member("b", left, "n1"), member("c", left, "n2"))
        ledger = replace(case.ledger, replacements=Replacements())
        case.memory = PlacingMemory(ledger=ledger)
        assert bool(after_loss(case, {"a"}, member("d", 1))) is is_placed


def test_a_gang_with_more_pods_than_it_had_fills_nothing_up() -> None:
    assert not after_loss(case_of(*HOMOGENEOUS), set(), member("d", 1))
