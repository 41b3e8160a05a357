"""The copy of a large cluster is not looked through again and again for garbage: it lasts, and has no cycles.

Python's collector looks through all objects now and then: of 65,000 nodes and 200,000 pods there are 1.5
million, which takes about as long as a pass with a gang.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SELDOM: Final = (100_000, 50, 100)
"""Thresholds of the three generations: the young are looked through all the same, for a server that is away
for long, with an error for each try."""


@contextmanager
def lasting() -> Iterator[None]:
    """What is made inside lasts: it is hardly looked through meanwhile, and not at all after it."""
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
        gc.freeze()
    finally:
        gc.set_threshold(*before)


def no_longer() -> None:
    """What was to last is garbage like other, once nothing refers to it."""
    gc.unfreeze()
