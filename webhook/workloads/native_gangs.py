"""Kubernetes' own gangs: the PodGroups of scheduling.k8s.io, and which pods are of one. Pure.

kube-scheduler binds none of a group's pods before minCount of them can be bound (plugin GangScheduling). What
the template of a Workload says is copied into each of its PodGroups, so that Workloads are not read. The
fields read here are the same in v1alpha2 (Kubernetes 1.36), v1alpha3 and v1beta1 (1.37).
"""

from typing import Final

from webhook.kube.objects import PodSpec
from webhook.kube.struct import Struct
from webhook.workloads.builtin import Owner

GROUP: Final = "scheduling.k8s.io"
POD_GROUPS: Final = f"podgroups.{GROUP}"
VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""Of PodGroups; a cluster serves at most those of its release, and none while the feature is off."""
BINDS_ANY_PRIORITY: Final = "v1alpha2"
"""That of Kubernetes 1.36, whose kube-scheduler binds pods whose priority is not their PodGroup's."""


class GangPolicy(Struct, frozen=True):
    """All or nothing, from so many pods on."""

    min_count: int = 0


class SchedulingPolicy(Struct, frozen=True):
    """gang is not there where pods are bound one by one (basic)."""

    gang: GangPolicy | None = None


class TopologyConstraint(Struct, frozen=True):
    """All pods on nodes with one value of this label."""

    key: str = ""


class SchedulingConstraints(Struct, frozen=True):
    """At most one as of 1.37."""

    topology: tuple[TopologyConstraint, ...] = ()


class NativeGroupSpec(Struct, frozen=True):
    """How a PodGroup's pods are bound, and the CompositePodGroup that it is of (from 1.37 on).

    priority: that of its PriorityClass, filled in by the API server. preemption_policy: likewise, where the
    feature gate PodGroupPreemptionPolicy is on.
    """

    scheduling_policy: SchedulingPolicy = SchedulingPolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    parent_composite_pod_group_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None


class NativePodGroup(Owner, frozen=True):
    """scheduling.k8s.io PodGroup."""

    spec: NativeGroupSpec = NativeGroupSpec()

    @property
    def min_count(self) -> int | None:
        """So many pods are bound together, None where each is bound by itself."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None and gang.min_count > 0 else None

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """The node labels of each of which all pods are to be on nodes with one value."""
        return topology_keys(self.spec.scheduling_constraints)

    @property
    def parent(self) -> str:
        """The CompositePodGroup that it is of, "" if it is of none."""
        return self.spec.parent_composite_pod_group_name or ""


def topology_keys(constraints: SchedulingConstraints | None) -> tuple[str, ...]:
    """The labels that constraints name."""
    return tuple(each.key for each in constraints.topology if each.key) if constraints else ()


def native_group_size(owner: NativePodGroup) -> int | None:
    """spec.schedulingPolicy.gang.minCount; pods beyond it join the gang when they come."""
    return owner.min_count


def group_name(spec: PodSpec) -> str:
    """The PodGroup that a pod is of, "" if it is of none, or of a kind of group that nobody knew in 1.37."""
    name = (spec.scheduling_group or {}).get("podGroupName")
    return name if isinstance(name, str) else ""
