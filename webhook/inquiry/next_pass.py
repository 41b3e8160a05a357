"""The sweeper's next pass on one reading of the cluster: its own steps, of which nothing is carried out.

It is the first pass of a new leader, with what is kept in the API server: reservations in the status of
Placements, failing nodes in the record of their extension, refusals of kubelets in the failed pods, how a
gang grew in the age of its pods, and since when released pods wait in the time of their cards. What the
current leader alone remembers, such as back-off after refusals of the API server, is not known here.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from labeler.contract import annotations, keys
from labeler.contract.errors import ContractError
from webhook.configuration.settings import Settings
from webhook.extensions.known import all_extensions, completed, running, with_owners
from webhook.inquiry.cluster_state import ClusterReading
from webhook.inquiry.resource_adder import view_of
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement
from webhook.kube.times import since_1970
from webhook.placement import Snapshot
from webhook.policy.values import Policy
from webhook.scheduling.antiaffinity import NamespaceLabels
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.attempt import GangMemory, PassState, Stopwatch
from webhook.sweeper.decide.kubelet_refusals import KubeletRefusals
from webhook.sweeper.decide.missing_pods import Growth
from webhook.sweeper.decide.moved_gangs import MOVES, moved_pod
from webhook.sweeper.decide.node_rules import NodeRule, NodeRules, join
from webhook.sweeper.decide.orders import Cause, GangOutcome, NewPlan
from webhook.sweeper.decide.placement_pass import PlacingMemory
from webhook.sweeper.decide.plan import with_fitting_plans, with_valid_plans
from webhook.sweeper.decide.release_queue import sentences
from webhook.sweeper.decide.reservation_kinds import LATER_STAGES, reported_stage
from webhook.sweeper.decide.reservations import (
    STARVATION,
    Reservation,
    ReservationInput,
    ReservationLedger,
    ReservationSource,
    opened,
)
from webhook.sweeper.decision import Decided, Memory, Observation, decide, state_before_placing
from webhook.sweeper.extension import (
    Extension,
    HookInput,
    PlanCheck,
    ReadCollections,
    dividing,
    with_notes,
    with_plan_checks,
)
from webhook.sweeper.observe.gangs import GangKey, OwnerFacts, PodGang, gang_of, gather_groups, key_of
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.repair.allowance import Allowance
from webhook.sweeper.repair.repair import NOT_BOUND, UNTRIED, RepairMemory, Troubles
from webhook.sweeper.report_memory import GangReason, GangReasons, ReportMemory, causes_of, reasons_after
from webhook.workloads.builtin import Job

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PassFacts:
    """What a pass reads beside its view.

    size_of: the facts of a gang's controller. owners_of: the owners of a kind ("jobs.batch") by
    "namespace/name", None if they are unknown. record_of: the record of an extension, None if it is unknown.
    policy: of admission, None if unknown. namespaces: their labels, None likewise. failed: pods. read: of
    the collections that extensions watch, those that are served and that the user may read.
    leads_since: when the sweeper's leader first saw gangs, in seconds since 1970, None likewise.
    """

    size_of: Callable[[GangKey], OwnerFacts]
    owners_of: Callable[[str], Mapping[str, Any] | None] = lambda _: None
    record_of: Callable[[str], Mapping[str, str] | None] = lambda _: None
    policy: Policy | None = None
    namespaces: NamespaceLabels | None = None
    budgets: Budgets = field(default_factory=Budgets)
    failed: Sequence[Pod] = ()
    leads_since: float | None = None
    read: ReadCollections = lambda _: {}

    def job(self, namespace: str, name: str, uid: str) -> Job | None:
        """A Job, None if it is unknown."""
        found = (self.owners_of("jobs.batch") or {}).get(f"{namespace}/{name}")
        return found if isinstance(found, Job) and found.metadata.uid == uid else None


VIEW_ALONE: Final = PassFacts(lambda _: OwnerFacts())
"""Nothing is known but the view."""


@dataclass(frozen=True)
class NextPass:
    """A pass: what it saw, the gangs that waited in their order, and what it decided.

    reasons: why gangs wait. notes: of extensions for gangs that found no place, see EndOrders.
    """

    seen: Observation
    decided: Decided
    reasons: GangReasons
    notes: Mapping[GangKey, str]

    @property
    def view(self) -> View:
        """The cluster."""
        return self.seen.view

    @property
    def settings(self) -> Settings:
        """The sweeper's."""
        return self.decided.settings

    @property
    def state(self) -> PassState:
        """The state of placing at its end, without the answers for gangs that found no place."""
        assert self.decided.state is not None
        return replace(self.decided.state, answers={})

    @property
    def unasked(self) -> frozenset[GangKey]:
        """The gangs that it did not ask about."""
        return frozenset(key for orders in self.decided.to_apply for key in orders.unasked)

    def gang(self, placement: str) -> PodGang | None:
        """The waiting gang with this Placement ("namespace/name")."""
        return next((each for each in self.seen.gangs if each.key.placement_key == placement), None)

    @cached_property
    def _report(self) -> ReportMemory:
        """What the sweeper reports of the gangs."""
        queue = self.decided.queue
        waits = sentences(queue.waiters.values(), self.view.gang_of) if queue is not None else {}
        waiters = {key: sentence for key, (_, sentence) in waits.items()}
        return ReportMemory(self.reasons, waiters=waiters, notes=self.notes)

    @cached_property
    def causes(self) -> Mapping[GangKey, Cause]:
        """Why gangs wait, in one word."""
        return causes_of(self.reasons)

    def sentence(self, key: GangKey) -> str:
        """Why a gang waits, and for which release, as the sweeper reports it; "" for nothing."""
        return self._report.sentence(key)

    def reason(self, key: GangKey) -> GangReason | None:
        """Why a gang waits; None where the pass decides nothing else about it, or places it."""
        return self.reasons.get(key)

    def outcome(self, key: GangKey) -> GangOutcome | None:
        """The outcome of a gang that waits, without what else is reported of it."""
        found = [each for orders in self.decided.to_apply for each in orders.outcomes if each.gang.key == key]
        return found[-1] if found else None

    def plan(self, key: GangKey) -> NewPlan | None:
        """The new plan of a gang, None without one."""
        plans = (plan for orders in self.decided.to_apply for plan in orders.plans)
        return next((plan for plan in plans if plan.gang.key == key), None)


