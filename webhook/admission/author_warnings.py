"""Requests that can never be placed, reported to the user while the pod is created.

None of these refuses a pod: a wrong warning does no harm. Annotations are checked by
webhook.policy.annotations, Intel GPUs by webhook.scheduling.gpu_requests, as in the sweeper.
"""

from collections.abc import Iterator
from typing import Final

from labeler.contract import keys
from webhook.admission import kueue
from webhook.admission.review import NewContainer, NewPod, NewTerm
from webhook.kube.struct import Quantities
from webhook.policy import annotations
from webhook.policy.values import Policy
from webhook.scheduling import gpu_requests
from webhook.scheduling.gpu_requests import ContainerKind
from webhook.text import one_line, quote
from webhook.workloads.foreign_requests import foreign_requests

LONGEST_WARNING: Final = 120
"""What the API documentation recommends as the length of one warning."""
MOST_WARNINGS: Final = 16

_NODE_SHOWN: Final = 38
"""Characters shown of a node's name, so that the warning is not cut."""


def asked_of(container: NewContainer) -> Quantities:
    """The requests of a container, and limits of resources without a request."""
    resources = container.resources
    if resources is None:
        return {}
    limits, requests = resources.limits, resources.requests
    return {**limits, **requests} if limits and requests else limits or requests or {}


def gpu_resources(pod: NewPod, policy: Policy) -> tuple[str, ...]:
    """Names of the GPU resources that any container or init container requests, in order."""
    found: dict[str, None] = {}
    for container in pod.all_containers:
        for resource, quantity in asked_of(container).items():
            if policy.is_gpu_resource(resource) and gpu_requests.whole_number(quantity) != 0:
                found[resource] = None
    return tuple(found)


def warnings(pod: NewPod, policy: Policy) -> list[str]:
    """Everything that the author of a pod should know about its requests."""
    found = [*annotations.faults(pod.annotations, policy.topology_levels)]
    found += annotations.misplaced(pod.metadata.labels or {})
    found += _pin(pod, policy)
    if not _concerns_intel(pod):  # most pods; and a hostile one may have a million containers
        return found
    asking = [
        gpu_requests.GpuRequest(each.name, gpu_requests.intel(asked_of(each)), kind)
        for each, kind in _all(pod)
    ]
    return found + [fault.text for fault in gpu_requests.faults(asking, pod.annotations)]


def of_others(pod: NewPod) -> list[str]:
    """What the author of a pod that topogate places requested from other schedulers, and its effect."""
    return list(kueue.warnings(pod)) or list(foreign_requests(pod.annotations))


def _concerns_intel(pod: NewPod) -> bool:
    """Whether the rules on Intel GPUs concern a pod."""
    if any(key.startswith("gas-") for key in pod.annotations):
        return True
    return any(name.startswith(keys.INTEL_PREFIX) for each in pod.all_containers for name in asked_of(each))


def _all(pod: NewPod) -> Iterator[tuple[NewContainer, ContainerKind]]:
    """Each container and its kind in the pod, in the order in which they run."""
    for each in pod.spec.init_containers or ():
        yield each, ContainerKind.SIDECAR if each.restart_policy == "Always" else ContainerKind.INIT
    yield from ((each, ContainerKind.CONTAINER) for each in pod.spec.containers or ())


def shown(found: list[str]) -> tuple[str, ...]:
    """Warnings as the API server passes them on: one line each, not too long, not too many."""
    if not found:
        return ()
    if len(found) > MOST_WARNINGS:
        rest = len(found) - MOST_WARNINGS + 1
        found = [*found[: MOST_WARNINGS - 1], f"topogate: and {rest} more warnings"]
    lines = (one_line(line) for line in found)
    return tuple(x if len(x) <= LONGEST_WARNING else x[: LONGEST_WARNING - 3] + "..." for x in lines)


def _pin(pod: NewPod, policy: Policy) -> Iterator[str]:
    """A GPU pod that only one node may run, by the field that a release also writes: it may be a copy.

    The pod does not show who set the field. A copy of a placed pod (kubectl debug --copy-to, a restored
    backup) waits for that node, which the first one fills.
    """
    pins = {tuple(_names(term)) for term in pod.required_terms}
    if len(pins) != 1 or len(names := pins.pop()) != 1:
        return
    if gpu_resources(pod, policy) or pod.spec.resource_claims:
        node = quote(names[0], _NODE_SHOWN)
        yield f"spec.affinity.nodeAffinity matchFields: only {node} fits; remove it from a copied pod"


def _names(term: NewTerm) -> Iterator[str]:
    """The nodes that a term names by the field metadata.name."""
    for each in term.match_fields or ():
        if (each.key, each.operator) == ("metadata.name", "In"):
            yield from each.values or ()
