"""A defect in one phase of a pass keeps no other from its work."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.sweeper.empty_api import Empty
from webhook.configuration.settings import Avoid, BadNodes, Settings
from webhook.sweeper import decision
from webhook.sweeper.context import Pass
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.repair.repair import RepairMemory
from webhook.sweeper.report import Reporter
from webhook.sweeper.sweep import SOON_SECONDS, Sweeper


def failing(*_: Any, **__: Any) -> None:
    raise RuntimeError("a defect")


@pytest.mark.parametrize("broken", [(decision, "remembered"), (RepairMemory, "of")], ids=["placer", "repair"])
def test_what_cannot_be_remembered_keeps_no_step_from_its_work(
    broken: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every gated pod of the cluster would wait, pass after pass."""
    api = Empty()
    cache = ClusterCache(api)
    sweeper = Sweeper(Pass(api, cache, Settings(bad_nodes=BadNodes(Avoid.OFF))))
    done: list[str] = []

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **named: Any) -> Any:
            done.append(name)
            return real(*args, **named)

        return noted

    for kind, name in ((decision, "roll_back"), (Reporter, "report")):
        monkeypatch.setattr(kind, name, noting(name, getattr(kind, name)))
    try:
        assert sweeper.sweep() > SOON_SECONDS, "nothing is wrong"
        done.clear()
        monkeypatch.setattr(*broken, failing)
        assert sweeper.sweep() == SOON_SECONDS
    finally:
        sweeper.close()
        cache.stop()
    assert done == ["roll_back", "report"]