def next_pass(cluster: ClusterReading, settings: Settings, first: Pod, now: Moment) -> NextPass:
    """The pass at this moment on a reading of the cluster. first: a pod of the gang, see run_pass."""
    snapshotter, facts = owners_snapshotter(cluster, settings), facts_of(cluster)
    view = replace(view_of(snapshotter, cluster, settings), now=now)
    view, snapshot = plans_checked(view, snapshotter.snapshot, settings, facts)
    return run_pass(view, snapshot, settings, facts, view.gang_of(first).placement_key)


def plans_checked(
    view: View, snapshot_of: Callable[[View], Snapshot], settings: Settings, facts: PassFacts
) -> tuple[View, Snapshot]:
    """The view with the plans that a pass takes to be valid, and its snapshot.

    Extensions that watch objects check nothing where the cluster serves none, or the user may not read them.
    """
    if not view.written:
        return view, snapshot_of(view)
    extensions = [each for each in running(settings, facts.policy, view) if each.has("check_plans")]
    view = with_objects(view, extensions, facts)
    memory = Memory(refusals=_refusals_since_plans(view, settings, facts))
    view = with_valid_plans(view, settings.topology, memory.refusing, memory.sent, refusals=memory.refusals)
    view = with_plan_checks(view, _plan_checks(view, settings, extensions), memory.sent)
    return with_fitting_plans(view, snapshot_of, memory.sent)


def facts_of(cluster: ClusterReading) -> PassFacts:
    """What a reading of the cluster has beside its view. Raises ApiError."""
    return PassFacts(
        cluster.size_of, cluster.owners, cluster.record, cluster.policy(), cluster.namespace_labels(),
        cluster.budgets(), cluster.failed(), cluster.leads_since(), cluster.read_collections,
    )  # fmt: skip


