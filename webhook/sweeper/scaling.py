"""What an operator chooses about asking an autoscaler for nodes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

_CLASS: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_PARAMETER_LENGTH: Final = 255


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
        if self.provisioning_class and not _CLASS.fullmatch(self.provisioning_class):
            raise ValueError(
                f"provisioning_class: {self.provisioning_class!r} is no class of provisioning, as "
                "best-effort-atomic-scale-up.autoscaling.x-k8s.io is"
            )
        for name in ("requests", "pods"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise ValueError(f"{name}: {value!r} is not a whole number from 1 on")
        for name in ("after_seconds", "retry_seconds", "label_seconds"):
            if type(value := getattr(self, name)) not in (int, float) or not 0 <= value < float("inf"):
                raise ValueError(f"{name}: {value!r} is not a number of seconds")
        if not isinstance(self.parameters, Mapping) or not all(
            isinstance(key, str) and key and isinstance(value, str) and len(value) <= _PARAMETER_LENGTH
            for key, value in self.parameters.items()
        ):
            raise ValueError(f"parameters: {self.parameters!r} does not map names to texts of 255 characters")

    @property
    def is_on(self) -> bool:
        """Whether nodes are asked for at all."""
        return bool(self.provisioning_class)


def scale_up_of(value: Any) -> ScaleUp:
    """The choices of a settings file. Raises ValueError with a sentence."""
    known = [each.name for each in fields(ScaleUp)]
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is no mapping of {', '.join(known)}")
    if unknown := [str(name) for name in value if name not in known]:
        raise ValueError(f"{unknown[0]} is no setting of it; there are {', '.join(known)}")
    return ScaleUp(**value)
