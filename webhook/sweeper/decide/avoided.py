"""Where a gang is not to go, and when it is to be left alone, after somebody has refused it."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from webhook.sweeper.observe.gangs import GangKey

AVOID_SECONDS: Final = 600.0
"""How long a gang does not go again to a node that did not take one of its pods: so long after the first
failure, twice as long after each further one."""

LONGEST_AVOID_SECONDS: Final = 6 * 3600.0

_TOGETHER_SECONDS: Final = 60.0
"""Pods that fail within this time of one another were sent together: that is one failure."""

LONGEST_PAUSE_SECONDS: Final = 300.0


@dataclass
class _Failures:
    """How often some node has refused and when last, which are avoided, and until when all of them are."""

    count: int = 0
    at: float = float("-inf")
    nodes: set[str] = field(default_factory=set)
    until: float = 0.0


class Avoided:
    """Nodes that did not take a pod of some gang, and gangs that were refused altogether, for a while.

    What is kept under the key of a pod's maker holds for its successors as well. Losing all of this costs
    another try at most.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[GangKey, _Failures] = {}
        self._pauses: dict[GangKey, tuple[float, float]] = {}

    def pause(self, key: GangKey) -> None:
        """Leave a gang alone for a while, each time twice as long as before, up to five minutes."""
        _, seconds = self._pauses.get(key, (0.0, 1.0))
        seconds = min(LONGEST_PAUSE_SECONDS, 2 * seconds)
        self._pauses[key] = (self._clock() + seconds, seconds)

    def paused_seconds(self, key: GangKey) -> float:
        """How much longer a gang is to be left alone."""
        until, seconds = self._pauses.get(key, (0.0, 0.0))
        remaining = until - self._clock()
        if seconds and remaining < -LONGEST_PAUSE_SECONDS:
            del self._pauses[key]  # nothing was refused for long: it begins anew
        return max(0.0, remaining)

    def add(self, key: GangKey, *nodes: str) -> None:
        """This gang is to go to none of these, nor to those before, for longer than after the last failure.

        One that it avoids already is no news.
        """
        self._forget()
        failures = self._failures.setdefault(key, _Failures())
        if failures.nodes.issuperset(nodes):
            return
        now = self._clock()
        failures.nodes.update(nodes)
        if now - failures.at < _TOGETHER_SECONDS:
            return
        failures.count, failures.at = failures.count + 1, now
        seconds = min(LONGEST_AVOID_SECONDS, AVOID_SECONDS * 2 ** min(failures.count - 1, 16))
        failures.until = now + seconds

    def of(self, *keys: GangKey) -> frozenset[str]:
        """Where a gang, known under any of these keys, is not to go now."""
        if not self._failures:
            return frozenset()
        self._forget()
        found: list[Collection[str]] = [self._failures[key].nodes for key in keys if key in self._failures]
        return frozenset().union(*found)

    def _forget(self) -> None:
        now = self._clock()
        self._failures = {key: each for key, each in self._failures.items() if each.until > now}
