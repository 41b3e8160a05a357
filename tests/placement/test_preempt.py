"""The preemption view: who would have to go."""

import random
from typing import Any

import pytest

from tests.placement.small import gang_of, nodes_of, snapshot_of
from webhook.placement import NoFit, Preemption, Snapshot, Usage, check, place, place_over

TREE = {"b1": {"r": {"a": 2, "b": 2}}, "b2": {"r": {"c": 2, "d": 2}}}


def pod(name: str, priority: int, gang: str = "", cpu: int = 1) -> Usage:
    return Usage({"cpu": cpu * 1000, "pods": 1}, name=name, gang=gang, priority=priority)


def victims(usage: list[tuple[str, Usage]], count: int, priority: int, **wish: Any) -> tuple[str, ...] | None:
    found = place_over(gang_of(count, **wish), priority, snapshot_of(TREE, usage))
    return found.victims if isinstance(found, Preemption) else None


def test_a_gang_that_fits_has_no_victims() -> None:
    assert victims([("a", pod("low", 1))], 4, 10) == ()


def test_pods_of_the_same_or_a_higher_priority_stay() -> None:
    full = [(node, pod(f"p{node}", 10, cpu=2)) for node in "abcd"]
    assert victims(full, 1, 10) is None


def test_the_lowest_priority_goes() -> None:
    full = [("a", pod("five", 5, cpu=2)), ("b", pod("three", 3, cpu=2))]
    full += [(node, pod(f"p{node}", 10, cpu=2)) for node in "cd"]
    assert victims(full, 2, 10) == ("three",)


def test_who_need_not_go_stays() -> None:
    full = [("a", pod("one", 1)), ("a", pod("two", 1))]
    full += [(node, pod(f"p{node}", 10, cpu=2)) for node in "bcd"]
    assert victims(full, 1, 10) == ("two",)


def test_a_gang_goes_as_a_whole() -> None:
    full = [("a", pod("g-0", 1, "g", 2)), ("c", pod("g-1", 1, "g", 2))]
    full += [(node, pod(f"p{node}", 10, cpu=2)) for node in "bd"]
    assert victims(full, 2, 10) == ("g-0", "g-1")


@pytest.mark.parametrize("seed", range(10))
def test_the_gang_fits_once_the_victims_are_gone_and_none_of_them_could_stay(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(20):
        usage = [
            (node.name, pod(f"p{number}-{node.name}", dice.choice((1, 2, 20))))
            for node in nodes_of(TREE)
            for number in range(dice.randint(0, 2))
        ]
        snapshot = Snapshot.build(nodes_of(TREE), usage)
        asked = gang_of(dice.randint(1, 8), required_level=dice.choice((None, "block")))
        found = place_over(asked, 10, snapshot)
        if isinstance(found, NoFit):
            without_all = [(node, use) for node, use in usage if use.priority >= 10]
            assert isinstance(place(asked, Snapshot.build(nodes_of(TREE), without_all)), NoFit)
            continue
        left = [(node, use) for node, use in usage if use.name not in found.victims]
        assert check(found.assignment, asked, Snapshot.build(nodes_of(TREE), left)) == []
        for spared in found.victims:
            more = [(n, u) for n, u in usage if u.name == spared or u.name not in found.victims]
            assert check(found.assignment, asked, Snapshot.build(nodes_of(TREE), more))
