"""What many nodes have capacity for is what each of them has, and little of it is kept."""

import random
from dataclasses import replace
from typing import Any, Final

import pytest

from tests.placement.small import seeds
from webhook.placement import Budget, Card, CardRequest, NodeInfo, PodClass, Snapshot, Taint, Usage, vector
from webhook.placement.capacity import MOST_COLUMNS, Columns, columns_of, count_slots, count_slots_by_node
from webhook.placement.cards import choose as cards

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


def test_a_pod_that_is_placed_on_a_node_leaves_the_counted_cards_of_the_other_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The steps are those without the cache, so that the answer does not depend on earlier questions."""
    shares = {f"card{n}": {"shares": 10} for n in range(4)}
    nodes = [
        NodeInfo(f"n{n}", allocatable={"shares": 40}, cards=tuple(Card(*each) for each in shares.items()))
        for n in range(5)
    ]
    before = Snapshot.build(
        nodes,
        [(f"n{n}", Usage({"shares": n}, {"card0": {"shares": n}})) for n in range(5)],
    )
    two = tuple(CardRequest(1, vector({"shares": amount})) for amount in (3, 4))
    asked = PodClass(vector({"shares": 7}), cards=two)
    count_slots_by_node(asked, tuple(before.nodes.values()), Budget(10**6))
    after = before.with_usages({"n2": (Usage({"shares": 9}, {"card3": {"shares": 9}}),)})
    counted = []
    count = cards.count_slots

    def noted(states: Any, *rest: Any) -> Any:
        counted.append(states)
        return count(states, *rest)

    monkeypatch.setattr(cards, "count_slots", noted)
    cached, fresh = Budget(10**6), Budget(10**6)
    found = count_slots_by_node(asked, tuple(after.nodes.values()), cached)
    assert counted == [after.nodes["n2"].cards]
    again = Snapshot.build(
        nodes, [(name, use) for name, state in after.nodes.items() for use in state.usages]
    )
    assert count_slots_by_node(asked, tuple(again.nodes.values()), fresh) == found
    assert cached.spent == fresh.spent
