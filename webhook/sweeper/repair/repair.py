"""Which released pods are deleted so that their controllers recreate them: those that need another place, and
the released part of a gang whose other pods find no place. Pure.

A pod is deleted only if its controller recreates it and the deletion breaks nothing else. All pods of one Job
are checked together, since a Job that has spent its failures on half of them is worse off than before.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

from labeler.contract.event_reasons import EventReason
from webhook.configuration.settings import Settings
from webhook.kube.objects import Node, Pod, PodSpec
from webhook.scheduling import unmodelled_rules
from webhook.sweeper.decide.node_rules import NodeRule, RuleKind
from webhook.sweeper.decide.orders import NO_PLACE_FOUND, Cause, Done, Eviction, Orders, Warn
from webhook.sweeper.decide.refusing_nodes import RefusingNodes
from webhook.sweeper.decide.reservations import ReservationLedger
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.plans import PodId, scheduler_of
from webhook.sweeper.observe.pods import ENDING_SECONDS, PodTrait
from webhook.sweeper.observe.view import View, identity, is_ready, is_usable, why_not_accepted
from webhook.sweeper.repair.allowance import (
    Allowance,
    Deletions,
    after_deletion,
    by_owner,
    can_come_again,
    deletions_of,
)
from webhook.workloads.native_gangs import group_name

# --- pods in trouble ----------------------------------------------------------------------------------
# A pin is final: a released pod whose node is gone, or that kube-scheduler will not bind, can only be
# recreated by its controller. Its successor is gated and joins its gang. A pod that no controller recreates
# is never deleted; the user gets an Event.

NODE_GONE_SECONDS: Final = 10.0
UNTRIED: Final = "no-scheduler"
"""The cause of a pod that only waits for the scheduler: reported, but not acted upon."""

_NO_NODE: Final = " nodes are available"
"""A part of kube-scheduler's message on a pod for which it finds no node."""

NOT_BOUND: Final = "not-bound"
"""The cause of a pod that kube-scheduler has tried to bind without success."""

_NOT_ACCEPTED: Final = "not-accepted"
"""How a pod is counted that is not bound, and that its node does not accept though it accepts others."""


@dataclass(frozen=True)
class NeededRepair:
    """A released pod that needs another place. cause is a word for metrics, reason a sentence.

    patience: for how many seconds it may be so; seconds: for how many it was. counted_as: the kind of trouble
    by which these are counted, "" for the cause.
    """

    pod: Pod
    node: str
    cause: str
    reason: str
    patience: float
    counted_as: str = ""
    seconds: float = 0.0

    @property
    def keeps_capacity(self) -> bool:
        """Whether other pods could use the capacity that it does not use."""
        return self.cause == NOT_BOUND or self.counted_as == _NOT_ACCEPTED


Troubles = Mapping[tuple[str, str], float]
"""By uid and kind of trouble, since when; after a restart all times begin again, which only delays."""


def needed_repairs(
    troubles: Troubles,
    sent: Iterable[tuple[Pod, str]],
    nodes: Mapping[str, Node],
    emptying: Set[str],
    settings: Settings,
    now: float,
    why_not: Callable[[Node, PodSpec], str] = why_not_accepted,
) -> tuple[list[NeededRepair], Troubles]:
    """Which of these released pods have been in trouble for too long; a short trouble is not acted upon.

    sent: each with the node where it is to run, see occupied_node. emptying: nodes on which pods are
    terminating. why_not: see why_not_accepted.
    """
    known: dict[tuple[str, str], float] = {}
    found = []
    for pod, node in sent:
        trouble = _trouble(pod, node, nodes, emptying, settings, why_not)
        if trouble is None:
            continue
        key = pod.metadata.uid, trouble.counted_as or trouble.cause
        since = known[key] = troubles.get(key, now)
        if now - since >= trouble.patience:
            found.append(replace(trouble, seconds=now - since))
    return found, known


