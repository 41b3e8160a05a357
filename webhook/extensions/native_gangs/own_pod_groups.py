"""PodGroups of our own, one for each gang that names one (policy bind: podgroup). Pure.

Whether a gang is bound as one follows from what its pods name, never from the policy of the moment, since a
pod's schedulingGroup cannot change. The order of writes is Placement, PodGroup, releases: kube-scheduler
binds none of these pods before the PodGroup is there, and the gate holds them until it is.

A PodGroup cannot be changed. One that no longer fits, as after a Job was scaled down, is replaced: its
finalizer, which keeps it while pods name it, is taken off, it is deleted, and the next one is created. It is
owned by the gang's Placement, so that garbage collection removes both.
"""

import logging
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, owner_reference
from webhook.kube.planned import PlannedPod
from webhook.kube.struct import Struct
from webhook.sweeper.decide.orders import NO_HURRY
from webhook.sweeper.extension import (
    ObjectWrite,
    PodEvent,
    Verb,
    WatchedCollection,
    WatchedOwners,
    WriteResult,
)
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View
from webhook.sweeper.repair.repair import was_tried
from webhook.sweeper.settings import Settings
from webhook.workloads.native_gangs import GROUP, POD_GROUPS, VERSIONS, NativeGroupSpec, NativePodGroup
from webhook.workloads.pod_group_names import bind_group_of

FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
"""By which a PodGroup stays as long as unfinished pods name it (PodGroupProtection of Kubernetes)."""

MOST_EVENTS: Final = 20
"""Of one pass; the others are notified in the next ones."""

_TAKEN: Final = "a PodGroup that is not topogate's has its name; delete it and the pods that keep it"

LABELS: Final = {keys.BIND_LABEL: keys.BIND_POD_GROUP}


logger = logging.getLogger(__name__)


class _BindMetadata(Metadata, frozen=True):
    finalizers: tuple[str, ...] = ()


class BindGroup(Struct, frozen=True):
    """A PodGroup of ours."""

    metadata: _BindMetadata
    spec: NativeGroupSpec = NativeGroupSpec()

    @property
    def min_count(self) -> int:
        """So many pods are bound together, 0 where each is bound by itself."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 0

    @property
    def is_constrained(self) -> bool:
        """Whether it asks for one domain, which none does that the sweeper has made."""
        constraints = self.spec.scheduling_constraints
        return constraints is not None and bool(constraints.topology)


GROUPS: Final = WatchedOwners[NativePodGroup](POD_GROUPS)
"""Everybody's PodGroups."""

COLLECTIONS: Final = tuple(
    WatchedCollection(
        f"/apis/{GROUP}/{version}/podgroups",
        "PodGroup",
        BindGroup,
        label_selector=f"{keys.BIND_LABEL}={keys.BIND_POD_GROUP}",
        verbs=frozenset(Verb),
        is_optional=True,
    )
    for version in VERSIONS
)
"""Of which a cluster's best version is watched."""


