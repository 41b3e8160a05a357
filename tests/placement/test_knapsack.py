"""The fast solver for identical pods against the general search, on clusters too large to try everything."""

import random

import pytest

from tests.placement.small import gang_of, node
from webhook.placement import Anchor, Node, Options, Snapshot
from webhook.placement.knapsack import Knapsack
from webhook.placement.question import ask
from webhook.placement.search import Search
from webhook.placement.sums import sums_of
from webhook.placement.tree import Costs, build, evaluate


def cluster(dice: random.Random, nodes: int, slots: int, shared_hosts: bool) -> Snapshot:
    made: list[Node] = []
    block = 0
    while len(made) < nodes:
        for rack in range(dice.randint(1, 4)):
            busy = dice.random() < 0.4
            for host in range(dice.randint(1, 6)):
                free = slots if not busy and dice.random() < 0.6 else dice.randint(0, slots)
                place = (f"b{block}", f"r{rack}", f"h{host // 2 if shared_hosts else host}")
                made.append(node(f"n{len(made)}", None if dice.random() < 0.03 else place, free))
        block += 1
    return Snapshot.build(made, [])


@pytest.mark.parametrize("shared_hosts", [False, True], ids=["one node a host", "several nodes a host"])
@pytest.mark.parametrize("slots", [1, 3, 8])
@pytest.mark.parametrize("seed", range(6))
def test_the_fast_solver_finds_the_domains_and_the_leftover_of_the_general_search(
    seed: int, slots: int, shared_hosts: bool
) -> None:
    dice = random.Random(seed * 10 + slots)
    for _ in range(8):
        snapshot = cluster(dice, dice.randint(5, 50), slots, shared_hosts)
        total = sum(state.free["cpu"] // 1000 for state in snapshot.nodes.values())
        anchors = (Anchor(dice.choice(sorted(snapshot.nodes))),) if dice.random() < 0.2 else ()
        asked = gang_of(
            dice.randint(1, max(1, min(60, total))),
            required_level=dice.choice((None, None, "block", "subblock", "host")),
            anchors=anchors,
        )
        question, _ = ask(asked, snapshot, Options())
        root = build(question, snapshot)
        slow = Search(question, None).frontier(root).get(question.counts)
        picks = Knapsack(question).solve(root)
        if slow is None or picks is None:
            assert slow is None
            assert picks is None
            continue
        costs = Costs(question.levels)
        expected = costs.objective(slow[0])
        names = [pick.state.name for pick in picks if pick.state is not None]
        found = evaluate(question, snapshot, dict.fromkeys(names, 1), costs)
        assert (found.domains, found.leftover) == (expected.domains, expected.leftover)
        assert sum(pick.room for pick in picks) >= question.counts[0]


def test_the_sums_of_nodes_are_those_that_more_nodes_are_needed_for() -> None:
    assert sums_of((8, 5, 3)) == ((1, 3), (1, 5), (1, 8), (2, 11), (2, 13), (3, 16))
