"""What is read of a node's labels about its cards, and what of it may be wrong without harm to the rest."""

import pytest

from tests.placement.cards import gpu_node, gpu_pod, text_of
from webhook.kube import objects
from webhook.scheduling.nodes import left_out, node_of

TAS = "telemetry.aware.scheduling.policy/"


def labelled(node: objects.Node, **labels: str) -> objects.Node:
    """The node with labels more; "numa_gpu_map" is gpu.intel.com/numa-gpu-map."""
    more = {f"gpu.intel.com/{key.replace('_', '-')}": value for key, value in labels.items()}
    metadata = objects.NodeMetadata(name="n", labels=node.metadata.labels | more)
    return objects.Node(metadata=metadata, status=node.status)


@pytest.mark.parametrize(
    ("label", "value", "words"),
    [
        ("numa_gpu_map", "0-0_1", "without the NUMA nodes of its cards: label gpu.intel.com/numa-gpu-map"),
        ("xe_links", "0.0-1", "without the links between its cards: label gpu.intel.com/xe-links"),
        ("pci_groups", "foobar", "without the PCI groups of its cards: label gpu.intel.com/pci-groups"),
        ("pci_groups2", "1", None),
    ],
)
def test_a_bad_optional_label_costs_a_node_that_feature_alone(
    label: str, value: str, words: str | None
) -> None:
    node = labelled(gpu_node("0.1", i915="2"), **{label: value})
    assert node_of(node).problem == ""
    assert text_of(node, gpu_pod({"i915": 2})) == "card0,card1"
    reason = left_out(node)
    assert len(reason) == (words is not None)
    assert words is None or words in reason[0]


def test_a_bad_map_leaves_the_other_features_alone() -> None:
    node = labelled(
        gpu_node("0.1.2", i915="3", tiles="3"), numa_gpu_map="?", xe_links="1.0-2.0", pci_groups="0"
    )
    waiting = gpu_pod({"i915": 2, "tiles": 2}, gas_allocate_xelink="true")
    assert text_of(node, waiting) == "card1:gt0,card2:gt0"


def test_without_readable_links_no_linked_pair_is_promised() -> None:
    node = labelled(gpu_node("0.1", i915="2", tiles="2"), xe_links="0.0-1.0_oops")
    assert text_of(node, gpu_pod({"i915": 2, "tiles": 2}, gas_allocate_xelink="true")) == "no"


def test_card_numbers_that_cannot_be_read_still_keep_gpu_pods_away() -> None:
    assert "unreadable node" in node_of(gpu_node("0.x", i915="2")).problem


@pytest.mark.promise("W21")
@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({"gas-deschedule-pods-card0": "true"}, "card1"),
        ({"gas-deschedule-pods-card0": "PCI_GROUP"}, "card2"),
        ({"gas-deschedule-pods-card0": "PCI_GROUP", "gas-disable-card2": "true"}, "no"),
        ({"gas-deschedule-pods-": "true"}, "card0"),
    ],
    ids=["a card", "its PCI group", "with another that is disabled", "no card"],
)
def test_a_card_whose_pods_are_to_be_evicted_gets_no_new_ones(marks: dict[str, str], expected: str) -> None:
    node = labelled(gpu_node("0.1.2", i915="3"), pci_groups="0.1_2")
    labels = node.metadata.labels | {TAS + key: value for key, value in marks.items()}
    marked = objects.Node(metadata=objects.NodeMetadata(name="n", labels=labels), status=node.status)
    assert text_of(marked, gpu_pod({"i915": 1})) == expected


@pytest.mark.promise("O240")
@pytest.mark.parametrize("cards", [1, 2, 3])
def test_monitoring_is_the_node_s_and_not_the_cards(cards: int) -> None:
    node = gpu_node(".".join(map(str, range(cards))), i915=str(cards), i915_monitoring="1")
    made = node_of(node)
    assert made.allocatable["gpu.intel.com/i915_monitoring"] == 1
    assert all("gpu.intel.com/i915_monitoring" not in card.capacity for card in made.cards)
    pod = gpu_pod({"i915": cards, "i915_monitoring": 1})
    assert text_of(node, pod) == ",".join(f"card{number}" for number in range(cards))


@pytest.mark.parametrize(
    ("label", "asked"),
    [
        ({"millicores": "1000"}, {"i915": 1, "millicores": 1001}),
        ({"memory.max": "16"}, {"i915": 1, "memory_max": 17}),
        ({"tiles": "1"}, {"i915": 1, "tiles": 2}),
    ],
)
def test_a_card_does_not_get_the_part_of_another_that_has_just_left_the_labels(
    label: dict[str, str], asked: dict[str, int]
) -> None:
    """The kubelet copies the smaller capacity to the allocatable amounts seconds later."""
    before = gpu_node("1", i915="2", millicores="2000", memory_max="32", tiles="2")
    assert text_of(before, gpu_pod(asked)) != "no"
    assert text_of(labelled(before, **label), gpu_pod(asked)) == "no"


@pytest.mark.parametrize(
    "label",
    [{"millicores": "4000"}, {"millicores": "many"}, {"tiles": "1", "millicores": "?"}, {"millicores": "0"}],
)
def test_a_label_larger_zero_or_unreadable_leaves_the_amounts_of_the_node(
    label: dict[str, str],
) -> None:
    node = labelled(gpu_node("0.1", i915="2", millicores="2000", tiles="2"), **label)
    assert node_of(node).problem == ""
    assert text_of(node, gpu_pod({"i915": 1, "millicores": 1000})) != "no"
    assert text_of(node, gpu_pod({"i915": 1, "millicores": 1001})) == "no"
