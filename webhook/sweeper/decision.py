"""The decisions of one pass: orders, and the memory for the next pass. Pure.

`decide` runs STEPS. Each step is a function of the view and of the results of the steps before it, and adds
its orders. Nothing is written meanwhile: the orders are carried out afterwards, in the order of APPLIED, so
that existing plans come before new ones. A defect in one step does not stop the others.

Two inputs are not values. How many gangs a pass asks about depends on how long that takes (Stopwatch); and
Jobs are looked up in the live copy (JobOf), as there may be many, of which few matter.

A pass gets the memory of the last one, and returns another. With an empty one it decides the same a little
later: state that must not be lost is in the API server. docs/design/life-of-a-pod.md says what is
lost with each field.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.configuration.settings import Settings
from webhook.kube.objects import Pod
from webhook.placement import Snapshot
from webhook.policy.values import Policy
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.decide.admission_followup import (
    WarningsOf,
    model_label_step,
    warn_of_manifests,
)
from webhook.sweeper.decide.attempt import PassInput, PassState, Stopwatch
from webhook.sweeper.decide.core_questions import DivideGang, undivided
from webhook.sweeper.decide.kubelet_refusals import KubeletRefusals
from webhook.sweeper.decide.node_rules import NodeRules, join
from webhook.sweeper.decide.orders import NO_HURRY, Cause, Done, Eviction, GangOutcome, Orders
from webhook.sweeper.decide.placement_pass import PlacingMemory, begin, place, remembered, reserve_again
from webhook.sweeper.decide.plan import stamped, timestamps_of, unfinished, with_releases
from webhook.sweeper.decide.preemption import Protection
from webhook.sweeper.decide.refusing_nodes import RefusingNodes
from webhook.sweeper.decide.release_queue import ReleaseQueue, SentReleases, Timestamps
from webhook.sweeper.decide.reservations import ReservationInput, ReservationLedger, ReservationSource
from webhook.sweeper.decide.retries import RetryTable, Write
from webhook.sweeper.decide.ungated_pods import Reported, Ungated, warn_of_ungated
from webhook.sweeper.decide.waiting_plans import (
    AGAIN_SECONDS,
    Preempting,
    VictimsSince,
    look_for_victims,
    plans_with_victims,
)
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.pods import PodTrait
from webhook.sweeper.observe.view import Moment, View, identity
from webhook.sweeper.repair.allowance import Allowance, JobOf, after_deletion
from webhook.sweeper.repair.broken import BrokenSince, evict_broken
from webhook.sweeper.repair.repair import Repaired, RepairMemory, repair_released, roll_back
from webhook.sweeper.report_memory import ReportMemory, causes_of, reasons_after
from webhook.text import joined


@dataclass(frozen=True)
class Memory:
    """All state that lasts longer than one pass, as one frozen value; any of it may be lost.

    refusing    nodes that did not take a pod of a gang
    refusals    nodes whose kubelets refused pods of a gang
    sent        releases that the view does not show yet
    given_up    uids of gated pods whose plans were dropped and not replaced
    placing     how gangs grew, when each was asked about, reservations, the last gas-ts
    repairs     since when released pods do not start; deletions that were ordered
    victims     since when a plan waits for its victims
    broken      since when gangs are broken by preemption
    ungated     namespaces whose ungated pods were reported, with the cause
    manifests   the warnings of admission that owners have as Events
    retries     what the API server refused or had no time for, also for extensions
    report      the last report of why gangs wait, and of what keeps their pods
    extensions  by the name of an extension, its own frozen memory
    """

    refusing: RefusingNodes = field(default_factory=RefusingNodes)
    refusals: KubeletRefusals = field(default_factory=KubeletRefusals)
    sent: SentReleases = field(default_factory=SentReleases)
    given_up: frozenset[str] = frozenset()
    placing: PlacingMemory = field(default_factory=PlacingMemory)
    repairs: RepairMemory = field(default_factory=RepairMemory)
    victims: VictimsSince = field(default_factory=dict)
    broken: BrokenSince = field(default_factory=dict)
    ungated: Reported = frozenset()
    manifests: WarningsOf = field(default_factory=dict)
    retries: RetryTable = field(default_factory=RetryTable)
    report: ReportMemory = field(default_factory=ReportMemory)
    extensions: Mapping[str, object] = field(default_factory=dict)

    def seen(self, view: View) -> "Memory":
        """Without entries that have expired or that the view shows."""
        now = view.now.seconds
        return replace(self, refusing=self.refusing.at(now), sent=self.sent.seen(view, now))

    def after(self, done: Done, view: View, now: Moment) -> "Memory":
        """With the results of orders that were decided on this view. now: when they were observed."""
        return replace(
            self,
            refusing=self.refusing.after(done.refused, now.seconds),
            sent=self.sent.after(done, view, now.seconds, now.ns),
            given_up=self.given_up.difference(each.uid for plan in done.placed for each in plan.entries),
            repairs=self.repairs.after(done, now.seconds),
        )

    def unplaced(self, gangs: Set[GangKey]) -> "Memory":
        """The plans of these gangs were not written: their reservations stay."""
        ledger = self.placing.ledger.unplaced(gangs)
        return (
            self
            if ledger is self.placing.ledger
            else replace(self, placing=replace(self.placing, ledger=ledger))
        )


@dataclass(frozen=True)
class Observation:
    """The input of a pass.

    snapshot: None if no pod waits. gangs: those with a waiting pod, the most urgent first. usage_version,
    freed_version: see Changes. policy: of admission, None if unknown. ungated: pods that were not gated, see
    there. rules: the nodes that gangs do not use, sources: of further reservations, divide: the variants of a
    gang, all three from extensions.
    """

    view: View
    snapshot: Snapshot | None
    gangs: Sequence[PodGang]
    usage_version: int
    budgets: Budgets
    jobs: JobOf
    watch: Stopwatch
    rules: NodeRules = field(default_factory=NodeRules)
    policy: Policy | None = None
    ungated: Ungated = field(default_factory=dict)
    sources: Sequence[ReservationSource] = ()
    divide: DivideGang = undivided
    freed_version: int = 0


@dataclass(frozen=True)
class Decided:
    """The state of a pass between steps.

    memory: for the next pass. timestamps: for plans and releases. orders: by step, where there are any.
    failed: steps that had a defect. queue: of releases, None before `finish`. state: of placing, None
    before it.
    """

    memory: Memory
    settings: Settings
    timestamps: Timestamps
    orders: Mapping[str, Orders] = field(default_factory=dict)
    failed: frozenset[str] = frozenset()
    repaired: Repaired = field(default_factory=Repaired)
    preempting: Preempting = field(default_factory=Preempting)
    queue: ReleaseQueue | None = None
    state: PassState | None = None

    @property
    def without_model_labels(self) -> frozenset[GangKey]:
        """Gangs that are placed once they have their labels."""
        return frozenset(each.gang.key for each in self.orders.get("add-node-selectors", Orders()).outcomes)

    @property
    def to_apply(self) -> Iterator[Orders]:
        """The orders to carry out, in that order."""
        return (self.orders[name] for name in APPLIED if name in self.orders)

    @property
    def evictions(self) -> tuple[Eviction, ...]:
        """Those that are ordered by now."""
        return tuple(each for orders in self.orders.values() for each in orders.evictions)

    @property
    def due_seconds(self) -> float:
        """After which another pass is due, whatever changes."""
        due = (orders.due_seconds for orders in self.orders.values())
        return min(self.queue.due_seconds if self.queue is not None else NO_HURRY, *due, NO_HURRY)


Step = Callable[[Observation, Decided], Decided]


Guarded = Callable[[str], AbstractContextManager[object]]
"""Given the name of a step, catches and logs its defects."""


def decide(
    seen: Observation,
    memory: Memory,
    settings: Settings,
    guarded: Guarded,
    are_gangs_known: bool = True,
) -> Decided:
    """The orders of a pass, and the memory for the next one.

    memory: as of this view, see Memory.seen. are_gangs_known: otherwise only steps run that need no gangs.
    """
    names = [name for name in STEPS if are_gangs_known or name in _OF_PODS]
    now = _after_steps(names, seen, memory, settings, guarded)
    placing = replace(now.memory.placing, stamp=now.timestamps.last)
    return replace(now, memory=replace(now.memory, placing=placing))


def state_before_placing(
    seen: Observation, memory: Memory, settings: Settings, guarded: Guarded
) -> PassState:
    """The state in which a pass asks about its first gang, see decide; it has a snapshot."""
    names = itertools.takewhile(lambda name: name != _PLACE, STEPS)
    now = _after_steps(names, seen, memory, settings, guarded)
    return begin(seen.gangs, _pass_input(seen, now), now.memory.placing.ledger)


def _after_steps(
    names: Iterable[str], seen: Observation, memory: Memory, settings: Settings, guarded: Guarded
) -> Decided:
    now = Decided(memory, settings, timestamps_of(seen.view, memory.placing.stamp))
    for name in names:
        after = None
        with guarded(name):
            after = STEPS[name](seen, now)
        now = after if after is not None else replace(now, failed=now.failed | {name})
    return now


# --- the steps ----------------------------------------------------------------------------------------


def repair(seen: Observation, now: Decided) -> Decided:
    """Delete released pods that do not start, if their controller recreates them."""
    view, memory = seen.view, now.memory
    repaired, repairs = repair_released(view, memory.repairs, _allowance(seen, now), now.settings)
    refusing = repaired.with_refusing(memory.refusing, view.now.seconds)
    now = replace(now, memory=replace(memory, repairs=repairs, refusing=refusing), repaired=repaired)
    return _with_orders(now, "repair", repaired.orders)


def find_victims(seen: Observation, now: Decided) -> Decided:
    """For plans with victims: the evictions to make now, and which of the plans' pods wait."""
    if seen.snapshot is None:
        return now
    since, settings = now.memory.victims, now.settings
    found, since = look_for_victims(seen.view, seen.snapshot, seen.budgets, since, settings)
    given_up = now.memory.given_up | found.dropped
    return replace(now, memory=replace(now.memory, victims=since, given_up=given_up), preempting=found)


