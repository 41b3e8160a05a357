"""Beside anchors, where one more domain suffices: the best one is found."""

import random
from dataclasses import replace

import pytest

from tests.placement.brute import agrees
from tests.placement.small import gang_of, placed, pod_class, seeds, snapshot_of
from webhook.placement import Anchor, Budget, Gang, Member, Options, Slice, Snapshot
from webhook.placement.bounds import anchored_children
from webhook.placement.homogeneous.beside_anchors import OneMore
from webhook.placement.homogeneous.covering_search import CoveringSearch
from webhook.placement.homogeneous.items import DomainKnapsack
from webhook.placement.homogeneous.minority_pods import NONE
from webhook.placement.question import Question, ask
from webhook.placement.tree import build
from webhook.placement.vertex import Vertex

ANCHOR = Anchor("b0r0h0", None)


def cluster(
    dice: random.Random, blocks: int, slot_counts: tuple[int, ...]
) -> dict[str, dict[str, dict[str, int]]]:
    """Blocks of one or two racks of one or two hosts; the first has a node for the anchor."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for block in range(blocks):
        racks = tree[f"b{block}"] = {}
        for rack in range(dice.choice((1, 1, 2))):
            name = f"b{block}r{rack}"
            racks[name] = {
                f"{name}h{host}": dice.choice(slot_counts) for host in range(dice.choice((1, 1, 2)))
            }
    return tree


def anchored(asked: Gang) -> Gang:
    return replace(asked, anchors=(ANCHOR,))


def with_leader(workers: int) -> Gang:
    asked = gang_of(workers)
    return Gang("g", (*asked.members, Member("leader", None, pod_class(2))))


@pytest.mark.parametrize("seed", seeds(4))
def test_identical_pods_get_the_optimum_of_trying_everything(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(10):
        snapshot = snapshot_of(cluster(dice, 5, (0, 1, 2, 3)))
        agrees(anchored(gang_of(dice.randint(2, 6))), snapshot)


@pytest.mark.parametrize("seed", seeds(4))
def test_slices_and_leaders_get_the_optimum_of_trying_everything(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(10):
        snapshot = snapshot_of(cluster(dice, 5, (0, 1, 2, 3)))
        slices = (Slice(dice.choice(("block", "subblock", "host")), 2),)
        agrees(anchored(replace(gang_of(dice.choice((2, 4, 6))), slices=slices)), snapshot)
        agrees(anchored(with_leader(dice.randint(2, 5))), snapshot)


def test_of_many_blocks_that_may_be_the_one_the_tightest_is_taken() -> None:
    tree = {f"b{n}": {"r0": {f"b{n}r0h0": 1}, "r1": {f"b{n}r1h0": 9 + n}} for n in range(30)}
    found = placed(anchored(gang_of(14)), snapshot_of(tree))
    assert set(found.nodes.values()) == {"b0r0h0", "b4r1h0"}


def asked(gang: Gang, snapshot: Snapshot) -> tuple[Question, Vertex]:
    question, _ = ask(gang, snapshot, Options())
    return question, build(question, snapshot, Budget(10**9)).root


@pytest.mark.parametrize("seed", seeds(40))
def test_no_solution_costs_less_than_the_bound_of_its_block(seed: int) -> None:
    dice = random.Random(seed)
    blocks = dice.randint(3, 6)
    tree = {
        f"b{block}": {
            f"b{block}r{rack}": {f"b{block}r{rack}h{host}": dice.choice((1, 2, 3, 4, 4)) for host in range(4)}
            for rack in range(dice.randint(1, 4))
        }
        for block in range(blocks)
    }
    question, root = asked(anchored(gang_of(dice.randint(12, 40))), snapshot_of(tree))
    budget, costs, wanted = Budget(10**9), question.costs(), question.counts[0]
    if not root.parts:
        return
    search, used = CoveringSearch(question, NONE, budget), anchored_children(root, costs)
    bounds = OneMore(root, wanted, costs).bounds(budget)
    assert bounds == sorted(bounds)
    for least, number in bounds:
        levels = search.levels(root)
        inside = DomainKnapsack(search.terms(root, levels), root, wanted, dict.fromkeys({*used, number}, 0))
        best = search.within(inside, levels, None)
        assert best is not None
        assert best[0] >= least


def test_of_many_blocks_few_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {f"b{n}": {"r0": {f"b{n}r0h0": 1}, "r1": {f"b{n}r1h0": 9 + n}} for n in range(30)}
    searched = list[int]()
    within = CoveringSearch.within

    def watched(self: CoveringSearch, inside: DomainKnapsack, *rest: object) -> object:
        searched.extend(inside.least or ())
        return within(self, inside, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(CoveringSearch, "within", watched)
    placed(anchored(gang_of(14)), snapshot_of(tree))
    assert searched == [0, 4]