def _refusals_since_plans(view: View, settings: Settings, facts: PassFacts) -> KubeletRefusals:
    """The refusals of pods that plans still name: such a plan is older than the refusal."""
    planned = {entry.uid for each in view.placements.values() for entry in each.spec.pods}
    failed = [pod for pod in facts.failed if pod.metadata.uid in planned]
    return _refusals(failed, view, settings)


def _refusals(failed: Iterable[Pod], view: View, settings: Settings) -> KubeletRefusals:
    at, seconds = view.now.at.timestamp(), settings.bad_nodes.avoid_seconds
    return KubeletRefusals().after(failed, view.controller_of, at, seconds)


def _plan_checks(view: View, settings: Settings, extensions: Sequence[Extension]) -> Iterator[PlanCheck]:
    """view: see with_objects."""
    for extension in extensions:
        watched = extension.collections
        is_read = not watched or any(each.of(view) is not None for each in watched)
        if is_read:
            with _guarded(extension.name):
                yield extension.check_plans(HookInput(view, settings))


def owners_snapshotter(cluster: ClusterReading, settings: Settings) -> Snapshotter:
    """One that knows of pods that wait, or whose gang has reserved nodes, whether their controllers exist."""
    victims = (group for each in cluster.placements.values() for group in each.spec.victims)
    moved = filter(None, (moved_pod(group.moved_gang, group.owner) for group in victims))

    def matters(pod: Pod) -> bool:
        if pod.spec.scheduling_gates:
            return True
        plan = cluster.placements.get(key_of(pod, settings.owner_rules).placement_key)
        return plan is not None and bool(plan.spec.later_pod_nodes)

    lost_owner = cluster.lost_owners(matters, list(moved))
    return Snapshotter(cluster, settings, owners=lambda: lost_owner)


def moment() -> Moment:
    """Now."""
    return Moment(time.monotonic(), datetime.now(UTC))


def run_pass(
    view: View, snapshot: Snapshot, settings: Settings, facts: PassFacts, first: str = ""
) -> NextPass:
    """The decisions of a pass on this view.

    first: of the gangs for which a pass may lack the time, the one with this Placement comes first.
    """
    seen, memory = _begun(view, snapshot, settings, facts, first=first)
    decided = decide(seen, memory, settings, _guarded)
    reasons: GangReasons = {}
    for orders in decided.to_apply:
        reasons = reasons_after(reasons, orders)
    return NextPass(seen, decided, reasons, _notes(seen, decided.settings, reasons, facts))


def _notes(
    seen: Observation, settings: Settings, reasons: GangReasons, facts: PassFacts
) -> dict[GangKey, str]:
    """The notes of extensions at the end of a pass. reasons: why gangs wait."""
    view, notes, causes = seen.view, dict[GangKey, str](), causes_of(reasons)
    given = HookInput(view, settings, seen.policy, facts.namespaces, gangs=seen.gangs, causes=causes)
    for extension in running(settings, seen.policy, view):
        with _guarded(extension.name):
            memory = extension.memory_of_leader(given, facts.leads_since)
            notes = with_notes(notes, extension.after_pass(given, memory)[0])
    return notes


def state_for(
    gangs: Sequence[PodGang],
    view: View,
    snapshot: Snapshot,
    settings: Settings,
    facts: PassFacts = VIEW_ALONE,
    without: frozenset[str] = frozenset(),
) -> PassState:
    """The state of a pass in which these gangs are asked about after all that wait, and evict nobody.

    Gangs that wait are not placed before, but the nodes reserved for them are. without: nodes that are not
    used.
    """
    settings = replace(settings, preempt=False, moves=replace(settings.moves, is_on=False))
    seen, memory = _begun(view, snapshot, settings, facts, also=gangs)
    rules = join([NodeRules((NodeRule(without, is_hard=True),)), seen.rules])
    return state_before_placing(replace(seen, rules=rules), memory, settings, _guarded)


