"""What is tried again later and later: gangs, nodes and writes that the API server refused. Pure.

A gang does not go again to a node that did not take one of its pods, and is left alone for a while if the API
server has refused its plan or a release.

A write that the API server had no time for is tried again soon at first, then less often. Not before,
whatever a pass has come for: each try may take seconds, and is what the server has no time for. After a pass
whose time has gone by without an eviction those of other steps come first: steps come in the same order in
each pass, and if the first took the time whenever it may, those behind would never have any.
"""

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from webhook.sweeper.observe.gangs import GangKey

AVOID_SECONDS: Final = 600.0
"""How long a gang does not go again to a node that did not take one of its pods: so long after the first
failure, twice as long after each further one."""

LONGEST_AVOID_SECONDS: Final = 6 * 3600.0

_TOGETHER_SECONDS: Final = 60.0
"""Pods that fail within this time of one another were sent together: that is one failure."""

LONGEST_PAUSE_SECONDS: Final = 300.0


@dataclass(frozen=True)
class ApiRefusal:
    """The API server will not have a gang's plan or release. node: for whose sake that may be, or ""."""

    gang: GangKey
    node: str = ""


@dataclass(frozen=True)
class RefusingNodes:
    """The nodes that a gang avoids, and until when. count: of failures, of which the last one was `at`."""

    nodes: frozenset[str] = frozenset()
    count: int = 0
    at: float = float("-inf")
    until: float = 0.0


FIRST_SECONDS: Final = 1.0
"""After the first failure: most are over by then."""


class Deferral(NamedTuple):
    """seconds: how long it is, each time twice as long as before; until: when it is over."""

    seconds: float
    until: float

    @classmethod
    def after(cls, before: "Deferral | None", now: float, longest: float) -> "Deferral":
        """After a failure; another one within the time makes it no longer. longest: seconds at most."""
        if before is None:
            seconds = min(FIRST_SECONDS, longest)
        elif now < before.until:
            return before
        else:
            seconds = min(2 * before.seconds, longest)
        return cls(seconds, now + seconds)

    def is_repeated(self, longest: float) -> bool:
        """Whether it has failed again after its first time."""
        return self.seconds > min(FIRST_SECONDS, longest / 2)


@dataclass(frozen=True)
class Backoff:
    """Nodes that did not take a pod of some gang, and gangs that the API server has refused, for a while.

    What is kept under the key of a pod's maker holds for its successors as well. Losing all of this costs
    another try at most. Times are seconds of Moment.
    """

    refusing: Mapping[GangKey, RefusingNodes] = field(default_factory=dict)
    pauses: Mapping[GangKey, Deferral] = field(default_factory=dict)

    def at(self, now: float) -> "Backoff":
        """What is left of it by now; of whom nothing was refused for long, the next pause is short again."""
        refusing = {key: each for key, each in self.refusing.items() if each.until > now}
        pauses = {key: each for key, each in self.pauses.items() if each.until + LONGEST_PAUSE_SECONDS >= now}
        return Backoff(refusing, pauses)

    def paused(self, key: GangKey, now: float) -> "Backoff":
        """A gang is left alone for a while, each time twice as long as before, up to five minutes."""
        before = self.pauses.get(key, Deferral(FIRST_SECONDS, now))
        pause = Deferral.after(before, now, LONGEST_PAUSE_SECONDS)
        return replace(self, pauses={**self.pauses, key: pause})

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

    def after(self, refused: Collection[ApiRefusal], now: float) -> "Backoff":
        """With what the API server has refused; of how many pods of a gang at once does not matter."""
        backoff = self
        for refusal in refused:
            if refusal.node:
                backoff = backoff.refused(refusal.gang, {refusal.node}, now)
        for gang in {refusal.gang for refusal in refused}:
            backoff = backoff.paused(gang, now)
        return backoff

    def nodes_of(self, *keys: GangKey) -> frozenset[str]:
        """Where a gang, known under any of these keys, is not to go, as of the last at()."""
        if not self.refusing:
            return frozenset()
        return frozenset().union(*(self.refusing[key].nodes for key in keys if key in self.refusing))