def _trouble(
    pod: Pod,
    name: str,
    nodes: Mapping[str, Node],
    emptying: Set[str],
    settings: Settings,
    why_not: Callable[[Node, PodSpec], str],
) -> NeededRepair | None:
    """The current trouble of a pod on the node of this name, None for nothing."""
    if pod.metadata.deletion_timestamp or pod.status.phase not in ("", "Pending"):
        return None
    is_bound = bool(pod.spec.node_name)
    node = nodes.get(name)
    if node is None:
        # Pods and nodes are watched apart: the one may be behind the other for a moment.
        return NeededRepair(pod, name, "node-gone", f"its node {name} was deleted", NODE_GONE_SECONDS)
    if what := _why_unusable(node, pod):
        reason = f"its node {name} is {what}"
        return NeededRepair(pod, name, "node-unusable", reason, settings.not_ready_seconds)
    if not is_bound and (why := why_not(node, pod.spec)):
        reason = f"its node {name} is not allowed for it any more ({why})"
        return NeededRepair(pod, name, "node-unusable", reason, settings.not_ready_seconds, _NOT_ACCEPTED)
    if is_bound or pod.spec.scheduling_gates:  # others may delay it as long as they like
        return None
    return _not_bound(pod, name, emptying, settings)


def _why_unusable(node: Node, pod: Pod) -> str:
    """Why no pod can run there, or be bound there if this one is not bound yet; "" if one can."""
    if not is_ready(node):
        return "not ready"
    if pod.spec.node_name or is_usable(node):
        return ""
    return "cordoned" if node.spec.unschedulable else "being removed"


def _not_bound(pod: Pod, node: str, emptying: Set[str], settings: Settings) -> NeededRepair:
    """It waits for its scheduler, and nothing is wrong with its node."""
    if not was_tried(pod):
        # The scheduler is away or behind; no other node would help, and deleting all would hurt.
        reason = f"no scheduler has tried it for {settings.bind_seconds:.0f} s: is it running?"
        return NeededRepair(pod, node, UNTRIED, reason, settings.bind_seconds)
    if _preempts(pod) and node in emptying:
        # Its victims take their grace period, which is not counted below, and may be without end.
        reason = f"the pods that it preempts on {node} have not ended in {ENDING_SECONDS:.0f} s"
        return NeededRepair(pod, node, NOT_BOUND, reason, ENDING_SECONDS, "emptying")
    waits_longer = _preempts(pod) or waits_for_group(pod)
    patience = settings.bind_seconds * (3 if waits_longer else 1)
    message = _scheduler_message(pod)  # which refers to rules that topogate does not model
    note = f", saying: {message}" if message else ""
    reason = f"kube-scheduler has not bound it to {node} within {patience:.0f} s{note}"
    return NeededRepair(pod, node, NOT_BOUND, reason, patience)


def count_unbound(troubles: Troubles, settings: Settings, now: float) -> int:
    """How many released pods have waited for their scheduler alone for longer than bind_seconds."""
    started = [since for (_, kind), since in troubles.items() if kind in (UNTRIED, NOT_BOUND)]
    return sum(now - since >= settings.bind_seconds for since in started)


def away_schedulers(released: Iterable[Pod]) -> frozenset[str]:
    """The schedulers that have tried none of the released pods that wait for them: they are not running.

    A scheduler that has tried others will not return to those that it has skipped.
    """
    waiting = [pod for pod in released if not pod.spec.node_name and not pod.spec.scheduling_gates]
    names = {scheduler_of(pod) for pod in waiting}
    return frozenset(names - {scheduler_of(pod) for pod in waiting if was_tried(pod)})


def was_tried(pod: Pod) -> bool:
    """Whether a scheduler has tried to bind the pod since it was released, and has reported it."""
    return _preempts(pod) or any(
        each.type == "PodScheduled" and each.reason not in ("", "SchedulingGated")
        for each in pod.status.conditions
    )


def _preempts(pod: Pod) -> bool:
    """Whether kube-scheduler has nominated it to a node that it empties for it."""
    return bool(pod.status.nominated_node_name)


def waits_for_group(pod: Pod) -> bool:
    """Whether kube-scheduler would bind the pod, and only waits for others of its PodGroup.

    For a group that it cannot bind, its message for each pod is either how many nodes are available to it, or
    that it waits for the group (schedule_one_podgroup.go). Only the first kind needs another node.
    """
    message = _scheduler_message(pod)
    return bool(group_name(pod.spec)) and bool(message) and _NO_NODE not in message


