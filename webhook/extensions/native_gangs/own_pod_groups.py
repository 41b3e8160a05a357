"""The PodGroups that topogate creates, one for each gang that names one (binding.mode: podgroup). Pure.

A pod's schedulingGroup cannot change, so the pods decide whether a gang is bound as one, not the current
policy. The order of writes is Placement, PodGroup, releases: kube-scheduler binds none of these pods before
the PodGroup exists, and they stay gated until then.

A PodGroup cannot change. If it no longer fits, for example after a Job was scaled down, it is replaced.
First its finalizer, which protects it while pods name it, is removed. Then it is deleted and a new one is
created. The gang's Placement owns it, so that garbage collection removes both.
"""

import logging
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from labeler.contract import keys
from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.kube.objects import Metadata, Pod
from webhook.kube.placements import Placement, owner_reference
from webhook.kube.plan_pods import PlannedPod
from webhook.kube.struct import Struct
from webhook.sweeper.decide.orders import NO_HURRY
from webhook.sweeper.decide.retries import Wait
from webhook.sweeper.extension import (
    ObjectEvent,
    ObjectWrite,
    WatchedOwners,
    WriteResult,
)
from webhook.sweeper.observe.membership import GangKey
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import View
from webhook.sweeper.observe.watches import Verb, WatchedCollection
from webhook.sweeper.repair.repair import was_tried
from webhook.workloads.native_gangs import GROUP, POD_GROUPS, VERSIONS, NativeGroupSpec, NativePodGroup
from webhook.workloads.pod_group_names import bind_group_body, bind_group_of

FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
"""It keeps a PodGroup while unfinished pods name it (PodGroupProtection of Kubernetes)."""

MOST_EVENTS: Final = 20
"""The most Events of one pass; the others follow in later passes."""

_TAKEN: Final = "a PodGroup that is not topogate's has its name; delete it and the pods that keep it"

logger = logging.getLogger(__name__)


class _BindMetadata(Metadata, frozen=True):
    finalizers: tuple[str, ...] = ()


class BindGroup(Struct, frozen=True):
    """A PodGroup that topogate created."""

    metadata: _BindMetadata
    spec: NativeGroupSpec = NativeGroupSpec()

    @property
    def min_count(self) -> int:
        """The number of pods that are bound together, 0 if each is bound by itself."""
        gang = self.spec.scheduling_policy.gang
        return gang.min_count if gang is not None else 0

    @property
    def is_constrained(self) -> bool:
        """Whether it requires one domain; PodGroups of the sweeper never do."""
        constraints = self.spec.scheduling_constraints
        return constraints is not None and bool(constraints.topology)


GROUPS: Final = WatchedOwners[NativePodGroup](POD_GROUPS)
"""All PodGroups, also those of other clients."""

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
"""PodGroups of topogate in all versions; the best version that the cluster serves is watched."""


@dataclass(frozen=True)
class GroupNeed:
    """The PodGroup that the plan of some pods needs.

    min_count: how many pods are bound together, 0 if each is bound by itself. there: how many of its pods are
    released or will be now. has_begun: whether one is released. owner: the Placement of its gang. first: one
    of the pods; all have the same PriorityClass.

    Before the first pod of a gang is bound, min_count includes planned pods that are gone: replacements
    usually follow, and the others must not be bound without them. It also includes pods whose plan is no
    longer valid. without_plan: the number of the latter, plus replacements without a plan.

    is_overlooked: whether pods are released, and kube-scheduler has tried none of them. needs_another:
    whether the PodGroup must be replaced although it fits (see overlooked_needs).
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
        """ "namespace/name" of the PodGroup."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_short(self) -> bool:
        """Whether fewer pods are left than the plan binds together."""
        return self.min_count > self.there

    def is_met_by(self, group: BindGroup | None) -> bool:
        """Whether kube-scheduler binds the pods with this PodGroup as planned.

        Replacements and later pods join a gang that has begun one by one. So any minCount fits that the gang
        reaches with them.
        """
        if group is None or group.is_constrained:
            return False
        if group.min_count > self.there or (group.min_count and not self.min_count):
            return False
        fitting = min(self.min_count, self.there)
        return self.has_begun or (group.min_count == fitting and not group.metadata.deletion_timestamp)


