"""Topology requests that have a grammar, as the core's values: preferred levels, slices and spread. Pure.

Unlike a gang's size, which others tell as well, a wish for closeness or distance that cannot be read is not
passed over: the gang waits, as with a level that does not exist.
"""

import re
from itertools import pairwise, starmap
from typing import Final

from labeler.contract import keys
from webhook.placement import PlacementError, Slice, Spread
from webhook.workloads.ranks import COUNT

_QUOTED: Final = 40
"""Characters of an author's text that a sentence repeats."""

_SPREAD: Final = re.compile(r"([^\s:]+)(?::([1-9][0-9]{0,8}))?", re.ASCII)


def spread_of(value: str | None) -> Spread | None:
    """The spread that the annotation's value asks for: a level, or a level, ":" and the most pods a domain.

    None where there is no wish. Raises PlacementError for a value that is none.
    """
    if value is None:
        return None
    read = _SPREAD.fullmatch(value)
    if read is None:
        raise PlacementError(
            f"{keys.SPREAD_TOPOLOGY_ANNOTATION}: {value[:_QUOTED]!r} is neither a level, as block, nor "
            "a level and the most pods in a domain of it, as block:2"
        )
    return Spread(read[1], int(read[2]) if read[2] else None)


def preferred_of(value: str | None) -> tuple[str, ...]:
    """The preferred levels that the annotation's value names, with commas between, () where it is not there.

    Raises PlacementError for a level that is named twice, and where one is missing.
    """
    if value is None:
        return ()
    names = tuple(value.split(","))
    if not all(names):
        raise PlacementError(
            f"{keys.PREFERRED_TOPOLOGY_ANNOTATION}: {value[:_QUOTED]!r} names no level; write a level, as "
            "subblock, or several, coarsest first, as block,subblock"
        )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise PlacementError(f"{keys.PREFERRED_TOPOLOGY_ANNOTATION} names {twice[:_QUOTED]!r} twice")
    return names


def slices_of(levels: str | None, sizes: str | None) -> tuple[Slice, ...]:
    """The slices that the values of the two annotations ask for, () where neither is there.

    Of slices in slices both name several, coarsest first, with commas between: "block,host" and "16,4".
    Raises PlacementError for one without the other, for a size that is none, and where they do not match.
    """
    if levels is None and sizes is None:
        return ()
    if levels is None:
        raise PlacementError(
            f"{keys.SLICE_SIZE_ANNOTATION} needs {keys.SLICE_TOPOLOGY_ANNOTATION}: the level"
        )
    if sizes is None:
        raise PlacementError(
            f"{keys.SLICE_TOPOLOGY_ANNOTATION} needs {keys.SLICE_SIZE_ANNOTATION}: how many pods"
        )
    found = []
    for size in sizes.split(","):
        if not COUNT.fullmatch(size) or not int(size):
            raise PlacementError(f"{keys.SLICE_SIZE_ANNOTATION}: {size[:_QUOTED]!r} is no positive integer")
        found.append(int(size))
    names = levels.split(",")
    if len(names) != len(found):
        raise PlacementError(
            f"{keys.SLICE_TOPOLOGY_ANNOTATION} names {len(names)} levels and {keys.SLICE_SIZE_ANNOTATION} "
            f"{len(found)} sizes; write one size for each level, coarsest first, as block,host and 16,4"
        )
    for (above, larger), (below, smaller) in pairwise(zip(names, found, strict=True)):
        if larger % smaller or larger == smaller:
            raise PlacementError(
                f"{keys.SLICE_SIZE_ANNOTATION}: slices of {larger} in a {above[:_QUOTED]} do not divide into "
                f"slices of {smaller} in a {below[:_QUOTED]}"
            )
    return tuple(starmap(Slice, zip(names, found, strict=True)))
