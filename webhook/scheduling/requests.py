"""What a pod asks for, counted as kube-scheduler counts it.

Source of the rule: k8s.io/component-helpers/resource `PodRequests`. Sidecars (init containers that restart
always) run beside the containers, so they add to the sum; an ordinary init container runs alone, but beside
the sidecars started before it, so the peak is what counts. Pod-level requests replace cpu, memory and huge
pages; overhead comes on top. Of a container or a pod that is resized in place, the most counts of what it
requests, what it has and what the kubelet has set aside; where the resize is infeasible, of the latter two.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from labeler.contract.quantities import CPU, PODS, in_units

Amounts = Mapping[str, int]
"""Resource name -> thousandths of its unit."""


@dataclass(frozen=True, slots=True)
class Has:
    """What a container or a pod that is resized has on its node, in thousandths.

    actual: what it has now. allocated: what the kubelet has set aside. infeasible: the kubelet refuses what
    the spec requests.
    """

    actual: Amounts
    allocated: Amounts = field(default_factory=dict)
    infeasible: bool = False

    def effective(self, requests: Amounts) -> Amounts:
        """What counts where the spec requests so much."""
        found = {} if self.infeasible else dict(requests)
        _raise_to(found, self.actual)
        _raise_to(found, self.allocated)
        return found


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """A container's, or a pod's own, requests and limits, in thousandths.

    sidecar: an init container that goes on. has: what it has on its node, None for what it requests.
    """

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False
    has: Has | None = None

    @property
    def requested(self) -> Amounts:
        """Requests, and limits where no request is given, as the API server defaults them."""
        return {**self.limits, **self.requests}

    @property
    def effective(self) -> Amounts:
        """What counts: as requested, or, while it is resized, what it has."""
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
    """The pod's own requests win; its limits stand in only where no container asks for the resource.

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