def hold_releases(view: View) -> Set[str]:
    """The uids of gated pods whose PodGroup by topogate is missing or does not fit their plan.

    This includes pods without a plan, such as new replacements: the next pass knows which PodGroup they need.
    See GroupNeed.is_met_by for the minCount that a replacement may join.
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
    """The uids of planned pods in gangs that also have pods without a plan, such as replacements.

    Only gangs without a released or sent pod count: they are placed again as a whole. Otherwise two such
    gangs could each occupy the nodes that the other needs.
    """
    short = [need for need in needs(view) if need.is_short and need.without_plan and not need.has_begun]
    pods = _named(view.gated, view) if short else {}
    own = [{pod.metadata.uid for pod in pods[need.key]} & view.planned.keys() for need in short]
    return frozenset().union(*(uids for uids in own if not any(uid in sent for uid in uids)))


def group_writes(view: View, wanted: Sequence[GroupNeed]) -> Sequence[ObjectWrite]:
    """The writes that make the PodGroups fit the plans. wanted: see needs."""
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
    """Log an exception: one bad gang must not stop the others, and its own pods stay gated."""
    try:
        yield
    except Exception:
        logger.exception("pod_group_failed name=%s", group)


def collection_of(view: View) -> WatchedCollection[BindGroup] | None:
    """The watched PodGroups of topogate in the served version, None until they have been read."""
    return next((each for each in COLLECTIONS if each.of(view) is not None), None)


def foreign_groups(names: Sequence[str], namespace: str, view: View) -> list[str]:
    """The names that PodGroups of other clients have taken."""
    there = GROUPS.of(view) or {}
    found = ((name, there.get(f"{namespace}/{name}")) for name in names)
    return [
        name
        for name, group in found
        if group is not None and group.metadata.labels.get(keys.BIND_LABEL) != keys.BIND_POD_GROUP
    ]


# --- needs of plans -----------------------------------------------------------------------------------


def needs(view: View) -> Sequence[GroupNeed]:
    """The PodGroups of pods that are planned and gated, or released and not yet bound."""
    waiting = _named(
        (pod for pod in view.index.of[PodTrait.UNBOUND].values() if not pod.metadata.deletion_timestamp), view
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
    """How many of these pods are gated and in no plan."""
    gated = view.index.of[PodTrait.GATED]
    return sum(pod.metadata.uid in gated and not view.is_ours(pod) for pod in pods)


def _is_released(pod: Pod, view: View) -> bool:
    return view.is_ours(pod) and pod.metadata.uid in view.index.of[PodTrait.OTHER]


def _entries(view: View) -> Mapping[str, PlannedPod]:
    """uid of a gated pod -> its entry in a plan, also an entry without a node."""
    return {**{each.uid: each for each in view.written if not each.node}, **view.planned}


def _need(
    planned: Sequence[Pod], released: Sequence[Pod], new: int, entries: Mapping[str, PlannedPod], view: View
) -> GroupNeed | None:
    """planned: still gated pods. released: pods that are not yet bound. new: see _lost."""
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
    """How many planned pods of a gang are gone, and how many existing pods or replacements have no plan.

    Both are 0 once a pod is bound: then others join one by one. new: gated pods in no plan.
    """
    there = [pod for pod in view.pods_of(owner) if not pod.metadata.deletion_timestamp]
    if owner.is_complete or any(pod.spec.node_name for pod in there):
        return 0, 0
    gated = view.index.of[PodTrait.GATED]
    without_plan = sum(pod.metadata.uid in gated and pod.metadata.uid not in entries for pod in there)
    gone = len(owner.spec.pods) - len(there)
    replaced = min(gone, new)
    return gone - replaced, without_plan + replaced


def _owner(gangs: Sequence[GangKey], pod: Pod, view: View) -> Placement | None:
    """The Placement of one of these gangs, else the Placement that names this pod.

    If the settings changed with the leader, a pod's gang may differ from the gang of its plan.
    """
    own = next((each for gang in gangs if (each := view.placements.get(gang.placement_key))), None)
    if own is not None:
        return own
    namespace, uid = pod.metadata.namespace, pod.metadata.uid
    there = (each for each in view.placements.values() if each.metadata.namespace == namespace)
    return next((each for each in there if any(entry.uid == uid for entry in each.spec.pods)), None)


def _members(gangs: Sequence[GangKey], name: str, view: View) -> set[str]:
    """uids of the released pods of these gangs that name the PodGroup and are not being deleted."""
    return {
        pod.metadata.uid
        for gang in gangs
        for pod in view.index.mates.get(gang, ())
        if bind_group_of(pod) == name and not pod.metadata.deletion_timestamp
    }


def _is_bound_as_one(planned: Sequence[PlannedPod], gangs: Sequence[GangKey], view: View) -> bool:
    """Whether all these planned pods are bound together.

    They are not if each is its own gang by the settings, or if one has no planned node, since there may not
    be capacity for all. They are not on nodes whose allocator guesses which pod gets which cards: such a node
    gets one pod at a time, the next once the previous one is bound.
    """
    if len(gangs) > 1 or gangs[0].kind == "Pod":
        return False
    return all(each.node and (not each.annotations or view.identifies_pods(each.node)) for each in planned)


def _named(pods: Iterator[Pod] | Sequence[Pod], view: View) -> Mapping[str, list[Pod]]:
    """ "namespace/name" of a PodGroup of topogate -> its pods."""
    found: dict[str, list[Pod]] = {}
    of_groups = view.index.of[PodTrait.OF_A_POD_GROUP]
    for pod in pods if of_groups else ():
        if pod.metadata.uid in of_groups and (name := bind_group_of(pod)):
            found.setdefault(f"{pod.metadata.namespace}/{name}", []).append(pod)
    return found


# --- Events for owners --------------------------------------------------------------------------------


@dataclass(frozen=True)
class NativeMemory:
    """The state between passes, by PodGroup.

    notified: the reason in the last Event for owners; a new process sends it again. short_since: when the
    gang was first seen to have lost planned pods (see Moment.seconds); a new process counts from its start.
    overlooked: see overlooked_needs. left: gangs left to kube-scheduler whose owners have got the Event.
    """

    notified: Mapping[str, str] = field(default_factory=dict)
    short_since: Mapping[str, float] = field(default_factory=dict)
    overlooked: Mapping[str, Wait] = field(default_factory=dict)
    left: frozenset[GangKey] = frozenset()


def patient_needs(
    wanted: Sequence[GroupNeed], view: View, settings: Settings, memory: NativeMemory
) -> tuple[list[GroupNeed], NativeMemory]:
    """The needs to meet now; a gang that lost planned pods is included only after `patience_seconds`.

    It is then bound without the missing pods, also where the Job controller delays their replacements longer.
    Existing pods without a plan get one, or their whole gang is planned again: see invalid_plans. If the gang
    has released pods, repair deletes these.
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
    wanted: Sequence[GroupNeed], view: View, settings: Settings, memory: NativeMemory
) -> tuple[list[GroupNeed], NativeMemory]:
    """The needs, with needs_another set if kube-scheduler overlooks the pods of an existing PodGroup.

    kube-scheduler 1.36 keeps pods pending if they are too few for their PodGroup, and retries once a PodGroup
    is added. If its watch was interrupted while a PodGroup was replaced, it sees an update, not an addition,
    and never retries (EventsToRegister in gangscheduling.go). Another addition helps. kube-scheduler may also
    be down, so the pause between replacements doubles.
    """
    now, overlooked, found = view.now.seconds, dict[str, Wait](), list[GroupNeed]()
    for need in wanted:
        if need.is_overlooked:
            seconds = settings.bind_seconds
            last = memory.overlooked.get(need.key, Wait(seconds, now + seconds))
            is_over = now >= last.until
            overlooked[need.key] = Wait(2 * last.seconds, now + 2 * last.seconds) if is_over else last
            need = replace(need, needs_another=is_over)
        found.append(need)
    return found, replace(memory, overlooked=overlooked)


