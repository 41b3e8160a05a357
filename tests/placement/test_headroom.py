"""What the headroom score says about nodes, and that it decides between places that are equal otherwise."""

from dataclasses import replace

import pytest

from tests.placement.small import gang_of, node, pod_class
from webhook.placement import Assignment, NodeInfo, Options, Snapshot, Usage, place
from webhook.placement.costs import Score

GPU = "nvidia.com/gpu"


def penalties(nodes: list[NodeInfo], options: Options | None = None, **amounts: int) -> list[int]:
    snapshot = Snapshot.build(nodes, [])
    score = Score(pod_class(1, **amounts), options or Options(), snapshot.largest)
    return [score.penalty(state) for state in snapshot.nodes.values()]


def machine(name: str, cpu: int, memory: int, gpus: int = 0) -> NodeInfo:
    return node(name, ("b", "r", name), cpu, memory=memory, **{GPU: gpus})


def test_what_is_left_counts_against_the_largest_node_of_the_cluster() -> None:
    large, small = machine("large", 10, 1000), machine("small", 5, 500)
    # large: (90 % + 100 %) / 2 of the largest node are left; small: (40 % + 50 %) / 2
    assert penalties([large, small]) == [100 - 95, 100 - 45]


def test_cpu_memory_and_the_gpu_that_is_asked_for_count_equally_by_default() -> None:
    assert penalties([machine("a", 10, 1000, 4)], None, **{GPU: 1}) == [100 - (90 + 100 + 75) // 3]


def test_a_gpu_that_is_not_asked_for_does_not_count() -> None:
    assert penalties([machine("a", 10, 1000, 4)]) == [100 - 95]


def test_weights_are_the_operator_s() -> None:
    options = Options(weights={"cpu": 3, "memory": 0})
    assert penalties([machine("a", 10, 1000, 4)], options, **{GPU: 2}) == [100 - (3 * 90 + 50) // 4]


@pytest.mark.promise("D16")
def test_of_two_places_that_are_equal_otherwise_headroom_decides() -> None:
    nodes = [replace(machine(name, 1, 1000), labels={}) for name in ("busy", "roomy")]
    snapshot = Snapshot.build(nodes, [("busy", Usage({"memory": 400, "pods": 1}))])
    found = place(gang_of(1), snapshot)
    assert isinstance(found, Assignment)
    assert found.nodes == {"p-0": "roomy"}


def test_headroom_decides_between_racks_of_a_large_gang_too() -> None:
    nodes = [node(f"n{i}", ("b", f"r{i // 20}", f"h{i}"), 8, memory=100) for i in range(600)]
    busy = [(f"n{i}", Usage({"memory": 60})) for i in range(600) if i // 20 % 3]
    found = place(gang_of(1600), Snapshot.build(nodes, busy))
    assert isinstance(found, Assignment)
    assert {int(name[1:]) // 20 for name in found.nodes.values()} == set(range(0, 30, 3))
