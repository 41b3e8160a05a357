"""When a gang is complete: its expected size is there, or it has been quiet for as long as that takes.

A pod that ends does not make a gang younger, and one that never becomes quiet is placed all the same. But one
that was whole has lost a pod just now: its controller is given as long to make it again as to make it.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.settings import Settings


@dataclass
class _Growth:
    """members: uids in the last pass. grown_at: when one was new, or all that are told of were there.

    waiting_since: None while none waits.
    """

    members: frozenset[str]
    grown_at: float
    waiting_since: float | None = None


class Completion:
    """Remembers since when each gang has been what it is; losing it only delays."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._growth: dict[GangKey, _Growth] = {}

    def saw(self, gangs: Iterable[PodGang]) -> None:
        """Take in what a new pass sees; gangs that are not among these are forgotten."""
        now = self._clock()
        growth: dict[GangKey, _Growth] = {}
        for gang in gangs:
            members = frozenset(pod.metadata.uid for pod in gang.pods)
            each = self._growth.get(gang.key) or _Growth(frozenset(), now)
            if members - each.members or _is_whole(gang):
                each.grown_at = now
            each.members = members
            growth[gang.key] = each
        self._growth = growth

    def members(self, gang: PodGang) -> frozenset[str]:
        """uids of the gang's pods in the last pass."""
        return self._growth[gang.key].members

    def nobody_waits(self, gang: PodGang) -> None:
        """All of the gang's pods have a place."""
        self._growth[gang.key].waiting_since = None

    def seconds(self, gang: PodGang) -> float:
        """0 for a gang that is complete, else how much longer its present pods must stay the only ones."""
        if gang.stage_is_whole or _is_whole(gang):
            return 0.0
        settings, growth, now = self._settings, self._growth[gang.key], self._clock()
        if gang.size is not None and not gang.staged:
            return max(0.0, growth.grown_at + settings.patience_seconds - now)
        # Waiting for all would be waiting for ever, and so would be waiting until no more come.
        if growth.waiting_since is None:
            growth.waiting_since = now
        settled = growth.grown_at + settings.settle_seconds
        return max(0.0, min(settled, growth.waiting_since + settings.patience_seconds) - now)


def _is_whole(gang: PodGang) -> bool:
    return gang.size is not None and len(gang.pods) >= gang.size