def _scheduler_message(pod: Pod) -> str:
    """kube-scheduler's own words, "" without any."""
    message = (each.message for each in pod.status.conditions if each.type == "PodScheduled" and each.message)
    return next(message, "")


# --- partially released gangs -------------------------------------------------------------------------


@dataclass(frozen=True)
class PartialRelease:
    """unreleased: how much was not released when that last shrank, and since when it has not."""

    unreleased: int
    since: float


PartlyReleased = Mapping[GangKey, PartialRelease]
"""Since when the rest of each partially released gang has found no place; losing it only delays."""

_FITS_NOWHERE: Final = NO_PLACE_FOUND | {Cause.INVALID_REQUEST}
"""The rest of a gang finds no place, be it only because its released pods are in several domains."""

_UNKNOWN: Final = frozenset({Cause.INCOMPLETE, Cause.INTERNAL_ERROR})
"""For the moment it is not known whether the rest finds a place: some pods are about to come or to end."""


def partly_released(
    partly: PartlyReleased,
    view: View,
    gangs: Sequence[PodGang],
    causes: Mapping[GangKey, Cause],
    unasked: Set[GangKey],
    settings: Settings,
    at_once: Set[GangKey],
) -> tuple[list[tuple[PodGang, list[Pod]]], PartlyReleased]:
    """The gangs whose rest has found no place for long enough, each with its released part.

    Each gang's time then starts again; it continues while nothing is known. It ends for any other cause:
    also where a place was found and could not be taken, and where pods are missing for long. causes: why
    gangs wait. unasked: gangs whose cause may no longer be valid. at_once: gangs of which some pods are
    deleted already, so that they wait for neither.
    """
    now = view.now.seconds
    known: dict[GangKey, PartialRelease] = {}
    found: list[tuple[PodGang, list[Pod]]] = []
    for gang in gangs:
        released, is_due = _released_part(gang, view), gang.key in at_once
        finds_none = is_due or _finds_none(causes.get(gang.key), gang.key in unasked)
        partial = _partial_release(gang, partly.get(gang.key), finds_none, now) if released else None
        if partial is None:
            continue
        if is_due or (finds_none and now - partial.since >= settings.rollback_seconds):
            partial = replace(partial, since=now)
            found.append((gang, released))
        known[gang.key] = partial
    return found, known


def _finds_none(cause: Cause | None, is_unasked: bool) -> bool | None:
    """Whether the rest of a gang finds no place; None if that is not known at the moment."""
    return None if is_unasked or cause in _UNKNOWN else cause in _FITS_NOWHERE


def _partial_release(
    gang: PodGang, before: PartialRelease | None, finds_none: bool | None, now: float
) -> PartialRelease | None:
    """Since when the rest of a gang finds no place, None if it may find one. finds_none: see _finds_none."""
    if not finds_none:
        return before if finds_none is None else None
    unreleased = len(gang.gated)
    since = now if before is None or unreleased < before.unreleased else before.since
    return PartialRelease(unreleased, since)


def still_due(partly: PartlyReleased, gangs: Iterable[GangKey]) -> PartlyReleased:
    """These were due, and were not checked."""
    return {**partly, **{gang: replace(partly[gang], since=float("-inf")) for gang in gangs}}


def _released_part(gang: PodGang, view: View) -> list[Pod]:
    """The part of a gang that waits, released, for a rest that has never run; [] for other gangs."""
    placement = view.placements.get(gang.key.placement_key)
    if placement is None or placement.is_complete:
        return []
    if gang.minimum is not None and len(gang.released) >= gang.minimum:
        return []  # enough to run: the others join as capacity comes
    ours = {planned.uid for planned in placement.spec.pods}
    # A member that topogate did not place (such as a Ray head without GPU) is not ours to delete, and
    # CPU-only pods are in no pod's way.
    return [pod for pod in gang.released if pod.metadata.uid in ours - gang.cpu_pods]


STAYS_SECONDS: Final = 30.0
"""A pod that still exists this long after its deletion was ordered no longer delays others. One that exists
this long after that was answered cannot be deleted by us."""

