"""CompositePodGroups of scheduling.k8s.io: groups of PodGroups, or of such groups, bound as one. Pure.

1.37 serves them as v1alpha3, with the feature gate CompositePodGroup (alpha, off by default). Each group
names its parent. kube-scheduler binds no pod of a tree before all of it is ready: minGroupCount groups of
each CompositePodGroup, and minCount pods of each PodGroup (plugin GangScheduling).
"""

from collections.abc import Mapping
from typing import Final

from webhook.kube.struct import Struct
from webhook.workloads.builtin import Owner
from webhook.workloads.native_gangs import GROUP, NativePodGroup, SchedulingConstraints, topology_keys
from webhook.workloads.pod_sets import OwnedPods

COMPOSITE_GROUPS: Final = f"compositepodgroups.{GROUP}"
VERSIONS: Final = ("v1alpha3",)

DEEPEST: Final = 4
"""Levels of groups in a tree, including the PodGroups (WorkloadMaxTreeDepth)."""

Roots = Mapping[str, str]
"""PodGroup as "namespace/name" -> name of the CompositePodGroup at the top of its tree."""

NO_ROOTS: Final[Roots] = {}


class CompositeGangPolicy(Struct, frozen=True):
    """All or nothing: at least so many groups are bound, or none."""

    min_group_count: int = 0


class CompositePolicy(Struct, frozen=True):
    """gang is None where groups are bound one by one (basic)."""

    gang: CompositeGangPolicy | None = None


class CompositeGroupSpec(Struct, frozen=True):
    """How the groups of a CompositePodGroup are bound, and its own parent.

    priority: the value of its PriorityClass, set by the API server. preemption_policy: also from the
    PriorityClass, if the feature gate PodGroupPreemptionPolicy is on.
    """

    scheduling_policy: CompositePolicy = CompositePolicy()
    scheduling_constraints: SchedulingConstraints | None = None
    parent_composite_pod_group_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None


class CompositeGroup(Owner, frozen=True):
    """scheduling.k8s.io CompositePodGroup."""

    spec: CompositeGroupSpec = CompositeGroupSpec()

    @property
    def min_group_count(self) -> int:
        """The number of its groups that must be ready, as kube-scheduler counts them."""
        gang = self.spec.scheduling_policy.gang
        return max(1, gang.min_group_count) if gang is not None else 1

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """Node labels: the nodes of all its pods must have the same value of each."""
        return topology_keys(self.spec.scheduling_constraints)

    @property
    def parent(self) -> str:
        """The name of its parent, "" at the top."""
        return self.spec.parent_composite_pod_group_name or ""


def composite_group_pods(owner: CompositeGroup) -> OwnedPods:
    """Those of its groups, however many join."""
    return OwnedPods(None)


Composites = Mapping[str, CompositeGroup]
"""By "namespace/name"."""


def composites_of(group: NativePodGroup, namespace: str, composites: Composites) -> tuple[str, ...]:
    """The names of the existing CompositePodGroups above a PodGroup, the nearest first."""
    found: list[str] = []
    name = group.parent
    while name not in found and len(found) < DEEPEST - 1 and f"{namespace}/{name}" in composites:
        found.append(name)
        name = composites[f"{namespace}/{name}"].parent
    return tuple(found)


def roots_of(groups: Mapping[str, NativePodGroup], composites: Composites) -> Roots:
    """The roots of these PodGroups."""
    found = {}
    for key, group in groups.items() if composites else ():
        if above := composites_of(group, key.partition("/")[0], composites):
            found[key] = above[-1]
    return found
