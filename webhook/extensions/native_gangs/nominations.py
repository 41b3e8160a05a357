"""Pods that are nominated to their nodes instead of pinned (bind: nominated, experimental). Pure.

The order of writes is Placement, a nomination and a release for each pod, PodGroup. kube-scheduler binds none
of these pods before the PodGroup exists, and a nomination reserves the node until then. A failed attempt to
bind them clears the nominations, and kube-scheduler may choose other nodes. So a nominated pod requires its
planned node, or any node without cards in the domain that its gang requires.

Only a pin enforces other parts of a plan. So gangs with slices, spreads, exclusive domains, required nodes,
cards or claims are pinned, and so is every pod that is created after the PodGroup.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.extensions.native_gangs.own_pod_groups import GroupNeed, collection_of, foreign_groups
from webhook.kube.affinity import SelectorRequirement
from webhook.kube.objects import Pod
from webhook.placement import PlacementError, Topology
from webhook.sweeper.extension import CorrectedPlan, PodEvent
from webhook.sweeper.observe.membership import GangKey, claims_of
from webhook.sweeper.observe.plans import nominated_node, required_terms
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View
from webhook.workloads.pod_group_names import NOMINATED_PREFIX, bind_group_of

_BEYOND: Final = frozenset(
    {keys.SLICE_TOPOLOGY_ANNOTATION, keys.SLICE_SIZE_ANNOTATION, keys.SPREAD_TOPOLOGY_ANNOTATION}
)
"""Requests about several pods of a gang: a pod on another node may violate them."""

_WITHOUT_CARDS: Final = tuple(
    SelectorRequirement(key, "DoesNotExist") for key in (keys.CARDS_LABEL, keys.GPU_NUMBERS_LABEL)
)

Nominations = Mapping[str, Mapping[str, Sequence[SelectorRequirement]]]
"""PodGroup ("namespace/name") -> uid of a gated pod -> requirements on other nodes that it may use."""


def nominations(view: View, needs: Iterable[GroupNeed], topology: Topology) -> Nominations:
    """The planned pods to release by nomination, in gangs whose PodGroup does not exist yet."""
    wanted = {need.key: need for need in needs if need.name.startswith(NOMINATED_PREFIX)}
    collection = collection_of(view)
    if not wanted or collection is None:
        return {}
    there, domains = collection.of(view) or {}, _Domains(view, topology)
    gangs, found = _gated(view), {}
    for key, need in wanted.items():
        if key in there or foreign_groups([need.name], need.namespace, view) or not _may_change(need):
            continue
        if others := _others(need, gangs, domains):
            found[key] = others
    return found


def _gated(view: View) -> Mapping[GangKey, Sequence[Pod]]:
    """The gated pods of each gang."""
    found: dict[GangKey, list[Pod]] = {}
    for pod in view.gated:
        found.setdefault(view.gang_of(pod), []).append(pod)
    return found


def _may_change(need: GroupNeed) -> bool:
    """Whether pods may use other nodes: the plan has no victims, and the pods are bound together."""
    return bool(need.min_count) and not need.owner.spec.preempts


@dataclass(frozen=True)
class _Domains:
    """The domains of the topology as labels. known: a cache by path."""

    view: View
    topology: Topology
    known: dict[tuple[str, ...], Sequence[SelectorRequirement] | None] = field(default_factory=dict)

    def of(self, node: str, level: str | None) -> Sequence[SelectorRequirement] | None:
        """The labels of a node's domain; None if labels alone do not identify it."""
        if level is None:
            return ()
        labels = self.view.labels_of([node]).get(node, {})
        path = self.topology.path(labels)
        try:
            end = self.topology.level(level) + 2  # the path begins with the family
        except PlacementError:
            return None
        if path is None or end > len(path):
            return None
        if path[:end] not in self.known:
            family = self.topology.families[int(path[0])]
            self.known[path[:end]] = self._labels({key: labels[key] for key in family[: end - 1]}, path[:end])
        return self.known[path[:end]]

    def _labels(
        self, labels: Mapping[str, str], path: tuple[str, ...]
    ) -> Sequence[SelectorRequirement] | None:
        """These labels, None if a node of another domain (for example of another family) has them too."""
        for node in self.view.nodes.values():
            theirs = node.metadata.labels
            if labels.items() <= theirs.items() and (self.topology.path(theirs) or ())[: len(path)] != path:
                return None
        return tuple(SelectorRequirement(key, "In", [value]) for key, value in labels.items())