@dataclass(frozen=True)
class GroupNeed:
    """The PodGroup that the plan of some pods needs.

    min_count: so many are bound together, 0 where each is bound by itself. there: how many of its pods are
    released or about to be. has_begun: whether one is released. owner: the Placement whose gang it is of.
    first: one of the pods, which are all of one PriorityClass.

    Of a gang of which none is bound, min_count counts planned pods that are gone as well: replacements come,
    as a rule, and the others are not to be bound without these. So it does pods whose plan does not hold any
    more. without_plan: how many these are, with the replacements that have no plan yet.

    is_overlooked: whether pods are released, and their scheduler has tried none of them. needs_another:
    whether the PodGroup is to be replaced though it fits (see overlooked_needs).
    """

    namespace: str
    name: str
    min_count: int
    there: int
    has_begun: bool
    owner: Placement
    first: Pod
    without_plan: int = 0
    is_overlooked: bool = False
    needs_another: bool = False

    @property
    def key(self) -> str:
        """Where it stands among all PodGroups."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_short(self) -> bool:
        """Whether the plan had more pods: too few are left to be bound as it says."""
        return self.min_count > self.there

    def is_met_by(self, group: BindGroup | None) -> bool:
        """Whether kube-scheduler binds the pods by this PodGroup as they are to be bound.

        Replacements and later pods of a gang that has begun join it one by one. So any minCount will do that
        the gang reaches with them.
        """
        if group is None or group.is_constrained:
            return False
        if group.min_count > self.there or (group.min_count and not self.min_count):
            return False
        fitting = min(self.min_count, self.there)
        return self.has_begun or (group.min_count == fitting and not group.metadata.deletion_timestamp)


def hold_releases(view: View) -> Set[str]:
    """The uids of gated pods whose PodGroup of ours is not there, or does not fit their plan.

    Also of pods without a plan: which PodGroup these need is known in the pass after. A replacement is one of
    them until it is planned; see GroupNeed.is_met_by for which minCount it may join.
    """
    gated = _named(view.gated, view)
    if not gated:
        return frozenset()
    collection, entries, met = collection_of(view), _entries(view), set[str]()
    if collection is not None:
        groups = collection.of(view) or {}
        met = {each.key for each in needs(view) if each.is_met_by(groups.get(each.key))}
    return {
        pod.metadata.uid
        for key, pods in gated.items()
        for pod in pods
        if key not in met or pod.metadata.uid not in entries
    }


def invalid_plans(view: View, sent: Container[str]) -> Set[str]:
    """The uids of planned pods whose gang lacks one that is there without a plan, as a replacement.

    Only of gangs of which none is released, or sent: these are placed again as a whole. Two such gangs would
    else hold the nodes for which each waits.
    """
    short = [need for need in needs(view) if need.is_short and need.without_plan and not need.has_begun]
    pods = _named(view.gated, view) if short else {}
    own = [{pod.metadata.uid for pod in pods[need.key]} & view.planned.keys() for need in short]
    return frozenset().union(*(uids for uids in own if not any(uid in sent for uid in uids)))


def group_writes(view: View, wanted: Sequence[GroupNeed]) -> Sequence[ObjectWrite]:
    """What brings the PodGroups to what the plans need. wanted: see needs."""
    collection = collection_of(view)
    if collection is None:
        return ()
    groups, found = collection.of(view) or {}, list[ObjectWrite]()
    for need in wanted:
        with _guarded(need.key):
            found += _writes(need, groups.get(need.key), view, collection)
    return found


@contextmanager
def _guarded(group: str) -> Iterator[None]:
    """One bad gang never stops the others; its own pods stay gated."""
    try:
        yield
    except Exception:
        logger.exception("pod_group_failed name=%s", group)


def collection_of(view: View) -> WatchedCollection[BindGroup] | None:
    """The PodGroups of ours in the version that the cluster serves, None until they have been read."""
    return next((each for each in COLLECTIONS if each.of(view) is not None), None)


def foreign_groups(names: Sequence[str], namespace: str, view: View) -> list[str]:
    """Those of these names that somebody else's PodGroups have taken."""
    there = GROUPS.of(view) or {}
    found = ((name, there.get(f"{namespace}/{name}")) for name in names)
    return [
        name
        for name, group in found
        if group is not None and group.metadata.labels.get(keys.BIND_LABEL) != keys.BIND_POD_GROUP
    ]


# --- what plans need ----------------------------------------------------------------------------------


def needs(view: View) -> Sequence[GroupNeed]:
    """The PodGroups of pods that are planned and gated, or released and not bound yet."""
    waiting = _named(
        (pod for pod in view.index.of[Sort.UNBOUND].values() if not pod.metadata.deletion_timestamp), view
    )
    entries = _entries(view) if waiting else {}
    found = list[GroupNeed]()
    for group, pods in waiting.items():
        with _guarded(group):
            planned = [pod for pod in pods if pod.metadata.uid in entries]
            released = [pod for pod in pods if _is_released(pod, view)]
            new = _new_of(pods, view)
            need = _need(planned, released, new, entries, view) if planned or released else None
            found += [need] if need is not None else []
    return found


def _new_of(pods: Sequence[Pod], view: View) -> int:
    """How many of these are gated, and named by no plan."""
    gated = view.index.of[Sort.GATED]
    return sum(pod.metadata.uid in gated and not view.is_ours(pod) for pod in pods)


def _is_released(pod: Pod, view: View) -> bool:
    return view.is_ours(pod) and pod.metadata.uid in view.index.of[Sort.OTHER]


def _entries(view: View) -> Mapping[str, PlannedPod]:
    """uid -> what is planned for a gated pod; also without a node, which is the plan until it is released."""
    return {**{each.uid: each for each in view.written if not each.node}, **view.planned}


def _need(
    planned: Sequence[Pod], released: Sequence[Pod], new: int, entries: Mapping[str, PlannedPod], view: View
) -> GroupNeed | None:
    """planned: those that are gated yet. released: those that are not bound yet. new: see _lost."""
    first = (planned or released)[0]
    name, gangs = bind_group_of(first), sorted({view.gang_of(pod) for pod in (*planned, *released)})
    owner = _owner(gangs, first, view)
    if owner is None:
        return None
    begun = {pod.metadata.uid for pod in released} | _members(gangs, name, view)
    there = len(planned) + len(begun)
    own = [entries[pod.metadata.uid] for pod in planned]
    gone, without_plan = _lost(owner, new, entries, view)
    expected = there + gone + without_plan
    minimum = min(owner.spec.minimum, expected) if owner.spec.minimum else expected
    min_count = minimum if _is_bound_as_one(own, gangs, view) else 0
    return GroupNeed(
        first.metadata.namespace,
        name,
        min_count,
        there,
        bool(begun),
        owner,
        first,
        without_plan,
        is_overlooked=bool(released) and not any(map(was_tried, released)),
    )


