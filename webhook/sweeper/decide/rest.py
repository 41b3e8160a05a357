"""Nodes that were held, or kept for later pods, in vain: nobody may have them so for as long afterwards."""

import time
from collections.abc import Callable, Iterable


class Rest:
    """Which nodes rest, after whom and until when; losing it makes a node be held sooner again."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._resting: dict[str, tuple[str, float]] = {}

    def begin(self, nodes: Iterable[str], since: float, whose: str) -> None:
        """These were held or kept since then. whose: for whom, told by a name of the caller's own."""
        until = 2 * self._clock() - since
        self._resting.update((name, (whose, until)) for name in nodes)

    def nodes(self, but: str = "") -> frozenset[str]:
        """All that rest. but: those that this one had do not count."""
        now = self._clock()
        self._resting = {name: rest for name, rest in self._resting.items() if rest[1] > now}
        return frozenset(name for name, (whose, _) in self._resting.items() if not but or whose != but)
