"""CompositePodGroups of scheduling.k8s.io: groups of PodGroups, or of such groups, bound as one. Pure.

1.37 serves them as v1alpha3, with the feature gate CompositePodGroup (alpha, off by default). Each group
names the one that it is of. kube-scheduler binds no pod of a tree before its groups are ready from the top
down: minGroupCount of the groups of each, and minCount pods of each PodGroup (plugin GangScheduling).
"""

from collections.abc import Mapping
from typing import Final

from webhook.kube.struct import Struct
from webhook.workloads.builtin import Owner
from webhook.workloads.native_gangs import GROUP, NativePodGroup, SchedulingConstraints, topology_keys

COMPOSITE_GROUPS: Final = f"compositepodgroups.{GROUP}"
VERSIONS: Final = ("v1alpha3",)

DEEPEST: Final = 4
"""Levels of groups in a tree, PodGroups among them (WorkloadMaxTreeDepth)."""

Roots = Mapping[str, str]
"""By "namespace/name" of a PodGroup, the name of the CompositePodGroup at the top of its tree."""

NO_ROOTS: Final[Roots] = {}


class CompositeGangPolicy(Struct, frozen=True):
    """All or nothing, from so many groups on."""

    min_group_count: int = 0


class CompositePolicy(Struct, frozen=True):
    """gang is not there where groups are bound one by one (basic)."""

    gang: CompositeGangPolicy | None = None


class CompositeGroupSpec(Struct, frozen=True):
    """How the groups of a CompositePodGroup are bound, and which one it is of itself.

    priority: that of its PriorityClass, filled in by the API server. preemption_policy: likewise, where the
    feature gate PodGroupPreemptionPolicy is on.
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
        """So many of its groups are to be ready, as kube-scheduler counts them."""
        gang = self.spec.scheduling_policy.gang
        return max(1, gang.min_group_count) if gang is not None else 1

    @property
    def topology_keys(self) -> tuple[str, ...]:
        """The node labels of each of which all pods of its groups are to be on nodes with one value."""
        return topology_keys(self.spec.scheduling_constraints)

    @property
    def parent(self) -> str:
        """The one that it is of, "" at the top."""
        return self.spec.parent_composite_pod_group_name or ""


Composites = Mapping[str, CompositeGroup]
"""By "namespace/name"."""


def composites_of(group: NativePodGroup, namespace: str, composites: Composites) -> tuple[str, ...]:
    """The names of the CompositePodGroups that a PodGroup is of, the nearest first; only those there are."""
    found: list[str] = []
    name = group.parent
    while name not in found and len(found) < DEEPEST - 1 and f"{namespace}/{name}" in composites:
        found.append(name)
        name = composites[f"{namespace}/{name}"].parent
    return tuple(found)


def roots_of(groups: Mapping[str, NativePodGroup], composites: Composites) -> Roots:
    """The roots of these PodGroups, by "namespace/name"."""
    found = {}
    for key, group in groups.items() if composites else ():
        if above := composites_of(group, key.partition("/")[0], composites):
            found[key] = above[-1]
    return found