def _lost(owner: Placement, new: int, entries: Mapping[str, PlannedPod], view: View) -> tuple[int, int]:
    """How many planned pods of a gang are gone, and how many that are there, or replace one, have no plan.

    None once one is bound: then others join one by one. new: gated pods that no plan names.
    """
    there = [pod for pod in view.pods_of(owner) if not pod.metadata.deletion_timestamp]
    if owner.is_complete or any(pod.spec.node_name for pod in there):
        return 0, 0
    gated = view.index.of[Sort.GATED]
    without_plan = sum(pod.metadata.uid in gated and pod.metadata.uid not in entries for pod in there)
    gone = len(owner.spec.pods) - len(there)
    replaced = min(gone, new)
    return gone - replaced, without_plan + replaced


def _owner(gangs: Sequence[GangKey], pod: Pod, view: View) -> Placement | None:
    """The Placement of one of these gangs, else the one that names this pod of them.

    By other settings than those of the leader before a pod may be of another gang than its plan is of.
    """
    own = next((each for gang in gangs if (each := view.placements.get(gang.placement_key))), None)
    if own is not None:
        return own
    namespace, uid = pod.metadata.namespace, pod.metadata.uid
    there = (each for each in view.placements.values() if each.metadata.namespace == namespace)
    return next((each for each in there if any(entry.uid == uid for entry in each.spec.pods)), None)


def _members(gangs: Sequence[GangKey], name: str, view: View) -> set[str]:
    """uids of the released pods of these gangs that name the PodGroup and are to stay."""
    return {
        pod.metadata.uid
        for gang in gangs
        for pod in view.index.mates.get(gang, ())
        if bind_group_of(pod) == name and not pod.metadata.deletion_timestamp
    }


def _is_bound_as_one(planned: Sequence[PlannedPod], gangs: Sequence[GangKey], view: View) -> bool:
    """Whether all these pods of plans wait for one another.

    Not pods that are gangs of their own by the settings; nor those for which no node is planned, as there may
    be no capacity for all of them; nor where a node's reader guesses which pod gets which cards: such a node
    is given one pod at a time, the next once that one is bound.
    """
    if len(gangs) > 1 or gangs[0].kind == "Pod":
        return False
    return all(each.node and (not each.annotations or view.identifies_pods(each.node)) for each in planned)


def _named(pods: Iterator[Pod] | Sequence[Pod], view: View) -> Mapping[str, list[Pod]]:
    """By "namespace/name" the pods that name a PodGroup of ours."""
    found: dict[str, list[Pod]] = {}
    of_groups = view.index.of[Sort.OF_A_POD_GROUP]
    for pod in pods if of_groups else ():
        if pod.metadata.uid in of_groups and (name := bind_group_of(pod)):
            found.setdefault(f"{pod.metadata.namespace}/{name}", []).append(pod)
    return found


# --- what owners are notified of ----------------------------------------------------------------------


@dataclass(frozen=True)
class Overlooked:
    """Since when no pod of a PodGroup is tried, or its last replacement for that; seconds until the next."""

    since: float
    pause: float


@dataclass(frozen=True)
class BindMemory:
    """notified: the reason that owners have had an Event of, by PodGroup. A new process sends it again.

    short_since: when a gang was first seen to have lost planned pods, by PodGroup (see Moment.seconds). A new
    process counts from its own beginning. overlooked: see overlooked_needs.
    """

    notified: Mapping[str, str] = field(default_factory=dict)
    short_since: Mapping[str, float] = field(default_factory=dict)
    overlooked: Mapping[str, Overlooked] = field(default_factory=dict)


def patient_needs(
    wanted: Sequence[GroupNeed], view: View, settings: Settings, memory: BindMemory
) -> tuple[list[GroupNeed], BindMemory]:
    """The needs that are to be met now: of gangs that lost planned pods those whose patience is over.

    These are bound without the pods that are gone, as incomplete gangs are planned after as long. Pods that
    are there and have no plan, replacements among them, get one, or their gang is planned again as a whole:
    see invalid_plans. Of a gang of which pods are released, repair deletes these.
    """
    now, since, found = view.now.seconds, dict[str, float](), list[GroupNeed]()
    for need in wanted:
        if not need.is_short:
            found.append(need)
            continue
        since[need.key] = memory.short_since.get(need.key, now)
        if now - since[need.key] >= settings.patience_seconds and not need.without_plan:
            found.append(replace(need, min_count=need.there))
    return found, replace(memory, short_since=since)


