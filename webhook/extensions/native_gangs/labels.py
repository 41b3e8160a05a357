"""Nodes without the label of a PodGroup's topology key: its pods do not use them. Pure.

A level may have another label on some nodes, as where nodes of two providers are in one cluster. topogate
takes a domain of either for one of the level; kube-scheduler binds a group on nodes with its own key alone.
"""

from collections.abc import Mapping
from functools import cache

from webhook.extensions.native_gangs.own_pod_groups import GROUPS
from webhook.sweeper.decide.node_exclusions import NOTHING_EXCLUDED, ExcludedNodes, Exclusion, Exclusions
from webhook.sweeper.extension import ExcludeInput
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View
from webhook.text import printable
from webhook.workloads.native_gangs import NativePodGroup
from webhook.workloads.pod_group_names import native_group_of


def excluded_by_label(given: ExcludeInput) -> ExcludedNodes:
    """For each gang the nodes that lack a label of its PodGroups.

    Of a gang of several PodGroups that holds for all pods, also those of a group without a key.
    """
    view, groups = given.view, GROUPS.of(given.view)
    if not groups or not view.index.of[Sort.OF_A_POD_GROUP]:
        return NOTHING_EXCLUDED
    without = cache(lambda key: _without(key, view))
    found = {}
    for gang in given.gangs:
        named = {f"{gang.key.namespace}/{native_group_of(pod)}" for pod in gang.gated}
        exclusions = [without(key) for key in _keys(named, groups)]
        if any(exclusions):
            found[gang.key] = exclusions[0] if len(exclusions) == 1 else _joined(exclusions)
    return ExcludedNodes(for_gangs=found) if found else NOTHING_EXCLUDED


def _keys(named: set[str], groups: Mapping[str, NativePodGroup]) -> list[str]:
    there = (groups[name] for name in named if name in groups)
    return sorted({key for group in there for key in group.topology_keys})


def _without(key: str, view: View) -> Exclusions:
    """The nodes without a label; none if no node has it, of which the gang is told otherwise."""
    lacking = [name for name, node in view.nodes.items() if key not in node.metadata.labels]
    if len(lacking) == len(view.nodes):
        return {}
    exclusion = Exclusion(f"it has no label {printable(key)}, which its PodGroup requires", is_hard=True)
    return dict.fromkeys(lacking, exclusion)


def _joined(exclusions: list[Exclusions]) -> Exclusions:
    return {name: each for one in exclusions for name, each in one.items()}
