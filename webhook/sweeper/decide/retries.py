"""The retry table: when what the API server has refused, or had no time for, may be tried again. Pure.

Each key waits for a second after its first failure, then twice as long each time up to a bound, and at least
as long as the API server asks (Retry-After, within the same bound). What causes a pass changes none of that:
each try may take seconds, of which an overloaded server has none to spare. One leader tries, and a pass tries
all that is due, so waits have no jitter: it would only cause more passes.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

FIRST_SECONDS: Final = 1.0
"""After the first failure: most are over by then."""


class Write(Enum):
    """What is tried again.

    GANG: anything for a gang of which the API server has refused a plan, a release or labels. PLAN, RELEASE,
    EVICTION, LABELS: a write that it had no time for. READ: of a pod whose release is unconfirmed. EVICTIONS:
    all of them, after a pass that spent its time without one. STATUS: of a Placement. OBJECT: a write for an
    extension. NAMESPACE: does not wait; the writes of other namespaces come first for a while.
    """

    GANG = auto()
    PLAN = auto()
    RELEASE = auto()
    READ = auto()
    EVICTION = auto()
    EVICTIONS = auto()
    LABELS = auto()
    STATUS = auto()
    NAMESPACE = auto()
    OBJECT = auto()


Key = tuple[Write, Hashable]
"""What is tried again, by the gang, the uid of the pod or the name of the object."""

_FIRST: Final = {Write.GANG: 2.0}
_LONGEST: Final = {Write.GANG: 300.0, Write.OBJECT: 60.0}
"""Seconds; all others wait no longer than until the next pass that happens whatever changes."""


class Wait(NamedTuple):
    """seconds: each time twice as many as before; until: when it is over; error: the answer."""

    seconds: float
    until: float
    error: str = ""


@dataclass(frozen=True)
class RetryTable:
    """The waits by key; losing it only retries sooner. Times are seconds of a monotonic clock."""

    by_key: Mapping[Key, Wait] = field(default_factory=dict)

    def seconds_left(self, key: Key, now: float) -> float:
        """How much longer it is not to be tried; 0 if it may be."""
        known = self.by_key.get(key)
        return 0.0 if known is None else max(0.0, known.until - now)

    def position(self, key: Key) -> float:
        """A sort key where not all can be tried: first those that never failed, then the oldest."""
        known = self.by_key.get(key)
        return float("-inf") if known is None else known.until

    def wait_after(
        self, key: Key, now: float, longest: float, asked: float = 0.0, error: str = ""
    ) -> tuple[Wait, bool]:
        """The wait after a failure, and whether there was one before.

        A failure within the wait makes it no longer. longest: seconds, for keys without a bound of their own.
        asked: by the API server.
        """
        longest, before = _LONGEST.get(key[0], longest), self.by_key.get(key)
        first = min(_FIRST.get(key[0], FIRST_SECONDS), longest)
        if before is not None and now < before.until:
            wait = before
        else:
            seconds = first if before is None else min(2 * before.seconds, longest)
            wait = Wait(seconds, now + max(seconds, min(asked, longest)), error)
        return wait, wait.seconds > min(first, longest / 2)

    def current(self, now: float, longest: float) -> "RetryTable":
        """Without entries that were not tried for long: their objects are gone, or are not due."""
        return RetryTable(
            {
                key: each
                for key, each in self.by_key.items()
                if each.until >= now - 2 * _LONGEST.get(key[0], longest)
            }
        )
