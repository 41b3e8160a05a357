"""Workers in slices, or with odd pods, when the search runs out of steps: a place all the same, by a rule."""

import random
from dataclasses import replace

import pytest

from tests.placement.brute import best
from tests.placement.heterogeneous import asked_of, cluster, snapshot_with
from tests.placement.small import gang_of, node, pod_class, seeds
from webhook.placement import Anchor, Assignment, Gang, Member, Mode, Options, Slice, Snapshot, check, place
from webhook.placement.budget import Budget
from webhook.placement.homogeneous.greedy import first_found
from webhook.placement.question import Impossible, ask
from webhook.placement.tree import build


def by_rule(asked: Gang, snapshot: Snapshot, steps: int = 10**9) -> bool | None:
    """Whether the rule alone finds a place; None where the gang's own wishes cannot be met."""
    try:
        question, _ = ask(asked, snapshot, Options())
    except Impossible:
        return None
    root = build(question, snapshot, Budget(10**9)).root
    return first_found(question, root, Budget(steps)) is not None


@pytest.mark.parametrize("seed", seeds(60))
def test_with_steps_enough_the_rule_finds_a_place_just_where_trying_everything_does(seed: int) -> None:
    dice = random.Random(seed + 3000)
    for _ in range(3):
        nodes = cluster(dice, 2, (0, 1, 2, 3))[:8]
        asked, snapshot = asked_of(dice, 4), snapshot_with(dice, nodes)
        if dice.random() < 0.3:
            asked = replace(asked, anchors=(Anchor(dice.choice(nodes).name),))
        found = by_rule(asked, snapshot)
        assert found is None or found == (best(asked, snapshot) is not None)


@pytest.mark.parametrize("seed", seeds(60))
@pytest.mark.parametrize("bound", [100, 400])
def test_an_answer_of_a_search_that_was_cut_keeps_every_rule(seed: int, bound: int) -> None:
    dice = random.Random(seed + 4000)
    snapshot, asked = snapshot_with(dice, cluster(dice, 4, (0, 1, 2, 4, 8))), asked_of(dice, 12)
    budget = Budget(10**9)
    found = place(asked, snapshot, Options(bound=bound), budget)
    if isinstance(found, Assignment):
        assert check(found, asked, snapshot) == []
    elif found.proven:
        assert not by_rule(asked, snapshot)


@pytest.mark.parametrize("mode", [Mode.BEST_FIT, Mode.HEADROOM])
@pytest.mark.parametrize("minority", [0, 3])
def test_a_gang_in_slices_is_placed_though_no_search_has_the_steps(mode: Mode, minority: int) -> None:
    # Nodes differ at random: of domains that are alike, the search looks at few, and has steps enough.
    dice = random.Random(minority)
    nodes = [
        node(f"n{i}", (f"b{i // 100}", f"r{i // 10}", f"h{i}"), dice.randint(6, 8), memory=9)
        for i in range(1000)
    ]
    asked = gang_of(1200, slices=(Slice("subblock", 6),))
    others = [Member(f"o{rank}", 2000 + rank, pod_class(3, memory=rank)) for rank in range(minority)]
    asked = replace(asked, members=(*asked.members, *others))
    snapshot = Snapshot.build(nodes, [])
    found = place(asked, snapshot, Options(mode=mode, bound=16_000))
    assert isinstance(found, Assignment)
    assert not found.proven
    assert check(found, asked, snapshot) == []


def test_the_rule_uses_domains_in_use_before_others_and_no_more_than_it_needs() -> None:
    nodes = [node(f"n{i}", (f"b{i // 8}", f"r{i // 4}", f"h{i}"), 2) for i in range(32)]
    asked, snapshot = (
        gang_of(8, slices=(Slice("subblock", 4),), anchors=(Anchor("n17"),)),
        Snapshot.build(nodes, []),
    )
    question, _ = ask(asked, snapshot, Options())
    found = first_found(question, build(question, snapshot, Budget(10**9)).root, Budget(10**9))
    assert found is not None
    assert set(found) == {"n16", "n17", "n18", "n19"}


def test_a_look_at_all_nodes_for_minority_pods_is_paid_for_each_class_and_attempt() -> None:
    """Their resources are on the last node alone, and each look begins at the first."""
    nodes = [node(f"n{i:04}", (f"b{i // 64}", f"r{i // 8}", f"h{i}"), 2) for i in range(1024)]
    nodes[-1] = node("n1023", ("b15", "r127", "h1023"), 9, **{f"example.com/{n}": 1 for n in range(3)})
    minority = [Member(f"o{n}", 100 + n, pod_class(1, **{f"example.com/{n}": 1})) for n in range(3)]
    asked, snapshot = gang_of(20), Snapshot.build(nodes, [])
    question, _ = ask(replace(asked, members=(*asked.members, *minority)), snapshot, Options())
    root, budget = build(question, snapshot, Budget(10**9)).root, Budget(10**9)
    assert first_found(question, root, budget) is not None
    assert budget.spent >= len(minority) * len(nodes) // 8
