"""Durations as Kubernetes writes them: 90s, 1h30m, 500ms. Pure."""

import re
from typing import Final

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
_SECONDS: Final = {"h": HOUR, "m": 60.0, "s": 1.0, "ms": 0.001}
_NUMBER: Final = r"[0-9]{1,5}(\.[0-9]{1,6})?"
DURATION: Final = "".join(f"({_NUMBER}{unit})?" for unit in _SECONDS)
"""A regular expression of all durations, and of the empty text."""


def duration_text(seconds: float) -> str:
    """A number of seconds as a Kubernetes duration: 90 is 1m30s."""
    left = round(seconds * 1000)
    text = ""
    for unit, size in _SECONDS.items():
        count, left = divmod(left, round(size * 1000))
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def seconds_of(text: str) -> float:
    """The seconds of a Kubernetes duration, as 90s, 1h30m or 500ms. Raises ValueError for another text."""
    if not text or not re.fullmatch(DURATION, text):
        raise ValueError
    return sum(float(count) * _SECONDS[unit] for count, unit in re.findall("([0-9.]+)([hms]+)", text))
