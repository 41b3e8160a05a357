"""The sweeper's process: what it says of itself."""

import pytest

from webhook.kube.informer import SILENCE_SECONDS
from webhook.sweeper.main import _Live


class Copy:
    """A copy of the cluster, as far as readiness looks at it."""

    def __init__(self, *, synced: bool = True, nodes: float = 0.0) -> None:
        self.synced = synced
        self._nodes = nodes

    def silences(self) -> dict[str, float]:
        return {"pods": 1.0, "nodes": self._nodes}


@pytest.mark.parametrize(
    ("copy", "leads", "complaint"),
    [
        (None, False, ""),
        (None, True, "not complete"),
        (Copy(synced=False), True, "not complete"),
        (Copy(), True, ""),
        (Copy(nodes=SILENCE_SECONDS - 1), True, ""),
        (Copy(nodes=SILENCE_SECONDS + 1), True, "nothing has been heard of nodes for 121 s"),
        (Copy(nodes=SILENCE_SECONDS + 1), False, ""),
    ],
    ids=["stands by", "begins to lead", "reads", "leads", "is not told much", "is cut off", "has led"],
)
def test_a_leader_is_ready_while_its_copy_is_whole_and_current(
    copy: Copy | None, leads: bool, complaint: str
) -> None:
    said = _Live(copy).complaint(leads)  # type: ignore[arg-type]
    assert (complaint in said) if complaint else not said
