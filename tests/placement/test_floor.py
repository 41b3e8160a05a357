"""topogate beside a simple first-fit-decreasing on gangs as users have them; known cases of the latter."""

from dataclasses import replace

import pytest

from hack.comparing.first_fit import FirstFit
from hack.comparing.losses import compare, words
from hack.comparing.realistic_gangs import DrawnQuestion, drawn
from tests.placement.small import gang_of, seeds, snapshot_of, taken
from webhook.placement import (
    Assignment,
    Card,
    CardRequest,
    Gang,
    Member,
    NodeInfo,
    PodClass,
    Slice,
    Snapshot,
    check,
    vector,
)

DRAWS = 30
NODES = 300


@pytest.mark.parametrize("seed", seeds(DRAWS))
def test_no_gang_is_placed_worse_than_by_first_fit_and_both_keep_all_rules(seed: int) -> None:
    assert compare(drawn(seed, NODES)).loss == ""


@pytest.mark.when_changed("webhook/placement", "hack/comparing")
@pytest.mark.parametrize("seed", [328, 410, 544, 912, 1491, 1538, 1766, 1863, 31001, 50468, 51498])
def test_gangs_that_first_fit_once_placed_better_are_placed_as_well(seed: int) -> None:
    assert compare(drawn(seed)).loss == ""


def first_fit(gang: Gang, snapshot: Snapshot) -> Assignment:
    found = FirstFit(gang, snapshot).place()
    assert found is not None
    assert check(found, gang, snapshot) == []
    return found


TWO_BLOCKS = {"b1": {"r1": {"a": 4, "b": 2}}, "b2": {"r2": {"c": 3, "d": 3}, "r3": {"e": 3}}}


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, {"b": 2}),
        (3, {"e": 3}),
        (5, {"a": 4, "b": 1}),
        (9, {"c": 3, "d": 3, "e": 3}),
        (11, {"c": 3, "d": 3, "e": 3, "a": 2}),
    ],
    ids=[
        "a node",
        "a node of the tightest subblock",
        "a subblock",
        "a block",
        "the cluster, roomiest block first",
    ],
)
def test_first_fit_takes_the_finest_domain_that_holds_the_gang(count: int, expected: dict[str, int]) -> None:
    assert taken(first_fit(gang_of(count), snapshot_of(TWO_BLOCKS)).nodes) == expected


def test_first_fit_fills_each_domain_of_a_slice_with_whole_slices() -> None:
    tree = {"b": {"r1": {"a": 3, "b": 2}, "r2": {"c": 3}, "r3": {"d": 2}}}
    found = first_fit(gang_of(8, slices=(Slice("subblock", 2),)), snapshot_of(tree))
    assert taken(found.nodes) == {"a": 3, "b": 1, "c": 2, "d": 2}


@pytest.mark.parametrize(("single_numa", "placed_pods"), [(True, 2), (False, 3)])
def test_first_fit_takes_the_cards_of_one_numa_node_where_asked(single_numa: bool, placed_pods: int) -> None:
    cards = tuple(Card(f"card{number}", {"m": 1000}, numa=number // 3) for number in range(6))
    node = NodeInfo("n", {}, allocatable={"pods": 110, "m": 6000}, cards=cards)
    requests = (CardRequest(2, vector({"m": 1000})),)
    pod = PodClass(vector({"pods": 1, "m": 2000}), cards=requests, single_numa=single_numa)
    snapshot = Snapshot.build([node], [])
    for count in (placed_pods, placed_pods + 1):
        gang = Gang("g", tuple(Member(f"p{rank}", rank, pod) for rank in range(count)))
        found = FirstFit(gang, snapshot).place()
        assert (found is not None) == (count == placed_pods)
        assert found is None or check(found, gang, snapshot) == []


def test_a_worse_answer_is_a_loss_and_an_equal_one_is_none() -> None:
    found = compare(DrawnQuestion("by hand", gang_of(5), snapshot_of(TWO_BLOCKS)))
    assert found.ours is not None
    assert found.floor is not None
    domains, leftover = found.floor
    looser = domains, tuple(number + 1 for number in leftover)
    assert replace(found, ours=None).loss.endswith(f"topogate no place, first-fit {words(found.floor)}")
    assert replace(found, ours=looser).loss.endswith(f"{words(looser)}, first-fit {words(found.floor)}")
    assert replace(found, ours=found.floor).loss == ""
    assert replace(found, ours=found.floor, wrong=("it is",)).loss.endswith("wrong: it is")
