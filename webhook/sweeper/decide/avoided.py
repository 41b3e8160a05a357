"""Where a gang is not to go, and when it is to be left alone, after somebody has refused it."""

import time
from collections.abc import Callable
from typing import Final

from webhook.sweeper.observe.gangs import GangKey

AVOID_SECONDS: Final = 600.0
"""How long a gang does not go again to a node that did not take one of its pods."""

LONGEST_PAUSE_SECONDS: Final = 300.0


class Avoided:
    """Nodes that did not take a pod of some gang, and gangs that were refused altogether, for a while.

    Losing this costs another try at most.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[tuple[GangKey, str], float] = {}
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

    def add(self, key: GangKey, node: str) -> None:
        """This gang is not to go there for AVOID_SECONDS."""
        self._until[key, node] = self._clock() + AVOID_SECONDS

    def of(self, key: GangKey) -> frozenset[str]:
        """Where a gang is not to go now."""
        if not self._until:
            return frozenset()
        now = self._clock()
        self._until = {each: until for each, until in self._until.items() if until > now}
        return frozenset(node for owner, node in self._until if owner == key)
