"""When writes that the API server had no time for are tried again: soon at first, then less often. Pure.

Not before, whatever a pass has come for: each try may take seconds, and is what the server has no time for.
After a pass whose time has gone by without an eviction those of other steps come first: steps come in the
same order in each pass, and if the first took the time whenever it may, those behind would never have any.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, NamedTuple

FIRST_SECONDS: Final = 1.0
"""After the first failure: most are over by then."""


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
