"""A gang that spares the places of those after it, where another place is as good for it."""

import random
from dataclasses import replace

import pytest

from tests.placement.small import gang_of, nodes_of, placed, pod_class, snapshot_of
from webhook.placement import Assignment, Budget, Gang, NoFit, Options, Snapshot, check, place
from webhook.placement.ahead import sparing
from webhook.placement.eligibility import Taint

LARGE = gang_of(2, pod_class(2), required_level="subblock")


def spared(gang: Gang, later: list[Gang], snapshot: Snapshot, steps: int = 10**7) -> Assignment:
    return sparing(gang, placed(gang, snapshot), later, snapshot, Options(), Budget(steps))


def racks(first: int) -> Snapshot:
    """Two nodes of two pods in the tighter rack; in the other one the first has room for so many."""
    return snapshot_of({"b": {"r1": {"a": 2, "b": 2}, "r2": {"c": first, "d": 1, "e": 1, "f": 1}}})


def test_a_gang_leaves_the_rack_that_only_the_next_one_needs() -> None:
    snapshot = racks(2)
    assert set(placed(gang_of(2), snapshot).nodes.values()) == {"a"}
    found = spared(gang_of(2), [LARGE], snapshot)
    assert set(found.nodes.values()) == {"c"}
    assert found.proven, "no place uses fewer domains"
    assert isinstance(place(LARGE, snapshot.assume(found, gang_of(2))), Assignment)


def test_a_gang_spares_no_place_that_its_pods_like_better() -> None:
    soft = Taint("old", "", "PreferNoSchedule")
    nodes = [
        replace(each, taints=(soft,)) if each.name == "c" else each
        for each in nodes_of({"b": {"r1": {"a": 2, "b": 2}, "r2": {"c": 2, "d": 1, "e": 1, "f": 1}}})
    ]
    assert set(spared(gang_of(2), [LARGE], Snapshot.build(nodes, [])).nodes.values()) == {"a"}


def test_a_gang_keeps_its_place_where_every_other_is_worse_for_it() -> None:
    snapshot = racks(1)
    assert isinstance(place(LARGE, snapshot), Assignment)
    assert spared(gang_of(2), [LARGE], snapshot) == placed(gang_of(2), snapshot)


def test_a_later_gang_that_contradicts_itself_is_left_to_its_own_turn() -> None:
    snapshot, wrong = racks(2), gang_of(2, required_level="no level")
    assert set(spared(gang_of(2), [wrong, LARGE], snapshot).nodes.values()) == {"c"}


def random_cluster(dice: random.Random) -> Snapshot:
    tree = {
        f"b{b}": {f"r{b}{r}": {f"n{b}{r}{n}": dice.choice((1, 2, 2, 4)) for n in range(3)} for r in range(3)}
        for b in range(dice.choice((1, 2)))
    }
    return snapshot_of(tree)


def random_gang(dice: random.Random, name: str) -> Gang:
    level = dice.choice((None, None, "subblock", "host"))
    made = gang_of(dice.randint(1, 8), pod_class(dice.choice((1, 1, 2, 4))), required_level=level)
    return Gang(name, made.members, required_level=level)


@pytest.mark.parametrize("seed", range(20))
def test_neither_the_gang_nor_any_that_is_looked_at_is_placed_worse(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(5):
        snapshot = random_cluster(dice)
        first, *later = (random_gang(dice, f"g{number}") for number in range(4))
        plain = place(first, snapshot)
        if isinstance(plain, NoFit):
            continue
        found = sparing(first, plain, later, snapshot, Options(), Budget(10**8))
        assert check(found, first, snapshot) == []
        assert found.objective.domains == plain.objective.domains
        values = [in_turn(later, snapshot.assume(each, first)) for each in (plain, found)]
        assert all(new <= old for old, new in zip(*values, strict=True))
        assert (found == plain) == (values[0] == values[1])


def in_turn(later: list[Gang], snapshot: Snapshot) -> list[tuple[bool, tuple[int, ...]]]:
    values = []
    for gang in later:
        answer = place(gang, snapshot)
        values.append((True, ()) if isinstance(answer, NoFit) else (False, answer.objective.domains))
        if isinstance(answer, Assignment):
            snapshot = snapshot.assume(answer, gang)
    return values


def test_beyond_the_steps_the_answer_stays() -> None:
    dice = random.Random(1)
    for _ in range(20):
        snapshot = random_cluster(dice)
        first, *later = (random_gang(dice, f"g{number}") for number in range(3))
        answer = place(first, snapshot)
        if isinstance(answer, Assignment):
            assert sparing(first, answer, later, snapshot, Options(), Budget(50)) == answer
