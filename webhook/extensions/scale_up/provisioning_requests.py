"""ProvisioningRequests to an autoscaler, their PodTemplates and their progress. Pure.

Fields and conditions are those of autoscaling.x-k8s.io/v1, as documented by the Kubernetes
cluster-autoscaler. A request's spec never changes: another request replaces it.
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
from webhook.sweeper.observe.view import View
from webhook.sweeper.observe.watches import Verb, WatchedCollection
from webhook.text import printable

GROUP_VERSION: Final = "autoscaling.x-k8s.io/v1"
CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
"""The class whose requests only check for capacity and create no nodes."""


class RequestCondition(Struct, frozen=True):
    """A condition that an autoscaler writes on a request."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class RequestedPodSet(Struct, frozen=True):
    """The pods of one PodTemplate."""

    count: int = 0


class ProvisioningRequestSpec(Struct, frozen=True):
    """The requested pods, and the provisioning class."""

    provisioning_class_name: str = ""
    pod_sets: tuple[RequestedPodSet, ...] = ()


class ProvisioningRequestStatus(Struct, frozen=True):
    """The conditions of a request."""

    conditions: tuple[RequestCondition, ...] = ()


class ProvisioningRequest(Struct, frozen=True):
    """The object as the API server has it."""

    metadata: Metadata
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: ProvisioningRequestStatus = ProvisioningRequestStatus()

    @property
    def pods(self) -> int:
        """The number of requested pods."""
        return sum(each.count for each in self.spec.pod_sets)

    @property
    def placement_owners(self) -> list[OwnerReference]:
        """The Placements of its gangs: topogate writes one, but other clients may write more."""
        return [each for each in self.metadata.owner_references if each.kind == KIND]

    @property
    def owner_uid(self) -> str:
        """The uid of the first owning Placement, "" if there is none."""
        return next((each.uid for each in self.placement_owners), "")


class RequestTemplate(Struct, frozen=True):
    """A PodTemplate; only its existence matters."""

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
    """topogate's requests that are not being deleted; [] before they have been read."""
    there = REQUESTS.of(view) or {}
    return [each for each in there.values() if not each.metadata.deletion_timestamp]


def request_body(
    metadata: Mapping[str, Any],
    provisioning_class: str,
    pod_sets: Sequence[tuple[str, int]],
    parameters: Mapping[str, str],
) -> dict[str, Any]:
    """The body of a ProvisioningRequest. pod_sets: names of PodTemplates, and how many pods of each."""
    spec: dict[str, Any] = {
        "provisioningClassName": provisioning_class,
        "podSets": [{"podTemplateRef": {"name": name}, "count": count} for name, count in pod_sets],
    }
    if parameters:
        spec["parameters"] = dict(parameters)
    return {"metadata": dict(metadata), "spec": spec}


# --- progress -----------------------------------------------------------------------------------------
# The progress of requests, and when it last changed.
#
# Times are by our own clock, since an autoscaler's clock may be wrong. A new leader uses the autoscaler's
# time only if it is between the creation of the request and now. So a retry may be late, but there is at most
# one in each pause.

_QUOTED: Final = 300
"""The most characters of an autoscaler's message that are shown."""


class Progress(StrEnum):
    """The state of a request."""

    REQUESTED = "requested"
    DELAYED = "delayed"
    """No nodes are available now; the autoscaler retries by itself."""
    PROVIDED = "provided"
    FAILED = "failed"
    EXPIRED = "expired"
    """The autoscaler's booking of the nodes has expired."""
    REVOKED = "revoked"


FINISHED: Final = frozenset({Progress.FAILED, Progress.EXPIRED, Progress.REVOKED})
"""The final states of a request."""

_ENDS: Final = (
    ("CapacityRevoked", Progress.REVOKED),
    ("Failed", Progress.FAILED),
    ("BookingExpired", Progress.EXPIRED),
)


@dataclass(frozen=True)
class RequestProgress:
    """The state of a request, and its autoscaler's message.

    since: seconds since 1970, by the autoscaler's clock; before it answers, by the API server's clock.
    """

    state: Progress
    since: float
    message: str = ""
    is_answered: bool = True


def progress_of(request: ProvisioningRequest) -> RequestProgress:
    """The progress of a request by its conditions."""
    conditions = {each.type: each for each in request.status.conditions}
    for kind, state in _ENDS:
        if kind in conditions and conditions[kind].status == "True":
            return _progress(state, conditions[kind])
    provisioned = conditions.get("Provisioned")
    if provisioned is not None and provisioned.status in ("True", "False"):
        return _progress(Progress.PROVIDED if provisioned.status == "True" else Progress.DELAYED, provisioned)
    return RequestProgress(
        Progress.REQUESTED,
        since_1970(request.metadata.creation_timestamp) or 0.0,
        is_answered=bool(request.status.conditions),
    )


def _progress(state: Progress, condition: RequestCondition) -> RequestProgress:
    message = printable(condition.message or condition.reason).rstrip(".")[:_QUOTED]
    return RequestProgress(state, since_1970(condition.last_transition_time) or 0.0, message)


Sightings = Mapping[str, tuple[Progress, float]]
"""uid of a request -> its state, and since when (seconds since 1970)."""


def sighted(before: Sightings, requests: Collection[ProvisioningRequest], now: float) -> Sightings:
    """The sightings of all requests at this time (seconds since 1970); others are dropped."""
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
    """uid of a request -> when its state last changed (seconds since 1970)."""
    return {uid: at for uid, (_, at) in sightings.items()}
