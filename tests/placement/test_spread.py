"""Pods that are spread over the domains of a level, against trying every distribution."""

import random
from typing import Any

import pytest

from tests.placement.small import gang_of, node, placed, pod_class, seeds, snapshot_of, taken
from tests.placement.spread_brute import best, squares
from webhook.placement import (
    Anchor,
    Assignment,
    Budget,
    Gang,
    Member,
    Mode,
    NodeInfo,
    NoFit,
    Options,
    PlacementError,
    Slice,
    Snapshot,
    Spread,
    Usage,
    check,
    place,
    spread,
)
from webhook.placement.budget import OutOfSteps
from webhook.placement.evaluate import Solution

LEVELS = ("block", "subblock", "host", "node")
THREE = {"b0": {"s": {"a1": 4, "a2": 4}}, "b1": {"s": {"b1": 4}}, "b2": {"s": {"c1": 1, "c2": 1}}}


def random_nodes(dice: random.Random, most: int, least: int) -> list[NodeInfo]:
    """Nodes in up to three blocks; one in ten has no place."""
    made = []
    for number in range(dice.randint(least, most)):
        place = tuple(f"{level}{dice.randint(0, top)}" for level, top in (("b", 2), ("s", 2), ("h", 4)))
        cpu = dice.choice((0, 1, 1, 2, 3, 4))
        made.append(
            node(f"n{number}", None if dice.random() < 0.1 else place, cpu, memory=dice.randint(0, 8))
        )
    return made


