"""Heterogeneous gangs that fill their nodes: found, or known not to fit, within the steps there are."""

import pytest

from hack.comparing.hostile import packed
from hack.comparing.packings import Packing, planted
from tests.placement.planted_cards import planted_cards
from tests.placement.small import node, placed, pod_class
from webhook.placement import Assignment, Gang, Member, Snapshot, Usage, check, place


def fits(packing: Packing) -> bool | None:
    """Whether all pods of a packing get a place; None: not decided."""
    return decided(packed(packing))


def decided(instance: tuple[Gang, Snapshot]) -> bool | None:
    """Whether all pods of a gang get a place; None: not decided."""
    asked, snapshot = instance
    found = place(asked, snapshot)
    if isinstance(found, Assignment):
        assert not check(found, asked, snapshot)
        return True
    return False if found.proven else None


@pytest.mark.promise("I19")
@pytest.mark.parametrize(("nodes", "kinds"), [(6, 3), (10, 4), (20, 6)])
@pytest.mark.parametrize("seed", range(2))
def test_pods_that_fill_up_to_twenty_nodes_are_packed(nodes: int, kinds: int, seed: int) -> None:
    assert fits(planted(nodes, kinds, 0, seed)) is True


@pytest.mark.promise("I19")
@pytest.mark.parametrize("slack", [0, 2])
def test_pods_of_eight_kinds_that_nearly_fill_twenty_nodes_are_packed(slack: int) -> None:
    """slack: what is left over of each resource on a node, at most."""
    assert fits(planted(20, 8, slack, 0)) is True


@pytest.mark.parametrize("seed", range(2))
def test_pods_with_cards_that_leave_cpu_and_memory_free_are_packed(seed: int) -> None:
    """Whole cards, linked ones, tiles and shares."""
    assert decided(planted_cards(20, 8, 1000, seed)) is True


def test_amounts_beyond_a_machine_word_are_counted_in_what_all_requests_are_multiples_of() -> None:
    packing = planted(4, 2, 0, 0)
    huge = Packing(
        [[cpu * 2**58, *others] for cpu, *others in packing.sizes],
        packing.counts,
        [[cpu * 2**58, *others] for cpu, *others in packing.free],
    )
    assert fits(huge) is True


def test_amounts_beyond_a_machine_word_that_share_no_divisor_are_not_decided() -> None:
    packing = planted(10, 4, 0, 0)
    sizes = [[cpu * 2**58 + number, *others] for number, (cpu, *others) in enumerate(packing.sizes)]
    free = [[cpu * 2**60, *others] for cpu, *others in packing.free]
    assert fits(Packing(sizes, packing.counts, free)) is None


@pytest.mark.parametrize("seed", range(2))
def test_one_cpu_too_few_on_twenty_nodes_is_known(seed: int) -> None:
    assert fits(planted(20, 6, -1, seed)) is False


@pytest.mark.parametrize(("slack", "expected"), [(0, True), (-1, False)], ids=["full", "one cpu too few"])
def test_thousands_of_pods_that_fill_hundreds_of_nodes_are_decided(slack: int, expected: bool) -> None:
    assert fits(planted(250, 3, slack, 0)) is expected


def test_a_node_on_which_more_of_a_resource_is_used_than_there_is_still_takes_pods_without_it() -> None:
    usage = [("over", Usage({"gpu": 2, "pods": 1}))]
    nodes = [node("over", ("b", "r", "over"), 10, gpu=1), node("free", ("b", "r", "free"), 10, gpu=10)]
    members = [Member(f"p{n}", None, pod_class(1, gpu=1) if n < 10 else pod_class(1)) for n in range(20)]
    found = placed(Gang("g", tuple(members)), Snapshot.build(nodes, usage))
    assert {found.nodes[f"p{n}"] for n in range(10)} == {"free"}
    assert {found.nodes[f"p{n}"] for n in range(10, 20)} == {"over"}
