"""gas-ts, the time by which the device plugin tells whose turn it is. Pure: the clock is passed in."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from labeler.contract import keys

TIME: Final = re.compile(r"[1-9][0-9]{18}")
"""All that a leader writes."""
_AHEAD_NS: Final = 24 * 3600 * 10**9
"""A time further ahead than a clock may be wrong was not written by us."""


class Timestamps:
    """gas-ts: 19 digits that only grow, also over restarts and when the clock is set back."""

    def __init__(self) -> None:
        self._last = 0
        self._unseen: Iterable[Mapping[str, str]] = ()

    def saw(self, annotations: Iterable[Mapping[str, str]]) -> None:
        """Never go below what is written among these pods' annotations, if it can be a time of ours.

        They are looked at once a time is wanted: in most passes none is, and in large clusters they are many.
        """
        self._unseen = annotations

    def next(self, now_ns: int) -> int:
        """The next one, not before now_ns (nanoseconds since 1970)."""
        unseen, self._unseen = self._unseen, ()
        for each in unseen:
            value = each.get(keys.GAS_TIMESTAMP_ANNOTATION, "")
            if TIME.fullmatch(value) and int(value) <= now_ns + _AHEAD_NS:
                self._last = max(self._last, int(value))
        self._last = max(self._last + 1, now_ns)
        return self._last
