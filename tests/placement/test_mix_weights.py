"""How much each class of the mix counts in the choice of a node."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.placement.mixes import GPU, card_node, gpu_class, share_class, shared
from tests.placement.small import gang_of, node, placed, pod_class
from webhook.placement import Mix, MixClass, NodeInfo, Snapshot, Usage, vector
from webhook.placement.usable_gpus import SCARCE, UsableGpus, weighted

OTHER_GPU = "amd.com/gpu"


def gpu_node(name: str, gpus: int, model: str = "") -> NodeInfo:
    plain = node(name, ("b", "s", name), 64, **{GPU: gpus})
    return replace(plain, labels={**plain.labels, "model": model})


def of_model(model: str, count: int = 1) -> MixClass:
    return replace(gpu_class(1000, 1, count), models=(("model", (model,)),))


def weights(
    nodes: list[NodeInfo], *classes: MixClass, usage: list[tuple[str, Usage]] | None = None
) -> list[int]:
    return [*weighted(Mix(classes), Snapshot.build(nodes, usage or [])).weights]


@pytest.mark.promise("D36")
def test_a_class_that_can_use_fewer_gpus_weighs_more() -> None:
    nodes = [gpu_node(f"n{n}", 8, "T4" if n else "H100") for n in range(8)]
    assert weights(nodes, gpu_class(1000, 1, 5), of_model("H100", 3), of_model("T4", 3)) == [5, 24, 3]


def test_pods_that_fill_fewer_gpus_of_a_node_weigh_more() -> None:
    nodes = [gpu_node(f"n{n}", 8 if n < 2 else 4) for n in range(4)]
    assert weights(nodes, gpu_class(1000, 1), gpu_class(1000, 8)) == [1, 1]
    busy = [(f"n{n}", Usage({"cpu": 1000, "pods": 1, GPU: 1})) for n in range(2)]
    assert weights(nodes, gpu_class(1000, 1), gpu_class(1000, 7), usage=busy) == [1, 1]
    assert weights(nodes, gpu_class(1000, 1), gpu_class(1000, 8), usage=busy[:1]) == [1, 2]


def test_the_weight_of_a_class_is_bounded_and_is_its_count_if_no_node_serves_it() -> None:
    nodes = [gpu_node(f"n{n}", 8) for n in range(200)] + [gpu_node("rare", 1, "H100")]
    assert weights(nodes, of_model("H100"), of_model("B200", 7)) == [SCARCE, 7]


def test_nodes_that_take_no_pods_serve_no_class() -> None:
    nodes = [gpu_node("a", 8), replace(gpu_node("b", 8, "H100"), unschedulable=True)]
    assert weights(nodes, gpu_class(1000, 1), of_model("H100", 3)) == [1, 3]


def test_a_node_that_reports_fewer_than_no_gpus_serves_no_class() -> None:
    assert weights([gpu_node("a", 8), gpu_node("b", -1)], gpu_class(1000, 1)) == [1]


@given(st.lists(st.integers(0, 10), min_size=1, max_size=12), st.integers(1, 9))
def test_shares_of_cards_weigh_by_what_is_left_of_cards(used: list[int], tenths: int) -> None:
    nodes = [card_node(f"n{n}", 1) for n in range(len(used))]
    usage = [(f"n{n}", shared("card0", 100 * each)) for n, each in enumerate(used) if each]
    usable = sum((10 - each) // tenths * tenths for each in used)
    (found,) = weights(nodes, share_class(1000, 100 * tenths), usage=usage)
    assert found == (1 << (10 * len(used) // usable).bit_length() - 1 if usable else 1)


@pytest.mark.promise("D36")
def test_a_pod_for_any_model_leaves_the_scarce_one_even_if_few_pods_require_it() -> None:
    nodes = [gpu_node(f"t{n}", 4, "T4") for n in range(16)] + [gpu_node("h", 2, "H100")]
    classes = (gpu_class(1000, 4, 4), of_model("H100", 1))
    one = gang_of(1, pod_class(1, **{GPU: 1}))
    snapshot = Snapshot.build(nodes, [])
    by_count = placed(one, snapshot.with_mix(Mix(classes)))
    by_weight = placed(one, snapshot.with_mix(weighted(Mix(classes), snapshot)))
    assert (*by_count.nodes.values(), *by_weight.nodes.values()) == ("h", "t0")


def test_usable_gpus_are_summed_over_all_nodes() -> None:
    nodes = [gpu_node(f"n{n}", 3 + n) for n in range(3)]
    snapshot = Snapshot.build(nodes, [])
    assert UsableGpus(Mix((gpu_class(1000, 2),))).by_filling(snapshot.blocks.values()) == ([10_000], 12_000)


def test_mixes_that_count_different_resources_as_gpus_do_not_share_their_sums() -> None:
    snapshot = Snapshot.build([node("n", ("b", "s", "n"), 64, **{GPU: 8, OTHER_GPU: 2})], [])
    both = replace(gpu_class(1000, 1), requests=vector({"cpu": 1000, "pods": 1, GPU: 1, OTHER_GPU: 1}))
    mixes = [Mix((replace(both, resource=resource),)) for resource in (GPU, OTHER_GPU)]
    sums = [UsableGpus(mix).by_filling(snapshot.blocks.values())[1] for mix in mixes]
    assert sums == [8000, 2000]