def release(seen: Observation, now: Decided) -> Decided:
    """Release planned pods whose node is free for that."""
    view, memory = seen.view, now.memory
    queue = _release_queue(seen, now)
    waiting = now.preempting.waiting_uids
    if "find-victims" in now.failed:  # it is unknown whether they are gone, and a release cannot be undone
        waiting = frozenset(pod.metadata.uid for _, pods in plans_with_victims(view) for pod in pods)
    pairs = unfinished(view, memory.retries, memory.sent, waiting | view.not_released)
    taken = stamped(queue.take(pairs), now.timestamps, view.now.ns)
    orders = Orders(releases=taken, reads=tuple(queue.reads))
    return _with_orders(replace(now, queue=queue), "release", orders)


def update_records(seen: Observation, now: Decided) -> Decided:
    """Update the known gangs, and their reservations."""
    view, memory = seen.view, now.memory
    rules, has_ended = node_rules(seen, now), _allowance(seen, now).has_ended
    given = ReservationInput(memory.placing.ledger, seen.gangs, view, seen.snapshot, rules, has_ended)
    placing = remembered(memory.placing, given, now.settings, seen.sources)
    repairs = memory.repairs.of(seen.gangs, view.now.seconds)
    return replace(now, memory=replace(memory, placing=placing, repairs=repairs))


