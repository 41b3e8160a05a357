"""What an operator can set of nodes on which pods fail, and of nodes that are kept free.

In the sweeper's file:

    bad_nodes: {avoid: soft, failures: 3, avoid_seconds: 3600, share: 0.1}
    spare_nodes: {per_block: 1, if_nothing_else_fits: false}
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final


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

_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "failures": (FEWEST_FAILURES, 100),
    "soon_seconds": (1, 86400),
    "outlive_seconds": (0, 3600),
    "avoid_seconds": (1, 7 * 86400),
    "keep_seconds": (1, 30 * 86400),
    "share": (0, 1),
    "per_block": (0, 1000),
}


def read_bad_nodes(value: Any) -> BadNodes:
    """The rules of a mapping. Raises ValueError with a sentence that names the field."""
    return BadNodes(**_fields(value, BadNodes))


def read_spares(value: Any) -> SpareNodes:
    """The same of spare nodes."""
    return SpareNodes(**_fields(value, SpareNodes))


def _fields(value: Any, kind: type[BadNodes] | type[SpareNodes]) -> dict[str, Any]:
    names = [each.name for each in fields(kind)]
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a mapping of {', '.join(names)}")
    for name in value:
        if name not in names:
            raise ValueError(f"{name!r} is no setting; there are {', '.join(names)}")
    return {name: _value(name, given) for name, given in value.items()}


def _value(name: str, given: Any) -> Any:
    if name == "avoid":
        # YAML reads a bare off as false.
        given = "off" if given is False else given
        if given not in list(Avoid):
            raise ValueError(f"avoid: {given!r} is none of {', '.join(Avoid)}")
        return Avoid(given)
    if name == "if_nothing_else_fits":
        if not isinstance(given, bool):
            raise ValueError(f"{name}: {given!r} is not true or false")
        return given
    least, most = _RANGES[name]
    whole = name in ("failures", "per_block")
    fits = type(given) is int or (type(given) is float and not whole)
    if not fits or not least <= given <= most:
        number = "a whole number" if whole else "a number"
        raise ValueError(f"{name}: {given!r} is not {number} from {least:g} to {most:g}")
    return given
