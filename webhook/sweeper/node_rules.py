"""What an operator can set of nodes on which pods fail, and of nodes that are kept free.

In the sweeper's file:

    bad_nodes: {avoid: soft, failures: 3, avoid_seconds: 3600, share: 0.1}
    spare_nodes: {per_block: 1, if_nothing_else_fits: false}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from webhook.sweeper.nested import Check, number, one_of, read, truth


class Avoid(StrEnum):
    """How bad nodes are avoided: not at all, unless nothing else fits, or even then."""

    OFF = "off"
    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True)
class BadNodes:
    """When a node counts as bad, and for how long. Times are in seconds.

    failures: so many gangs must have failed on the node; see decide.verdicts. soon_seconds: a pod that fails
    within this time of its start may have failed by its node; one that runs as long takes a failure back.
    outlive_seconds: for so much longer than a failed pod its like must run elsewhere, else the program may be
    at fault. avoid_seconds: how long a bad node is avoided, twice as long after each further failure.
    keep_seconds: a failure is forgotten after this, so that no node is avoided for longer.
    share: of the nodes of one GPU model, from 0 to 1, that are avoided at a time; one may always be of two.
    """

    avoid: Avoid = Avoid.SOFT
    failures: int = 3
    soon_seconds: float = 600.0
    outlive_seconds: float = 10.0
    avoid_seconds: float = 3600.0
    keep_seconds: float = 86400.0
    share: float = 0.1


@dataclass(frozen=True)
class SpareNodes:
    """How many nodes of each GPU model new gangs leave free in each block.

    if_nothing_else_fits: whether they may take those as well rather than wait.
    """

    per_block: int = 0
    if_nothing_else_fits: bool = False


FEWEST_FAILURES: Final = 2
"""One failure is an accident, and one gang may not speak for all."""

_BAD: Final[Mapping[str, Check]] = {
    "avoid": one_of(Avoid),
    "failures": number(FEWEST_FAILURES, 100, whole=True),
    "soon_seconds": number(1, 86400),
    "outlive_seconds": number(0, 3600),
    "avoid_seconds": number(1, 7 * 86400),
    "keep_seconds": number(1, 30 * 86400),
    "share": number(0, 1),
}
_SPARE: Final[Mapping[str, Check]] = {
    "per_block": number(0, 1000, whole=True),
    "if_nothing_else_fits": truth,
}


def read_bad_nodes(value: Any) -> BadNodes:
    """The rules of a mapping. Raises ValueError with a sentence that names the field."""
    return read(BadNodes, value, _BAD)


def read_spares(value: Any) -> SpareNodes:
    """The same of spare nodes."""
    return read(SpareNodes, value, _SPARE)
