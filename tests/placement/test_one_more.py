"""Beside anchors, where one more domain suffices: the one is found, and few are looked into."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.placement.brute import agrees
from tests.placement.small import gang_of, placed, pod_class, seeds, snapshot_of
from webhook.placement import Anchor, Budget, Gang, Member, Mode, Options, Slice, place
from webhook.placement.budget import OutOfSteps
from webhook.placement.homogeneous import covering_search
from webhook.placement.homogeneous.covering_search import CoveringSearch, one_more
from webhook.placement.homogeneous.items import Filled
from webhook.placement.homogeneous.minority_pods import NONE
from webhook.placement.question import ask
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


@pytest.mark.parametrize("mode", [Mode.BEST_FIT, Mode.KEEP_WHOLE])
@pytest.mark.parametrize("seed", seeds(4))
def test_identical_pods_get_the_optimum_of_trying_everything(seed: int, mode: Mode) -> None:
    dice = random.Random(seed)
    for _ in range(10):
        snapshot = snapshot_of(cluster(dice, 5, (0, 1, 2, 3)))
        agrees(anchored(gang_of(dice.randint(2, 6))), snapshot, mode)


@pytest.mark.parametrize("seed", seeds(4))
def test_slices_and_leaders_get_the_optimum_of_trying_everything(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(10):
        snapshot = snapshot_of(cluster(dice, 5, (0, 1, 2, 3)))
        slices = (Slice(dice.choice(("block", "subblock", "host")), 2),)
        agrees(anchored(replace(gang_of(dice.choice((2, 4, 6))), slices=slices)), snapshot)
        agrees(anchored(with_leader(dice.randint(2, 5))), snapshot)


@pytest.mark.parametrize("mode", list(Mode))
@settings(max_examples=35)
@given(seed=st.integers(0, 10**9))
def test_one_after_the_other_they_give_what_all_domains_together_do(mode: Mode, seed: int) -> None:
    dice = random.Random(seed)
    snapshot = snapshot_of(cluster(dice, dice.randint(4, 9), (0, 1, 2, 4, 8)))
    asked = dice.choice((gang_of, with_leader))(dice.randint(2, 16))
    if dice.random() < 0.5:
        asked = replace(gang_of(2 * dice.randint(1, 8)), slices=(Slice("subblock", 2),))
    found = place(anchored(asked), snapshot, Options(mode=mode))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(covering_search, "one_more", lambda *_: [])
        expected = place(anchored(asked), snapshot, Options(mode=mode))
    assert getattr(found, "objective", None) == getattr(expected, "objective", None)
    assert found.proven == expected.proven


@settings(max_examples=50)
@given(seed=st.integers(0, 10**9))
def test_none_costs_less_than_its_bound_and_the_bounds_rise(seed: int) -> None:
    dice = random.Random(seed)
    snapshot = snapshot_of(cluster(dice, dice.randint(4, 9), (0, 1, 2, 4, 8)))
    question, _ = ask(anchored(gang_of(dice.randint(2, 16))), snapshot, Options())
    root, costs, budget = build(question, snapshot, Budget(10**9)).root, question.costs(), Budget(10**9)
    parts = one_more(root, question.counts[0], costs, budget)
    assert [least for least, _ in parts] == sorted(least for least, _ in parts)
    for least, part in parts:
        assert len(part.parts) == 2
        best = CoveringSearch(question, NONE, budget).together(part, None)
        assert best is not None
        assert best[0] >= least


def test_of_many_blocks_that_may_be_the_one_few_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block whose racks all fit tightly is the best; it is known from capacities alone."""
    tree = {f"b{n}": {"r0": {f"b{n}r0h0": 1}, "r1": {f"b{n}r1h0": 9 + n}} for n in range(30)}
    looked: list[Vertex] = []
    together = CoveringSearch.together

    def watched(self: CoveringSearch, vertex: Vertex, limit: int | None) -> tuple[int, Filled] | None:
        looked.append(vertex)
        return together(self, vertex, limit)

    monkeypatch.setattr(CoveringSearch, "together", watched)
    found = placed(anchored(gang_of(14)), snapshot_of(tree))
    assert set(found.nodes.values()) == {"b0r0h0", "b4r1h0"}
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("pods", "blocks"), [(1, 5), (9, 5), (3, 3)], ids=["no block needed", "two needed", "two may be it"]
)
def test_elsewhere_the_domains_are_not_distinguished(pods: int, blocks: int) -> None:
    tree = {f"b{n}": {"r0": {f"b{n}r0h0": 4 if n else 1}} for n in range(blocks)}
    question, _ = ask(anchored(gang_of(pods)), snapshot_of(tree), Options())
    root = build(question, snapshot_of(tree), Budget(10**9)).root
    assert one_more(root, pods, question.costs(), Budget(10**9)) == []


def test_it_takes_no_more_steps_than_there_are() -> None:
    tree = {f"b{n}": {"r0": {f"b{n}r0h{k}": 2 for k in range(20)}} for n in range(9)}
    question, _ = ask(anchored(gang_of(60)), snapshot_of(tree), Options())
    root = build(question, snapshot_of(tree), Budget(10**9)).root
    with pytest.raises(OutOfSteps):
        one_more(root, 60, question.costs(), Budget(10))
