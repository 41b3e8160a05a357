"""Whose evictions come after a pass whose time has gone by without one: first those of other steps.

Steps come in the same order in each pass. If the first of them took the time again whenever it may, those
behind it would never have any.
"""

from collections.abc import Callable, Set
from typing import Final

from webhook.sweeper.apply.put_off import FIRST_SECONDS, PutOff

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
