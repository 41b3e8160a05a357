"""The view of the cluster that a pass reads. Pure."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple

from labeler.contract import keys
from labeler.contract.offers import identifies_pods
from webhook.grouping import grouped
from webhook.kube.objects import Node, Pod, PodSpec
from webhook.kube.placements import Placement
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import PodClass
from webhook.placement.eligibility import reason_against
from webhook.policy.annotations import movable_after
from webhook.scheduling import conflicts, convert
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.scheduling.conflicts import Conflicts
from webhook.scheduling.gpu_counts import started_at
from webhook.scheduling.label_domains import LabelDomains
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.scheduling.nodes import is_leaving, taints_of
from webhook.scheduling.podrules import apart_keys, has_rules
from webhook.scheduling.storage import Storage
from webhook.scheduling.volume_counts import VolumeCounts
from webhook.sweeper.observe.lost_owners import LostOwners
from webhook.sweeper.observe.membership import GangKey, controller_of, key_of
from webhook.sweeper.observe.node_usage import AddedResources
from webhook.sweeper.observe.plans import CardsByPod, PodId, Texts, occupied_node
from webhook.sweeper.observe.pods import Pods, PodTrait, TraitRules


def identity(pod: Pod) -> PodId:
    """The pod that plans may name."""
    return pod.metadata.namespace, pod.metadata.uid


_EPOCH: Final = datetime.fromtimestamp(0, UTC)


class Moment(NamedTuple):
    """The time of a pass. seconds: from anywhere, and never set back; at: the time of day."""

    seconds: float = 0.0
    at: datetime = _EPOCH

    @property
    def ns(self) -> int:
        """The time of day, in nanoseconds since 1970."""
        return (self.at - _EPOCH) // timedelta(microseconds=1) * 1000


START: Final = Moment()

PROTECTED: Final = frozenset({"kube-system"})
"""Namespaces whose pods no gang may wait for, whatever their priority; ignored namespaces are added."""


def is_ready(node: Node) -> bool:
    """Whether the kubelet says that it is ready; a node that says nothing is believed to be."""
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


def is_usable(node: Node) -> bool:
    """Whether a plan may still be carried out on this node."""
    is_going = node.metadata.deletion_timestamp or is_leaving(node)
    return is_ready(node) and not node.spec.unschedulable and not is_going


def why_not_accepted(node: Node, spec: PodSpec) -> str:
    """Why kube-scheduler would not bind such a pod there, by labels and taints; "" if it would."""
    rules, metadata = convert.node_rules(spec), node.metadata
    return reason_against(rules, metadata.name, metadata.labels, taints_of(node), False, True)


def count_usable(nodes: Mapping[str, Node]) -> int:
    """On how many of these nodes a plan may be carried out."""
    return sum(map(is_usable, nodes.values()))


@dataclass(frozen=True)
class View:
    """The cluster at one moment. Steps do not change it: they make another view, or a value beside it.

    conflicts: existing pods that exclude gated pods from nodes. gated: pods that wait for us. others: all
    other unfinished pods. planned: uid -> entry of a valid plan, for pods still gated. written: the same of
    all plans, also of those that are not valid. named: the pods that plans name, released or not. cards: by
    node, the cards that plans give to the pods that they send there. gate_prefix: of the gates that hold a
    pod for us. gang_of: the gang of a pod. protected: namespaces whose pods may not be preempted for others.
    storage: claims and volumes, None where they are unknown or no waiting pod has any; volumes: how many of
    them nodes take, likewise. added: resources that extensions add to nodes and pods. namespaces: their
    labels, None where unknown. pods: gated and others, sorted, if a caller has them. usable_among: how many
    candidate nodes a plan may use. now: the time. not_released: uids of gated pods that are not released in
    this pass, as extensions decide. objects: what extensions watch: by WatchedCollection or WatchedOwners,
    its objects by "namespace/name". Collections that were not read completely are left out.
    lost_owners: of the pods of gangs that wait. why_not_tried: see PlanCheck. why_not_accepted: see the
    function of this name.
    """

    gated: Sequence[Pod]
    others: Sequence[Pod]
    nodes: Mapping[str, Node]
    placements: Mapping[str, Placement]
    planned: Mapping[str, PlannedPod] = field(default_factory=dict)
    conflicts: Conflicts = conflicts.NONE
    named: Set[PodId] = frozenset()
    cards: Mapping[str, CardsByPod] = field(default_factory=dict)
    gate_prefix: str = keys.GATE_PREFIX
    gang_of: Callable[[Pod], GangKey] = key_of
    protected: Set[str] = PROTECTED
    storage: Storage | None = None
    namespaces: NamespaceLabels | None = None
    added: tuple[AddedResources, ...] = ()
    pods: Pods | None = None
    volumes: VolumeCounts | None = None
    domains_of: Callable[[Mapping[str, Node]], LabelDomains] = LabelDomains
    usable_among: Callable[[Mapping[str, Node]], int] = count_usable
    written: Sequence[PlannedPod] = ()
    now: Moment = START
    not_released: Set[str] = frozenset()
    objects: Mapping[Hashable, Mapping[str, Any]] = field(default_factory=dict)
    lost_owners: LostOwners = field(default_factory=LostOwners)
    why_not_tried: Mapping[str, str] = field(default_factory=dict)
    why_not_accepted: Callable[[Node, PodSpec], str] = why_not_accepted

    @cached_property
    def index(self) -> Pods:
        """Gated and others, sorted."""
        if self.pods is not None:
            return self.pods
        gated = {id(pod) for pod in self.gated}
        rules = TraitRules(lambda pod: id(pod) in gated, self.gang_of, self.protected)
        return Pods.sorted(rules, (*self.others, *self.gated))

    def with_plans(self, planned: Mapping[str, PlannedPod]) -> "View":
        """The same with these plans as the valid ones."""
        return replace(self, planned=planned)

    def without_plans(self, uids: Set[str]) -> "View":
        """The same without the plans for these pods."""
        planned = {uid: each for uid, each in self.planned.items() if uid not in uids}
        return replace(self, planned=planned)

    def occupied(self, pod: Pod) -> str | None:
        """The node on which a pod counts; see occupied_node."""
        return occupied_node(pod, self.gate_prefix)

    def identifies_pods(self, node: str) -> bool:
        """Whether the device plugin there knows which pod it serves; otherwise it guesses by gas-ts."""
        return node in self.nodes and identifies_pods(self.nodes[node].metadata.annotations)

    def controller_of(self, pod: Pod) -> GangKey:
        """The identity of a pod and its successors, see controller_of."""
        return controller_of(pod, self.gang_of(pod))

    def movable_after(self, pod: Pod) -> float | None:
        """See movable_after; labels of its namespace count where the pod does not say."""
        defaults = (self.namespaces or {}).get(pod.metadata.namespace, {})
        return movable_after({**defaults, **pod.metadata.annotations})

    @cached_property
    def movable_gangs(self) -> Set[GangKey]:
        """The gangs of which all pods run on nodes, and say that they may be moved by now."""
        placed = {key for key, plan in self.placements.items() if plan.is_complete}
        gangs = ((key, pods) for key, pods in self.bound_gangs.items() if key.placement_key in placed)
        return {key for key, pods in gangs if all(map(self._may_be_moved, pods))}

    def _may_be_moved(self, pod: Pod) -> bool:
        after = self.movable_after(pod) if pod.status.phase == "Running" else None
        return after is not None and self.now.at.timestamp() - started_at(pod) >= after

    def cards_of(self, pod: Pod, node: str) -> Texts | None:
        """The cards that a plan gives to a pod on a node, None where none sends it there."""
        return self.cards.get(node, {}).get(identity(pod))

    def is_ours(self, pod: Pod) -> bool:
        """Whether topogate placed it: a plan of its own namespace names it."""
        return identity(pod) in self.named

    @cached_property
    def domains(self) -> Mapping[PodId, Mapping[str, str]]:
        """The domains that plans have given to the gangs of the pods that they name, see PlacementSpec."""
        return {
            (placement.metadata.namespace, each.uid): placement.spec.domains
            for placement in self.placements.values()
            if placement.spec.domains
            for each in placement.spec.pods
        }

    @cached_property
    def near(self) -> Neighbourhood | None:
        """The pods that have a node; None where no rule on other pods concerns a waiting pod."""
        repelling = self.index.of[PodTrait.REPELLING].values()
        if not any(has_rules(pod.spec) for pod in self.gated) and not any(map(apart_keys, repelling)):
            return None
        domains = self.domains_of(self.nodes)
        return Neighbourhood(self.nodes, self.placed_pods(), self.namespaces, self.gated, domains)

    @cached_property
    def by_uid(self) -> Mapping[str, Pod]:
        """All unfinished pods."""
        return self.index.by_uid

    @cached_property
    def under_way(self) -> Sequence[Pod]:
        """The others that topogate placed, see is_ours, and that are not bound or do not run yet."""
        return [pod for pod in self.index.of[PodTrait.UNDER_WAY].values() if self.is_ours(pod)]

    @cached_property
    def sent(self) -> Sequence[tuple[Pod, str]]:
        """Those of them that are bound or released to a node, with that node; see occupied_node."""
        return [(pod, node) for pod in self.under_way if (node := self.occupied(pod)) is not None]

    @cached_property
    def stamped(self) -> Sequence[Pod]:
        """Those of ours that have the time at which they were given cards."""
        return [pod for pod in self.index.of[PodTrait.STAMPED].values() if self.is_ours(pod)]

    @cached_property
    def usable_count(self) -> int:
        """How many nodes a plan may name."""
        return self.usable_among(self.nodes)

    @cached_property
    def spread_replicas(self) -> Mapping[GangKey, Mapping[str, str]]:
        """By owner, uid -> node of pods that are gangs of their own, are spread, and stay."""
        found = grouped(
            (controller_of(pod, gang), pod)
            for pod in self.index.of[PodTrait.SPREAD].values()
            if (gang := self.gang_of(pod)).kind == "Pod" and not pod.metadata.deletion_timestamp
        )
        return {controller: self.placed_on(pods) for controller, pods in found.items()}

    @cached_property
    def of_sets(self) -> tuple[Pod, ...]:
        """Pods among which some want domains of their own, see is_of_a_set."""
        return tuple(self.index.of[PodTrait.OF_A_SET].values())

    @cached_property
    def bound_gangs(self) -> Mapping[GangKey, Sequence[Pod]]:
        """The pods of each gang that topogate placed and that are not being deleted, bound or not."""
        return grouped(
            (self.gang_of(pod), pod)
            for pod in self.index.of[PodTrait.OTHER].values()
            if not pod.metadata.deletion_timestamp and self.is_ours(pod)
        )

    @cached_property
    def bound_foreign_pods(self) -> Sequence[Pod]:
        """Pods on nodes that topogate did not place, and that are not being deleted."""
        return [
            pod
            for pod in self.index.of[PodTrait.OTHER].values()
            if pod.spec.node_name and not pod.metadata.deletion_timestamp and not self.is_ours(pod)
        ]

    @cached_property
    def leaving(self) -> Sequence[Pod]:
        """Pods on nodes that are being deleted."""
        return [pod for pod in self.index.of[PodTrait.ENDING].values() if pod.spec.node_name]

    def uids(self, *traits: PodTrait) -> Set[str]:
        """The uids of the pods that are of any of these traits."""
        return frozenset[str]().union(*(self.index.of[trait] for trait in traits))

    def is_lasting(self, pod: Pod) -> bool:
        """Whether no gang may count on its end, see PodTrait.LASTING."""
        return pod.metadata.uid in self.index.of[PodTrait.LASTING]

    def pods_of(self, placement: Placement) -> list[Pod]:
        """The existing pods of a plan; a plan counts only for pods of its own namespace."""
        found = (self.by_uid.get(each.uid) for each in placement.spec.pods)
        namespace = placement.metadata.namespace
        return [pod for pod in found if pod is not None and pod.metadata.namespace == namespace]

    def labels_of(self, nodes: Iterable[str]) -> dict[str, Mapping[str, str]]:
        """Node name -> its labels, for existing nodes."""
        return {name: self.nodes[name].metadata.labels for name in nodes if name in self.nodes}

    def placed_on(self, pods: Iterable[Pod]) -> dict[str, str]:
        """uid -> node of the pods that have one, released or only planned."""
        found: dict[str, str] = {}
        for pod in pods:
            uid = pod.metadata.uid
            node = self.planned[uid].node if uid in self.planned else self.occupied(pod)
            if node:
                found[uid] = node
        return found

    def placed_pods(self) -> Iterator[tuple[Pod, str]]:
        """Pods that have a node, bound, released or planned, with that node.

        A pin that is not ours counts for nothing before kube-scheduler has bound the pod, since any user may
        write one.
        """
        for pods in self.index.bound.values():
            yield from ((pod, pod.spec.node_name) for pod in pods)
        yield from self.coming()

    def coming(self) -> Iterator[tuple[Pod, str]]:
        """Those of them that are released or planned, and not bound."""
        gated = self.index.of[PodTrait.GATED]
        for uid, planned in self.planned.items():
            if planned.node and uid in gated:
                yield gated[uid], planned.node
        yield from ((pod, node) for pod, node in self.sent if not pod.spec.node_name)

    def class_of(self, pod: Pod) -> PodClass:
        """The request of a waiting pod, where its volumes are, and which pods it may not be beside."""
        return self.class_beside(pod, self.volumes, self.near)

    def class_beside(self, pod: Pod, volumes: VolumeCounts | None, near: Neighbourhood | None) -> PodClass:
        """The same view with these volumes that the pass has left, and with these pods' nodes."""
        asked = convert.pod_class_of(pod)
        if self.storage is not None:
            asked = self.storage.pod_class(pod, asked)
        if volumes is not None:
            asked = volumes.pod_class(pod, asked)
        if near is not None:
            asked = near.pod_class(pod, asked)
        for each in self.added:
            asked = each.pod_class(pod, asked)
        return self.conflicts.pod_class(pod, asked)
