"""The topology keys of groups as levels that their pods require, unless they require finer ones. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from labeler.contract.keys import HOSTNAME_LABEL
from webhook.extensions.native_gangs.composites import GroupConstraint
from webhook.placement import PlacementError, Topology
from webhook.sweeper.observe.gang_requests import GangPart
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View
from webhook.text import printable
from webhook.workloads.pod_group_names import native_group_of

MOST_PARTS: Final = 128
"""Groups of one gang of which each has a domain of its own to find."""


def leveled(
    gang: PodGang, constraints: Mapping[str, Sequence[GroupConstraint]], topology: Topology
) -> tuple[PodGang, list[str]]:
    """The gang with each group within one domain of its key, and what people are told of that.

    constraints: from the top down, by the names of the PodGroups of its gated pods. A key that is no level
    makes a fault of the gang: kube-scheduler would not take a plan that crosses domains which topogate does
    not know.
    """
    try:
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
    if len(found) == 1:
        return replace(gang, required_level=found[0].required_level), problems
    found.sort(key=lambda part: (-len(part.uids), part.name))
    parted = replace(gang, parts=tuple(found), required_level=None, preferred_levels=(), slices=())
    return replace(parted, fault=_why_not(parted)), problems


def _levels(
    constraints: Mapping[str, Sequence[GroupConstraint]], topology: Topology
) -> Mapping[str, tuple[str, int]]:
    """By PodGroup with a key, the group whose pods share a domain, and the level of that.

    Raises PlacementError for a key that is no level, and for a finer level within that of a larger group.
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
    """The level of a label. Raises PlacementError for any other word, as a level's name.

    kube-scheduler takes the word for a label, which no node has.
    """
    if key == HOSTNAME_LABEL or any(key in family for family in topology.families):
        return topology.level(key)
    raise PlacementError(
        f"no level has this label; known levels: {', '.join((*topology.level_names, 'node'))}"
    )


def _why_not(gang: PodGang) -> str:
    """Why a gang in parts cannot be placed, "" if it can."""
    if len(gang.parts) > MOST_PARTS:
        return (
            f"its pods are in {len(gang.parts)} parts by the levels of their PodGroups; at most {MOST_PARTS}"
        )
    if gang.spread is not None:
        return "topogate.io/spread-topology does not go together with PodGroups of several levels"
    return ""


def _split(
    part: GangPart, group_of: Mapping[str, str], levels: Mapping[str, tuple[str, int]]
) -> list[tuple[frozenset[str], int | None]]:
    """The pods that share a domain of each group, with its level, and all others together."""
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
        return own  # which the gang is told anyway
    sentence = (
        f"its PodGroup requires one {name}, which is finer than the {printable(own)} that its pods require"
    )
    if sentence not in problems:
        problems.append(sentence)
    return name


def _no_level(constraint: GroupConstraint, error: PlacementError) -> str:
    return (
        f"{constraint.group} requires one domain of the label {printable(constraint.key)}, which is no level "
        f"of the topology ({error}); name it in the setting levels, or leave its pods to kube-scheduler with "
        'topogate.io/inject: "false"'
    )


def _nested(group: str, level: int, within: str, finer: int, topology: Topology) -> str:
    names = (*topology.level_names, "node")
    return (
        f"{group} requires one {names[level]}, and {within} within it one {names[finer]}: topogate does not "
        "place groups so; take one of the two topology keys away, or leave the pods to kube-scheduler with "
        'topogate.io/inject: "false"'
    )


def label_problem(key: str, view: View, topology: Topology) -> str:
    """A sentence where no node has a label, or values of it repeat under several parents, "" if all is well.

    A level may have another label on the nodes that there are. kube-scheduler takes the raw value for the
    domain: rack r0 of each block would be one rack.
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
