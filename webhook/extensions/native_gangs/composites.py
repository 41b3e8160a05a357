"""The trees of PodGroups below CompositePodGroups: what they require, and when they are bound. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from webhook.extensions.native_gangs.own_pod_groups import GROUPS
from webhook.sweeper.extension import WatchedOwners
from webhook.sweeper.observe.view import View
from webhook.text import counted, printable
from webhook.workloads.composite_groups import (
    COMPOSITE_GROUPS,
    DEEPEST,
    CompositeGroup,
    Composites,
    composites_of,
)
from webhook.workloads.native_gangs import NativePodGroup

COMPOSITES: Final = WatchedOwners[CompositeGroup](COMPOSITE_GROUPS)


@dataclass(frozen=True)
class GroupConstraint:
    """All pods of a group are to be in one domain of a label. group: "PodGroup a", as sentences have it."""

    group: str
    key: str


@dataclass(frozen=True)
class Trees:
    """Groups by "namespace/name". composites: None where they are not served, or not read."""

    groups: Mapping[str, NativePodGroup]
    composites: Composites | None

    @classmethod
    def of(cls, view: View) -> "Trees | None":
        """Those of a cluster; None where it serves no PodGroups."""
        groups = GROUPS.of(view)
        return None if groups is None else cls(groups, COMPOSITES.of(view))

    def constraints(self, namespace: str, name: str) -> Sequence[GroupConstraint]:
        """What holds for the pods of a PodGroup, from the top of its tree down."""
        group = self.groups[f"{namespace}/{name}"]
        found = [
            GroupConstraint(f"CompositePodGroup {printable(each)}", key)
            for each in reversed(self._above(group, namespace))
            for key in (self.composites or {})[f"{namespace}/{each}"].topology_keys
        ]
        return found + [GroupConstraint(f"PodGroup {printable(name)}", key) for key in group.topology_keys]

    def root(self, namespace: str, name: str) -> str:
        """The CompositePodGroup at the top of a PodGroup's tree, "" if it is of none that is there."""
        above = self._above(self.groups[f"{namespace}/{name}"], namespace)
        return above[-1] if above else ""

    def pod_groups_below(self, namespace: str, composite: str, depth: int = DEEPEST) -> Iterator[str]:
        """The names of the PodGroups of a tree."""
        for is_pod_group, name in self._children.get(f"{namespace}/{composite}", ()) if depth else ():
            if is_pod_group:
                yield name
            else:
                yield from self.pod_groups_below(namespace, name, depth - 1)

    def fault(self, namespace: str, names: Sequence[str], pods_of: Callable[[str], int]) -> str:
        """Why kube-scheduler does not begin with these PodGroups, "" if it does.

        pods_of: how many pods of a PodGroup of the namespace are there.
        """
        if self.composites is None:
            return ""
        for name in names:
            if fault := self._fault(namespace, name, pods_of):
                return fault
        return ""

    def _fault(self, namespace: str, name: str, pods_of: Callable[[str], int]) -> str:
        top, composites = self.root(namespace, name), self.composites or {}
        highest = composites[f"{namespace}/{top}"] if top else self.groups[f"{namespace}/{name}"]
        if highest.parent:
            return (
                f"its CompositePodGroup {printable(highest.parent)} is not there, or above {DEEPEST - 1} "
                "others: kube-scheduler binds no pod of it"
            )
        if not top:
            return ""
        least = composites[f"{namespace}/{top}"].min_group_count
        ready = self._ready(namespace, top, pods_of, DEEPEST)
        if ready >= least:
            return ""
        groups = f"of CompositePodGroup {printable(top)}"
        return (
            f"{counted(ready, f'group {groups} has', f'groups {groups} have')} all pods, and "
            f"kube-scheduler binds none before there are {least} (minGroupCount)"
        )

    def _above(self, group: NativePodGroup, namespace: str) -> tuple[str, ...]:
        return composites_of(group, namespace, self.composites or {})

    def _ready(self, namespace: str, composite: str, pods_of: Callable[[str], int], depth: int) -> int:
        """How many groups of a CompositePodGroup have what kube-scheduler waits for."""
        children = self._children.get(f"{namespace}/{composite}", ()) if depth else ()
        return sum(self._is_ready(namespace, *child, pods_of, depth - 1) for child in children)

    def _is_ready(
        self, namespace: str, is_pod_group: bool, name: str, pods_of: Callable[[str], int], depth: int
    ) -> bool:
        key = f"{namespace}/{name}"
        if is_pod_group:
            return pods_of(name) >= (self.groups[key].min_count or 1)
        least = (self.composites or {})[key].min_group_count
        return self._ready(namespace, name, pods_of, depth) >= least

    @cached_property
    def _children(self) -> Mapping[str, Sequence[tuple[bool, str]]]:
        """By "namespace/name" of a CompositePodGroup: whether a child is a PodGroup, and its name."""
        found: dict[str, list[tuple[bool, str]]] = {}
        for is_pod_group, those in ((True, self.groups), (False, self.composites or {})):
            for key, each in those.items():
                namespace, _, name = key.partition("/")
                if each.parent:
                    found.setdefault(f"{namespace}/{each.parent}", []).append((is_pod_group, name))
        return found