_BACK: Final = "rolled-back"

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RepairMemory:
    """The memory of repairs; losing it only delays. Times are seconds of Moment.

    evicted: the released pods that we have deleted, as long as a plan names them. ordered: by uid, since when
    a deletion is ordered; answered: likewise, since when the API server has answered one. going_back: by uid,
    the gang that is deleted with the pod. half_gone: gangs of which the rest is still to be deleted.
    """

    troubles: Troubles = field(default_factory=dict)
    partly: PartlyReleased = field(default_factory=dict)
    deletions: Deletions = field(default_factory=dict)
    evicted: frozenset[PodId] = frozenset()
    ordered: Mapping[str, float] = field(default_factory=dict)
    answered: Mapping[str, float] = field(default_factory=dict)
    rolling_back: Mapping[str, GangKey] = field(default_factory=dict)
    partly_evicted: frozenset[GangKey] = frozenset()

    def of(self, gangs: Iterable[PodGang], now: float) -> "RepairMemory":
        """Only the controllers of these gangs are there still."""
        if not self.deletions:
            return self
        living = {controller for gang in gangs for controller in by_owner(gang.pods)}
        return replace(self, deletions=deletions_of(self.deletions, living, now))

    def after(self, done: Done, now: float) -> "RepairMemory":
        """With the results of deletions.

        The rest of a gang that is deleted as a whole stays due: else only half of it would be deleted.
        """
        answered = {order.pod.metadata.uid: now for order in (*done.evicted, *done.denied)}
        deferred = self._rolled_back(done.deferred)
        gone = self._rolled_back((*done.evicted, *done.denied)) - deferred
        return replace(
            self,
            evicted=self.evicted.union(identity(each.pod) for each in done.evicted),
            deletions=after_deletion(self.deletions, (each.pod for each in done.evicted), now),
            answered={**answered, **self.answered},
            partly_evicted=(self.partly_evicted - gone) | deferred,
        )

    def _rolled_back(self, orders: Iterable[Eviction]) -> set[GangKey]:
        uids = [each.pod.metadata.uid for each in orders if each.cause == _BACK]
        return {self.rolling_back[uid] for uid in uids if uid in self.rolling_back}


_NONE_STUCK: Final = NodeRule(frozenset(), kind=RuleKind.STUCK)


@dataclass(frozen=True)
class Repaired:
    """The results of repair in a pass.

    unrepairable: uids of released pods that will not be bound, and that no controller recreates or we cannot
    delete. stuck: the rule for their nodes, and those of pods whose scheduler is away: elsewhere cards are
    available sooner, in order. refusing: by controller, nodes that refused a pod.
    """

    orders: Orders = field(default_factory=Orders)
    unrepairable: frozenset[str] = frozenset()
    stuck: NodeRule = _NONE_STUCK
    refusing: tuple[tuple[GangKey, tuple[str, ...]], ...] = ()

    def with_refusing(self, refusing: RefusingNodes, now: float) -> RefusingNodes:
        """With the nodes that did not take a pod."""
        for controller, nodes in self.refusing:
            refusing = refusing.refused(controller, nodes, now)
        return refusing


# --- pods that need another place ---------------------------------------------------------------------


def repair_released(
    view: View, memory: RepairMemory, allowance: Allowance, settings: Settings
) -> tuple[Repaired, RepairMemory]:
    """Delete the released pods that do not start where they were sent."""
    released, now = view.under_way, view.now.seconds
    needed, troubles = _needed(view, memory.troubles, settings)
    untried = [repair for repair in needed if repair.cause == UNTRIED]
    found = {repair.pod.metadata.uid: repair for repair in needed if repair.cause != UNTRIED}
    evictions, not_deleted = _judged(found, view, allowance, settings)
    memory = _ordered(replace(memory, troubles=troubles, evicted=memory.evicted & view.named), evictions, now)
    # The author of a pod may write it all the time, or make it look undeletable: other pods on its node must
    # not wait for that.
    staying = [found[uid] for uid in _for_long(memory.ordered, now)]
    # While its scheduler is away no pod is released after it: else all are bound at once when it is back.
    away = away_schedulers(released).intersection(settings.scheduler_names)
    passed_over = [repair for repair in untried if scheduler_of(repair.pod) not in away]
    unrepairable = [*passed_over, *(repair for repair, _ in not_deleted), *staying]
    # For writes that an overloaded API server defers it is unknown whether we can delete the pod.
    stuck = [(found[uid], "topogate cannot delete it") for uid in _for_long(memory.answered, now)]
    repaired = Repaired(
        Orders(evictions=tuple(evictions), warnings=tuple(_warnings(untried, [*not_deleted, *stuck]))),
        frozenset(repair.pod.metadata.uid for repair in unrepairable),
        replace(_NONE_STUCK, nodes=frozenset(repair.node for repair in (*unrepairable, *untried))),
        tuple(_refusals(found.values(), view)),
    )
    return repaired, memory


