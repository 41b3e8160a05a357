"""The natural order of names that contain numbers."""

import re
from functools import lru_cache
from typing import Final

_PARTS: Final = re.compile(r"([0-9]+)")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
"""Longer ones are no numbers that people compare, and take long to convert."""


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key that puts card2 before card10."""
    return _natural(name)


@lru_cache(maxsize=200_000)
def _natural(name: str) -> tuple[tuple[int, int | str], ...]:
    return tuple(
        (0, int(part)) if _NUMBER.fullmatch(part) else (1, part) for part in _PARTS.split(name) if part
    )
