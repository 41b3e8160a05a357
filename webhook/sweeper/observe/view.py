"""What the sweeper sees at one moment, and the placement core's snapshot of it.

Converted objects are kept as long as the API server's object behind them is the same one, so that a pass
over a cluster in which little has changed converts little.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Generic, Protocol, TypeVar

from labeler.contract import keys
from webhook.kube.objects import Metadata, Node, Pod
from webhook.kube.placements import Placement, PlannedPod
from webhook.placement import Node as PlacementNode
from webhook.placement import PodClass, Snapshot, Usage
from webhook.scheduling import antiaffinity, conflicts, convert
from webhook.scheduling.antiaffinity import Term
from webhook.scheduling.conflicts import Conflicts
from webhook.sweeper.apply import patches
from webhook.sweeper.observe.cache import occupied_node
from webhook.sweeper.settings import Settings

AMOUNTS: Final = 320_000
"""Nodes times rules between pods that are held in memory, at about 80 bytes each."""

FEWEST_RULES: Final = 16
"""Rules between pods that are told apart however large the cluster is."""

logger = logging.getLogger(__name__)


class Objects(Protocol):
    """Where the API server's objects come from: the live cache, or one reading of the cluster."""

    def pod_items(self) -> Iterable[Pod]:
        """All unfinished pods."""

    def node_items(self) -> Mapping[str, Node]:
        """Nodes by name."""

    def current_placements(self) -> Mapping[str, Placement]:
        """Placements by "namespace/name"."""


class _HasMetadata(Protocol):
    @property
    def metadata(self) -> Metadata: ...


A = TypeVar("A", bound=_HasMetadata)
B = TypeVar("B")


Texts = Mapping[str, str]


class Converted(Generic[A, B]):
    """Results of a conversion, by uid, for as long as the object is the very same.

    A conversion may read other annotations than the object's own; its result counts while they are equal.

    A result may be completed by something that holds for all of them; when that changes, it is completed
    anew, but not converted anew.
    """

    def __init__(self, convert_one: Callable[[A, Texts | None], B]) -> None:
        """convert_one must depend on nothing but its arguments."""
        self._convert = convert_one
        self._complete: Callable[[A, B], B] | None = None
        self._by: object = None
        self._known: dict[str, tuple[A, Texts | None, B, object, B]] = {}
        self._used: dict[str, tuple[A, Texts | None, B, object, B]] = {}

    def complete_by(self, by: object, complete: Callable[[A, B], B] | None) -> None:
        """How results are completed from now on (None: they are complete); `by` is its identity."""
        self._by, self._complete = by, complete

    def get(self, item: A, annotations: Texts | None = None) -> B:
        """The conversion of an object; annotations: read instead of its own."""
        uid = item.metadata.uid
        known = self._known.get(uid)
        is_same = known is not None and known[0] is item and known[1] == annotations
        if known is None or not is_same or known[3] is not self._by:
            plain = known[2] if known is not None and is_same else self._convert(item, annotations)
            complete = self._complete(item, plain) if self._complete else plain
            known = (item, annotations, plain, self._by, complete)
        self._used[uid] = known
        return known[4]

    def end_round(self) -> None:
        """Forget what was not asked for since the last round."""
        self._known, self._used = self._used, {}


@dataclass
class View:
    """The cluster at one moment.

    conflicts: what keeps gated pods off nodes because of the pods there.
    gated: pods that wait for us. others: all other unfinished pods. planned: uid -> entry of a plan that
    still holds, for pods still gated. in_a_plan: uids that any plan names, released or not. cards: what plans
    say of the cards of each pod that they name: (namespace, uid, node) -> annotations. gate_prefix: of the
    gates that hold a pod for us.
    """

    gated: list[Pod]
    others: list[Pod]
    nodes: dict[str, Node]
    placements: dict[str, Placement]
    planned: dict[str, PlannedPod] = field(default_factory=dict)
    conflicts: Conflicts = conflicts.NONE
    in_a_plan: set[str] = field(default_factory=set)
    cards: dict[tuple[str, str, str], Texts] = field(default_factory=dict)
    gate_prefix: str = keys.GATE_PREFIX

    def occupied(self, pod: Pod) -> str | None:
        """The node on which a pod counts; see occupied_node."""
        return occupied_node(pod, self.gate_prefix)

    @cached_property
    def lasting(self) -> frozenset[str]:
        """Names of pods that come again where they are: of DaemonSets, of nodes, the system's."""
        return frozenset(
            _name(pod)
            for pod in self.others
            if pod.metadata.namespace == "kube-system" or _kind_of_owner(pod) in ("DaemonSet", "Node")
        )

    @cached_property
    def endless(self) -> frozenset[str]:
        """Names of pods that a controller keeps running, so that no node becomes free by their end."""
        return frozenset(
            _name(pod)
            for pod in self.others
            if _kind_of_owner(pod) in ("ReplicaSet", "ReplicationController", "StatefulSet")
            and not pod.metadata.deletion_timestamp
        )

    @cached_property
    def unbound(self) -> frozenset[str]:
        """Names of pods that have been sent to a node, or are planned for one, and are not there yet."""
        return frozenset(_name(pod) for pod in (*self.gated, *self.others) if not pod.spec.node_name)

    def placed_on(self, pods: Iterable[Pod]) -> dict[str, str]:
        """uid -> node of those pods that have one, released or only planned."""
        found: dict[str, str] = {}
        for pod in pods:
            uid = pod.metadata.uid
            node = self.planned[uid].node if uid in self.planned else self.occupied(pod)
            if node is not None:
                found[uid] = node
        return found

    def class_of(self, pod: Pod) -> PodClass:
        """What a pod that waits asks for, and beside which pods it cannot be."""
        return self.conflicts.pod_class(pod, convert.pod_class_of(pod))


