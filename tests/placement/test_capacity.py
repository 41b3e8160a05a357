"""What many nodes have capacity for is what each of them has, and little of it is kept."""

import random
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.placement.small import seeds
from webhook.placement import NodeInfo, PodClass, Snapshot, Taint, Usage, vector
from webhook.placement.capacity import MOST_COLUMNS, Columns, columns_of, count_slots, count_slots_by_node

CLOSED: Final[dict[str, dict[str, Any]]] = {
    "unschedulable": {"unschedulable": True},
    "tainted": {"taints": (Taint("team"),)},
    "not ready": {"ready": False},
    "with a problem": {"problem": "its label cannot be read"},
}


@pytest.mark.parametrize("closed", CLOSED.values(), ids=CLOSED)
@pytest.mark.parametrize("others", [0, 1, 9], ids=["alone", "beside one", "beside many"])
def test_a_node_that_takes_no_pods_has_no_slots_and_takes_none_from_others(
    closed: dict[str, Any], others: int
) -> None:
    nodes = [NodeInfo(f"n{n}", allocatable={"cpu": 4}) for n in range(others + 1)]
    nodes[-1] = replace(nodes[-1], **closed)
    states = tuple(Snapshot.build(nodes, []).nodes.values())
    assert count_slots_by_node(PodClass(vector({"cpu": 2})), states).counts == [2] * others + [0]


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("amounts", [3, 10**6], ids=["nodes of few kinds", "each node its own kind"])
def test_capacities_of_many_nodes_are_those_of_each(seed: int, amounts: int) -> None:
    """Also where pods take more than there is, so that less than nothing is free."""
    dice = random.Random(seed)
    named = {"cpu": 10**6, "memory": 10**6, "pods": 10**6}
    nodes = [
        NodeInfo(f"n{n}", allocatable={name: dice.randrange(amounts) for name in named}) for n in range(30)
    ]
    usage = [
        (each.name, Usage({"cpu": dice.randrange(2 * amounts)})) for each in nodes if dice.random() < 0.2
    ]
    states = tuple(Snapshot.build(nodes, usage).nodes.values())
    wanted = {name: dice.randint(1, max(1, amounts // 3)) for name in named if dice.random() < 0.7}
    asked = PodClass(vector(wanted))
    assert count_slots_by_node(asked, states).counts == [count_slots(asked, state).pods for state in states]


def test_a_block_keeps_what_is_free_of_few_resources_whatever_gangs_ask_for() -> None:
    snapshot = Snapshot.build([NodeInfo(f"n{n}", allocatable={"cpu": 1}) for n in range(3)], [])
    (block, *_) = snapshot.blocks.values()
    for number in range(3 * MOST_COLUMNS):
        count_slots_by_node(PodClass(vector({f"example.com/r{number}": 1})), columns_of(block))
    cached: Columns = columns_of(block)
    assert len(cached._free) <= MOST_COLUMNS
    assert len(cached._groups) <= MOST_COLUMNS
