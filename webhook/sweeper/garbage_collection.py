"""The copy of a large cluster is not looked through again and again for garbage: it lasts, and has no cycles.

Python's collector looks through all objects now and then: of 65,000 nodes and 200,000 pods there are 1.5
million, which takes about as long as a pass with a gang.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SELDOM: Final = (100_000, 50, 20)
"""Thresholds of the three generations: the young are looked through all the same, for a server that is away
for long, with an error for each try. Placing a gang makes up to a million objects without a cycle among them,
which go all at once."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """The collector hardly runs meanwhile, in the whole process.

    By the usual thresholds it took a quarter to two fifths of what placing a gang takes on 100,000 nodes.
    """
    before = gc.get_threshold()
    gc.set_threshold(*_SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@contextmanager
def lasting() -> Iterator[None]:
    """What is made inside lasts: it is not looked through after it. Hardly meanwhile, inside the other."""
    yield
    gc.freeze()


def no_longer() -> None:
    """What was to last is garbage like other, once nothing refers to it."""
    gc.unfreeze()
