"""Backoff of gangs, nodes and writes after refusals of the API server. Pure.

A gang does not use a node again that refused one of its pods, and is not tried for a while if the API server
has refused its plan or a release.

A write for which the API server had no time is retried soon at first, then less often, whatever caused the
pass: each try may take seconds, of which the server has none to spare. After a pass that spent its time
without an eviction, those of other steps come first. Steps have the same order in each pass, so otherwise the
first could take all of the time in each pass.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from webhook.sweeper.decide.node_rules import NodeRule, RuleKind
from webhook.sweeper.observe.gangs import GangKey

AVOID_SECONDS: Final = 600.0
"""How long a gang does not use a node again that refused one of its pods: after the first failure; doubled
after each further one."""

LONGEST_AVOID_SECONDS: Final = 6 * 3600.0

_NOT_BOUND: Final = "a pod of this gang was not bound there"

_TOGETHER_SECONDS: Final = 60.0
"""Pods that fail within this time of one another were sent together: that is one failure."""

LONGEST_PAUSE_SECONDS: Final = 300.0


@dataclass(frozen=True)
class ApiRefusal:
    """The API server refused a gang's plan or release. node: on account of which that may be, or ""."""

    gang: GangKey
    node: str = ""


@dataclass(frozen=True)
class RefusingNodes:
    """The nodes that a gang does not use, and until when. count: of failures; `at`: when the last one was."""

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
    """Backoff of nodes that refused a pod of a gang, and of gangs that the API server has refused.

    An entry under the key of a pod's owner is valid for its successors as well. Losing all of this costs at
    most one more try. Times are seconds of Moment.
    """

    refusing: Mapping[GangKey, RefusingNodes] = field(default_factory=dict)
    pauses: Mapping[GangKey, Deferral] = field(default_factory=dict)

    def at(self, now: float) -> "Backoff":
        """The entries that are still valid; long after the last refusal the next pause is short again."""
        refusing = {key: each for key, each in self.refusing.items() if each.until > now}
        pauses = {key: each for key, each in self.pauses.items() if each.until + LONGEST_PAUSE_SECONDS >= now}
        return Backoff(refusing, pauses)

    def paused(self, key: GangKey, now: float) -> "Backoff":
        """A gang is left alone for a while, each time twice as long as before, up to five minutes."""
        before = self.pauses.get(key, Deferral(FIRST_SECONDS, now))
        pause = Deferral.after(before, now, LONGEST_PAUSE_SECONDS)
        return replace(self, pauses={**self.pauses, key: pause})

    def seconds_left(self, key: GangKey, now: float) -> float:
        """How many more seconds a gang is not tried."""
        return max(0.0, self.pauses[key].until - now) if key in self.pauses else 0.0

    def refused(self, key: GangKey, nodes: Collection[str], now: float) -> "Backoff":
        """With these and the earlier nodes not used by this gang, for longer than after the last failure.

        A node that it does not use already changes nothing.
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
        """With the refusals of the API server; several pods of a gang refused at once count once."""
        backoff = self
        for refusal in refused:
            if refusal.node:
                backoff = backoff.refused(refusal.gang, {refusal.node}, now)
        for gang in {refusal.gang for refusal in refused}:
            backoff = backoff.paused(gang, now)
        return backoff

    def rules(self) -> Iterator[NodeRule]:
        """The nodes that gangs do not use, as of the last at()."""
        for key, each in self.refusing.items():
            yield NodeRule(each.nodes, _NOT_BOUND, RuleKind.REFUSED, is_hard=True, applies_to=key)

    def nodes_of(self, *keys: GangKey) -> frozenset[str]:
        """The nodes that a gang, known under any of these keys, does not use, as of the last at()."""
        if not self.refusing:
            return frozenset()
        return frozenset().union(*(self.refusing[key].nodes for key in keys if key in self.refusing))


# --- writes that the API server had no time for -------------------------------------------------------


class Write(Enum):
    """The kind of write to retry. READ: of a pod whose release is unconfirmed. OBJECT: for an extension."""

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
    """A deferred write; losing it only retries sooner. Times are of a monotonic clock."""

    by_key: Mapping[Key, Deferral] = field(default_factory=dict)

    def seconds_left(self, key: Key, now: float) -> float:
        """How much longer it is not to be tried; 0 if it may be."""
        known = self.by_key.get(key)
        return 0.0 if known is None else max(0.0, known.until - now)

    def position(self, key: Key) -> float:
        """A sort key where not all can be tried: first those that never failed, then the oldest."""
        known = self.by_key.get(key)
        return float("-inf") if known is None else known.until

    def after(self, failed: Iterable[tuple[Key, Deferral]], over: Iterable[Key]) -> "Deferrals":
        """With these failures. over: those that have succeeded, or are refused for good."""
        found = {**self.by_key, **dict(failed)}
        for key in over:
            found.pop(key, None)
        return Deferrals(found)

    def current(self, now: float, longest: float) -> "Deferrals":
        """Without entries that were not tried for long: their objects are gone, or are not due."""
        since = now - 2 * longest
        return Deferrals({key: each for key, each in self.by_key.items() if each.until >= since})


@dataclass(frozen=True)
class EvictionTime:
    """When steps may evict again; losing it only retries sooner. A step is known by the uids of its pods.

    deferral: of all steps, as one has spent its time without an eviction. timed_out: of such steps; waiting:
    of others that came meanwhile, for which the timed_out wait until yields_until.
    """

    deferral: Deferral | None = None
    timed_out: frozenset[str] = frozenset()
    waiting: frozenset[str] = frozenset()
    yields_until: float = float("inf")

    def seconds_left(self, uids: Set[str], now: float) -> tuple[float, "EvictionTime"]:
        """How many more seconds a step may not evict, 0 if it may now; and the new state."""
        is_timed_out = not self.timed_out.isdisjoint(uids)
        if self.deferral is not None and self.deferral.until > now:
            waiting = self.waiting if is_timed_out else self.waiting | uids
            return self.deferral.until - now, replace(self, waiting=waiting)
        if not is_timed_out:
            return 0.0, replace(self, waiting=self.waiting - uids)
        if not self.waiting:
            return 0.0, EvictionTime(self.deferral)
        # Steps that are still due come in this pass.
        until = min(self.yields_until, now + FIRST_SECONDS)
        if until > now:
            return until - now, replace(self, yields_until=until)
        return 0.0, EvictionTime(self.deferral)

    def after_timeout(self, uids: Set[str], now: float, longest: float) -> tuple["EvictionTime", float]:
        """A step has spent its time without an eviction; and the seconds after which a pass is due for it.

        Who waits then has a time of its own.
        """
        deferral = Deferral.after(self.deferral, now, longest)
        timed_out = self.timed_out | uids
        return EvictionTime(deferral, timed_out, self.waiting), deferral.until - now

    def current(self, now: float, longest: float) -> "EvictionTime":
        """The same; time that was spent long ago delays no step further."""
        is_old = self.deferral is not None and self.deferral.until < now - 2 * longest
        return replace(self, deferral=None) if is_old else self


@dataclass(frozen=True)
class ApplyMemory:
    """The deferred writes, from pass to pass."""

    deferrals: Deferrals = field(default_factory=Deferrals)
    evicting: EvictionTime = field(default_factory=EvictionTime)
