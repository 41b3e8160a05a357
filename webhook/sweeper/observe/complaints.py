"""What controllers say of pods that they cannot make: a quota is used up, a policy refuses them. Pure."""

from collections.abc import Iterable
from typing import Final

from msgspec.structs import force_setattr

from webhook.kube.events import shortened
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct
from webhook.sweeper.observe.membership import GangKey
from webhook.text import printable

EVENTS: Final = "/api/v1/events"
FAILED_CREATE: Final = "reason=FailedCreate"
"""The reason that Kubernetes' own controllers give, by which alone Events are read."""

_MESSAGE_BYTES: Final = 512
_SECONDS: Final = len("2026-01-01T00:00:00")
_WITHOUT_OWNER: Final = frozenset({"Pod", "Gang", "Group"})
"""Kinds of gangs whose name is none of an object."""


class _Regarded(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""


class _EventSeries(Struct, frozen=True):
    last_observed_time: str | None = None


class Complaint(Struct, frozen=True):
    """An Event by which a controller says that it could not make a pod (core/v1)."""

    metadata: Metadata
    involved_object: _Regarded = _Regarded()
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _EventSeries | None = None

    def __post_init__(self) -> None:
        """Keep as much of the message as is told: anybody may write an Event of 1 KiB."""
        force_setattr(self, "message", shortened(self.message, _MESSAGE_BYTES))

    @property
    def at(self) -> str:
        """When it was said last, to the second (RFC 3339, which sorts as text)."""
        last = (self.series and self.series.last_observed_time) or self.last_timestamp or self.event_time
        return (last or "")[:_SECONDS]


def hindrance(key: GangKey, complaints: Iterable[Complaint]) -> tuple[str, str]:
    """When one of a gang's controllers said last that it cannot make a pod, and what; ("", "") if none did.

    A set's pods are made by others that it makes: these have its name, a dash and more.
    """
    if key.kind in _WITHOUT_OWNER:
        return "", ""
    said = [
        (each.at, printable(each.message))
        for each in complaints
        if each.metadata.namespace == key.namespace and _is_about(each.involved_object, key)
    ]
    return max(said, default=("", ""))


def _is_about(about: _Regarded, key: GangKey) -> bool:
    if about.uid == key.id or (about.name, about.kind) == (key.name, key.kind):
        return True
    # A Job makes its pods itself: train-2 is another one than train.
    return key.kind != "Job" and (about.name == key.name or about.name.startswith(f"{key.name}-"))
