"""What an operator chooses about asking an autoscaler for nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from webhook.policy.fields import DNS_NAME, checked, mapping, number, seconds, setting

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
        "Without one, nothing is asked for.",
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
        120.0, seconds(), "A node that is younger and has no topology labels yet is given to nobody."
    )

    @property
    def is_on(self) -> bool:
        """Whether nodes are asked for at all."""
        return bool(self.provisioning_class)
