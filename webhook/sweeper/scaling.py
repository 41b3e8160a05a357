"""What an operator chooses about asking an autoscaler for nodes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from webhook.sweeper.nested import Check, check_all, number, read

_CLASS: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PARAMETER_LENGTH: Final = 255

LONGEST_SECONDS: Final = 1e9
"""Of any time that is chosen, 31 years: a date so far from now can be told."""


@dataclass(frozen=True)
class ScaleUp:
    """How nodes are asked for. Times are in seconds.

    provisioning_class: spec.provisioningClassName of every request, "" where nothing is asked for; the
    autoscaler's documentation says which there are. parameters: spec.parameters, as the class reads them.
    requests, pods: how many requests, and pods in them, a namespace may have at a time.
    after_seconds: a gang asks once it has found no room for this long. retry_seconds: one that was refused
    asks again after this long, then after twice as long, and so on up to an hour.
    label_seconds: a node that is younger and has no topology labels yet is given to nobody.
    """

    provisioning_class: str = ""
    parameters: Mapping[str, str] = field(default_factory=dict)
    requests: int = 10
    pods: int = 1000
    after_seconds: float = 5.0
    retry_seconds: float = 60.0
    label_seconds: float = 120.0

    def __post_init__(self) -> None:
        """Check. Raises ValueError with a sentence."""
        check_all(self, _CHECKS)

    @property
    def is_on(self) -> bool:
        """Whether nodes are asked for at all."""
        return bool(self.provisioning_class)


def _provisioning_class(value: Any) -> str:
    if not isinstance(value, str) or (value and not _CLASS.fullmatch(value)):
        example = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
        raise ValueError(f"no class of provisioning, as {example} is")
    return value


def _parameters(value: Any) -> Mapping[str, str]:
    if not isinstance(value, Mapping) or not all(
        isinstance(key, str) and key and isinstance(each, str) and len(each) <= _PARAMETER_LENGTH
        for key, each in value.items()
    ):
        raise ValueError(f"not a mapping of names to texts of at most {_PARAMETER_LENGTH} characters")
    return value


_CHECKS: Final[Mapping[str, Check]] = {
    "provisioning_class": _provisioning_class,
    "parameters": _parameters,
    "requests": number(1, whole=True),
    "pods": number(1, whole=True),
    "after_seconds": number(0),
    "retry_seconds": number(0),
    "label_seconds": number(0, LONGEST_SECONDS),
}


def read_scale_up(value: Any) -> ScaleUp:
    """The choices of a mapping. Raises ValueError with a sentence that names the field."""
    return read(ScaleUp, value, _CHECKS)