def _needed(view: View, troubles: Troubles, settings: Settings) -> tuple[list[NeededRepair], Troubles]:
    """The needed repairs of all released pods, see needed_repairs."""
    emptying = {pod.spec.node_name for pod in view.index.of[PodTrait.ENDING].values()}
    needed, troubles = needed_repairs(
        troubles, view.sent, view.nodes, emptying, settings, view.now.seconds, view.why_not_accepted
    )
    return [_with_reason(repair, view, settings) for repair in needed], troubles


def _with_reason(repair: NeededRepair, view: View, settings: Settings) -> NeededRepair:
    """The repair of a pod that its scheduler does not try, if an extension knows why: it needs another place.

    It gets as long as a pod that waits for others of its PodGroup.
    """
    why = view.why_not_tried.get(repair.pod.metadata.uid)
    if repair.cause != UNTRIED or why is None:
        return repair
    cause = NOT_BOUND if repair.seconds >= 3 * settings.bind_seconds else UNTRIED
    return replace(repair, cause=cause, reason=f"no scheduler has tried it: {why}")


def _warnings(
    untried: Iterable[NeededRepair], not_deleted: Iterable[tuple[NeededRepair, str]]
) -> Iterator[Warn]:
    """not_deleted: those that are not deleted, and why."""
    for repair in untried:
        yield Warn(repair.pod, EventReason.NOT_SCHEDULED, repair.reason)
    for repair, why in not_deleted:
        note = f"{repair.reason}; {why}: delete and recreate it"
        yield Warn(repair.pod, EventReason.NOT_REPAIRED, note)


def _ordered(memory: RepairMemory, evictions: Iterable[Eviction], now: float) -> RepairMemory:
    """With the ordered deletions; entries of other pods are dropped."""
    uids = [order.pod.metadata.uid for order in evictions]
    ordered = {uid: memory.ordered.get(uid, now) for uid in uids}
    answered = {uid: memory.answered[uid] for uid in uids if uid in memory.answered}
    return replace(memory, ordered=ordered, answered=answered)


def _for_long(since: Mapping[str, float], now: float) -> list[str]:
    return [uid for uid, at in since.items() if now - at >= STAYS_SECONDS]


def _judged(
    found: Mapping[str, NeededRepair], view: View, allowance: Allowance, settings: Settings
) -> tuple[list[Eviction], list[tuple[NeededRepair, str]]]:
    """Which of these are deleted, and which are not, with why."""
    evictions: list[Eviction] = []
    not_deleted: list[tuple[NeededRepair, str]] = []
    for pods in by_owner(repair.pod for repair in found.values()).values():
        together = [found[pod.metadata.uid] for pod in pods]
        if not (why := allowance.why_not(pods)):
            evictions += [Eviction(repair.pod, repair.cause, repair.reason) for repair in together]
        elif _are_abandoned(together, view, settings):
            evictions += [_abandoned(repair) for repair in together]
        else:
            not_deleted += [(repair, why) for repair in together]
    return evictions, not_deleted


def _are_abandoned(together: Sequence[NeededRepair], view: View, settings: Settings) -> bool:
    """Whether these have waited for too long, nothing recreates them, and their deletion ends no gang."""
    if not settings.repair or any(can_come_again(each.pod, settings.repair_owners) for each in together):
        return False  # else its Job would fail by that
    limit = settings.abandon_seconds
    if not all(repair.keeps_capacity and repair.seconds >= limit for repair in together):
        return False
    gangs = {view.gang_of(repair.pod) for repair in together}
    return not any(pod.status.phase == "Running" for gang in gangs for pod in view.index.mates.get(gang, ()))


def _refusals(found: Iterable[NeededRepair], view: View) -> Iterator[tuple[GangKey, tuple[str, ...]]]:
    """By controller, the nodes that did not take a pod."""
    for repair in found:
        if repair.cause == NOT_BOUND and was_tried(repair.pod) and not waits_for_group(repair.pod):
            yield view.controller_of(repair.pod), tuple(_refusing(repair, view))


