"""Nodes that offer Intel's cards without the labels that number them, as under Intel's current plugin."""

import pytest

from tests.placement.cards import gpu_node, gpu_pod
from webhook.kube import objects
from webhook.placement import Assignment, Gang, Member, Snapshot, check, place
from webhook.scheduling import convert
from webhook.scheduling.nodes import node_of

NO_LABEL = "no label gpu.intel.com/gpu-numbers or gpu.intel.com/cards (run topogate's labeler there): "


def named(name: str, node: objects.Node) -> objects.Node:
    metadata = objects.NodeMetadata(name=name, labels=node.metadata.labels)
    return objects.Node(metadata=metadata, status=node.status)


def placed(nodes: list[objects.Node], *pods: objects.Pod) -> dict[str, tuple[str, str]] | str:
    """Pod -> its node and its cards, or the reason why the gang waits."""
    snapshot = Snapshot.build([node_of(node) for node in nodes], [])
    members = tuple(Member(f"p{n}", n, convert.pod_class_of(pod)) for n, pod in enumerate(pods))
    gang = Gang("g", members)
    answer = place(gang, snapshot)
    if not isinstance(answer, Assignment):
        return answer.sentence
    assert check(answer, gang, snapshot) == []
    return {
        each.member: (each.node, "|".join(",".join(share.card for share in slot) for slot in each.cards))
        for each in answer.placed
    }


@pytest.mark.promise("O381")
@pytest.mark.parametrize("resource", ["xe", "i915"])
def test_devices_are_counted_where_no_label_numbers_the_cards(resource: str) -> None:
    nodes = [named("a", gpu_node("", **{resource: "8"})), named("b", gpu_node("", **{resource: "4"}))]
    four = gpu_pod({resource: 4})
    assert placed(nodes, four, four, four) == {"p0": ("a", ""), "p1": ("a", ""), "p2": ("b", "")}
    assert "capacity for 3 of 4" in str(placed(nodes, four, four, four, four))


def test_pods_of_several_roles_are_counted_together() -> None:
    nodes = [named("a", gpu_node("", xe="4"))]
    assert placed(nodes, gpu_pod({"xe": 3}), gpu_pod({"xe": 1})) == {"p0": ("a", ""), "p1": ("a", "")}
    assert "do not fit" in str(placed(nodes, gpu_pod({"xe": 3}), gpu_pod({"xe": 2})))


def test_several_containers_and_a_leader_beside_workers_are_counted_together() -> None:
    nodes = [named(name, gpu_node("", xe="8")) for name in "ab"]
    worker, leader = gpu_pod({"xe": 2}, {"xe": 2}), gpu_pod({}, {"xe": 1})
    found = placed(nodes, leader, worker, worker, worker)
    assert isinstance(found, dict)
    assert sorted(node for node, _ in found.values()) in (
        ["a", "a", "b", "b"],
        ["a", "a", "a", "b"],
        ["a", "b", "b", "b"],
    )


@pytest.mark.promise("O381")
def test_beside_labelled_nodes_each_pod_has_cards_where_they_are_numbered() -> None:
    nodes = [named("a", gpu_node("0.1", xe="2")), named("b", gpu_node("", xe="2"))]
    two = gpu_pod({"xe": 2})
    assert placed(nodes, two, two) == {"p0": ("a", "card0,card1"), "p1": ("b", "")}


@pytest.mark.promise("O379")
@pytest.mark.parametrize(
    ("asks", "annotations"),
    [
        ({"i915": 1, "tiles": 1}, {}),
        ({"i915": 1, "millicores": 500}, {}),
        ({"i915": 1, "memory_max": 8}, {}),
        ({"i915": 2}, {"gas_allocate_single_numa": "true"}),
        ({"i915": 2}, {"gas_allocate_xelink": "true"}),
        ({"i915": 1}, {"gas_deny": "card0"}),
        ({"i915": 1}, {"gas_allow": "card0"}),
    ],
    ids=[
        "tiles",
        "a share of a card",
        "memory",
        "one NUMA node",
        "linked cards",
        "not this card",
        "this card",
    ],
)
def test_what_needs_numbered_cards_waits_with_the_missing_label_in_the_reason(
    asks: dict[str, int], annotations: dict[str, str]
) -> None:
    node = gpu_node("", i915="8", tiles="16", millicores="8000", memory_max="99")
    assert NO_LABEL in str(placed([named("a", node), named("b", node)], gpu_pod(asks, **annotations)))


def test_containers_that_share_a_card_need_numbered_cards() -> None:
    pod = gpu_pod({"i915": 1}, {"i915": 1}, gas_same_gpu="c1,c2")
    assert NO_LABEL in str(placed([gpu_node("", i915="8")], pod))


def test_a_node_all_of_whose_cards_are_broken_is_not_taken_for_one_without_labels() -> None:
    """Its labeler has found none that can be used; Intel's plugin does not know that."""
    node = gpu_node("", xe="8", label_tiles="0")
    assert 'resource "gpu.intel.com/xe": 1' in str(placed([node], gpu_pod({"xe": 1})))


def test_a_node_with_numbered_cards_still_reports_cards_that_are_short() -> None:
    assert node_of(gpu_node("0.1", i915="20")).without_cards == ""
    assert "cards: 1" in str(placed([gpu_node("0.1", i915="20")], gpu_pod({"i915": 3})))


def test_a_node_without_intels_resources_lacks_no_label() -> None:
    assert node_of(gpu_node("")).without_cards == ""