def overlooked_needs(
    wanted: Sequence[GroupNeed], view: View, settings: Settings, memory: BindMemory
) -> tuple[list[GroupNeed], BindMemory]:
    """The needs, with another PodGroup where kube-scheduler overlooks the pods of the one that is there.

    kube-scheduler 1.36 holds pods that are too few for their PodGroup, and tries them again once one is
    added. If its watch was interrupted while a PodGroup was replaced, it sees a change, not an addition, and
    holds them for ever (EventsToRegister in gangscheduling.go). The next addition wakes it. It may also not
    be running, so each pause between replacements is twice the last.
    """
    now, overlooked, found = view.now.seconds, dict[str, Overlooked](), list[GroupNeed]()
    for need in wanted:
        if need.is_overlooked:
            last = memory.overlooked.get(need.key, Overlooked(now, settings.bind_seconds))
            is_over = now - last.since >= last.pause
            overlooked[need.key] = Overlooked(now, 2 * last.pause) if is_over else last
            need = replace(need, needs_another=is_over)
        found.append(need)
    return found, replace(memory, overlooked=overlooked)


def patience_left(memory: BindMemory, view: View, settings: Settings) -> float:
    """In how many seconds the first patience or pause ends that is not over, NO_HURRY if there is none."""
    ends = [since + settings.patience_seconds for since in memory.short_since.values()]
    ends += [each.since + each.pause for each in memory.overlooked.values()]
    left = (end - view.now.seconds for end in ends)
    return min((each for each in left if each > 0), default=NO_HURRY)


def group_events(
    view: View, wanted: Sequence[GroupNeed], written: Sequence[WriteResult], memory: BindMemory
) -> tuple[Sequence[PodEvent], BindMemory]:
    """Tell the owners of pods that are held for long, once for each reason. wanted: see needs."""
    errors = {f"{each.write.namespace}/{each.write.name}": each.error for each in written if each.error}
    events, notified = list[PodEvent](), dict[str, str]()
    for need in wanted:
        why = _TAKEN if foreign_groups([need.name], need.namespace, view) else errors.get(need.key, "")
        if not why:
            continue
        if memory.notified.get(need.key) != why and len(events) < MOST_EVENTS:
            what = "not bound" if need.has_begun else "not released"
            note = f"{what}: PodGroup {need.name}, by which its gang is bound as one, is missing: {why}"
            events.append(PodEvent(need.first, EventReason.POD_GROUP_MISSING, note))
            notified[need.key] = why
        elif need.key in memory.notified:
            notified[need.key] = memory.notified[need.key]
    return events, replace(memory, notified=notified)


# --- what is written ----------------------------------------------------------------------------------


def _writes(
    need: GroupNeed, group: BindGroup | None, view: View, collection: WatchedCollection[BindGroup]
) -> Iterator[ObjectWrite]:
    is_met = need.is_met_by(group) and not need.needs_another
    if is_met or foreign_groups([need.name], need.namespace, view):
        return
    if group is None:
        yield ObjectWrite.create(
            collection, _body(need), f"the pods of {need.owner.spec.gang} are bound by it"
        )
        return
    gang = need.owner.spec.gang
    why = f"{gang} needs another, of {need.min_count or 'single'} pods"
    if need.needs_another:
        why = (
            f"kube-scheduler has tried no pod of {gang}: it may have missed that an earlier one was replaced"
        )
    metadata = group.metadata
    if FINALIZER in metadata.finalizers:
        others = [each for each in metadata.finalizers if each != FINALIZER]
        yield ObjectWrite.patch(collection, metadata, {"metadata": {"finalizers": others}}, why, need.key)
    if not metadata.deletion_timestamp:
        yield ObjectWrite.delete(collection, metadata, why, need.key)


def _body(need: GroupNeed) -> dict[str, Any]:
    metadata = {
        "namespace": need.namespace,
        "name": need.name,
        "labels": LABELS,
        "ownerReferences": [owner_reference(need.owner.metadata)],
    }
    policy = {"gang": {"minCount": need.min_count}} if need.min_count else {"basic": {}}
    spec: dict[str, Any] = {"schedulingPolicy": policy}
    if priority_class := need.first.spec.priority_class_name:
        # By this kube-scheduler preempts for it, and its pods for others.
        spec["priorityClassName"] = priority_class
    return {"metadata": metadata, "spec": spec}
