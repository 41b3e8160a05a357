"""How far requests for nodes are, and since when. Pure.

Since when goes by our own clock: an autoscaler's may be wrong by any time. A leader that has just begun knows
when the API server took a request, and by what the autoscaler says of the time it believes no more than lies
between that and now. So it asks again late, or at most once a pause.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from webhook.extensions.scale_up.provisioning import ProvisioningRequest, RequestCondition
from webhook.kube.times import since_1970
from webhook.text import printable

_QUOTED: Final = 300
"""Characters of an autoscaler's message that are told."""


class Progress(StrEnum):
    """How far a request is."""

    ASKED = "asked"
    DELAYED = "delayed"
    """There are no nodes now; the autoscaler tries again by itself."""
    PROVIDED = "provided"
    FAILED = "failed"
    EXPIRED = "expired"
    """The nodes were booked for a time that is over."""
    REVOKED = "revoked"


FINISHED: Final = frozenset({Progress.FAILED, Progress.EXPIRED, Progress.REVOKED})
"""Nothing more comes of a request in one of these."""

_ENDS: Final = (
    ("CapacityRevoked", Progress.REVOKED),
    ("Failed", Progress.FAILED),
    ("BookingExpired", Progress.EXPIRED),
)


@dataclass(frozen=True)
class RequestProgress:
    """How far a request is, and what its autoscaler says of that.

    since: seconds since 1970, by the autoscaler's clock; of one that nobody has heard, by the API server's.
    """

    state: Progress
    since: float
    message: str = ""
    is_answered: bool = True


def progress_of(request: ProvisioningRequest) -> RequestProgress:
    """How far a request is, by its conditions."""
    conditions = {each.type: each for each in request.status.conditions}
    for kind, state in _ENDS:
        if kind in conditions and conditions[kind].status == "True":
            return _progress(state, conditions[kind])
    provisioned = conditions.get("Provisioned")
    if provisioned is not None and provisioned.status in ("True", "False"):
        return _progress(Progress.PROVIDED if provisioned.status == "True" else Progress.DELAYED, provisioned)
    return RequestProgress(
        Progress.ASKED,
        since_1970(request.metadata.creation_timestamp) or 0.0,
        is_answered=bool(request.status.conditions),
    )


def _progress(state: Progress, condition: RequestCondition) -> RequestProgress:
    message = printable(condition.message or condition.reason).rstrip(".")[:_QUOTED]
    return RequestProgress(state, since_1970(condition.last_transition_time) or 0.0, message)


Sightings = Mapping[str, tuple[Progress, float]]
"""By uid of a request, how far it is, and since when (seconds since 1970)."""


def sighted(before: Sightings, requests: Collection[ProvisioningRequest], now: float) -> Sightings:
    """The sightings with all requests as they are now (seconds since 1970); the others are forgotten."""
    found: dict[str, tuple[Progress, float]] = {}
    for each in requests:
        uid, progress = each.metadata.uid, progress_of(each)
        known = before.get(uid)
        if known is None:
            taken = since_1970(each.metadata.creation_timestamp) or 0.0
            known = progress.state, min(now, max(taken, min(now, progress.since)))
        elif known[0] is not progress.state:
            known = progress.state, now
        found[uid] = known[0], min(now, known[1])  # our own clock may have been ahead
    return found


def since_by_uid(sightings: Sightings) -> dict[str, float]:
    """By uid, since when each request is as it is (seconds since 1970)."""
    return {uid: at for uid, (_, at) in sightings.items()}
