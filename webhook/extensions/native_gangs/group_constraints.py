"""Topology constraints of PodGroups, as levels and node labels. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final

from labeler.contract.keys import HOSTNAME_LABEL
from webhook.extensions.native_gangs.own_pod_groups import GROUPS
from webhook.placement import PlacementError, Topology
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules
from webhook.sweeper.extension import HookInput
from webhook.sweeper.observe.gang_requests import GangPart
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View
from webhook.text import printable
from webhook.workloads.native_gangs import NativePodGroup
from webhook.workloads.pod_group_names import native_group_of

# --- topology keys as levels --------------------------------------------------------------------------
# Pods require the levels of their groups, unless they require finer ones themselves.

MOST_PARTS: Final = 128
"""The most groups of one gang that each need a domain."""


def leveled(
    gang: PodGang, groups: Mapping[str, NativePodGroup], topology: Topology
) -> tuple[PodGang, list[str]]:
    """The gang with each group within one domain of its key, and the problems with that.

    groups: by name, those of its gated pods. A key that is not a level is a fault of the gang: topogate does
    not know its domains, and kube-scheduler rejects a plan that crosses them.
    """
    try:
        levels = _levels(groups, topology)
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
    if len(found) == 1:
        return replace(gang, required_level=found[0].required_level), problems
    found.sort(key=lambda part: (-len(part.uids), part.name))
    parted = replace(gang, parts=tuple(found), required_level=None, preferred_levels=(), slices=())
    return replace(parted, fault=_why_not(parted)), problems


def _levels(groups: Mapping[str, NativePodGroup], topology: Topology) -> Mapping[str, int]:
    """The finest level of each PodGroup with topology keys. Raises PlacementError."""
    return {
        name: max(_level_of(name, key, topology) for key in group.topology_keys)
        for name, group in groups.items()
        if group.topology_keys
    }


def _level_of(group: str, key: str, topology: Topology) -> int:
    """The level of a PodGroup's topology key. Raises PlacementError for a key that is not a level."""
    try:
        return _level(key, topology)
    except PlacementError as error:
        raise PlacementError(
            f"PodGroup {printable(group)} requires one domain of the label {printable(key)}, which is not a "
            f"level of the topology ({error}); name it in topology.levels, or leave its pods to "
            'kube-scheduler with topogate.io/inject: "false"'
        ) from None


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
    part: GangPart, group_of: Mapping[str, str], levels: Mapping[str, int]
) -> list[tuple[frozenset[str], int | None]]:
    """The pods of each group that share a domain, with its level; and all others together."""
    uids: dict[str, set[str]] = {}
    level_of: dict[str, int | None] = {}
    for uid in part.uids:
        level = levels.get(group_of.get(uid, ""))
        group = "" if level is None else group_of[uid]
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


def excluded_by_label(given: HookInput) -> NodeRules:
    """For each gang, the nodes that lack a label of its PodGroups.

    They are excluded for all pods of the gang, even for those of a PodGroup without a key.
    """
    view, groups = given.view, GROUPS.of(given.view)
    if not groups or not view.index.of[PodTrait.OF_A_POD_GROUP]:
        return NodeRules()
    without = cache(lambda key: _without(key, view))
    found: list[NodeRule] = []
    for gang in given.gangs:
        named = {native_group_of(pod) for pod in gang.gated}
        rules = [without(key) for key in _keys(gang.key.namespace, named, groups)]
        found += [replace(rule, applies_to=gang.key) for rule in rules if rule.nodes]
    return NodeRules(tuple(found))


def _keys(namespace: str, named: set[str], groups: Mapping[str, NativePodGroup]) -> list[str]:
    there = [groups[key] for name in named if (key := f"{namespace}/{name}") in groups]
    return sorted({key for group in there for key in group.topology_keys})


def _without(key: str, view: View) -> NodeRule:
    """The rule for nodes without a label; of none if no node has it, since label_problem reports that."""
    lacking = frozenset(name for name, node in view.nodes.items() if key not in node.metadata.labels)
    nodes = lacking if len(lacking) < len(view.nodes) else frozenset[str]()
    return NodeRule(nodes, f"it has no label {printable(key)}, which its PodGroup requires", is_hard=True)
