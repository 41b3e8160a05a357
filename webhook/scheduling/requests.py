"""The requests of a pod, counted as in kube-scheduler.

Source of the rule: k8s.io/component-helpers/resource `PodRequests`. Sidecars (init containers that restart
always) run beside the containers, so they add to the sum. An ordinary init container runs only with the
sidecars started before it, so the peak counts. Pod-level requests replace cpu, memory and huge pages;
overhead is added. For a container or pod that is resized in place, the largest of its requested, actual and
allocated resources counts. If the resize is infeasible, the largest of the actual and allocated resources
counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from labeler.contract.quantities import CPU, PODS, in_units

Amounts = Mapping[str, int]
"""Resource name -> thousandths of its unit."""


@dataclass(frozen=True, slots=True)
class Has:
    """The resources of a resized container or pod on its node, in thousandths.

    actual: its current resources. allocated: those that the kubelet has allocated. infeasible: whether the
    kubelet refuses the spec's requests.
    """

    actual: Amounts
    allocated: Amounts = field(default_factory=dict)
    infeasible: bool = False

    def effective(self, requests: Amounts) -> Amounts:
        """The amounts that count, given the spec's requests."""
        found = {} if self.infeasible else dict(requests)
        _raise_to(found, self.actual)
        _raise_to(found, self.allocated)
        return found


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """A container's, or a pod's own, requests and limits, in thousandths.

    sidecar: an init container that restarts always. has: its resources on the node, None if as requested.
    """

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False
    has: Has | None = None

    @property
    def requested(self) -> Amounts:
        """Requests, and limits if there is no request, as the API server defaults them."""
        return {**self.limits, **self.requests}

    @property
    def effective(self) -> Amounts:
        """The amounts that count: the requests or, during a resize, those on the node."""
        return self.requested if self.has is None else self.has.effective(self.requested)


def pod_requests(
    containers: Iterable[ContainerAmounts],
    init_containers: Iterable[ContainerAmounts] = (),
    overhead: Amounts | None = None,
    pod_level: ContainerAmounts | None = None,
) -> dict[str, int]:
    """The pod's resource vector in units (see quantities.in_units), with `pods: 1`."""
    total: dict[str, int] = {}
    for container in containers:
        _add(total, container.effective)
    peak: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in init_containers:
        if container.sidecar:
            _add(total, container.effective)
            _add(sidecars, container.effective)
            _raise_to(peak, sidecars)
        else:
            alone = dict(sidecars)
            _add(alone, container.requested)
            _raise_to(peak, alone)
    _raise_to(total, peak)
    if pod_level is not None:
        _apply_pod_level(total, pod_level)
    _add(total, overhead or {})
    return {**in_units(total), PODS: 1}


def _apply_pod_level(total: dict[str, int], pod_level: ContainerAmounts) -> None:
    """Pod-level requests take precedence; pod-level limits count only if no container requests the resource.

    Source: k8s.io/kubernetes/pkg/apis/core/v1 defaults `defaultPodRequests`.
    """
    for resource, amount in pod_level.limits.items():
        if supports_pod_level(resource) and resource not in total:
            total[resource] = amount
    counts = pod_level.requests if pod_level.has is None else pod_level.has.effective(pod_level.requests)
    for resource in pod_level.requests:
        if supports_pod_level(resource):
            total[resource] = counts.get(resource, 0)


def supports_pod_level(resource: str) -> bool:
    """Whether spec.resources may name the resource."""
    return resource in (CPU, "memory") or resource.startswith("hugepages-")


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        total[resource] = max(total.get(resource, 0), amount)
