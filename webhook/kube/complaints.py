"""Events of controllers that cannot create pods; only Events with one reason are read. Pure."""

from typing import Final

from msgspec.structs import force_setattr

from webhook.kube.events import shortened
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct

EVENTS: Final = "/api/v1/events"
FAILED_CREATE: Final = "reason=FailedCreate"
"""The field selector for Events: the reason that Kubernetes' own controllers give."""

_MESSAGE_BYTES: Final = 512
_SECONDS: Final = len("2026-01-01T00:00:00")


class Regarded(Struct, frozen=True):
    """The object that an Event is about."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class _EventSeries(Struct, frozen=True):
    last_observed_time: str | None = None


class Complaint(Struct, frozen=True):
    """An Event of a controller that could not create a pod (core/v1)."""

    metadata: Metadata
    involved_object: Regarded = Regarded()
    message: str = ""
    last_timestamp: str | None = None
    event_time: str | None = None
    series: _EventSeries | None = None

    def __post_init__(self) -> None:
        """Cut the message to the displayed length: any user may write an Event of 1 KiB."""
        force_setattr(self, "message", shortened(self.message, _MESSAGE_BYTES))

    @property
    def at(self) -> str:
        """When it was last observed, to the second (RFC 3339, which sorts as text)."""
        last = (self.series and self.series.last_observed_time) or self.last_timestamp or self.event_time
        return (last or "")[:_SECONDS]
