"""gas-ts, the time by which the device plugin tells whose turn it is, and turns in that form.

Pure: the clock is passed in.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from labeler.contract import keys
from webhook.kube.planned import PlannedPod

_DIGITS: Final = 19
_TIME: Final = re.compile(r"[1-9][0-9]{18}")
"""All that a leader writes."""
_TURN: Final = re.compile(r"[0-9]{19}")
_LAST_TURN: Final = "~"
"""It comes after all digits."""
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
            if _TIME.fullmatch(value) and int(value) <= now_ns + _AHEAD_NS:
                self._last = max(self._last, int(value))
        self._last = max(self._last + 1, now_ns)
        return self._last


def turn_of(planned: PlannedPod) -> str:
    """Where a pod stands in the line of its node, by its plan: digits to sort by.

    A plan may be anybody's: before what no leader writes there might be no turn, so that comes last.
    """
    own = planned.annotations
    turn, stamp = own.get(keys.TURN_ANNOTATION, ""), own.get(keys.GAS_TIMESTAMP_ANNOTATION, "")
    if _TURN.fullmatch(turn):
        return turn
    return stamp if _TIME.fullmatch(stamp) else _LAST_TURN


def turn_before(turn: str) -> str:
    """A turn before that one; "" where there is none, as of a turn that others have written."""
    number = 10**_DIGITS - 1 if turn == _LAST_TURN else int(turn) - 1
    return f"{number:0{_DIGITS}}" if number >= 0 else ""