def _begun(
    view: View,
    snapshot: Snapshot,
    settings: Settings,
    facts: PassFacts,
    *,
    also: Sequence[PodGang] = (),
    first: str = "",
) -> tuple[Observation, Memory]:
    """The input of a pass. also: gangs that come last, in the place of their pods'. first: see run_pass."""
    extensions = running(settings, facts.policy, view)
    view = with_objects(view, extensions, facts)
    gangs = _ordered(waiting_gangs(view, settings, facts), view, settings, facts, extensions)
    own = {pod.metadata.uid for gang in also for pod in gang.pods}
    gangs = [*(gang for gang in gangs if own.isdisjoint(pod.metadata.uid for pod in gang.pods)), *also]
    refusals = _refusals(facts.failed, view, settings)
    rules = join(_node_rules(gangs, view, settings, facts, extensions))
    sources = [each.source for each in extensions if each.source is not None]
    seen = Observation(
        view, snapshot, gangs, 0, facts.budgets, facts.job,
        Stopwatch(time.monotonic), rules, facts.policy, sources=sources, divide=dividing(all_extensions()),
    )  # fmt: skip

    def memory(gang: PodGang) -> GangMemory:
        # So that this one is reached.
        asked_at = -math.inf if gang.key.placement_key == first else view.now.seconds
        return GangMemory(_growth(gang, view, facts.leads_since), asked_at=asked_at)

    has_ended = Allowance(settings, facts.job).has_ended
    given = ReservationInput(ReservationLedger(), gangs, view, snapshot, rules, has_ended)
    ledger = reported_ledger(given, sources, settings, facts.leads_since)
    placing = PlacingMemory({gang.key: memory(gang) for gang in gangs}, ledger)
    repairs = RepairMemory(_troubles(view, facts.leads_since))
    return seen, Memory(placing=placing, repairs=repairs, refusals=refusals)


def waiting_gangs(view: View, settings: Settings, facts: PassFacts) -> Sequence[PodGang]:
    """The gangs that wait, as a pass gathers them."""
    index = view.index
    with_fewer = settings.start_with_fewer
    gangs = gather_groups(index.waiting, index.mates, facts.size_of, gang_of, view.lost_owners, with_fewer)
    return completed(gangs, view, settings, facts.owners_of)


def with_objects(view: View, extensions: Sequence[Extension], facts: PassFacts) -> View:
    """The view with the owners and other objects that these extensions read."""
    for extension in extensions:
        view = with_owners(extension, view, facts.owners_of)
        if extension.collections:
            view = replace(view, objects={**view.objects, **facts.read(extension.collections)})
    return view


def _ordered(
    gangs: Sequence[PodGang],
    view: View,
    settings: Settings,
    facts: PassFacts,
    extensions: Sequence[Extension],
) -> Sequence[PodGang]:
    for extension in extensions:
        record = _record(extension, facts)
        given = HookInput(view, settings, facts.policy, facts.namespaces, record=record, gangs=gangs)
        with _guarded(extension.name):
            gangs = extension.order_gangs(given, extension.memory)[0].gangs
    return gangs


def _node_rules(
    gangs: Sequence[PodGang],
    view: View,
    settings: Settings,
    facts: PassFacts,
    extensions: Sequence[Extension],
) -> list[NodeRules]:
    """The nodes that gangs do not use, by the records of extensions. view: see with_objects."""
    found: list[NodeRules] = []
    for extension in extensions:
        record = _record(extension, facts)
        given = HookInput(view, settings, record=record, failed=facts.failed, gangs=gangs)
        with _guarded(extension.name):
            found.append(extension.exclude_nodes(given, extension.memory)[0])
    return found


def _record(extension: Extension, facts: PassFacts) -> Mapping[str, str] | None:
    return facts.record_of(extension.record.name) if extension.record is not None else None


