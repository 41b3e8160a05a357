"""Whether a gang would find room as a whole, if its released part were deleted and made again. Pure."""

from collections.abc import Collection

from msgspec.structs import replace

from webhook.kube.affinity import NodeSelectorTerm
from webhook.kube.objects import Pod
from webhook.placement import Assignment, Budget, NoFit, Options, Snapshot
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.sweeper.decide.asking import ask
from webhook.sweeper.decide.question import ClassOf, question
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.pins import names_only
from webhook.sweeper.observe.pods import name_of
from webhook.sweeper.observe.view import View


def place_anew(
    gang: PodGang,
    part: Collection[Pod],
    view: View,
    snapshot: Snapshot,
    avoid: frozenset[str],
    options: Options,
    budget: Budget | None = None,
    near: Neighbourhood | None = None,
    class_of: ClassOf | None = None,
) -> Assignment | None:
    """Where all of the gang goes once `part` is gone; None if nowhere, or if that was not found in time.

    budget: for all questions that this takes. near, class_of: as in a pass that has placed others; without
    them, as in the view.
    Raises PlacementError for a gang that cannot be placed as it is written.
    """
    emptied = without_part((*part, *gang.gated), view, snapshot)
    waiting = [*gang.gated, *(unpinned(pod, node) for pod in part if (node := view.occupied(pod)))]
    stay = {pod.metadata.uid for pod in (*part, *gang.gated)}
    others = [pod for pod in gang.released if pod.metadata.uid not in stay]
    near = near or view.near
    left = None if near is None else near.without(frozenset(stay))
    class_of = class_of or view.class_of
    asked = question(gang, waiting, view.placed_on(others), avoid, class_of, view.is_ours, left)
    answer = ask(asked, emptied, options, budget)
    return None if isinstance(answer, NoFit) else answer


def without_part(part: Collection[Pod], view: View, snapshot: Snapshot) -> Snapshot:
    """The cluster once these pods are gone."""
    names = {name_of(pod) for pod in part}
    nodes = {node for node in view.placed_on(part).values() if node in snapshot.nodes}
    return snapshot.without(nodes, lambda use: use.name in names)


def unpinned(pod: Pod, node: str) -> Pod:
    """The pod as its controller would make it again: without the pin that we gave it."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return pod
    node_affinity = affinity.node_affinity
    required = node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return pod
    terms = [_without_pin(term, node) for term in required.node_selector_terms]
    left = [term for term in terms if term.match_fields or term.match_expressions]
    selector = replace(required, node_selector_terms=left) if left else None
    node_affinity = replace(node_affinity, required_during_scheduling_ignored_during_execution=selector)
    return replace(pod, spec=replace(pod.spec, affinity=replace(affinity, node_affinity=node_affinity)))


def _without_pin(term: NodeSelectorTerm, node: str) -> NodeSelectorTerm:
    """Without the last requirement that names just this node, which is the one that we appended."""
    fields = list(term.match_fields)
    for index in range(len(fields) - 1, -1, -1):
        if names_only(fields[index], node):
            del fields[index]
            break
    return replace(term, match_fields=fields)
