"""Kubernetes' own gangs: the PodGroups of scheduling.k8s.io, and the pods of each. Pure.

kube-scheduler binds no pod of a group before minCount of them can be bound (plugin GangScheduling). The
template of a Workload is copied into each of its PodGroups, so topogate does not read Workloads. The fields
read here are the same in v1alpha2 (Kubernetes 1.36), v1alpha3 and v1beta1 (1.37).
"""

from collections.abc import Mapping
from typing import Final

from webhook.kube.objects import Pod, PodSpec
from webhook.kube.struct import Struct
from webhook.workloads.builtin import Owner
from webhook.workloads.pod_sets import OwnedPods

GROUP: Final = "scheduling.k8s.io"
POD_GROUPS: Final = f"podgroups.{GROUP}"
VERSIONS: Final = ("v1beta1", "v1alpha3", "v1alpha2")
"""Versions of PodGroups. A cluster serves at most those of its release, and none while the feature is off."""
BINDS_ANY_PRIORITY: Final = "v1alpha2"
"""The version of Kubernetes 1.36, whose kube-scheduler ignores that a pod's priority differs from its
group's."""


class GangPolicy(Struct, frozen=True):
    """All or nothing: at least so many pods are bound, or none."""

    min_count: int = 0


class SchedulingPolicy(Struct, frozen=True):
    """gang is None where pods are bound one by one (basic)."""

    gang: GangPolicy | None = None


class TopologyConstraint(Struct, frozen=True):
    """The nodes of all pods have the same value of this label."""

    key: str = ""


class SchedulingConstraints(Struct, frozen=True):
    """The topology constraints; at most one as of 1.37."""

    topology: tuple[TopologyConstraint, ...] = ()


class NativeGroupSpec(Struct, frozen=True):
    """How a PodGroup's pods are bound, and its CompositePodGroup (from 1.37 on).

    priority: the value of its PriorityClass, set by the API server. preemption_policy: also from the
    PriorityClass, if the feature gate PodGroupPreemptionPolicy is on.
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
        """The number of pods that are bound together, None if each is bound by itself."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None and gang.min_count > 0 else None

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """Node labels: the nodes of all its pods must have the same value of each."""
        return topology_keys(self.spec.scheduling_constraints)

    @property
    def parent(self) -> str:
        """The name of its CompositePodGroup, "" if it has none."""
        return self.spec.parent_composite_pod_group_name or ""


def topology_keys(constraints: SchedulingConstraints | None) -> tuple[str, ...]:
    """The labels that constraints name."""
    return tuple(each.key for each in constraints.topology if each.key) if constraints else ()


def native_group_pods(owner: NativePodGroup) -> OwnedPods:
    """spec.schedulingPolicy.gang.minCount of them; later pods join the gang when they are created."""
    return OwnedPods(owner.min_count, minimum=owner.min_count)


def group_name(spec: PodSpec) -> str:
    """The PodGroup of a pod, "" if it has none, or a kind of group that is newer than 1.37."""
    name = (spec.scheduling_group or {}).get("podGroupName")
    return name if isinstance(name, str) else ""


def is_in_tree(pod: Pod, groups: Mapping[str, NativePodGroup]) -> bool:
    """Whether the PodGroup of a pod is in a CompositePodGroup. groups: by "namespace/name"."""
    group = groups.get(f"{pod.metadata.namespace}/{group_name(pod.spec)}")
    return group is not None and bool(group.parent)
