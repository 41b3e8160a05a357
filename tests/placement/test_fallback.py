"""Gangs of unlike pods too large to search out: an answer all the same, and what it claims."""

import random

import pytest

from tests.placement.small import node, pod_class, snapshot_of
from webhook.placement import Assignment, Gang, Member, NoFit, Options, Snapshot, check, place


def unlike(dice: random.Random, count: int) -> Gang:
    kinds = [pod_class(dice.randint(1, 4), memory=dice.randint(1, 9)) for _ in range(count)]
    return Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))


@pytest.mark.parametrize("seed", range(5))
def test_an_answer_found_without_proof_is_good_and_says_that_it_is_not_proven(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [node(f"n{i}", (f"b{i // 20}", f"r{i // 5}", f"h{i}"), 6, memory=16) for i in range(60)]
    asked, snapshot = unlike(dice, 20), Snapshot.build(nodes, [])
    found = place(asked, snapshot, Options(budget=1000))
    assert isinstance(found, Assignment)
    assert not found.proven
    assert check(found, asked, snapshot) == []


def test_a_search_that_was_cut_never_says_that_there_is_no_place() -> None:
    kinds = [pod_class(cpu) for cpu in (6, 5, 5, 4, 4, 4, 4)]
    asked = Gang("g", tuple(Member(f"p{rank}", rank, kind) for rank, kind in enumerate(kinds)))
    found = place(asked, snapshot_of({"b": {"r": {"x": 10, "y": 10, "z": 11}}}), Options(budget=3))
    assert isinstance(found, NoFit)
    assert not found.proven
    assert "none was found within 3 search steps, which does not prove that there is none" in found.sentence


def test_a_leader_and_two_hundred_workers_get_a_proven_answer_within_the_budget() -> None:
    nodes = [node(f"n{i}", (f"b{i // 400}", f"r{i // 20}", f"h{i}"), 8) for i in range(1200)]
    workers = tuple(Member(f"w{rank}", rank, pod_class(1)) for rank in range(1, 201))
    asked, snapshot = Gang("g", (Member("leader", 0, pod_class(3)), *workers)), Snapshot.build(nodes, [])
    found = place(asked, snapshot)
    assert isinstance(found, Assignment)
    assert found.proven
    assert found.objective.domains == (1, 2, 26, 26)
    assert check(found, asked, snapshot) == []