def _name(pod: Pod) -> str:
    """As the pod's Usage is named."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _kind_of_owner(pod: Pod) -> str:
    owner = pod.metadata.controller
    return owner.kind if owner is not None else ""


class Looker:
    """Makes views and snapshots of a cache."""

    def __init__(self, objects: Objects, settings: Settings) -> None:
        """Nothing is looked at yet."""
        self._objects = objects
        self._settings = settings
        self._nodes: Converted[Node, PlacementNode] = Converted(lambda node, _: convert.node_of(node))
        self._usages: Converted[Pod, Usage] = Converted(
            lambda pod, annotations: convert.usage_of(pod, annotations=annotations)
        )
        self._terms: Converted[Pod, tuple[Term, ...]] = Converted(lambda pod, _: antiaffinity.terms_of(pod))
        self._conflicts = conflicts.NONE
        self._capacity = conflicts.NONE.capacity
        self._snapshot: Snapshot | None = None

    def look(self) -> View:
        """The cluster now. A plan for a node that cannot take pods any more does not hold."""
        ignored, prefix = self._settings.ignored_namespaces, self._settings.gate_prefix
        gated: list[Pod] = []
        others: list[Pod] = []
        for pod in self._objects.pod_items():
            mine = patches.is_gated(pod, prefix) and pod.metadata.namespace not in ignored
            (gated if mine and not pod.metadata.deletion_timestamp else others).append(pod)
        nodes = dict(self._objects.node_items())
        view = View(gated, others, nodes, dict(self._objects.current_placements()), gate_prefix=prefix)
        waiting = {pod.metadata.uid: pod.metadata.namespace for pod in gated}
        for placement in view.placements.values():
            for planned in placement.spec.pods:
                view.in_a_plan.add(planned.uid)
                view.cards[placement.metadata.namespace, planned.uid, planned.node] = planned.annotations
                node = nodes.get(planned.node)
                # A plan speaks for pods of its own namespace alone, whoever wrote it.
                is_its_own = waiting.get(planned.uid) == placement.metadata.namespace
                if is_its_own and node is not None and is_usable(node):
                    view.planned[planned.uid] = planned
        if gated:
            view.conflicts = self._conflicts_of(view)
        return view

    def _conflicts_of(self, view: View) -> Conflicts:
        """The same as before if those say all that is needed: so nothing has to be completed anew."""
        carriers = [pod for pod in view.others if pod.spec.affinity is not None]
        terms = [self._terms.get(pod) for pod in carriers if view.occupied(pod) is not None]
        most = max(FEWEST_RULES, AMOUNTS // max(1, len(view.nodes)))
        needed = conflicts.between(view.gated, terms, most, self._terms_of)
        self._terms.end_round()
        if not self._conflicts.serves(needed):
            self._conflicts = needed
        return self._conflicts

    def _terms_of(self, pod: Pod) -> tuple[Term, ...]:
        return self._terms.get(pod) if pod.spec.affinity is not None else ()

    def snapshot(self, view: View) -> Snapshot:
        """Nodes, and what bound, pinned and planned pods take on them.

        A pin that is not ours takes nothing before kube-scheduler has bound it: anybody may write one. The
        cards of a pod that we placed are those of its plan, as its author may change the annotations at any
        time; other pods count by their own.
        """
        rules = view.conflicts
        if rules.capacity != self._capacity:
            self._capacity = rules.capacity
        self._nodes.complete_by(self._capacity, rules.node if rules else None)
        self._usages.complete_by(rules, rules.usage if rules else None)
        usage: list[tuple[str, Usage]] = []
        for pod in view.others:
            name = view.occupied(pod)
            if name in view.nodes and (pod.spec.node_name or pod.metadata.uid in view.in_a_plan):
                cards = view.cards.get((pod.metadata.namespace, pod.metadata.uid, name))
                usage.append((name, self._usage(pod, view.nodes[name], cards)))
        for pod in view.gated:
            planned = view.planned.get(pod.metadata.uid)
            if planned is not None:
                use = self._usage(pod, view.nodes[planned.node], planned.annotations)
                usage.append((planned.node, use))
        nodes = [made for node in view.nodes.values() if (made := self._node(node)) is not None]
        self._snapshot = Snapshot.build(nodes, usage, self._settings.topology, previous=self._snapshot)
        self._nodes.end_round()
        self._usages.end_round()
        return self._snapshot

    def _usage(self, pod: Pod, node: Node, annotations: Texts | None) -> Usage:
        """What a pod takes. One that cannot be understood is taken to fill its node: nobody is overbooked.

        annotations: read instead of its own, if not None.
        """
        try:
            return self._usages.get(pod, annotations)
        except ValueError as error:
            logger.warning(
                "unreadable_pod pod=%s/%s error=%r", pod.metadata.namespace, pod.metadata.name, str(error)
            )
            made = self._node(node)
            return Usage(dict(made.allocatable) if made is not None else {})

    def _node(self, node: Node) -> PlacementNode | None:
        try:
            return self._nodes.get(node)
        except ValueError as error:
            logger.warning("unreadable_node node=%s error=%r", node.metadata.name, str(error))
            return None


def is_ready(node: Node) -> bool:
    """Whether the kubelet says that it is ready; a node that says nothing is believed to be."""
    return all(each.status == "True" for each in node.status.conditions if each.type == "Ready")


def is_usable(node: Node) -> bool:
    """Whether a plan may still be carried out on this node."""
    return is_ready(node) and not node.spec.unschedulable and not node.metadata.deletion_timestamp
