"""Where pods have been sent: by their pins, and by all plans together. Pure."""

import functools
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from labeler.contract import keys
from webhook.identity_cache import IdentityCache, changed_keys
from webhook.kube.affinity import NodeSelectorTerm, SelectorRequirement
from webhook.kube.objects import Node, Pod
from webhook.kube.placements import Placement
from webhook.kube.plan_pods import PlannedPod
from webhook.kube.times import since_1970
from webhook.placement import Topology
from webhook.workloads.pod_group_names import was_nominated

# --- gates and pins of a pod --------------------------------------------------------------------------


def is_gated(pod: Pod, prefix: str = keys.GATE_PREFIX) -> bool:
    """Whether a pod waits for us (the condition SchedulingGated lags behind; only the spec counts)."""
    return any(gate.name.startswith(prefix) for gate in pod.spec.scheduling_gates)


def seconds_waited(gated: Iterable[Pod], planned: Container[str], at: datetime) -> float:
    """The age of the oldest of a gang's pods that wait for a place, in seconds; 0 without any.

    Its running pods have found theirs. planned: the uids of pods in plans.
    """
    waiting = (pod.metadata for pod in gated if pod.metadata.uid not in planned)
    oldest = since_1970(min((each.creation_timestamp or "" for each in waiting), default=""))
    return at.timestamp() - oldest if oldest is not None else 0.0


def foreign_gates(pods: Iterable[Pod], prefix: str) -> list[str]:
    """The gates of others on these pods: quota, another controller."""
    names = {gate.name for pod in pods for gate in pod.spec.scheduling_gates}
    return sorted(name for name in names if not name.startswith(prefix))


def pinned_node(pod: Pod) -> str | None:
    """The only node that its required node affinity allows by name, None if there is none or are several.

    The requirements of one term are combined by AND, the terms by OR. A term allows the nodes that all of its
    fields name, and the pod may use the nodes of any term. A term whose fields contradict allows nothing, so
    a pod whose author has named nodes in some terms is as pinned as one that we have pinned.
    """
    left: set[str] = set()
    for term in _own_terms(pod):
        if matches_something(term):
            names = _nodes_named_by(term)
            if names is None:
                return None
            left |= names
    return left.pop() if len(left) == 1 else None


def _own_terms(pod: Pod) -> list[NodeSelectorTerm]:
    """Its required terms. Of a pod that was released by nomination only the first, which names its node.

    An earlier version released pods so. The second term has the nodes that they may use instead.
    """
    terms = required_terms(pod)
    is_by_nomination = len(terms) == 2 and not pod.spec.scheduling_gates and was_nominated(pod)
    return terms[:1] if is_by_nomination else terms


def occupied_node(pod: Pod, gate_prefix: str = keys.GATE_PREFIX) -> str | None:
    """The node on which an unfinished pod counts: where it is bound, or where it has been sent to.

    A pod that a gate with gate_prefix still holds is nowhere, whatever its author's affinity says. Nor is one
    that was deleted before it was bound: the API server binds it no more, however long a finalizer keeps it.
    """
    if pod.spec.node_name:
        return pod.spec.node_name
    if pod.metadata.deletion_timestamp or is_gated(pod, gate_prefix):
        return None
    return pinned_node(pod)


def scheduler_of(pod: Pod) -> str:
    """The scheduler that binds it."""
    return pod.spec.scheduler_name or "default-scheduler"


def required_terms(pod: Pod) -> list[NodeSelectorTerm]:
    """The terms of its required node affinity, at least one of which must match."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return []
    required = affinity.node_affinity.required_during_scheduling_ignored_during_execution
    return required.node_selector_terms if required else []


def matches_something(term: NodeSelectorTerm) -> bool:
    """Whether any node can meet the term: an empty one matches none."""
    return bool(term.match_expressions or term.match_fields)


def names_only(requirement: SelectorRequirement, node: str) -> bool:
    """Whether a field requirement is the pin to this node."""
    return (requirement.key, requirement.operator, requirement.values) == ("metadata.name", "In", [node])


def _nodes_named_by(term: NodeSelectorTerm) -> set[str] | None:
    """The nodes that all fields of the term name, None for a term that names none."""
    named = [set(f.values) for f in term.match_fields if f.key == "metadata.name" and f.operator == "In"]
    return set.intersection(*named) if named else None


def unpinned(pod: Pod, node: str) -> Pod:
    """The pod as its controller would recreate it: without the pin that we gave it."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return pod
    node_affinity = affinity.node_affinity
    required = node_affinity.required_during_scheduling_ignored_during_execution
    if required is None:
        return pod
    terms = [_without_pin(term, node) for term in _own_terms(pod)]
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


# --- cards and entries by plan, recomputed only for plans that have changed ---------------------------

PodId = tuple[str, str]
"""Namespace and uid. A uid alone proves nothing: a plan speaks for the pods of its own namespace only."""
Texts = Mapping[str, str]
CardsByPod = Mapping[PodId, Texts]
"""The cards that plans give to pods on one node."""


@dataclass(frozen=True)
class _Plan:
    """The contents of one plan. cards: by node. entries: by uid."""

    placement: Placement
    named: frozenset[PodId]
    cards: Mapping[str, CardsByPod]
    entries: Mapping[str, PlannedPod]


