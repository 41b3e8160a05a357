"""Nodes without the label of a PodGroup's topology key: its pods do not use them. Pure.

A level may have another label on some nodes, as where nodes of two providers are in one cluster. topogate
takes a domain of either for one of the level; kube-scheduler binds a group on nodes with its own key alone.
"""

from functools import cache

from webhook.extensions.native_gangs.composites import Trees
from webhook.sweeper.decide.node_exclusions import NOTHING_EXCLUDED, ExcludedNodes, Exclusion, Exclusions
from webhook.sweeper.extension import ExcludeInput
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View
from webhook.text import printable
from webhook.workloads.pod_group_names import native_group_of


def excluded_by_label(given: ExcludeInput) -> ExcludedNodes:
    """For each gang the nodes that lack a label of its PodGroups, or of the CompositePodGroups above.

    Of a gang of several PodGroups that holds for all pods, also those of a group without a key.
    """
    view, trees = given.view, Trees.of(given.view)
    if trees is None or not trees.groups or not view.index.of[Sort.OF_A_POD_GROUP]:
        return NOTHING_EXCLUDED
    without = cache(lambda key: _without(key, view))
    found = {}
    for gang in given.gangs:
        named = {native_group_of(pod) for pod in gang.gated}
        exclusions = [without(key) for key in _keys(gang.key.namespace, named, trees)]
        if any(exclusions):
            found[gang.key] = exclusions[0] if len(exclusions) == 1 else _joined(exclusions)
    return ExcludedNodes(for_gangs=found) if found else NOTHING_EXCLUDED


def _keys(namespace: str, named: set[str], trees: Trees) -> list[str]:
    there = (name for name in named if f"{namespace}/{name}" in trees.groups)
    return sorted({each.key for name in there for each in trees.constraints(namespace, name)})


def _without(key: str, view: View) -> Exclusions:
    """The nodes without a label; none if no node has it, of which the gang is told otherwise."""
    lacking = [name for name, node in view.nodes.items() if key not in node.metadata.labels]
    if len(lacking) == len(view.nodes):
        return {}
    exclusion = Exclusion(f"it has no label {printable(key)}, which its PodGroup requires", is_hard=True)
    return dict.fromkeys(lacking, exclusion)


def _joined(exclusions: list[Exclusions]) -> Exclusions:
    return {name: each for one in exclusions for name, each in one.items()}
