"""Which whole gangs have to go: held against trying every set of gangs."""

import itertools
import random
import sys
from typing import Any

import pytest

from tests.placement.small import gang_of, nodes_of, pod_class, snapshot_of
from webhook.placement import Assignment, Gang, Member, NoFit, Options, Snapshot, Usage, check, place
from webhook.placement.victims import Unit, Victims, choose

OPTIONS = Options()
TREE = {"b1": {"r": {"a": 2, "b": 2, "c": 2}}, "b2": {"r": {"d": 2, "e": 2, "f": 2}}}
NAMES = "abcdef"


def pod(name: str, priority: int = 1, cpu: int = 2) -> Usage:
    return Usage({"cpu": cpu * 1000, "pods": 1}, name=name, priority=priority, uid=name)


def cluster(where: dict[str, str]) -> Snapshot:
    """Pods of the size of a node, by name, each with its node."""
    return snapshot_of(TREE, [(node, pod(name)) for name, node in where.items()])


def unit(name: str, *pods: str, priority: int = 1, spare: int = 0) -> Unit:
    return Unit(name, priority, frozenset(pods), spare)


def gone(found: Victims | None) -> dict[str, tuple[str, ...]] | None:
    return None if found is None else {each.unit.name: each.pods for each in found.going}


def whole_nodes(count: int, **fields: Any) -> Gang:
    return gang_of(count, pod_class(2), **fields)


def test_a_gang_that_fits_evicts_none() -> None:
    assert gone(choose(whole_nodes(2), cluster({"x": "a"}), OPTIONS, [unit("x", "x")])) == {}


def test_none_is_broken_where_all_together_do_not_suffice() -> None:
    full = cluster({name: name for name in NAMES})
    assert choose(whole_nodes(3), full, OPTIONS, [unit("x", "a"), unit("y", "b")]) is None


@pytest.mark.promise("O180")
def test_one_gang_is_evicted_rather_than_two_of_fewer_pods() -> None:
    full = cluster({name: name for name in NAMES})
    units = [unit("large", "a", "b", "c"), unit("one", "d"), unit("two", "e")]
    assert gone(choose(whole_nodes(2), full, OPTIONS, units)) == {"large": ("a", "b", "c")}


def test_more_are_evicted_than_python_calls_may_be_nested() -> None:
    count = sys.getrecursionlimit() + 1
    names = [f"n{number}" for number in range(count)]
    full = snapshot_of({"b": {"r": dict.fromkeys(names, 2)}}, [(name, pod(name)) for name in names])
    found = choose(whole_nodes(count), full, OPTIONS, [unit(name, name) for name in names])
    assert gone(found) == {name: (name,) for name in names}


@pytest.mark.promise("O180")
def test_of_gangs_that_suffice_the_one_with_the_fewest_pods_is_evicted() -> None:
    full = cluster({name: name for name in NAMES})
    units = [unit("large", "a", "b", "c"), unit("small", "d", "e")]
    assert gone(choose(whole_nodes(2), full, OPTIONS, units)) == {"small": ("d", "e")}


@pytest.mark.promise("O180")
def test_two_of_low_priority_are_evicted_before_one_of_higher_priority() -> None:
    full = cluster({name: name for name in NAMES})
    units = [unit("more", "a", "b", priority=5), unit("one", "d"), unit("two", "e")]
    assert gone(choose(whole_nodes(2), full, OPTIONS, units)) == {"one": ("d",), "two": ("e",)}


def test_a_gang_is_evicted_with_its_pods_that_are_in_nobody_s_place() -> None:
    full = cluster({name: name for name in NAMES})
    assert gone(choose(whole_nodes(1), full, OPTIONS, [unit("x", "a", "f")])) == {"x": ("a", "f")}


def test_gangs_that_are_together_in_one_domain_are_evicted_where_a_domain_is_required() -> None:
    full = cluster({name: name for name in NAMES})
    units = [unit("over both", "a", "d"), unit("in one", "e"), unit("other", "f"), unit("third", "b", "c")]
    found = choose(whole_nodes(2, required_level="block"), full, OPTIONS, units)
    assert gone(found) == {"third": ("b", "c")}


@pytest.mark.promise("O180")
def test_an_elastic_gang_loses_what_it_can_spare_before_any_gang_is_broken() -> None:
    full = cluster({name: name for name in NAMES})
    units = [unit("elastic", "a", "b", "c", spare=2), unit("single", "d")]
    found = choose(whole_nodes(2), full, OPTIONS, units)
    assert found is not None
    assert [(each.unit.name, len(each.pods), each.is_broken) for each in found.going] == [
        ("elastic", 2, False)
    ]


