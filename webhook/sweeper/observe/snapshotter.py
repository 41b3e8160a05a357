"""From the live copies: the view of one moment, and the placement core's snapshot of it."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Protocol

from webhook.configuration.settings import Settings
from webhook.grouping import grouped
from webhook.identity_cache import IdentityCache, changed_keys
from webhook.kube.objects import Node, Pod, PodSpec
from webhook.kube.placements import Placement
from webhook.kube.plan_pods import PlannedPod
from webhook.placement import Mix, PodClass, Snapshot, Usage, vector
from webhook.placement import NodeInfo as PlacementNode
from webhook.placement.mix import NO_MIX
from webhook.scheduling import antiaffinity, conflicts, convert, pod_mix
from webhook.scheduling.antiaffinity import AntiAffinityTerm, NamespaceLabels
from webhook.scheduling.conflicts import Conflicts
from webhook.scheduling.gpus import DEVICES
from webhook.scheduling.label_domains import LabelDomains
from webhook.scheduling.nodes import left_out, node_of
from webhook.scheduling.storage import Storage
from webhook.scheduling.volume_counts import Completed, VolumeCounts, volume_counts
from webhook.sweeper.observe.gangs import OWN_ERROR
from webhook.sweeper.observe.lost_owners import lost_owners, one_of_each_owner
from webhook.sweeper.observe.membership import GangKey, LostOwner, has_owners, key_of
from webhook.sweeper.observe.node_usage import (
    Placed,
    PodsOnNodes,
    Usages,
    UsagesOnNodes,
    amended,
    most_amounts,
)
from webhook.sweeper.observe.plans import Plans, Texts, is_gated, is_newer, occupied_node
from webhook.sweeper.observe.pods import Journal, Pods, PodTrait, TraitRules, name_of
from webhook.sweeper.observe.view import (
    PROTECTED,
    START,
    Moment,
    View,
    count_usable,
    is_usable,
    why_not_accepted,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _MadeOf:
    """The inputs of a snapshot. capacity: the nodes for which it was completed."""

    nodes: Mapping[str, Node]
    usages: Usages
    capacity: object


class Objects(Protocol):
    """The source of the API server's objects: the live cache, or one reading of the cluster."""

    def pod_items(self) -> Iterable[Pod]:
        """All unfinished pods."""

    def node_items(self) -> Mapping[str, Node]:
        """Nodes by name; results are not changed later."""

    def current_placements(self) -> Mapping[str, Placement]:
        """Placements by "namespace/name", likewise."""

    def storage(self, is_wanted: bool) -> Storage | None:
        """Claims and volumes, None if unknown. is_wanted: whether a waiting pod has any."""

    def namespace_labels(self) -> NamespaceLabels | None:
        """Labels by namespace, None if unknown."""