def _growth(gang: PodGang, view: View, leads_since: float | None) -> Growth:
    """How the gang grew, by the age of its pods; the leader saw none of them before it led."""
    now, longest = view.now, math.inf
    if leads_since is not None:
        longest = max(0.0, now.at.timestamp() - leads_since)

    def since(ages: Iterable[float]) -> float:
        return now.seconds - min(max(0.0, *ages), longest)

    waiting = {pod.metadata.uid: pod for pod in gang.gated if pod.metadata.uid not in view.planned}
    youngest = min(_age(pod, now) for pod in gang.pods)
    oldest = [_age(pod, now) for pod in waiting.values()]
    members = frozenset(pod.metadata.uid for pod in gang.pods)
    return Growth(members, since([youngest]), since(oldest) if waiting else None, waiting)


def _troubles(view: View, leads_since: float | None) -> Troubles:
    """Since when released pods wait for their scheduler, where the time of their cards shows it."""
    now, found = view.now, dict[tuple[str, str], float]()
    for pod, _ in view.sent:
        if (at := released_at(pod)) is not None:
            waited = now.at.timestamp() - max(at, leads_since or 0.0)
            for cause in (UNTRIED, NOT_BOUND):
                found[pod.metadata.uid, cause] = now.seconds - max(0.0, waited)
    return found


def released_at(pod: Pod) -> float | None:
    """When a pod was released, in seconds since 1970; None without cards: no other field shows it."""
    with suppress(ContractError, KeyError):
        return annotations.decode_timestamp(pod.metadata.annotations[keys.GAS_TIMESTAMP_ANNOTATION]) / 1e9
    return None


def _age(pod: Pod, now: Moment) -> float:
    created = since_1970(pod.metadata.creation_timestamp)
    return 0.0 if created is None else now.at.timestamp() - created


def reported_ledger(
    given: ReservationInput,
    sources: Sequence[ReservationSource],
    settings: Settings,
    leads_since: float | None = None,
) -> ReservationLedger:
    """The reservations that the leader has, as it has reported them in the status of Placements.

    given: without them. sources: of extensions. leads_since: see PassFacts.
    """
    now, plans, hold = given.view.now, given.view.placements, settings.reserve_hold_seconds
    reported = ((key, _reported_end(each, now, hold, leads_since)) for key, each in plans.items())
    ends = {key: end for key, end in reported if end is not None}
    stages = (
        reported_stage(plans[key], *end, hold) for key, end in ends.items() if plans[key].spec.later_pod_nodes
    )
    given = replace(given, ledger=ReservationLedger(reservations=tuple(stages)))
    ledger = opened(given, (LATER_STAGES, MOVES, *sources), settings)
    found = [_as_reported(each, ends.get(each.gang)) for each in ledger.reservations]
    for gang in given.gangs:
        key = gang.key.placement_key
        nodes = frozenset(plans[key].status.reserved_nodes) - ledger.of(key) if key in ends else frozenset()
        if nodes and gang.lost_owner is None:
            until, at = ends[key]
            found.append(Reservation(STARVATION, key, nodes, until - hold, until, at, str(gang.key), key))
    return replace(ledger, reservations=tuple(found))


_End = tuple[float, datetime]
"""Reservation.until and ends."""


def _as_reported(reservation: Reservation, end: _End | None) -> Reservation:
    """A reservation of new nodes begins when the leader first sees them; others follow from plans."""
    if end is None or not reservation.kind.of_new_nodes:
        return reservation
    return replace(reservation, until=end[0], ends=end[1])


def _reported_end(placement: Placement, now: Moment, hold: float, leads_since: float | None) -> _End | None:
    """When the reservations of a gang end at the latest.

    None if an earlier leader has reported that, or no sweeper: nothing is reserved for longer than twice the
    usual time.
    """
    ends, at = since_1970(placement.status.reserved_until), now.at.timestamp()
    if ends is None or ends > at + 2 * hold:
        return None
    if leads_since is not None and ends - hold < leads_since - _WHOLE_SECOND:
        return None
    return now.seconds + ends - at, datetime.fromtimestamp(ends, UTC)


_WHOLE_SECOND: Final = 1.0
"""Times in a status have no fraction of a second."""


@contextmanager
def _guarded(name: str) -> Iterator[None]:
    """A defect in a step or an extension stops nothing else, as in the sweeper."""
    try:
        yield
    except Exception:
        logger.exception("step_failed name=%s", name)
