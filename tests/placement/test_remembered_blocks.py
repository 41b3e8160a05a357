"""What is worked out for blocks that stay as they are is kept, and only so much of it."""

import pytest

from tests.placement.small import gang_of, pod_class, snapshot_of
from webhook.placement import place
from webhook.placement import snapshot as kept

TREE = {f"b{b}": {"r": {f"n{b}{number}": 8 for number in range(4)}} for b in range(2)}


def test_however_many_unlike_gangs_are_asked_about_so_much_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_KEPT", 5)
    snapshot = snapshot_of(TREE)
    for cpu in (*range(1, 9), *range(1, 9)):
        gang = gang_of(3, pod_class(cpu))
        assert place(gang, snapshot) == place(gang, snapshot_of(TREE))
        assert all(0 < len(block.cache) <= 5 for block in snapshot.blocks.values())
