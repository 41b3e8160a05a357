"""An API server that is asked to evict or delete pods."""

from typing import Any

import msgspec
import pytest

from tests.sweeper.clock import Clock
from webhook.kube.client import Api, ApiError

BOTH_WAYS = pytest.mark.parametrize("for_others", [True, False], ids=["evicted", "deleted"])


class Slow(Api):
    """An API server that takes a second for each eviction, or as long as the test sets."""

    def __init__(self, clock: Clock, *, refuses: bool = False, status: int = 500, seconds: float = 1) -> None:
        self.clock = clock
        self.seconds = seconds
        self.status = status
        self.refuses = refuses
        self.evicted: list[str] = []
        self.sent: list[tuple[str, Any]] = []

    def request(self, method: str, path: str, *, body: Any = None, **_: Any) -> bytes:
        self.clock.now += self.seconds
        self.evicted.append(path.split("/")[6])
        self.sent.append((f"{method} {path}", msgspec.to_builtins(body)))
        if self.refuses:
            raise ApiError(self.status, "InternalError", "a webhook gave no answer in time")
        return b"{}"
