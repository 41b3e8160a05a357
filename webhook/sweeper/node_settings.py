"""What an operator can set of nodes on which pods fail, and of nodes that are kept free.

In the sweeper's file:

    bad_nodes: {avoid: soft, failures: 3, avoid_seconds: 3600, share: 0.1}
    spare_nodes: {per_block: 1, if_nothing_else_fits: false}
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from webhook.policy.fields import TRUTH, number, one_of, seconds, setting

DAY: Final = 86400.0

FEWEST_FAILURES: Final = 2
"""One failure is an accident, and one gang may not speak for all."""


class Avoid(StrEnum):
    """How failing nodes are avoided: not at all, unless nothing else fits, or even then."""

    OFF = "off"
    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True)
class BadNodes:
    """When a node counts as failing, and for how long; see webhook.extensions.node_health.failing_nodes."""

    avoid: Avoid = setting(
        Avoid.SOFT,
        one_of(Avoid),
        "How failing nodes are avoided: off: not at all; soft: unless nothing else fits; hard: even then.",
    )
    failures: int = setting(
        3, number(FEWEST_FAILURES, 100, whole=True), "So many gangs must have failed on the node."
    )
    soon_seconds: float = setting(
        600.0,
        seconds(1, DAY),
        "A pod that fails within this time of its start may have failed by its node; one that runs as long "
        "takes a failure back.",
    )
    outlive_seconds: float = setting(
        10.0,
        seconds(0, 3600),
        "For so much longer than a failed pod, a pod of its gang with the same requests must run elsewhere. "
        "Else the program may be at fault.",
    )
    avoid_seconds: float = setting(
        3600.0,
        seconds(1, 7 * DAY),
        "How long a failing node is avoided, twice as long after each further failure.",
    )
    keep_seconds: float = setting(
        DAY, seconds(1, 30 * DAY), "A failure is forgotten after this, so no node is avoided for longer."
    )
    share: float = setting(
        0.1,
        number(0, 1),
        "Of the nodes of one GPU model, the share that is avoided at a time; one may always be of two.",
    )


@dataclass(frozen=True)
class SpareNodes:
    """How many nodes new gangs leave free."""

    per_block: int = setting(
        0, number(0, 1000, whole=True), "Nodes of each GPU model that new gangs leave free in each block."
    )
    if_nothing_else_fits: bool = setting(
        False, TRUTH, "Whether new gangs may take those as well rather than wait."
    )
