"""How an autoscaler is asked for nodes: a ProvisioningRequest, and the PodTemplates that it names.

The form and the conditions are those of autoscaling.x-k8s.io/v1, as the Kubernetes cluster-autoscaler
documents them. A request's spec never changes: another wish is another object.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct

GROUP_VERSION: Final = "autoscaling.x-k8s.io/v1"
REQUESTS: Final = f"/apis/{GROUP_VERSION}/provisioningrequests"
TEMPLATES: Final = "/api/v1/podtemplates"
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


class RequestTemplate(Struct, frozen=True):
    """A PodTemplate; of it only that it is there matters."""

    metadata: Metadata


def create_template(api: Api, metadata: Mapping[str, Any], template: Mapping[str, Any]) -> None:
    """Make a PodTemplate; one with the same name and labels is the one that was meant.

    Raises ApiError; status 409 where one of that name with other labels is there.
    """
    path = f"/api/v1/namespaces/{metadata['namespace']}/podtemplates"
    _create(api, path, {"metadata": metadata, "template": template})


def _create(api: Api, path: str, body: Mapping[str, Any]) -> None:
    try:
        api.request("POST", path, body=body)
    except ApiError as error:
        metadata = body["metadata"]
        if error.status != 409:
            raise
        there = api.json("GET", f"{path}/{metadata['name']}")["metadata"]
        if there.get("labels") != metadata["labels"] or there.get("deletionTimestamp"):
            raise


def create_request(
    api: Api,
    metadata: Mapping[str, Any],
    provisioning_class: str,
    pod_sets: Sequence[tuple[str, int]],
    parameters: Mapping[str, str],
) -> None:
    """Make a request, as create_template does.

    pod_sets: names of PodTemplates that are there, and how many pods of each. Raises ApiError.
    """
    spec: dict[str, Any] = {
        "provisioningClassName": provisioning_class,
        "podSets": [{"podTemplateRef": {"name": name}, "count": count} for name, count in pod_sets],
    }
    if parameters:
        spec["parameters"] = dict(parameters)
    body = {
        "apiVersion": GROUP_VERSION,
        "kind": "ProvisioningRequest",
        "metadata": metadata,
        "spec": spec,
    }
    path = f"/apis/{GROUP_VERSION}/namespaces/{metadata['namespace']}/provisioningrequests"
    _create(api, path, body)


def delete_request(api: Api, metadata: Metadata) -> None:
    """Remove a request. Raises ApiError; status 404 or 409 where it is gone, or another by now."""
    path = f"/apis/{GROUP_VERSION}/namespaces/{metadata.namespace}/provisioningrequests/{metadata.name}"
    api.request("DELETE", path, body=_precondition(metadata))


def delete_template(api: Api, metadata: Metadata) -> None:
    """Remove a PodTemplate; as delete_request."""
    path = f"/api/v1/namespaces/{metadata.namespace}/podtemplates/{metadata.name}"
    api.request("DELETE", path, body=_precondition(metadata))


def _precondition(metadata: Metadata) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": metadata.uid}}
