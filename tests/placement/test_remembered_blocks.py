"""What is worked out for blocks that stay as they are is kept, and only so much of it."""

import random

import pytest

from tests.placement.small import gang_of, node, pod_class, seeds, snapshot_of
from webhook.placement import Snapshot, place
from webhook.placement import snapshot as kept
from webhook.placement.budget import Budget

TREE = {f"b{b}": {"r": {f"n{b}{number}": 8 for number in range(4)}} for b in range(2)}


def test_however_many_different_gangs_are_asked_about_memory_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept, "MOST_CACHED", 5)
    snapshot = snapshot_of(TREE)
    for cpu in (*range(1, 9), *range(1, 9)):
        gang = gang_of(3, pod_class(cpu))
        assert place(gang, snapshot) == place(gang, snapshot_of(TREE))
        assert all(0 < len(block.cache) <= 5 for block in snapshot.blocks.values())


@pytest.mark.parametrize("seed", seeds(4))
def test_what_is_remembered_changes_neither_answers_nor_the_steps_they_take(seed: int) -> None:
    dice = random.Random(seed)
    places = [(f"b{n % 3}", f"s{n % 6}", f"h{n % 12}") for n in range(36)]
    nodes = [node(f"n{n}", place, dice.randint(0, 4)) for n, place in enumerate(places)]
    snapshot = Snapshot.build(nodes, [])
    for pods in [dice.randint(2, 60) for _ in range(10)]:
        again, afresh = Budget(10**6), Budget(10**6)
        gang = gang_of(pods)
        assert place(gang, snapshot, budget=again) == place(gang, Snapshot.build(nodes, []), budget=afresh)
        assert again.spent == afresh.spent
