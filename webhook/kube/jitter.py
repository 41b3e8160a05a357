"""The random part of a pause, so that many processes do not knock at the API server in step.

It comes from the system's source: it has no state that a fork would copy to every worker, and it
leaves the generator of the `random` module to those who have seeded it.
"""

import random
from typing import Final

_source: Final = random.SystemRandom()


def jitter(low: float, high: float) -> float:
    """A factor between the two, each as likely."""
    return _source.uniform(low, high)