def preempt(seen: Observation, now: Decided) -> Decided:
    """The victims are evicted, and the gangs that wait for them get a reason."""
    found = now.preempting
    sentences = ((gang, found.sentences.get(gang.key.placement_key)) for gang in seen.gangs)
    waits = ((gang, joined(sentence, gang.fault)) for gang, sentence in sentences if sentence)
    orders = Orders(
        evictions=tuple(found.evictions.values()),
        outcomes=tuple(GangOutcome(gang, sentence, Cause.PREEMPTING) for gang, sentence in waits),
        due_seconds=AGAIN_SECONDS if found.waiting_uids else NO_HURRY,
    )
    return _with_orders(now, "preempt", orders)


def add_node_selectors(seen: Observation, now: Decided) -> Decided:
    """Gated pods that came past the webhook get their model's nodeSelector, or go to their scheduler."""
    if seen.policy is None:
        return now
    owned = [gang for gang in seen.gangs if gang.lost_owner is None]
    view, retries = seen.view, now.memory.retries

    def is_paused(gang: GangKey) -> bool:
        return retries.seconds_left((Write.GANG, gang), view.now.seconds) > 0

    orders = model_label_step(owned, view, seen.policy, is_paused)
    return _with_orders(now, "add-node-selectors", orders)


def place_gangs(seen: Observation, now: Decided) -> Decided:
    """Complete gangs that fit get a plan."""
    if seen.snapshot is None:
        return now
    queue = now.queue if now.queue is not None else _release_queue(seen, now)
    without = now.without_model_labels
    steady = [gang for gang in seen.gangs if gang.key not in without]
    orders, placing, state = place(steady, _pass_input(seen, now), now.memory.placing, seen.watch)
    plans = tuple(with_releases(plan, queue, now.timestamps, seen.view) for plan in orders.plans)
    now = replace(now, memory=replace(now.memory, placing=placing), state=state)
    return _with_orders(now, _PLACE, replace(orders, plans=plans))


