"""Words for what takes long: how long it has taken, and how long is left, judged by what has been done."""

from typing import Final

LEAST_DONE: Final = 0.02
LEAST_SECONDS: Final = 20.0
"""Before this share of the work and this time, no remaining time is printed: it would be a guess."""


def duration(seconds: float) -> str:
    """A duration for a person: 45 s, 12 min."""
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def time_left(done: int, total: int, seconds: float) -> str:
    """As ", about 4 min left", "" while too little has been done to know. seconds: that `done` has taken."""
    if not 0 < done < total or done < LEAST_DONE * total or seconds < LEAST_SECONDS:
        return ""
    return f", about {duration(seconds * (total - done) / done)} left"
