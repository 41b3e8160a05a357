"""What controllers say of pods that they cannot make: Events, of which one reason alone is read. Pure."""

from typing import Final

from msgspec.structs import force_setattr

from webhook.kube.events import shortened
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct

EVENTS: Final = "/api/v1/events"
FAILED_CREATE: Final = "reason=FailedCreate"
"""The reason that Kubernetes' own controllers give, by which alone Events are read."""

_MESSAGE_BYTES: Final = 512
_SECONDS: Final = len("2026-01-01T00:00:00")


class Regarded(Struct, frozen=True):
    """What an Event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class _EventSeries(Struct, frozen=True):
    last_observed_time: str | None = None


class Complaint(Struct, frozen=True):
    """An Event by which a controller says that it could not make a pod (core/v1)."""

    metadata: Metadata
    involved_object: Regarded = Regarded()
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _EventSeries | None = None

    def __post_init__(self) -> None:
        """Keep as much of the message as is shown: anybody may write an Event of 1 KiB."""
        force_setattr(self, "message", shortened(self.message, _MESSAGE_BYTES))

    @property
    def at(self) -> str:
        """When it was said last, to the second (RFC 3339, which sorts as text)."""
        last = (self.series and self.series.last_observed_time) or self.last_timestamp or self.event_time
        return (last or "")[:_SECONDS]