def _refusing(repair: NeededRepair, view: View) -> Iterator[str]:
    """The node that refused a pod, and the whole domain for which its rule was broken there."""
    yield repair.node
    node = view.nodes.get(repair.node)
    for key in unmodelled_rules.broken_over(repair.pod, _scheduler_message(repair.pod)) if node else ():
        value = node.metadata.labels.get(key) if node else None
        if value is not None:
            yield from (name for name, each in view.nodes.items() if each.metadata.labels.get(key) == value)


def _abandoned(repair: NeededRepair) -> Eviction:
    reason = f"{repair.reason}; no controller recreates it, and it keeps its capacity from others"
    return Eviction(repair.pod, "abandoned", reason)


# --- gangs whose other pods find no place -------------------------------------------------------------


PlaceAgain = Callable[[PodGang, Sequence[Pod], ReservationLedger], tuple[str, ReservationLedger]]
"""Given a gang and its released part, where the whole gang fits once that part is gone, "" if nowhere: then
the deletion of pods that may run would cost the gang its pods for nothing. That place is reserved for it
in the ledger."""


def roll_back(
    view: View,
    gangs: Sequence[PodGang],
    causes: Mapping[GangKey, Cause],
    unasked: Set[GangKey],
    memory: RepairMemory,
    allowance: Allowance,
    settings: Settings,
    going: Set[PodId],
    ledger: ReservationLedger,
    place_again: PlaceAgain,
    seconds: Callable[[], float],
) -> tuple[Orders, RepairMemory, ReservationLedger]:
    """Delete the released part of gangs whose rest finds no place for too long, if that helps them.

    causes, unasked: see partly_released. going: pods that are deleted in this pass. ledger: of the pass.
    seconds: by a clock; gangs are asked about as long as a pass may last, and the others in the next one.
    """
    evictions: list[Eviction] = []
    warnings: list[Warn] = []
    # What is deleted in part is deleted whole, also while deleted pods are not recreated: otherwise the rest
    # would be released alone once there is capacity.
    due, partly = partly_released(
        memory.partly, view, gangs, causes, unasked, settings, memory.partly_evicted
    )
    partly_evicted, started = memory.partly_evicted.intersection(partly), seconds()
    rolling_back: dict[str, GangKey] = {}
    for number, (gang, part) in enumerate(due):
        if number and seconds() - started >= settings.pass_seconds:
            partly = still_due(partly, (gang.key for gang, _ in due[number:]))
            break
        released = [pod for pod in part if identity(pod) not in memory.evicted | going]
        orders, ledger = _roll_back(gang, released, evictions, allowance, ledger, place_again)
        evictions += orders.evictions
        warnings += orders.warnings
        if orders.evictions:
            partly_evicted |= {gang.key}  # until the result is known
            rolling_back |= {order.pod.metadata.uid: gang.key for order in orders.evictions}
    orders = Orders(evictions=tuple(evictions), warnings=tuple(warnings))
    return (
        orders,
        replace(memory, partly=partly, partly_evicted=partly_evicted, rolling_back=rolling_back),
        ledger,
    )


def _roll_back(
    gang: PodGang,
    released: list[Pod],
    ordered: Iterable[Eviction],
    allowance: Allowance,
    ledger: ReservationLedger,
    place_again: PlaceAgain,
) -> tuple[Orders, ReservationLedger]:
    if not released:
        return Orders(), ledger
    try:
        if why := allowance.why_not(released, (each.pod for each in ordered)):
            warning = Warn(released[0], EventReason.NOT_ROLLED_BACK, f"the gang is partially released; {why}")
            return Orders(warnings=(warning,)), ledger
        place, ledger = place_again(gang, released, ledger)
    except Exception:  # one bad gang never stops the others
        logger.exception("rollback_failed gang=%s", gang.key)
        return Orders(), ledger
    if not place:
        return Orders(), ledger
    note = f"the rest of its gang does not fit near it; the whole gang fits, on {place}"
    return Orders(evictions=tuple(Eviction(pod, _BACK, note, may_run=True) for pod in released)), ledger