@pytest.mark.promise("R48")
@pytest.mark.parametrize("seed", seeds(12))
def test_spread_pods_get_the_optimum(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        nodes = random_nodes(dice, 6, 2)
        names = [each.name for each in nodes]
        snapshot = Snapshot.build(
            nodes, [(name, Usage({"pods": 1})) for name in names if dice.random() < 0.2]
        )
        level = dice.randrange(4)
        spread_rule = Spread(
            LEVELS[level],
            dice.choice((None, None, 1, 2, 3)),
            tuple(dice.choice(names) for _ in range(dice.choice((0, 0, 1, 3)))),
        )
        gang = gang_of(
            dice.randint(1, 6),
            required_level=dice.choice((None, None, *LEVELS[:level])),
            anchors=tuple(Anchor(dice.choice(names)) for _ in range(dice.choice((0, 0, 0, 2)))),
            excluded_nodes=frozenset(dice.sample(names, dice.choice((0, 0, 1)))),
            spread=spread_rule,
        )
        expected, found = best(gang, snapshot), place(gang, snapshot)
        if isinstance(found, NoFit):
            assert expected is None, f"missed {expected}: {found.sentence}"
            assert found.proven
            continue
        assert check(found, gang, snapshot) == []
        assert (squares(gang, snapshot, taken(found.nodes)), found.objective) == expected
        assert found.proven


def spread_over(level: str, most: int | None = None, count: int = 4, **rules: Any) -> Gang:
    return gang_of(count, spread=Spread(level, most), **rules)


def by_block(gang: Gang, options: Options | None = None) -> dict[str, int]:
    """Pods in each block of THREE."""
    found: dict[str, int] = {}
    for name, count in taken(placed(gang, snapshot_of(THREE), options).nodes).items():
        found[name[0]] = found.get(name[0], 0) + count
    return found


@pytest.mark.promise("R48")
@pytest.mark.parametrize(
    ("gang", "expected"),
    [
        (gang_of(4), {"b": 4}),
        (spread_over("block"), {"a": 2, "b": 1, "c": 1}),
        (spread_over("block", count=8), {"a": 3, "b": 3, "c": 2}),
        (spread_over("block", count=14), {"a": 8, "b": 4, "c": 2}),
        (spread_over("block", 2), {"a": 2, "b": 2}),
        (spread_over("block", 3, count=5), {"a": 3, "b": 2}),
        (spread_over("block", 4), {"b": 4}),
    ],
    ids=["no wish", "evenly", "a full block", "all full", "a cap", "a cap over a full block", "a cap of all"],
)
def test_blocks_share_the_pods(gang: Gang, expected: dict[str, int]) -> None:
    assert by_block(gang) == expected


@pytest.mark.parametrize("mode", Mode)
def test_every_mode_spreads(mode: Mode) -> None:
    assert sorted(by_block(spread_over("block", count=6), Options(mode)).values()) == [2, 2, 2]


def test_what_is_there_counts_whether_of_the_gang_or_a_peer() -> None:
    snapshot = snapshot_of(THREE)
    beside = gang_of(2, spread=Spread("block", None, ("b1", "b1")), anchors=(Anchor("a1"),))
    assert {name[0] for name in placed(beside, snapshot).nodes.values()} == {"a", "c"}
    alone = gang_of(1, spread=Spread("block", 1, ("b1", "c1", "gone")))
    assert {name[0] for name in placed(alone, snapshot).nodes.values()} == {"a"}


@pytest.mark.promise("R48", "R62")
@pytest.mark.parametrize(
    ("gang", "sentence"),
    [
        (
            spread_over("block", 1),
            "Gang g cannot be placed: 4 pods, at most 1 per block, do not fit; the cluster has capacity for "
            "3 of 4. Add nodes, or allow more pods per block. None of 5 nodes is excluded.",
        ),
        (
            gang_of(1, spread=Spread("block", 1, ("a1", "b1", "c1"))),
            "Gang g cannot be placed: 1 pod, at most 1 per block beside the 3 that are placed, does not fit; "
            "each block with capacity has as many pods as the spread allows. Add nodes, or allow more pods "
            "per block. Of 5 nodes, excluded: its domain has as many pods as the spread allows: 5.",
        ),
        (
            spread_over("subblock", 2, required_level="block"),
            "Gang g cannot be placed: 4 pods, at most 2 per subblock, do not fit into one block; block b0 "
            "has capacity for 2 of 4. Use topogate.io/preferred-topology, or add nodes. None of 5 nodes is "
            "excluded.",
        ),
    ],
    ids=["too few", "all full", "in one block"],
)
def test_a_cap_that_leaves_no_capacity_is_named(gang: Gang, sentence: str) -> None:
    found = place(gang, snapshot_of(THREE))
    assert isinstance(found, NoFit)
    assert (found.sentence, found.proven) == (sentence, True)


@pytest.mark.promise("R62")
@pytest.mark.parametrize(
    ("gang", "complaint"),
    [
        (spread_over("rack"), 'no level "rack"'),
        (spread_over("block", 0), "at most 0 pods per domain; allow at least 1"),
        (spread_over("block", required_level="block"), "block, is not below the required block"),
        (spread_over("block", slices=(Slice("host", 2),)), "slices cannot be spread"),
        (
            Gang(
                "g",
                (Member("a", 0, pod_class()), Member("b", 1, pod_class(2))),
                spread=Spread("block"),
            ),
            "only identical pods can be spread",
        ),
    ],
    ids=["no level", "none", "required", "slices", "unlike"],
)
def test_a_request_that_cannot_be_meant_is_an_error(gang: Gang, complaint: str) -> None:
    with pytest.raises(PlacementError, match=complaint):
        place(gang, snapshot_of(THREE))


@pytest.mark.parametrize("seed", seeds(6))
def test_beyond_the_budget_a_spread_that_meets_all_rules_is_not_proven(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = Snapshot.build(random_nodes(dice, 60, 60), [])
    for spread_rule in (Spread("subblock"), Spread("subblock", 3), Spread("node", 2), Spread("block")):
        gang = gang_of(dice.randint(2, 20), spread=spread_rule)
        full, short = place(gang, snapshot), place(gang, snapshot, Options(bound=200))
        assert type(full) is type(short)
        if not isinstance(short, NoFit):
            assert check(short, gang, snapshot) == []
            assert not short.proven or short == full


@pytest.mark.parametrize(
    "spread_rule",
    [Spread("block", 200), Spread("subblock", 20), Spread("host", 2), Spread("node", 5)],
    ids=str,
)
def test_a_cap_over_domains_of_any_size_is_proven(spread_rule: Spread) -> None:
    dice = random.Random(11)
    tree = {
        f"b{b}": {f"s{s}": {f"n{b}-{s}-{h}": dice.choice((1, 3, 8, 8)) for h in range(9)} for s in range(8)}
        for b in range(12)
    }
    gang, snapshot = gang_of(1000, spread=spread_rule), snapshot_of(tree)
    found = place(gang, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert check(found, gang, snapshot) == []


def test_a_thousand_pods_spread_over_blocks_keep_the_bound_of_steps() -> None:
    tree = {f"b{b}": {f"s{s}": {f"n{b}-{s}-{h}": 8 for h in range(8)} for s in range(4)} for b in range(16)}
    snapshot = snapshot_of(tree)
    for spread_rule in (Spread("block"), Spread("block", 63), Spread("subblock", 16), Spread("node", 2)):
        budget = Budget(1_000_000)
        gang = gang_of(1000, spread=spread_rule)
        found = place(gang, snapshot, budget=budget)
        assert isinstance(found, Assignment)
        assert check(found, gang, snapshot) == []
        assert budget.spent < 2_000_000


def out_of_steps(*_: object) -> Solution:
    raise OutOfSteps


@pytest.mark.parametrize("seed", seeds(4))
def test_all_amounts_under_a_cap_at_once_cost_what_each_by_itself_costs(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    snapshot = Snapshot.build(random_nodes(dice, 60, 60), [])
    for _ in range(6):
        spread_rule = Spread(dice.choice(("block", "subblock", "host")), dice.randint(3, 9))
        asked = gang_of(dice.randint(4, 40), spread=spread_rule, required_level=None)
        at_once = place(asked, snapshot)
        with monkeypatch.context() as patched:
            patched.setattr(spread, "solve_capped", out_of_steps)
            one_by_one = place(asked, snapshot, Options(bound=10**9))
        assert type(at_once) is type(one_by_one)
        if isinstance(at_once, Assignment) and isinstance(one_by_one, Assignment):
            assert at_once.proven
            assert at_once.objective == one_by_one.objective
            assert check(at_once, asked, snapshot) == []


def test_pods_spread_evenly_over_hundreds_of_racks_of_whole_nodes_are_proven() -> None:
    dice = random.Random(3)
    nodes = [
        node(f"n{i}", (f"b{i // 240}", f"r{i // 12}", f"h{i}"), dice.choice((0, 1, 1, 1)))
        for i in range(5000)
    ]
    asked, snapshot = gang_of(1000, spread=Spread("subblock")), Snapshot.build(nodes, [])
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert check(found, asked, snapshot) == []
    assert found.objective.domains[1:] == (417, 1000, 1000)