def _others(
    need: GroupNeed, gated: Mapping[GangKey, Sequence[Pod]], domains: _Domains
) -> Mapping[str, Sequence[SelectorRequirement]]:
    """uid -> requirements on other nodes; {} if one pod must be pinned, since then all are."""
    view = domains.view
    gang = view.gang_of(need.first)
    members = (*gated.get(gang, ()), *view.index.mates.get(gang, ()))
    levels = {each.metadata.annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION) for each in members} - {None}
    if len(levels) > 1 or not all(map(_may_move, members)):
        return {}
    level, found = next(iter(levels), None), {}
    for pod in _planned(need, gated.get(gang, ()), view):
        planned = view.planned[pod.metadata.uid]
        within = domains.of(planned.node, level)
        if within is None or planned.annotations or required_terms(pod):
            return {}
        found[pod.metadata.uid] = (*within, *_WITHOUT_CARDS)
    return found


def _planned(need: GroupNeed, pods: Sequence[Pod], view: View) -> Sequence[Pod]:
    """The pods of the PodGroup that have a plan."""
    return [pod for pod in pods if pod.metadata.uid in view.planned and bind_group_of(pod) == need.name]


def _may_move(pod: Pod) -> bool:
    """Whether the required level of its gang is the only constraint on a pod's node."""
    is_single = _BEYOND.isdisjoint(pod.metadata.annotations) and not claims_of(pod)
    return is_single and not pod.spec.resource_claims


# --- moved pods ---------------------------------------------------------------------------------------
# Pods that kube-scheduler has bound to another node than their nominated one.
#
# Their Placement is corrected, and their owners are notified. Their affinity still enforces the level that
# the gang requires.

MOST_EVENTS: Final = 20
"""The most Events of one pass; further owners are not notified."""


def corrected_plans(view: View) -> tuple[Sequence[CorrectedPlan], Sequence[PodEvent]]:
    """The Placements with the actual nodes of moved pods, and the Events on these pods."""
    plans, events = list[CorrectedPlan](), list[PodEvent]()
    for key, moved in _moved(view).items():
        placement = view.placements[key]
        nodes = {uid: pod.spec.node_name for uid, pod in moved.items()}
        wrong = [each.uid for each in placement.spec.pods if nodes.get(each.uid, each.node) != each.node]
        if wrong:
            entries = [replace(each, node=nodes.get(each.uid, each.node)) for each in placement.spec.pods]
            plans.append(CorrectedPlan(placement, replace(placement.spec, pods=entries)))
            events += [_event(moved[uid]) for uid in wrong]
    return tuple(plans), tuple(events[:MOST_EVENTS])


def _moved(view: View) -> Mapping[str, Mapping[str, Pod]]:
    """Placement ("namespace/name") -> uid -> a pod that has moved."""
    found: dict[str, dict[str, Pod]] = {}
    for pod in view.index.of[Sort.OF_A_POD_GROUP].values():
        node = pod.spec.node_name
        if not node or nominated_node(pod) in (None, node) or not view.is_ours(pod):
            continue
        key = view.gang_of(pod).placement_key
        if key in view.placements:
            found.setdefault(key, {})[pod.metadata.uid] = pod
    return found


def _event(pod: Pod) -> PodEvent:
    note = (
        f"bound to {pod.spec.node_name}, not to {nominated_node(pod)} as planned: that node was taken, or "
        "kube-scheduler tried the gang several times; the Placement is corrected. Set bind: podgroup in the "
        "policy for gangs that are to keep their nodes"
    )
    return PodEvent(pod, EventReason.BOUND_ELSEWHERE, note)
