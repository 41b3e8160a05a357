"""Jitter of pauses, so that processes do not send requests to the API server at the same time.

It uses the system's random source: a fork copies no state of it to every worker, and the seed of the
`random` module is left alone.
"""

import random
from typing import Final

_source: Final = random.SystemRandom()


def jitter(low: float, high: float) -> float:
    """A random factor between low and high, uniformly distributed."""
    return _source.uniform(low, high)
