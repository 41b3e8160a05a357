"""Sums of the cluster's GPUs: by model, by level, and what would fit."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labeler.contract import keys
from tests.placement.small import node
from webhook.placement import NodeInfo, Snapshot, Usage
from webhook.scheduling.gpus import Counting
from webhook.sweeper.pass_measurements import MOST_MODELS, OTHER, Stock, take_stock

GPU = "nvidia.com/gpu"
COUNTING = Counting(("nvidia.com/*",), ("model",))


def gpu_node(name: str, place: tuple[str, ...] | None, model: str = "H", gpus: int = 8) -> NodeInfo:
    made = node(name, place, 1, **{GPU: gpus})
    return replace(made, labels={**made.labels, "model": model})


def two_blocks(*used: tuple[str, int]) -> Snapshot:
    """b0 {s0 {n0 n1} s1 {n2}}, b1 {s2 {n3: model A}}; used: GPUs taken of nodes."""
    nodes = [
        gpu_node("n0", ("b0", "s0", "h0")),
        gpu_node("n1", ("b0", "s0", "h1")),
        gpu_node("n2", ("b0", "s1", "h2")),
        gpu_node("n3", ("b1", "s2", "h3"), "A", 4),
    ]
    return Snapshot.build(nodes, [(name, Usage({GPU: count}, name=name)) for name, count in used])


def stock_of(snapshot: Snapshot) -> Stock:
    return take_stock(snapshot, COUNTING)


@pytest.mark.promise("R156", "O200")
def test_gpus_are_summed_by_model_and_use() -> None:
    assert stock_of(two_blocks(("n0", 3), ("n3", 4))).gpus == {
        ("H", "used"): 3,
        ("H", "free"): 21,
        ("A", "used"): 4,
        ("A", "free"): 0,
    }


@pytest.mark.promise("O200")
def test_the_largest_gang_of_whole_nodes_counts_only_nodes_that_nobody_uses() -> None:
    largest = stock_of(two_blocks(("n0", 1))).largest
    assert [largest[level, "H"] for level in ("block", "subblock", "host", "node")] == [16, 8, 8, 8]
    assert [largest[level, "A"] for level in ("block", "subblock", "host", "node")] == [4, 4, 4, 4]


@pytest.mark.promise("O200")
def test_domains_are_free_partly_used_or_full() -> None:
    domains = stock_of(two_blocks(("n0", 1), ("n1", 8), ("n3", 4))).domains
    found = {level: [domains[level, state] for state in ("free", "partly", "full")] for level, _ in domains}
    assert found == {"block": [0, 1, 1], "subblock": [1, 1, 1], "host": [1, 1, 2], "node": [1, 1, 2]}


@pytest.mark.promise("O200")
@pytest.mark.parametrize(
    "change", [{"unschedulable": True}, {"ready": False}, {"problem": "unreadable"}], ids=str
)
def test_gpus_of_nodes_that_take_no_pods_are_excluded_and_fit_nobody(change: dict[str, object]) -> None:
    whole = gpu_node("n0", ("b0", "s0", "h0"))
    stock = stock_of(Snapshot.build([replace(whole, **change)], []))  # type: ignore[arg-type]
    assert (dict(stock.gpus), dict(stock.largest)) == ({("H", "excluded"): 8}, {})


@pytest.mark.promise("O200")
def test_gpu_nodes_without_topology_labels_are_counted_and_others_not() -> None:
    nodes = [gpu_node("a", None), gpu_node("b", ("b0", "s0", "h0")), node("cpu", None, 8)]
    assert stock_of(Snapshot.build(nodes, [])).unplaced == 1


@pytest.mark.promise("O200")
def test_models_beyond_a_bound_are_summed_as_one() -> None:
    nodes = [gpu_node(f"n{i}", ("b", f"s{i}", f"h{i}"), f"m{i:03}") for i in range(MOST_MODELS + 5)]
    stock = stock_of(Snapshot.build(nodes, []))
    assert stock.gpus[OTHER, "free"] == 5 * 8
    assert stock.largest["node", OTHER] == 8
    assert len({model for model, _ in stock.gpus}) == MOST_MODELS + 1


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), max_size=8))
def test_cached_sums_equal_fresh_sums(changes: list[tuple[int, int]]) -> None:
    """Block by block what did not change is taken over: it must not show."""
    snapshots = [two_blocks()]
    for number, count in changes:
        use = (Usage({GPU: count}, name="p"),) if count else ()
        snapshots.append(snapshots[-1].with_usages({f"n{number}": use}))
    for before, after in pairwise(snapshots):
        take_stock(before, COUNTING)
        fresh = Snapshot.build(
            [state.node for state in after.nodes.values()],
            [(name, use) for name, state in after.nodes.items() for use in state.usages],
        )
        assert take_stock(after, COUNTING) == take_stock(fresh, COUNTING)


def test_every_level_of_the_topology_and_the_node_have_a_name() -> None:
    assert stock_of(two_blocks()).levels == (*keys.LEVEL_NAMES, "node")