def evict_incomplete(seen: Observation, now: Decided) -> Decided:
    """Evict the rest of gangs that others have preempted, so that they return as a whole."""
    placed = now.orders.get(_PLACE, Orders())
    # Who has a place is not broken, also where its plan will not be written.
    found = {plan.gang.key for plan in placed.plans}
    without = [gang for gang in seen.gangs if gang.key not in found]
    causes, unasked = _causes(seen, now)
    orders, broken = evict_broken(
        seen.view, without, causes, unasked, now.memory.broken, _allowance(seen, now).why_not_evicted,
        now.settings,
    )  # fmt: skip
    return _with_orders(replace(now, memory=replace(now.memory, broken=broken)), "evict-incomplete", orders)


def rollback(seen: Observation, now: Decided) -> Decided:
    """Delete the released part of a gang whose rest waited too long, if the whole gang then has a place."""
    state, placing = now.state, now.memory.placing

    def again(gang: PodGang, part: Sequence[Pod], ledger: ReservationLedger) -> tuple[str, ReservationLedger]:
        return reserve_again(gang, part, state, ledger) if state is not None else ("", ledger)

    going = {identity(each.pod) for each in now.evictions}
    causes, unasked = _causes(seen, now)
    orders, repairs, ledger = roll_back(
        seen.view, seen.gangs, causes, unasked, now.memory.repairs, _allowance(seen, now), now.settings,
        going, placing.ledger, again, seen.watch.seconds,
    )  # fmt: skip
    memory = replace(now.memory, repairs=repairs, placing=replace(placing, ledger=ledger))
    return _with_orders(replace(now, memory=memory), "rollback", orders)


def find_ungated(seen: Observation, now: Decided) -> Decided:
    """Namespaces whose GPU pods passed admission without a gate get an Event."""
    warnings, warned = warn_of_ungated(seen.ungated, now.memory.ungated)
    now = replace(now, memory=replace(now.memory, ungated=warned))
    return _with_orders(now, "find-ungated", Orders(warnings=warnings))


