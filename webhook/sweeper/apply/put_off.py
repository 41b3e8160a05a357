"""When what the API server had no time for is tried again: soon at first, then less and less often.

Not before, whatever a pass has come for: each try may take seconds, and is what the server has no time for.
"""

import threading
import time
from collections.abc import Callable
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