class Plans:
    """The plans of one moment, indexed.

    cards: by node, the cards that plans give to pods there: the same mapping object while they are unchanged.
    Earlier results are not changed.
    """

    def __init__(self) -> None:
        self.cards: Mapping[str, CardsByPod] = {}
        self._read = IdentityCache[str, _Plan]()
        self._plans: Mapping[str, _Plan] = {}
        self._naming = Counter[PodId]()
        self._on_nodes: dict[str, tuple[_Plan, ...]] = {}

    def update(self, placements: Mapping[str, Placement]) -> None:
        """Take in the Placements that there are, by "namespace/name"."""
        before = self._plans
        self._plans = self._read.of_all(lambda key: self._plan(key, placements), placements)
        changed = changed_keys(before, self._plans)
        if changed:
            gone = [before[key] for key in changed if key in before]
            self._replace(gone, [self._plans[key] for key in changed if key in self._plans])

    def _plan(self, key: str, placements: Mapping[str, Placement]) -> _Plan | None:
        """The contents of a plan: the same object as before if only its status has changed."""
        placement, before = placements.get(key), self._plans.get(key)
        if placement is None or (before is not None and _is_same_plan(before.placement, placement)):
            return before if placement is not None else None
        return _read(placement)

    def _replace(self, gone: Sequence[_Plan], come: Sequence[_Plan]) -> None:
        naming = Counter(self._naming)
        naming.subtract(_named_by(gone))
        naming.update(_named_by(come))
        for pod in _named_by(gone):
            if not naming[pod]:
                del naming[pod]
        self._naming = naming
        cards = dict(self.cards)
        for node, plans in self._moved(gone, come).items():
            if plans:
                self._on_nodes[node], cards[node] = plans, _cards_on(node, plans)
            else:
                del self._on_nodes[node], cards[node]
        self.cards = cards

    def _moved(self, gone: Iterable[_Plan], come: Iterable[_Plan]) -> dict[str, tuple[_Plan, ...]]:
        """The plans of each node that a plan was added to or removed from."""
        found: dict[str, tuple[_Plan, ...]] = {}
        for plan in gone:
            for node in plan.cards:
                there = found.get(node, self._on_nodes[node])
                found[node] = tuple(each for each in there if each is not plan)
        for plan in come:
            for node in plan.cards:
                found[node] = (*found.get(node, self._on_nodes.get(node, ())), plan)
        return found

    @property
    def named(self) -> Set[PodId]:
        """The pods that plans name, released or not."""
        return self._naming.keys()

    def entries_of(self, waiting: Mapping[str, str]) -> Iterator[PlannedPod]:
        """All entries of plans for these pods (uid -> namespace), of plans of the pods' own namespaces."""
        # A plan speaks for pods of its own namespace alone, whoever wrote it.
        known = {uid for uid, namespace in waiting.items() if (namespace, uid) in self._naming}
        plans = sorted(self._plans.items()) if known else ()
        for _, plan in plans:
            for uid in sorted(plan.entries.keys() & known):
                if waiting[uid] == plan.placement.metadata.namespace:
                    yield plan.entries[uid]


def node_hashes(nodes: Mapping[str, Node], topology: Topology) -> Callable[[str], str]:
    """What plans assume of a node that their pods do not ask for: its uid and its domains, as a hash by name.

    "" if there is no such node.
    """

    @functools.cache
    def of(name: str) -> str:
        if name not in nodes:
            return ""
        metadata = nodes[name].metadata
        place = metadata.uid, topology.path(metadata.labels)
        return f"{zlib.crc32(repr(place).encode()):08x}"

    return of


def is_newer(entry: Texts, than: Texts | None) -> bool:
    """Which of two plans for one pod counts: a pod may have changed its gang between them."""
    if than is None:
        return True
    stamp = keys.GAS_TIMESTAMP_ANNOTATION
    return entry.get(stamp, "") > than.get(stamp, "")


def _is_same_plan(before: Placement, after: Placement) -> bool:
    return before.metadata.uid == after.metadata.uid and before.spec == after.spec


def _read(placement: Placement) -> _Plan:
    namespace = placement.metadata.namespace
    cards: dict[str, dict[PodId, Texts]] = {}
    entries: dict[str, PlannedPod] = {}
    for each in placement.spec.pods:
        _add(cards.setdefault(each.node, {}), (namespace, each.uid), each.annotations)
        known = entries.get(each.uid)
        if known is None or is_newer(each.annotations, known.annotations):
            entries[each.uid] = each
    return _Plan(placement, frozenset((namespace, uid) for uid in entries), cards, entries)


def _named_by(plans: Iterable[_Plan]) -> Iterator[PodId]:
    return chain.from_iterable(plan.named for plan in plans)


def _cards_on(node: str, plans: Iterable[_Plan]) -> CardsByPod:
    """The cards that these plans give on a node; the newer plan counts where several name one pod."""
    found: dict[PodId, Texts] = {}
    for plan in sorted(plans, key=lambda each: each.placement.key):
        for pod, annotations in plan.cards[node].items():
            _add(found, pod, annotations)
    return found


def _add(cards: dict[PodId, Texts], pod: PodId, annotations: Texts) -> None:
    if is_newer(annotations, cards.get(pod)):
        cards[pod] = annotations