def check_manifests(seen: Observation, now: Decided) -> Decided:
    """The owners of gangs get admission warnings as Events."""
    warnings, known = warn_of_manifests(seen.gangs, seen.policy, now.memory.manifests)
    now = replace(now, memory=replace(now.memory, manifests=known))
    return _with_orders(now, "check-manifests", Orders(warnings=warnings))


_PLACE: Final = "place"

STEPS: Final[Mapping[str, Step]] = {
    "repair": repair,
    "find-victims": find_victims,
    "release": release,
    "update-records": update_records,
    "preempt": preempt,
    "add-node-selectors": add_node_selectors,
    _PLACE: place_gangs,
    "evict-incomplete": evict_incomplete,
    "rollback": rollback,
    "find-ungated": find_ungated,
    "check-manifests": check_manifests,
}
"""By name, in the order in which they decide."""

_OF_PODS: Final = frozenset({"repair", "find-victims", "release"})
"""Steps that look at pods and plans alone."""

APPLIED: Final = (
    "release",
    "repair",
    "preempt",
    "add-node-selectors",
    _PLACE,
    "evict-incomplete",
    "rollback",
    "find-ungated",
    "check-manifests",
)
"""Whose orders are carried out, in this order: releases first, as evictions may take as long as a pass."""


# --- helpers of several steps -------------------------------------------------------------------------


def node_rules(seen: Observation, now: Decided) -> NodeRules:
    """Which gangs do not use which nodes: all rules but those of reservations, which change in a pass."""
    memory, view = now.memory, seen.view
    refused = (*memory.refusing.rules(), *memory.refusals.rules(seen.gangs, view.nodes))
    own = NodeRules((*refused, now.repaired.stuck) if now.repaired.stuck.nodes else refused)
    return join([own, seen.rules]).at(view.now.at.timestamp())


def _pass_input(seen: Observation, now: Decided) -> PassInput:
    """What gangs are placed by in this pass, which has a snapshot."""
    assert seen.snapshot is not None
    allowance = _allowance(seen, now)
    return PassInput(
        seen.view, seen.snapshot, now.settings,
        node_rules(seen, now).on(seen.snapshot), seen.usage_version, now.preempting.going, now.memory.retries,
        _protection(seen, allowance), allowance.why_not_evicted, seen.divide, seen.freed_version,
    )  # fmt: skip


def _causes(seen: Observation, now: Decided) -> tuple[Mapping[GangKey, Cause], Set[GangKey]]:
    """Why gangs wait, as last reported, and the gangs whose cause may no longer be valid."""
    reasons = now.memory.report.reasons
    for orders in now.orders.values():
        reasons = reasons_after(reasons, orders)
    if _PLACE in now.failed:
        return causes_of(reasons), frozenset(gang.key for gang in seen.gangs)
    return causes_of(reasons), now.orders.get(_PLACE, Orders()).unasked | now.without_model_labels


def _with_orders(now: Decided, step: str, orders: Orders) -> Decided:
    return replace(now, orders={**now.orders, step: orders}) if orders != Orders() else now


def _release_queue(seen: Observation, now: Decided) -> ReleaseQueue:
    """In which nothing has been taken yet."""
    view = seen.view
    memory = now.memory
    return ReleaseQueue(view, memory.sent, memory.retries, view.now.seconds, now.repaired.unrepairable)


def _allowance(seen: Observation, now: Decided) -> Allowance:
    """The failures that Jobs can still take after the evictions ordered so far."""
    at, ending = seen.view.now.seconds, seen.view.index.of[PodTrait.ENDING]
    deletions = after_deletion(now.memory.repairs.deletions, (each.pod for each in now.evictions), at)
    return Allowance(now.settings, seen.jobs, deletions, at, ending)


def _protection(seen: Observation, allowance: Allowance) -> Protection:
    """Which gangs should be no victims: a budget protects them, or their Job would fail for good.

    It must not refer to the state of the pass, which refers to it: a cycle would keep the whole view for
    long.
    """
    return Protection(seen.budgets, allowance.why_jobs_end)