def test_an_elastic_gang_that_must_lose_more_than_it_can_spare_is_evicted_whole() -> None:
    full = cluster({name: name for name in NAMES})
    found = choose(whole_nodes(2), full, OPTIONS, [unit("elastic", "a", "b", "c", spare=1)])
    assert gone(found) == {"elastic": ("a", "b", "c")}
    assert found is not None
    assert found.going[0].is_broken


def test_pods_that_leave_in_any_case_are_nobody_s_loss() -> None:
    full = cluster({name: name for name in NAMES})
    found = choose(whole_nodes(1), full, OPTIONS, [unit("x", "a")], leaving={"d"})
    assert gone(found) == {}
    assert found is not None
    assert set(found.assignment.nodes.values()) == {"d"}


def test_pods_that_share_a_node_are_evicted_together_where_only_both_free_enough() -> None:
    both = snapshot_of({"b": {"r": {"a": 2}}}, [("a", pod("x", cpu=1)), ("a", pod("y", cpu=1))])
    assert gone(choose(whole_nodes(1), both, OPTIONS, [unit("x", "x"), unit("y", "y")])) == {
        "x": ("x",),
        "y": ("y",),
    }


def test_the_same_is_chosen_in_whatever_order_the_gangs_come() -> None:
    full = cluster({name: name for name in NAMES})
    units = [unit(f"u{name}", name) for name in NAMES]
    found = {str(gone(choose(whole_nodes(3), full, OPTIONS, order))) for order in (units, units[::-1])}
    assert len(found) == 1


def best_by_trying(gang: Gang, snapshot: Snapshot, units: list[Unit]) -> tuple[int, int, int] | None:
    """Of all sets of units that suffice the least: highest priority, how many, how many pods."""
    values = []
    for count in range(len(units) + 1):
        for some in itertools.combinations(units, count):
            pods = frozenset().union(*(each.pods for each in some))
            left = snapshot.without(list(snapshot.nodes), lambda use, pods=pods: use.uid in pods)
            if not isinstance(place(gang, left, OPTIONS), NoFit):
                values.append((max((each.priority for each in some), default=0), count, len(pods)))
    return min(values, default=None)


@pytest.mark.promise("O180")
@pytest.mark.parametrize("seed", range(5))
def test_no_set_of_gangs_is_better_than_the_one_that_is_evicted(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(5):
        places = [(node.name, index) for node in nodes_of(TREE) for index in (0, 1)]
        usage, members = [], {}
        for number, (node, _) in enumerate(places):
            if dice.random() < 0.85:
                name = f"p{number}"
                usage.append((node, pod(name, cpu=1)))
                members[name] = f"u{dice.randrange(7)}"
        units = [
            unit(own, *(name for name, of in members.items() if of == own), priority=dice.choice((1, 1, 2)))
            for own in sorted(set(members.values()) - {"u0"})
        ]
        snapshot = snapshot_of(TREE, usage)
        kinds = [pod_class(dice.choice((1, 2))) for _ in range(2)]
        gang = Gang(
            "g",
            tuple(Member(f"m{n}", n, dice.choice(kinds)) for n in range(dice.randint(1, 5))),
            required_level=dice.choice((None, "block")),
        )
        best = best_by_trying(gang, snapshot, units)
        found = choose(gang, snapshot, OPTIONS, units)
        assert (found is None) == (best is None)
        if found is None or best is None:
            continue
        lost = {uid for each in found.going for uid in each.pods}
        value = (max((each.unit.priority for each in found.going), default=0), len(found.going), len(lost))
        assert value == best
        left = snapshot.without(list(snapshot.nodes), lambda use, lost=lost: use.uid in lost)
        assert check(found.assignment, gang, left) == []


def test_where_there_are_too_many_sets_to_try_the_victims_suffice_and_none_is_in_vain() -> None:
    tree = {f"b{b}": {"r": {f"n{b}-{n}": 2 for n in range(24)}} for b in range(3)}
    dice = random.Random(5)
    names = [node.name for node in nodes_of(tree)]
    usage = [(name, pod(f"p-{name}-{index}", cpu=1)) for name in names for index in (0, 1)]
    owners: dict[str, list[str]] = {}
    for _, use in usage:
        owners.setdefault(f"u{dice.randrange(50)}", []).append(use.name)
    units = [unit(name, *pods) for name, pods in owners.items()]
    snapshot = snapshot_of(tree, usage)
    gang = whole_nodes(10, required_level="block")
    found = choose(gang, snapshot, OPTIONS, units)
    assert found is not None
    lost = {uid for each in found.going for uid in each.pods}
    left = snapshot.without(names, lambda use: use.uid in lost)
    assert isinstance(place(gang, left, OPTIONS), Assignment)
    assert check(found.assignment, gang, left) == []
    for each in found.going:
        back = snapshot.without(names, lambda use, own=set(each.pods): use.uid in lost - own)
        assert check(found.assignment, gang, back)