class Snapshotter:
    """Makes views and snapshots of a cache."""

    def __init__(
        self,
        objects: Objects,
        settings: Settings,
        journal: Journal | None = None,
        owners: Callable[[], Callable[[Pod], LostOwner | None]] = lambda: has_owners,
    ) -> None:
        """journal: returns the changes of pods; without one, all pods are read for each view.

        owners: returns LostOwners.of as of now.
        """
        self.owners = owners
        self._objects = objects
        self._journal = journal
        self._settings = settings
        self._nodes = IdentityCache[str, PlacementNode]()
        self._ruled_nodes = IdentityCache[str, PlacementNode]()
        self._usages = IdentityCache[str, Usage]()
        self._refusals = IdentityCache[int, str]()
        self._one_of_each = IdentityCache[int, tuple[Pod, ...]]()
        self._mix_counts = IdentityCache[GangKey, pod_mix.Counts]()
        self._running = pod_mix.NO_POD
        self._terms = IdentityCache[str, tuple[AntiAffinityTerm, ...]]()
        self._namespaces: NamespaceLabels | None = None
        self._usages_on_nodes = UsagesOnNodes()
        self._pods = Pods(TraitRules(self._waits, self._gang_of, PROTECTED | settings.excluded_namespaces))
        self._changes: dict[str, Pod | None] = {}
        self._plans = Plans()
        self._domains = LabelDomains({})
        self._usable = IdentityCache[None, int]()
        self._left_out: dict[str, list[str]] = {}
        self._conflicts = conflicts.NONE
        self._capacity = conflicts.NONE.capacity
        self._snapshot: Snapshot | None = None
        self._completed: Completed = {}
        self._seen: _MadeOf | None = None

    def _are_volumes_read(self, gated: Iterable[Pod]) -> bool:
        """A gang that is moved may have volumes, though no waiting pod has any."""
        return any(self._settings.moves.is_on or pod.spec.volumes for pod in gated)

    def view(self, now: Moment = START) -> View:
        """The cluster now.

        A plan for a node that cannot take the pod any more does not hold: it is gone, cordoned, not ready, or
        has other taints or labels. Nor does one for a pod whose controller is gone.
        """
        prefix = self._settings.gate_prefix
        pods = self._current_pods()
        gated, others = list(pods.of[PodTrait.GATED].values()), list(pods.of[PodTrait.OTHER].values())
        nodes = self._objects.node_items()
        placements = dict(self._objects.current_placements())
        waiting = {pod.metadata.uid: pod.metadata.namespace for pod in gated}
        self._plans.update(placements)
        written = tuple(self._plans.entries_of(waiting))
        for cache in (self._one_of_each, self._refusals):
            cache.end_pass()
        planned = self._planned(written, nodes, pods.of[PodTrait.GATED])
        named, cards = self._plans.named, self._plans.cards
        if gated and (namespaces := self._objects.namespace_labels()) != self._namespaces:
            self._namespaces = namespaces
        rules = self._conflicts_of(pods, len(nodes)) if gated else conflicts.NONE
        storage = self._objects.storage(self._are_volumes_read(gated))
        asked = *pods.waiting.values(), *(pods.mates[key] for key in pods.waiting if key in pods.mates)
        lost = lost_owners(asked, _guarded(self.owners()), self._one_of_each_owner)
        gone = {uid for uid, each in lost.by_uid.items() if each.is_confirmed}
        planned = {uid: each for uid, each in planned.items() if uid not in gone}
        view = View(
            gated, others, nodes, placements, planned, rules, named, cards, prefix, self._gang_of,
            pods.rules.protected, storage, self._namespaces, pods=pods,
            domains_of=self._domains_of, usable_among=self._usable_among, written=written, now=now,
            not_released=waiting.keys() & lost.by_uid, lost_owners=lost,
            why_not_accepted=self._why_not_accepted,
        )  # fmt: skip
        return view if storage is None else self._with_volumes(view, storage)

    def _one_of_each_owner(self, pods: Sequence[Pod]) -> Sequence[Pod]:
        """See one_of_each_owner; all of them where that fails."""
        try:
            return self._one_of_each.get(id(pods), one_of_each_owner, pods)
        except Exception:  # one bad pod never stops the others
            logger.exception("owners_failed gang=%s", self._gang_of(pods[0]))
            return pods

    def _why_not_accepted(self, node: Node, spec: PodSpec) -> str:
        return self._refusals.get(id(spec), why_not_accepted, node, spec)

    def _planned(
        self, written: Iterable[PlannedPod], nodes: Mapping[str, Node], gated: Mapping[str, Pod]
    ) -> dict[str, PlannedPod]:
        """By uid, the newest of these entries whose node exists and takes such pods."""
        found: dict[str, PlannedPod] = {}
        for each in written:
            node, before = nodes.get(each.node), found.get(each.uid)
            if node is None or not is_usable(node):
                continue
            if self._why_not_accepted(node, gated[each.uid].spec):
                continue
            if before is None or is_newer(each.annotations, before.annotations):
                found[each.uid] = each
        return found

    def _current_pods(self) -> Pods:
        if self._journal is None:
            return Pods.sorted(self._pods.rules, self._objects.pod_items())
        self._changes |= self._journal.take()
        self._pods = self._pods.after(self._changes)
        self._changes = {}  # only now: a pass that failed reports its changes once more
        return self._pods

    def _with_volumes(self, view: View, storage: Storage) -> View:
        """The view with the counts of volumes; after a defect no pod with volumes is released."""
        try:
            return replace(view, volumes=self._volumes(view, storage))
        except Exception:  # pods without volumes are placed
            logger.exception("volumes_failed")
            uncounted = {pod.metadata.uid for pod in view.gated if pod.spec.volumes}
            return replace(view, not_released=view.not_released | uncounted)

    def _volumes(self, view: View, storage: Storage) -> VolumeCounts | None:
        """The volumes of waiting pods that nodes limit by number, None where none is counted."""
        waiting = (pod for pod in view.gated if pod.metadata.uid not in view.planned)
        by_name = {str(gang): pods for gang, pods in grouped((view.gang_of(p), p) for p in waiting).items()}
        most = most_amounts(len(view.nodes))
        return volume_counts(storage, view.nodes, by_name, list(view.placed_pods()), most, self._completed)

    def _gang_of(self, pod: Pod) -> GangKey:
        return key_of(pod, self._settings.owner_rules)

    def _usable_among(self, nodes: Mapping[str, Node]) -> int:
        return self._usable.get(None, count_usable, nodes)

    def _domains_of(self, nodes: Mapping[str, Node]) -> LabelDomains:
        """The very same for as long as no node gets other labels."""
        if not self._domains.are_of(nodes):
            self._domains = LabelDomains(nodes)
        return self._domains

    def _waits(self, pod: Pod) -> bool:
        """Whether a pod waits for us: gated, in a namespace that is served, and not deleted."""
        return (
            bool(pod.spec.scheduling_gates)
            and is_gated(pod, self._settings.gate_prefix)
            and pod.metadata.namespace not in self._settings.excluded_namespaces
            and not pod.metadata.deletion_timestamp
        )

    def _conflicts_of(self, pods: Pods, node_count: int) -> Conflicts:
        """The same object as before if its inputs are the same, so that nothing is recomputed."""
        gated, others = pods.of[PodTrait.GATED].values(), pods.of[PodTrait.OTHER].values()
        prefix = self._settings.gate_prefix
        on_nodes = [
            (pod.metadata.namespace, self._terms_of(pod))
            for pod in pods.of[PodTrait.REPELLING].values()
            if occupied_node(pod, prefix) is not None
        ]
        most = most_amounts(node_count)
        needed = conflicts.between(gated, on_nodes, most, self._terms_of, lambda: others, self._namespaces)
        self._terms.end_pass()
        if not self._conflicts.serves(needed):
            self._conflicts = needed
        return self._conflicts

    def _terms_of(self, pod: Pod) -> tuple[AntiAffinityTerm, ...]:
        """Its rules; kube-scheduler still keeps those that we fail to read."""
        if pod.spec.affinity is None:
            return ()
        try:
            return self._terms.get(pod.metadata.uid, _terms_of, pod, self._namespaces)
        except Exception:  # one bad pod never stops the others
            logger.exception("affinity_failed pod=%s", name_of(pod))
            return ()

    def snapshot(self, view: View) -> Snapshot:
        """Nodes, and the usage of bound, pinned and planned pods there.

        A pin that is not ours takes nothing before kube-scheduler has bound the pod, since any user may write
        one. The cards of a pod that we placed are those of its plan, since its author may change the
        annotations at any time; other pods count by their annotations.
        """
        rules = view.conflicts
        if rules.capacity != self._capacity:
            self._capacity = rules.capacity
        on_nodes = PodsOnNodes(view.index.bound, self._coming_to(view), view.cards)
        usages = self._usages_on_nodes.of(
            on_nodes,
            view.nodes,
            rules,
            lambda pod, annotations: self._usage(pod, annotations, rules),
            lambda name: self._fill(view, name),
        )
        made = self._renewed(view, usages) or self._made(view, on_nodes, usages)
        self._snapshot = made.with_mix(self._mix(view, made))
        self._seen = _MadeOf(view.nodes, usages, self._capacity) if _is_plain(view) else None
        for of_nodes in (self._nodes, self._ruled_nodes):
            of_nodes.end_pass(len(view.nodes))
        self._usages.end_pass(len(view.gated) + len(view.others))
        return self._snapshot

    def _mix(self, view: View, snapshot: Snapshot) -> Mix:
        """The mix of the pods that are on nodes or wait; none after a defect, as it is only a preference."""
        try:
            return self._mix_of(view, snapshot)
        except Exception:  # else every gated pod of the cluster would wait
            logger.exception("mix_failed")
            return NO_MIX

    def _mix_of(self, view: View, snapshot: Snapshot) -> Mix:
        counts = pod_mix.Counts()
        for gang, pods in view.index.waiting.items():
            counts.update(self._mix_counts.get(gang, self._counts_of, pods))
        self._mix_counts.end_pass()
        gated = view.index.of[PodTrait.GATED]
        counts.subtract(self._counts_of(gated[uid] for uid in view.planned.keys() & gated.keys()))
        if view.added:
            counts.update(self._claiming(view))
        counting = self._settings.counting
        self._running = self._running.after(snapshot.blocks, counting)
        return pod_mix.mix_of(snapshot, counts, counting, self._running)

    def _claiming(self, view: View) -> pod_mix.Counts:
        """The waiting and planned pods that request GPUs by claims alone.

        On a node they count once their claims are allocated. Their requests change with other objects.
        """
        classes: dict[int, PodClass] = {}  # equal pods have the same object, and classes hash slowly
        numbers = Counter[tuple[int, int]]()
        for pod in (each for each in view.gated if each.spec.resource_claims):
            known = (each.devices_of(pod, self._is_gpu_class) for each in view.added)
            of_pod = convert.pod_class_of(pod)
            classes[id(of_pod)] = of_pod
            numbers[id(of_pod), next((count for count in known if count), 0)] += 1
        counts = pod_mix.Counts()
        for (which, gpus), number in numbers.items():
            of_pod = classes[which]
            if gpus and pod_mix.class_of(of_pod, self._settings.counting) is None:
                requests = vector({**dict(of_pod.requests), DEVICES: gpus})
                found = pod_mix.counts_of([replace(of_pod, requests=requests)], self._settings.counting)
                counts.update(dict.fromkeys(found, number))
        return counts

    def _is_gpu_class(self, name: str) -> bool:
        return any(fnmatchcase(name, each) for each in self._settings.gpu_device_classes)

    def _counts_of(self, pods: Iterable[Pod]) -> pod_mix.Counts:
        return pod_mix.counts_of(map(convert.pod_class_of, pods), self._settings.counting)

    def _made(self, view: View, on_nodes: PodsOnNodes, usages: Usages) -> Snapshot:
        """A snapshot for which each node is read."""
        read = (self._node(node, view.conflicts) for node in view.nodes.values())
        nodes = [node for node in read if node is not None]
        for each in view.added:
            nodes, usages = each.completed(nodes, on_nodes, usages, view.nodes)
        if view.volumes is not None:
            nodes = [view.volumes.node(node) for node in nodes]
            with_some = amended(
                on_nodes, usages, view.nodes, lambda pod: pod.spec.volumes, view.volumes.usage
            )
            usages = {**usages, **with_some}
        return Snapshot.of(nodes, usages, self._settings.topology, previous=self._snapshot)

    def _renewed(self, view: View, usages: Usages) -> Snapshot | None:
        """The last snapshot with the changes since; None where more may have changed."""
        seen, last = self._seen, self._snapshot
        if last is None or seen is None or seen.capacity is not self._capacity or not _is_plain(view):
            return None
        is_of_the_same = seen.nodes is view.nodes or seen.nodes.keys() == view.nodes.keys()
        if not is_of_the_same or len(last.nodes) != len(view.nodes):
            return None  # some were added or removed, or cannot be read
        nodes = self._all_read(view, changed_keys(seen.nodes, view.nodes))
        if nodes is None:
            return None
        changed = changed_keys(seen.usages, usages) & view.nodes.keys()
        return last.renewed(nodes, {name: usages.get(name, ()) for name in changed})

    def _all_read(self, view: View, names: Iterable[str]) -> dict[str, PlacementNode] | None:
        """These nodes; None if one of them cannot be read."""
        nodes = {name: self._node(view.nodes[name], view.conflicts) for name in names}
        read = {name: node for name, node in nodes.items() if node is not None}
        return read if len(read) == len(nodes) else None

    def _coming_to(self, view: View) -> dict[str, tuple[Placed, ...]]:
        """By node, the pods that are sent there, or planned for it."""

        def cards(pod: Pod, node: str) -> Texts | None:
            planned = view.planned.get(pod.metadata.uid)
            return view.cards_of(pod, node) if planned is None else planned.annotations

        found = grouped((name, (pod, cards(pod, name))) for pod, name in view.coming() if name in view.nodes)
        return {name: tuple(pods) for name, pods in found.items()}

    def _usage(self, pod: Pod, annotations: Texts | None, rules: Conflicts) -> Usage | None:
        """The usage of a pod, None if its requests are invalid. annotations: read instead of its own."""
        uid = pod.metadata.uid
        try:
            usage = self._usages.get(uid, _usage_of, pod, annotations)
            return rules.usage(pod, usage) if rules else usage
        except ValueError as error:
            logger.warning("unreadable_pod pod=%s error=%r", name_of(pod), str(error))
        except Exception:  # one bad pod never stops the others
            logger.exception("pod_failed pod=%s", name_of(pod))
        return None

    def _fill(self, view: View, name: str) -> Usage:
        """All of a node, for a pod whose requests are invalid, so that no node is overbooked."""
        made = self._node(view.nodes[name], view.conflicts) if name in view.nodes else None
        return Usage(dict(made.allocatable) if made is not None else {})

    def _read(self, node: Node) -> PlacementNode:
        """The node; labels that had to be left out are reported when they change."""
        name, found = node.metadata.name, left_out(node)
        if found != self._left_out.get(name, []):
            self._left_out[name] = found
            for sentence in found:
                logger.warning("label_left_out node=%s reason=%r", name, sentence)
        return node_of(node)

    def _node(self, node: Node, rules: Conflicts) -> PlacementNode | None:
        uid = node.metadata.uid
        try:
            made = self._nodes.get(uid, self._read, node)
            if not rules:
                return made
            ruled = self._ruled_nodes.find(uid, made, self._capacity)
            return ruled or self._ruled_nodes.keep(uid, rules.node(node, made), made, self._capacity)
        except ValueError as error:
            logger.warning("unreadable_node node=%s error=%r", node.metadata.name, str(error))
        except Exception:  # one bad node never stops the others
            logger.exception("node_failed node=%s", node.metadata.name)
        return None


def _guarded(lost_owner: Callable[[Pod], LostOwner | None]) -> Callable[[Pod], LostOwner | None]:
    """The same; a pod about which it fails waits, and stops no other."""

    def guarded(pod: Pod) -> LostOwner | None:
        try:
            return lost_owner(pod)
        except Exception:
            logger.exception("owner_failed pod=%s", name_of(pod))
            return LostOwner(OWN_ERROR, is_confirmed=False)

    return guarded


def _is_plain(view: View) -> bool:
    """Whether nodes and usages depend on nothing but themselves and rules between pods."""
    return not view.added and view.volumes is None


def _terms_of(pod: Pod, namespaces: NamespaceLabels | None) -> tuple[AntiAffinityTerm, ...]:
    return antiaffinity.terms_of(pod, namespaces=namespaces)


def _usage_of(pod: Pod, annotations: Texts | None) -> Usage:
    return convert.usage_of(pod, annotations=annotations)