# --- writes that the API server had no time for -------------------------------------------------------


class Write(Enum):
    """What is tried again. READ: of a pod whose release is unconfirmed. OBJECT: for an extension."""

    PLAN = auto()
    RELEASE = auto()
    READ = auto()
    EVICTION = auto()
    LABELS = auto()
    OBJECT = auto()


Key = tuple[Write, str]
"""A write, by the uid of its pod or the name of its object."""


@dataclass(frozen=True)
class Deferrals:
    """What is deferred; losing it only tries sooner. Times are of a clock that only goes on."""

    by_key: Mapping[Key, Deferral] = field(default_factory=dict)

    def seconds_left(self, key: Key, now: float) -> float:
        """How much longer it is not to be tried; 0 if it may be."""
        known = self.by_key.get(key)
        return 0.0 if known is None else max(0.0, known.until - now)

    def position(self, key: Key) -> float:
        """To sort by where not all can be tried: what has not failed, then what has waited for longest."""
        known = self.by_key.get(key)
        return float("-inf") if known is None else known.until

    def after(self, failed: Iterable[tuple[Key, Deferral]], over: Iterable[Key]) -> "Deferrals":
        """With what has failed. over: what has succeeded, or is refused for good."""
        found = {**self.by_key, **dict(failed)}
        for key in over:
            found.pop(key, None)
        return Deferrals(found)

    def current(self, now: float, longest: float) -> "Deferrals":
        """Without what nobody has tried for long: it has gone, or has no turn."""
        since = now - 2 * longest
        return Deferrals({key: each for key, each in self.by_key.items() if each.until >= since})


@dataclass(frozen=True)
class EvictionTime:
    """When steps may evict again; losing it only tries sooner. A step is known by the uids of its pods.

    deferral: of all steps, as one has spent its time without an eviction. spenders: of such steps; waiting:
    of others that came meanwhile, for which the spenders wait until yields_until.
    """

    deferral: Deferral | None = None
    spenders: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    yields_until: float = float("inf")

    def seconds_left(self, uids: Set[str], now: float) -> tuple[float, "EvictionTime"]:
        """How much longer a step is not to evict, 0 if it may now; and what is to be remembered of that."""
        is_spender = not self.spenders.isdisjoint(uids)
        if self.deferral is not None and self.deferral.until > now:
            waiting = self.waiting if is_spender else self.waiting | uids
            return self.deferral.until - now, replace(self, waiting=waiting)
        if not is_spender:
            return 0.0, replace(self, waiting=self.waiting - uids)
        if not self.waiting:
            return 0.0, EvictionTime(self.deferral)
        # If they still come, they do in this pass.
        until = min(self.yields_until, now + FIRST_SECONDS)
        if until > now:
            return until - now, replace(self, yields_until=until)
        return 0.0, EvictionTime(self.deferral)

    def went_by(self, uids: Set[str], now: float, longest: float) -> tuple["EvictionTime", float]:
        """A step has spent its time without an eviction; and the seconds after which a pass is due for it.

        Who waits then has a time of its own.
        """
        deferral = Deferral.after(self.deferral, now, longest)
        spenders = self.spenders | uids
        return EvictionTime(deferral, spenders, self.waiting), deferral.until - now

    def current(self, now: float, longest: float) -> "EvictionTime":
        """The same; what was spent long ago makes nobody wait for longer."""
        is_old = self.deferral is not None and self.deferral.until < now - 2 * longest
        return replace(self, deferral=None) if is_old else self


@dataclass(frozen=True)
class ApplyMemory:
    """What is remembered of writes from pass to pass."""

    deferrals: Deferrals = field(default_factory=Deferrals)
    evicting: EvictionTime = field(default_factory=EvictionTime)
