"""How an autoscaler is asked for nodes: a ProvisioningRequest, its PodTemplates and its progress. Pure.

The form and the conditions are those of autoscaling.x-k8s.io/v1, as the Kubernetes cluster-autoscaler
documents them. A request's spec never changes: who asks for something else makes another one.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from labeler.contract import keys
from webhook.kube.objects import Metadata, OwnerReference
from webhook.kube.placements import KIND
from webhook.kube.struct import Struct
from webhook.kube.times import since_1970
from webhook.sweeper.extension import Verb, WatchedCollection
from webhook.sweeper.observe.view import View
from webhook.text import printable

GROUP_VERSION: Final = "autoscaling.x-k8s.io/v1"
CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
"""The class whose requests only learn whether there is capacity, and make no nodes."""


class RequestCondition(Struct, frozen=True):
    """What an autoscaler says of a request."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class PodSet(Struct, frozen=True):
    """So many pods of one PodTemplate."""

    count: int = 0


class ProvisioningRequestSpec(Struct, frozen=True):
    """What is asked for, and by which class of provisioning."""

    provisioning_class_name: str = ""
    pod_sets: tuple[PodSet, ...] = ()


class ProvisioningRequestStatus(Struct, frozen=True):
    """How far it is."""

    conditions: tuple[RequestCondition, ...] = ()


class ProvisioningRequest(Struct, frozen=True):
    """The object as the API server has it."""

    metadata: Metadata
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()

    @property
    def pods(self) -> int:
        """For how many pods it asks."""
        return sum(each.count for each in self.spec.pod_sets)

    @property
    def placement_owners(self) -> list[OwnerReference]:
        """The Placements for whose gangs it was made: one, but anybody may write others."""
        return [each for each in self.metadata.owner_references if each.kind == KIND]

    @property
    def owner_uid(self) -> str:
        """The uid of the first of them, "" if it names none."""
        return next((each.uid for each in self.placement_owners), "")


class RequestTemplate(Struct, frozen=True):
    """A PodTemplate; of it only that it is there matters."""

    metadata: Metadata


_VERBS: Final = frozenset({Verb.CREATE, Verb.DELETE})

REQUESTS: Final = WatchedCollection(
    f"/apis/{GROUP_VERSION}/provisioningrequests",
    "ProvisioningRequest",
    ProvisioningRequest,
    keys.SCALE_UP_LABEL,
    _VERBS,
)
TEMPLATES: Final = WatchedCollection(
    "/api/v1/podtemplates", "PodTemplate", RequestTemplate, keys.SCALE_UP_LABEL, _VERBS
)


def live_requests(view: View) -> list[ProvisioningRequest]:
    """Our requests, but for those that are being deleted; none while they have not been read."""
    there = REQUESTS.of(view) or {}
    return [each for each in there.values() if not each.metadata.deletion_timestamp]


def request_body(
    metadata: Mapping[str, Any],
    provisioning_class: str,
    pod_sets: Sequence[tuple[str, int]],
    parameters: Mapping[str, str],
) -> dict[str, Any]:
    """A ProvisioningRequest. pod_sets: names of PodTemplates, and how many pods of each."""
    spec: dict[str, Any] = {
        "provisioningClassName": provisioning_class,
        "podSets": [{"podTemplateRef": {"name": name}, "count": count} for name, count in pod_sets],
    }
    if parameters:
        spec["parameters"] = dict(parameters)
    return {"metadata": dict(metadata), "spec": spec}


# --- progress -----------------------------------------------------------------------------------------
# How far requests for nodes are, and since when.
#
# Since when goes by our own clock: an autoscaler's may be wrong by any time. A leader that has just begun
# knows when the API server took a request, and by what the autoscaler says of the time it believes no more
# than lies between that and now. So it asks again late, or at most once a pause.

_QUOTED: Final = 300
"""Characters of an autoscaler's message that are shown."""


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

    since: seconds since 1970, by the autoscaler's clock; of one that nobody has accepted, by the API
    server's.
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