def patience_left(memory: NativeMemory, view: View, settings: Settings) -> float:
    """The seconds until the next patience or pause ends, NO_HURRY if there is none."""
    ends = [since + settings.patience_seconds for since in memory.short_since.values()]
    ends += [each.until for each in memory.overlooked.values()]
    left = (end - view.now.seconds for end in ends)
    return min((each for each in left if each > 0), default=NO_HURRY)


def group_events(
    view: View, wanted: Sequence[GroupNeed], written: Sequence[WriteResult], memory: NativeMemory
) -> tuple[Sequence[ObjectEvent], NativeMemory]:
    """Events for the owners of pods that wait for their PodGroup, one for each reason. wanted: see needs."""
    errors = {f"{each.write.namespace}/{each.write.name}": each.error for each in written if each.error}
    events, notified = list[ObjectEvent](), dict[str, str]()
    for need in wanted:
        why = _TAKEN if foreign_groups([need.name], need.namespace, view) else errors.get(need.key, "")
        if not why:
            continue
        if memory.notified.get(need.key) != why and len(events) < MOST_EVENTS:
            what = "not bound" if need.has_begun else "not released"
            note = f"{what}: PodGroup {need.name}, by which its gang is bound as one, is missing: {why}"
            events.append(ObjectEvent(need.first, EventReason.POD_GROUP_MISSING, note))
            notified[need.key] = why
        elif need.key in memory.notified:
            notified[need.key] = memory.notified[need.key]
    return events, replace(memory, notified=notified)


# --- writes -------------------------------------------------------------------------------------------


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
    owners = [owner_reference(need.owner.metadata)]
    return bind_group_body(
        need.namespace, need.name, owners, need.first.spec.priority_class_name, need.min_count
    )
