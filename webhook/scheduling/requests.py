"""What a pod asks for, counted as kube-scheduler counts it.

Source of the rule: k8s.io/component-helpers/resource `PodRequests`. Sidecars (init containers that restart
always) run beside the containers, so they add to the sum; an ordinary init container runs alone, but beside
the sidecars started before it, so the peak is what counts. Pod-level requests replace cpu, memory and huge
pages; overhead comes on top.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from labeler.contract.quantities import CPU, PODS, in_units

Amounts = Mapping[str, int]
"""Resource name -> thousandths of its unit."""


@dataclass(frozen=True, slots=True)
class ContainerAmounts:
    """One container's requests and limits, in thousandths; sidecar: an init container that goes on."""

    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False

    @property
    def effective(self) -> Amounts:
        """Requests, and limits where no request is given, as the API server defaults them."""
        return {**self.limits, **self.requests}


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
            _add(alone, container.effective)
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
    for resource, amount in pod_level.requests.items():
        if supports_pod_level(resource):
            total[resource] = amount


def supports_pod_level(resource: str) -> bool:
    """Whether spec.resources may name the resource."""
    return resource in (CPU, "memory") or resource.startswith("hugepages-")


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        total[resource] = max(total.get(resource, 0), amount)
