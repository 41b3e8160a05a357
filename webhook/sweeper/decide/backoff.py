"""Backoff after refusals: where a gang is not to go, and when it is to be left alone. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from webhook.sweeper.decide.orders import Done
from webhook.sweeper.observe.gangs import GangKey

AVOID_SECONDS: Final = 600.0
"""How long a gang does not go again to a node that did not take one of its pods: so long after the first
failure, twice as long after each further one."""

LONGEST_AVOID_SECONDS: Final = 6 * 3600.0

_TOGETHER_SECONDS: Final = 60.0
"""Pods that fail within this time of one another were sent together: that is one failure."""

LONGEST_PAUSE_SECONDS: Final = 300.0


@dataclass(frozen=True)
class RefusingNodes:
    """The nodes that a gang avoids, and until when. count: of failures, of which the last one was `at`."""

    nodes: frozenset[str] = frozenset()
    count: int = 0
    at: float = float("-inf")
    until: float = 0.0


class Pause(NamedTuple):
    """Until when a gang is left alone, and how long that is in all."""

    until: float
    seconds: float


@dataclass(frozen=True)
class Backoff:
    """Nodes that did not take a pod of some gang, and gangs that the API server has refused, for a while.

    What is kept under the key of a pod's maker holds for its successors as well. Losing all of this costs
    another try at most. Times are seconds of Moment.
    """

    refusing: Mapping[GangKey, RefusingNodes] = field(default_factory=dict)
    pauses: Mapping[GangKey, Pause] = field(default_factory=dict)

    def at(self, now: float) -> "Backoff":
        """What is left of it by now; of whom nothing was refused for long, the next pause is short again."""
        refusing = {key: each for key, each in self.refusing.items() if each.until > now}
        pauses = {key: each for key, each in self.pauses.items() if each.until + LONGEST_PAUSE_SECONDS >= now}
        return Backoff(refusing, pauses)

    def paused(self, key: GangKey, now: float) -> "Backoff":
        """A gang is left alone for a while, each time twice as long as before, up to five minutes."""
        before = self.pauses.get(key, Pause(0.0, 1.0))
        seconds = min(LONGEST_PAUSE_SECONDS, 2 * before.seconds)
        return replace(self, pauses={**self.pauses, key: Pause(now + seconds, seconds)})

    def seconds_left(self, key: GangKey, now: float) -> float:
        """How much longer a gang is to be left alone."""
        return max(0.0, self.pauses[key].until - now) if key in self.pauses else 0.0

    def refused(self, key: GangKey, nodes: Collection[str], now: float) -> "Backoff":
        """This gang is to go to none of these, nor to those before, for longer than after the last failure.

        One that it avoids already is no news.
        """
        current = self.at(now)
        known = current.refusing.get(key, RefusingNodes())
        if known.nodes.issuperset(nodes):
            return current
        found = replace(known, nodes=known.nodes.union(nodes))
        if now - known.at >= _TOGETHER_SECONDS:
            seconds = min(LONGEST_AVOID_SECONDS, AVOID_SECONDS * 2 ** min(known.count, 16))
            found = replace(found, count=known.count + 1, at=now, until=now + seconds)
        return replace(current, refusing={**current.refusing, key: found})

    def after(self, done: Done, now: float) -> "Backoff":
        """With what the API server has refused; of how many pods of a gang at once does not matter."""
        backoff = self
        for refusal in done.refused:
            if refusal.node:
                backoff = backoff.refused(refusal.gang, {refusal.node}, now)
        for gang in {refusal.gang for refusal in done.refused}:
            backoff = backoff.paused(gang, now)
        return backoff

    def nodes_of(self, *keys: GangKey) -> frozenset[str]:
        """Where a gang, known under any of these keys, is not to go, as of the last at()."""
        if not self.refusing:
            return frozenset()
        return frozenset().union(*(self.refusing[key].nodes for key in keys if key in self.refusing))
