"""Whether pods that ask for GPUs by claims can be placed: APIs, rights, the image, DeviceClasses."""

from collections.abc import Iterator
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from webhook.configuration.cluster import read_configuration
from webhook.extensions.known import resource_extensions
from webhook.inquiry.extension_checks import missing_rights
from webhook.inquiry.findings import REAPPLY, SYSTEM, Finding, State, found, some
from webhook.kube import devices
from webhook.kube.client import Api, ApiError
from webhook.policy.values import Policy
from webhook.text import counted

_SWITCH_OFF: Final = "or set gpus.deviceClasses: [] in the configuration."
_WITHOUT_CEL: Final = "topogate"
"""The name of the shipped image that lacks the interpreter of selectors."""


def examine(api: Api, now: datetime) -> Iterator[Finding]:
    """By the configuration, the Deployment of the sweeper, and the DeviceClasses."""
    policy = read_configuration(api).policy
    if not policy.resource_claims:
        yield found(State.WELL, "ResourceClaims make no pod a GPU pod (gpus.deviceClasses: [])")
        return
    names = _class_names(api)
    if names is None:
        sentence = "gpus.deviceClasses is set, and resource.k8s.io/v1 is not served: pods with claims wait"
        yield found(State.ILL, sentence, f"Use Kubernetes 1.34 or newer, {_SWITCH_OFF}")
        return
    faults = [*_of_sweeper(api), *_of_classes(policy, names)]
    yield from faults
    if not faults:
        served = [name for name in names if policy.is_gpu_class(name)]
        yield found(
            State.WELL,
            f"claims on {counted(len(served), 'DeviceClass', 'DeviceClasses')} are placed: {some(served)}",
        )


def _class_names(api: Api) -> list[str] | None:
    """The DeviceClasses in order, None where the API server does not serve them."""
    try:
        items: list[dict[str, Any]] = api.json("GET", devices.CLASSES)["items"]
    except ApiError as error:
        if error.status != 404:
            raise
        return None
    return sorted(each["metadata"]["name"] for each in items)


def _of_sweeper(api: Api) -> Iterator[Finding]:
    """Faults of its rights and of its image."""
    collections = (each for extension in resource_extensions() for each in extension.collections)
    missing = [right for each in collections for right in missing_rights(api, each)]
    if missing:
        yield found(State.ILL, f"pods with claims wait: the sweeper may not {some(missing)}", REAPPLY)
    path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/sweeper"
    image = api.json("GET", path)["spec"]["template"]["spec"]["containers"][0]["image"]
    if image.rpartition("/")[2].partition("@")[0].partition(":")[0] == _WITHOUT_CEL:
        sentence = f"the sweeper's image {image} evaluates no CEL selectors: pods whose claims have some wait"
        yield found(State.ODD, sentence, f"Use the image topogate-dra in its place, {_SWITCH_OFF}")


def _of_classes(policy: Policy, names: list[str]) -> Iterator[Finding]:
    """Entries of gpus.deviceClasses that stand for no DeviceClass."""
    unknown = [each for each in policy.device_classes if not any(fnmatchcase(name, each) for name in names)]
    if not names:
        yield found(State.ODD, "there is no DeviceClass", "Install a DRA driver for the GPUs.")
    elif unknown:
        sentence = f"no DeviceClass matches {some(unknown)} of gpus.deviceClasses; there are {some(names)}"
        yield found(State.ODD, sentence, "Correct the configuration, or install the driver.")
