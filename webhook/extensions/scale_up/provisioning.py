"""How an autoscaler is asked for nodes: a ProvisioningRequest, and the PodTemplates that it names. Pure.

The form and the conditions are those of autoscaling.x-k8s.io/v1, as the Kubernetes cluster-autoscaler
documents them. A request's spec never changes: who asks for something else makes another one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from labeler.contract import keys
from webhook.kube.objects import Metadata, OwnerReference
from webhook.kube.placements import KIND
from webhook.kube.struct import Struct
from webhook.sweeper.extension import Verb, WatchedCollection
from webhook.sweeper.observe.view import View

GROUP_VERSION: Final = "autoscaling.x-k8s.io/v1"
CHECK_CAPACITY: Final = "check-capacity.autoscaling.x-k8s.io"
"""The class whose requests are told whether there is room, and make no nodes."""


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
