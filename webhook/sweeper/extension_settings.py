"""The settings of extensions: failing nodes, spare nodes, and requests to an autoscaler.

In the sweeper's file:

    bad_nodes: {avoid: soft, failures: 3, avoid_seconds: 3600, share: 0.1}
    spare_nodes: {per_block: 1, if_nothing_else_fits: false}
    scale_up: {provisioning_class: best-effort-atomic-scale-up.autoscaling.x-k8s.io}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from webhook.policy.fields import DNS_NAME, TRUTH, checked, mapping, number, one_of, seconds, setting

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
        "A pod that fails within this time of its start may have failed because of its node; one that runs "
        "as long clears a failure.",
    )
    outlive_seconds: float = setting(
        10.0,
        seconds(0, 3600),
        "A pod of the same gang with the same requests must run elsewhere for so much longer than the "
        "failed pod. Otherwise the program may be at fault.",
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


_PARAMETER_LENGTH: Final = 255
_LONGEST_CLASS: Final = 253


def _class(value: object) -> str:
    if value != "" and not (
        isinstance(value, str) and len(value) <= _LONGEST_CLASS and DNS_NAME.fullmatch(value)
    ):
        raise ValueError
    return str(value)


_CLASS: Final = checked(
    'a ProvisioningRequest class such as best-effort-atomic-scale-up.autoscaling.x-k8s.io, or ""', _class
)


def _parameter(value: object) -> str:
    if not isinstance(value, str) or len(value) > _PARAMETER_LENGTH:
        raise ValueError
    return value


_PARAMETERS: Final = mapping(
    checked(f"a text of at most {_PARAMETER_LENGTH} characters", _parameter), "parameters"
)


@dataclass(frozen=True)
class ScaleUp:
    """How nodes are asked for."""

    provisioning_class: str = setting(
        "",
        _CLASS,
        "spec.provisioningClassName of every request; the autoscaler's documentation says which there are. "
        "Without one, no nodes are asked for.",
    )
    parameters: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "kind": _PARAMETERS,
            "meaning": "spec.parameters of every request, as the class reads them.",
        },
    )
    requests: int = setting(10, number(1, whole=True), "Requests that a namespace may have at a time.")
    pods: int = setting(1000, number(1, whole=True), "Pods in all requests of a namespace.")
    after_seconds: float = setting(5.0, seconds(), "A gang asks once it has found no nodes for this long.")
    retry_seconds: float = setting(
        60.0,
        seconds(),
        "A gang that was refused asks again after this long, then after twice as long, up to an hour.",
    )
    label_seconds: float = setting(
        120.0, seconds(), "A younger node that has no topology labels yet is not used."
    )

    @property
    def is_on(self) -> bool:
        """Whether nodes are asked for at all."""
        return bool(self.provisioning_class)
