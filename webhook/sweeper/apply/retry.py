"""When what the API server had no time for is tried again: soon at first, then less and less often.

Not before, whatever a pass has come for: each try may take seconds, and is what the server has no time for.
After a pass whose time has gone by without an eviction those of other steps come first: steps come in the
same order in each pass, and if the first took the time whenever it may, those behind would never have any.
"""

import threading
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Final

from webhook.kube.client import ApiError

FIRST_SECONDS: Final = 1.0
"""After the first failure: most are over by then."""


def answered(error: ApiError) -> str:
    """What people are told that the API server answered."""
    return f"the API server answered {error.status}: {error}" if error.status else f"no answer: {error}"


@dataclass
class _Wait:
    """seconds: how long it is, each time twice as long as before; at: when it is over."""

    seconds: float
    at: float


class PutOff:
    """Remembers what was put off, by any key; losing it only tries sooner. Safe for use by many threads."""

    def __init__(self, longest_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """longest_seconds: no wait is longer, as a pass happens that often whatever is heard."""
        self._longest = longest_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._waits: dict[str, _Wait] = {}

    def again(self, key: str) -> float:
        """It has failed; returns the seconds after which a pass is due for it.

        Another failure within the wait makes it no longer.
        """
        with self._lock:
            now = self._clock()
            wait = self._waits.get(key)
            if wait is None:
                seconds = min(FIRST_SECONDS, self._longest)
                wait = self._waits[key] = _Wait(seconds, now + seconds)
            elif now >= wait.at:
                wait.seconds = min(2 * wait.seconds, self._longest)
                wait.at = now + wait.seconds
            return wait.at - now

    def seconds_left(self, key: str) -> float:
        """How much longer it is not to be tried; 0 if it may be."""
        with self._lock:
            wait = self._waits.get(key)
            return 0.0 if wait is None else max(0.0, wait.at - self._clock())

    def turn(self, key: str) -> float:
        """To sort by where not all can be tried: what has not failed, then what has waited for longest."""
        with self._lock:
            wait = self._waits.get(key)
            return float("-inf") if wait is None else wait.at

    def stays(self, key: str) -> bool:
        """Whether it has failed again after its first wait."""
        with self._lock:
            wait = self._waits.get(key)
            return wait is not None and wait.seconds > min(FIRST_SECONDS, self._longest / 2)

    def over(self, key: str) -> None:
        """It has succeeded, or is refused for good."""
        with self._lock:
            self._waits.pop(key, None)

    def forget_old(self) -> None:
        """Drop what nobody has tried for long: it has gone, or has no turn."""
        with self._lock:
            since = self._clock() - 2 * self._longest
            self._waits = {key: wait for key, wait in self._waits.items() if wait.at >= since}


_ALL: Final = "evictions"
"""The key of all together."""


class TimeSpent:
    """When steps may evict again; losing it only tries sooner. A step is known by the uids of its pods."""

    def __init__(self, longest_seconds: float, clock: Callable[[], float]) -> None:
        """longest_seconds: no wait is longer."""
        self._clock = clock
        self._put_off = PutOff(longest_seconds, clock)
        self._spenders: set[str] = set()
        self._waiting: set[str] = set()
        self._yields_until = float("inf")

    def seconds_left(self, uids: Set[str]) -> float:
        """How much longer a step is not to evict; 0 if it may now."""
        self._put_off.forget_old()
        is_spender = not self._spenders.isdisjoint(uids)
        if waits := self._put_off.seconds_left(_ALL):
            if not is_spender:
                self._waiting |= uids
            return waits
        if not is_spender:
            self._waiting -= uids
            return 0.0
        if self._waiting:
            # If they still come, they do in this pass.
            self._yields_until = min(self._yields_until, self._clock() + FIRST_SECONDS)
            if left := max(0.0, self._yields_until - self._clock()):
                return left
        self._forget()
        return 0.0

    def went_by(self, uids: Set[str]) -> float:
        """A step has spent its time without an eviction; returns the seconds after which a pass is due."""
        self._spenders |= uids
        self._yields_until = float("inf")  # who waits then has a time of its own
        return self._put_off.again(_ALL)

    def was_used(self) -> None:
        """A step has evicted in its time."""
        self._forget()
        self._put_off.over(_ALL)

    def _forget(self) -> None:
        self._spenders.clear()
        self._waiting.clear()
        self._yields_until = float("inf")
