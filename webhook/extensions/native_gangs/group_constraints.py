"""Topology constraints of PodGroups and their CompositePodGroups, as levels and node labels. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from typing import Final

from labeler.contract.keys import HOSTNAME_LABEL
from webhook.extensions.native_gangs.own_pod_groups import GROUPS
from webhook.grouping import grouped
from webhook.placement import PlacementError, Topology
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules
from webhook.sweeper.extension import ExcludeInput, WatchedOwners
from webhook.sweeper.observe.gang_requests import GangPart
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pods import PodTrait
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
from webhook.workloads.pod_group_names import native_group_of

# --- trees of groups ----------------------------------------------------------------------------------

COMPOSITES: Final = WatchedOwners[CompositeGroup](COMPOSITE_GROUPS)


@dataclass(frozen=True)
class GroupConstraint:
    """All pods of a group must be in one domain of a label. group: its displayed name, "PodGroup a"."""

    group: str
    key: str


@dataclass(frozen=True)
class Trees:
    """Groups by "namespace/name". composites: None if they are not served, or not read."""

    groups: Mapping[str, NativePodGroup]
    composites: Composites | None

    @classmethod
    def of(cls, view: View) -> "Trees | None":
        """The trees of a cluster, None if it serves no PodGroups."""
        groups = GROUPS.of(view)
        return None if groups is None else cls(groups, COMPOSITES.of(view))

    def constraints(self, namespace: str, name: str) -> Sequence[GroupConstraint]:
        """The constraints on the pods of a PodGroup, from the top of its tree down."""
        group = self.groups[f"{namespace}/{name}"]
        found = [
            GroupConstraint(f"CompositePodGroup {printable(each)}", key)
            for each in reversed(self._above(group, namespace))
            for key in (self.composites or {})[f"{namespace}/{each}"].topology_keys
        ]
        return found + [GroupConstraint(f"PodGroup {printable(name)}", key) for key in group.topology_keys]

    def root(self, namespace: str, name: str) -> str:
        """The existing CompositePodGroup at the top of a PodGroup's tree, "" if there is none."""
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
        """Why kube-scheduler does not schedule these PodGroups, "" if it does.

        pods_of: the number of existing pods of a PodGroup in the namespace.
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
                f"its CompositePodGroup {printable(highest.parent)} does not exist, or is above "
                f"{DEEPEST - 1} others: kube-scheduler binds no pod of it"
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
        """How many groups of a CompositePodGroup are ready for kube-scheduler."""
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
        """CompositePodGroup as "namespace/name" -> for each child, whether it is a PodGroup, and its name."""
        return grouped(
            (f"{namespace}/{each.parent}", (is_pod_group, name))
            for is_pod_group, those in ((True, self.groups), (False, self.composites or {}))
            for (namespace, _, name), each in ((key.partition("/"), each) for key, each in those.items())
            if each.parent
        )


# --- topology keys as levels --------------------------------------------------------------------------
# Pods require the levels of their groups, unless they require finer ones themselves.

MOST_PARTS: Final = 128
"""The most groups of one gang that each need a domain."""


def leveled(
    gang: PodGang, constraints: Mapping[str, Sequence[GroupConstraint]], topology: Topology
) -> tuple[PodGang, list[str]]:
    """The gang with each group within one domain of its key, and the problems with that.

    constraints: from the top down, by name of the PodGroups of its gated pods. A key that is not a level is a
    fault of the gang: topogate does not know its domains, and kube-scheduler rejects a plan that crosses
    them.
    """
    try:
        within, constraints = _outermost(gang, constraints, topology)
        levels = _levels(constraints, topology)
    except PlacementError as error:
        return replace(gang, fault=str(error)), []
    if not levels:
        return gang, []
    problems: list[str] = []
    all_uids = frozenset(pod.metadata.uid for pod in (*gang.workers, *gang.later))
    parts = gang.parts or (GangPart(all_uids, gang.required_level, gang.preferred_levels, gang.slices),)
    group_of = {pod.metadata.uid: native_group_of(pod) for pod in gang.pods}
    found = [
        replace(part, uids=uids, required_level=_finer(part.required_level, level, topology, problems))
        for part in parts
        for uids, level in _split(part, group_of, levels)
    ]
    if len(found) == 1 and within is None:
        return replace(gang, required_level=found[0].required_level), problems
    found.sort(key=lambda part: (-len(part.uids), part.name))
    parted = replace(
        gang, parts=tuple(found), within=within, required_level=None, preferred_levels=(), slices=()
    )
    return replace(parted, fault=_why_not(parted)), problems


def _outermost(
    gang: PodGang, constraints: Mapping[str, Sequence[GroupConstraint]], topology: Topology
) -> tuple[str | None, Mapping[str, Sequence[GroupConstraint]]]:
    """The level whose one domain contains the whole gang, and the finer constraints of groups within it.

    None and all constraints, if no group requires a finer level than a group with all pods. Raises
    PlacementError for a key that is not a level.
    """
    top = _top_of(gang, constraints)
    if not top:
        return None, constraints
    level = max(_level_of(each, topology) for each in chain(*constraints.values()) if each.group == top)
    inner = {
        name: [each for each in those if each.group != top and _level_of(each, topology) > level]
        for name, those in constraints.items()
    }
    if not any(inner.values()):
        return None, constraints
    return (*topology.level_names, "node")[level], inner


def _top_of(gang: PodGang, constraints: Mapping[str, Sequence[GroupConstraint]]) -> str:
    """The first group that constrains all pods of a gang, "" if none does."""
    tops = {those[0].group if those else "" for those in constraints.values()}
    are_all_in_groups = all(map(native_group_of, (*gang.workers, *gang.later)))
    return tops.pop() if len(tops) == 1 and are_all_in_groups else ""


def _levels(
    constraints: Mapping[str, Sequence[GroupConstraint]], topology: Topology
) -> Mapping[str, tuple[str, int]]:
    """PodGroup with a key -> the group whose pods share a domain, and the level of the domain.

    Raises PlacementError for a key that is not a level, and for a finer level below a larger group's level.
    """
    found: dict[str, tuple[str, int]] = {}
    for name, those in constraints.items():
        for each in those:
            group, level = found.setdefault(name, (each.group, 0))
            own = _level_of(each, topology)
            if own > level and group != each.group:
                raise PlacementError(_nested(group, level, each.group, own, topology))
            found[name] = (group, max(level, own))
    return found


def _level_of(constraint: GroupConstraint, topology: Topology) -> int:
    try:
        return _level(constraint.key, topology)
    except PlacementError as error:
        raise PlacementError(_no_level(constraint, error)) from None


def _level(key: str, topology: Topology) -> int:
    """The level of a label. Raises PlacementError for anything else, even the name of a level.

    kube-scheduler would take a level's name for a label, which no node has.
    """
    if key == HOSTNAME_LABEL or any(key in family for family in topology.families):
        return topology.level(key)
    raise PlacementError(
        f"no level has this label; known levels: {', '.join((*topology.level_names, 'node'))}"
    )


def _why_not(gang: PodGang) -> str:
    """Why a gang with several pod sets cannot be placed, "" if it can."""
    if len(gang.parts) > MOST_PARTS:
        return (
            f"its pods are in {len(gang.parts)} pod sets by the levels of their PodGroups; at most "
            f"{MOST_PARTS}"
        )
    if gang.spread is not None:
        return "topogate.io/spread-topology cannot be combined with PodGroups of several levels"
    return ""


def _split(
    part: GangPart, group_of: Mapping[str, str], levels: Mapping[str, tuple[str, int]]
) -> list[tuple[frozenset[str], int | None]]:
    """The pods of each group that share a domain, with its level; and all others together."""
    uids: dict[str, set[str]] = {}
    level_of: dict[str, int | None] = {}
    for uid in part.uids:
        group, level = levels.get(group_of.get(uid, ""), ("", None))
        uids.setdefault(group, set()).add(uid)
        level_of[group] = level
    return [(frozenset(those), level_of[group]) for group, those in sorted(uids.items())]


def _finer(own: str | None, level: int | None, topology: Topology, problems: list[str]) -> str | None:
    """The finer of the level that pods require and that of their group."""
    if level is None:
        return own
    name = (*topology.level_names, "node")[level]
    if own is None:
        return name
    try:
        if topology.level(own) >= level:
            return own
    except PlacementError:
        return own  # another check warns of it
    sentence = (
        f"its PodGroup requires one {name}, which is finer than the {printable(own)} that its pods require"
    )
    if sentence not in problems:
        problems.append(sentence)
    return name


def _no_level(constraint: GroupConstraint, error: PlacementError) -> str:
    return (
        f"{constraint.group} requires one domain of the label {printable(constraint.key)}, which is not a "
        f"level of the topology ({error}); name it in the setting levels, or leave its pods to "
        'kube-scheduler with topogate.io/inject: "false"'
    )


def _nested(group: str, level: int, within: str, finer: int, topology: Topology) -> str:
    names = (*topology.level_names, "node")
    return (
        f"{group} requires one {names[level]}, and {within} within it one {names[finer]}: topogate places a "
        "finer level only within that of a group that has all pods of the gang; remove one of the two "
        'topology keys, or leave the pods to kube-scheduler with topogate.io/inject: "false"'
    )


def label_problem(key: str, view: View, topology: Topology) -> str:
    """A problem if no node has a label, or if a value of it repeats under several parents; else "".

    A level may have another label on the existing nodes. kube-scheduler uses only the label's value as the
    domain: for it, racks r0 of all blocks are one rack.
    """
    try:
        level = topology.level(key)
    except PlacementError:
        return ""
    labels = view.labels_of(view.nodes)
    domains = view.domains_of(view.nodes).by_value(key)
    if view.nodes and not domains:
        return (
            f"no node has the label {printable(key)} of its PodGroup: kube-scheduler binds none of its pods"
        )
    for value, nodes in sorted(domains.items()):
        parents = _parents(nodes, labels, level, topology)
        if len(parents) > 1:
            return (
                f"{printable(key)}={printable(value)} is the label of several domains, under "
                f"{len(parents)} parents: kube-scheduler by itself takes them for one, topogate does not"
            )
    return ""


def _parents(
    nodes: Sequence[str], labels: Mapping[str, Mapping[str, str]], level: int, topology: Topology
) -> set[tuple[str, ...]]:
    paths = (topology.path(labels[name]) for name in nodes)
    return {path[: level + 1] for path in paths if path is not None}


# --- nodes without a label ----------------------------------------------------------------------------
# Pods of a PodGroup do not use nodes without the label of its topology key. A level may have another label on
# some nodes, for example with nodes of two providers in one cluster. For topogate both are domains of the
# level, but kube-scheduler binds a group only on nodes with its own key.


def excluded_by_label(given: ExcludeInput) -> NodeRules:
    """For each gang, the nodes that lack a label of its PodGroups or their CompositePodGroups.

    They are excluded for all pods of the gang, even for those of a PodGroup without a key.
    """
    view, trees = given.view, Trees.of(given.view)
    if trees is None or not trees.groups or not view.index.of[PodTrait.OF_A_POD_GROUP]:
        return NodeRules()
    without = cache(lambda key: _without(key, view))
    found: list[NodeRule] = []
    for gang in given.gangs:
        named = {native_group_of(pod) for pod in gang.gated}
        rules = [without(key) for key in _keys(gang.key.namespace, named, trees)]
        found += [replace(rule, applies_to=gang.key) for rule in rules if rule.nodes]
    return NodeRules(tuple(found))


def _keys(namespace: str, named: set[str], trees: Trees) -> list[str]:
    there = (name for name in named if f"{namespace}/{name}" in trees.groups)
    return sorted({each.key for name in there for each in trees.constraints(namespace, name)})


def _without(key: str, view: View) -> NodeRule:
    """The rule for nodes without a label; of none if no node has it, since label_problem reports that."""
    lacking = frozenset(name for name, node in view.nodes.items() if key not in node.metadata.labels)
    nodes = lacking if len(lacking) < len(view.nodes) else frozenset[str]()
    return NodeRule(nodes, f"it has no label {printable(key)}, which its PodGroup requires", is_hard=True)
