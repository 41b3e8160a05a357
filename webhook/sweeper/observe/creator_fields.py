"""What the creator of a pod wrote, without what webhooks added: read from managedFields where that matters.

The API server notes the fields of a new object before it calls any webhook (create.go in k8s.io/apiserver).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.kube.paths import pod_path

_TIMEOUT_SECONDS: Final = 3.0
_AMOUNTS: Final = ("f:limits", "f:requests")


class CreatorFields(NamedTuple):
    """resources: those that it requested for any container, by name. names_node: whether it set nodeName."""

    resources: frozenset[str]
    names_node: bool


class NotReadNowError(Exception):
    """The API server does not answer, or the pod is gone, as the watch will show."""


def creator_fields(pod: Mapping[str, Any]) -> CreatorFields | None:
    """The fields that the creator of a pod wrote, None where managedFields are empty.

    pod: as JSON has it.
    """
    managers = pod["metadata"].get("managedFields", ())
    written = [each.get("fieldsV1", {}) for each in managers if not each.get("subresource")]
    if not written:
        return None
    specs = [each.get("f:spec", {}) for each in written]
    resources = frozenset(name for each in specs for name in _amounts(each))
    return CreatorFields(resources, any("f:nodeName" in each for each in specs))


def read_creator_fields(api: Api, pod: Pod) -> CreatorFields | None:
    """The same of a pod in the cluster, None also if it can never be read.

    Raises NotReadNowError.
    """
    if not pod.metadata.managed_fields:
        return None
    try:
        found = api.json("GET", pod_path(pod), timeout_seconds=_TIMEOUT_SECONDS)
    except ApiError as error:
        if error.is_for_now or error.status == 404:
            raise NotReadNowError from error
        return None
    if found["metadata"]["uid"] != pod.metadata.uid:
        raise NotReadNowError
    return creator_fields(found)


def _amounts(fields: Mapping[str, Any]) -> Iterator[str]:
    """The names below limits and requests, at any depth: clients write these fields as they like."""
    left = [fields]
    while left:
        for key, below in left.pop().items():
            if not isinstance(below, dict):
                continue
            if key in _AMOUNTS:
                yield from (name.removeprefix("f:") for name in below)
            else:
                left.append(below)
