"""One pass: observe, decide, apply, report; existing plans before new ones.

A pass is level-triggered: it reads the whole state and moves it one step on. It may stop anywhere. The next
one, of this process or of another, continues from the state in the API server.

    state                                          step                order
    ---------------------------------------------  ------------------  ---------------------------------------
    a valid plan names a gated pod                 release             release it, once its node is free
    an invalid plan names a gated pod              place               a new plan, as for any pod that waits
    a released pod does not start                  repair              delete it, if it will be recreated
    the webhook was not called for a gated pod     add-node-selectors  add the nodeSelector of its GPU model
    another scheduler is to place a gated pod      add-node-selectors  remove its gate: it is not ours
    a gang is complete and fits                    place               write its plan, release its pods
    it fits only in place of less important ones   place               write its plan, which names its victims
    a plan names victims                           preempt             evict them; its pods wait for that
    a gang has lost pods to others, for good       evict-incomplete    evict the rest: it returns as a whole
    it does not fit                                place               none: it waits, and may reserve nodes
    it is not complete                             place               none: it settles
    its released part waits too long for the rest  rollback            delete that part, if it is recreated

Invariants, whichever step it stops in:

1. No pod is released that no Placement names: the plan is written first, in one write. A pod of a scheduler
   that is not served only loses its gate.
2. A pod counts on one node at most: where it is bound, else where it was sent, else where it is planned.
   The last two come from the API server, never from the memory of this process alone.
3. All decisions use one frozen view of the cluster, before anything is written; orders are values. If the
   cluster has changed since, a plan is checked again right before it is written.
4. A failed order changes nothing here. The memory between passes (decision.Memory) only saves work or delays,
   so a process without memory does the same a little later.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

from webhook.kube.objects import Pod
from webhook.scheduling.budgets import Budgets
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass, Retries
from webhook.sweeper.decide.attempt import Stopwatch
from webhook.sweeper.decide.orders import NO_HURRY, Done, Orders
from webhook.sweeper.decide.plan import with_fitting_plans, with_valid_plans
from webhook.sweeper.decide.release_queue import sentences
from webhook.sweeper.decide.reservations import LATER_STAGE, MOVE, STARVATION
from webhook.sweeper.decide.ungated_pods import Ungated, UngatedCause, UngatedPods
from webhook.sweeper.decision import Decided, Memory, Observation, decide
from webhook.sweeper.hooks import ExtensionHooks, with_claims_waiting
from webhook.sweeper.observe.creator_fields import read_creator_fields
from webhook.sweeper.observe.gangs import GangCache, GangKey, PodGang, gather_groups
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.pass_measurements import PassMeasurements
from webhook.sweeper.repair.repair import NOT_BOUND, count_unbound
from webhook.sweeper.report import Reporter
from webhook.sweeper.report_memory import causes_of
from webhook.workloads.native_gangs import POD_GROUPS, is_in_tree

SOON_SECONDS: Final = 1.0
"""When the next pass is due after something has failed: not at once, or an API server that is away is asked
without end."""

_KINDS: Final = (STARVATION, LATER_STAGE, MOVE)
"""Of reservations, for the metrics."""

logger = logging.getLogger(__name__)


class Sweeper:
    """The passes of one leader."""

    def __init__(self, surroundings: Pass) -> None:
        settings, clock = surroundings.settings, surroundings.clock
        self._pass = surroundings
        cache = surroundings.cache
        self._snapshotter = Snapshotter(cache, settings, cache.pod_journal(), cache.existence.lookup)
        self._gang_cache = GangCache()
        self._ungated = UngatedPods(clock)
        surroundings.cache.observe_pods(self._ungated.on_pod)
        self._memory = Memory()
        self._hooks = ExtensionHooks(surroundings)
        self._applier = Applier(surroundings, self._snapshotter, lambda: self._hooks.annotations)
        self._reporter = Reporter(surroundings)
        self._measurements = PassMeasurements(surroundings)
        surroundings.metrics.repairs.labels(NOT_BOUND)  # at 0, so that an alert sees the first one

    def close(self) -> None:
        """End the threads."""
        self._applier.close()
        self._hooks.close()

    def sweep(self) -> float:
        """One pass; returns the seconds after which another is due even if nothing changes."""
        seen, gangs = self._observe(), None
        with self._guarded("find-gangs"):
            gangs = self._gather(seen.view)
        with self._guarded("exclude-nodes"):
            self._hooks.exclude(gangs or (), seen.view)
        self._memory = replace(self._memory, extensions=self._hooks.memories)
        ungated = self._look_for_ungated(seen.view)
        seen = replace(seen, gangs=gangs or (), rules=self._hooks.node_rules, ungated=ungated)
        decided = decide(seen, self._memory, self._pass.settings, self._guarded, gangs is not None)
        self._memory = decided.memory
        with self._guarded("update-metrics"):
            troubles, now = decided.memory.repairs.troubles, seen.view.now.seconds
            self._pass.metrics.unbound.value = count_unbound(troubles, self._pass.settings, now)
        retries = Retries(self._pass, self._memory.retries)
        due = min(decided.due_seconds, self._apply(decided, seen.view, retries))
        if gangs is None:
            return SOON_SECONDS  # the waiting pods are unknown, so nothing is reported or forgotten
        self._after_pass(seen.view, gangs, retries)
        is_reported = self._report(decided, seen, retries)
        is_whole = is_reported and not decided.failed
        due = min(due, self._hooks.due_seconds)
        return min(due, self._pass.settings.interval_seconds if is_whole else SOON_SECONDS)

    # --- observe --------------------------------------------------------------------------------

    def _observe(self) -> Observation:
        """The view of this pass, without gangs and reports.

        In a large cluster a snapshot is most of a pass: without waiting pods there is none, but now and then
        for metrics.
        """
        usage_version, freed_version = self._pass.cache.usage_version, self._pass.cache.freed_version
        with self._timed("observe"):
            self._pass.cache.watches.begin()
            seen = self._snapshotter.view(self._now())
            view: View | None = None
            with self._guarded("extensions"):
                view = self._hooks.begin(seen, self._memory.extensions)
            if view is None:
                view = with_claims_waiting(seen)
            memory = self._memory = self._with_failed(view, self._memory.seen(view))
            written = view.planned.keys()
            valid = with_valid_plans(
                view, self._pass.settings.topology, memory.refusing, memory.sent, memory.given_up,
                memory.refusals,
            )  # fmt: skip
            view = self._hooks.check_plans(valid, memory.sent)
        snapshot = None
        self._pass.heartbeat()
        with self._timed("snapshot"):
            if view.gated or self._measurements.is_stale:
                view, snapshot = with_fitting_plans(view, self._snapshotter.snapshot, memory.sent)
        for uid in sorted(valid.planned.keys() - view.planned.keys()):
            dropped = valid.planned[uid]
            logger.warning("plan_dropped pod=%s node=%s", dropped.name, dropped.node)
        self._memory = replace(memory, given_up=frozenset(written - view.planned.keys()))
        cache, budgets = self._pass.cache, Budgets(is_read=False)  # until then any pod may be protected
        with self._guarded("observe"):
            if snapshot is not None:
                budgets = cache.budgets()
        watch = Stopwatch(self._pass.clock, self._pass.heartbeat)
        return Observation(
            view, snapshot, (), usage_version, budgets, cache.owners.job, watch, policy=self._pass.policy(),
            sources=self._hooks.sources, divide=self._hooks.divide, freed_version=freed_version,
        )  # fmt: skip

    def _with_failed(self, view: View, memory: Memory) -> Memory:
        """Take in the pods that have failed since the last pass: here, and for extensions."""
        failed = self._pass.cache.take_failed()
        self._hooks.on_failed(failed)
        with self._guarded("read-failures"):
            at, seconds = view.now.at.timestamp(), self._pass.settings.bad_nodes.avoid_seconds
            return replace(memory, refusals=memory.refusals.after(failed, view.controller_of, at, seconds))
        return memory

    def _gather(self, view: View) -> list[PodGang]:
        ask = self._gang_cache.asking(self._pass.cache.asker())
        make, with_fewer = self._gang_cache.gang_of, self._pass.settings.start_with_fewer
        gangs = gather_groups(view.index.waiting, view.index.mates, ask, make, view.lost_owners, with_fewer)
        self._gang_cache.end_pass()
        with self._guarded("complete-gangs"):
            gangs = self._hooks.complete(gangs, view)
        with self._guarded("order-gangs"):
            stages = self._memory.placing.ledger.by_gang(LATER_STAGE)
            return self._hooks.order(gangs, view, causes_of(self._memory.report.reasons), stages)
        return gangs

    def _look_for_ungated(self, view: View) -> Ungated:
        """Pods that came past admission; those that it has missed are counted."""
        policy, labels = self._pass.policy(), self._pass.cache.namespace_labels()
        groups = self._pass.cache.owners.all_of(POD_GROUPS) or {}
        found: Ungated = {}

        def had_gate(pod: Pod) -> bool:
            return view.is_ours(pod) or is_in_tree(pod, groups)

        with self._guarded("find-ungated"):
            if policy is not None and labels is not None:
                read = partial(read_creator_fields, self._pass.api)
                found = self._ungated.by_cause(policy, labels, read, had_gate)
                missed = found.get(UngatedCause.MISSED, {})
                self._pass.metrics.ungated.value = sum(map(len, missed.values()))
        return found

    # --- apply ----------------------------------------------------------------------------------

    def _apply(self, decided: Decided, view: View, retries: Retries) -> float:
        """Carry the decisions out; returns the seconds after which another pass is due for that.

        A gang whose plan is not written keeps its reservation.
        """
        for step in decided.to_apply:
            self._on_result(step)
        orders = Orders.together(decided.to_apply)
        done = self._carry_out(orders, view, retries) if orders != Orders() else Done()
        unwritten = {each.gang.key for each in orders.plans} - {each.gang.key for each in done.placed}
        self._memory = replace(self._memory.unplaced(unwritten), retries=retries.table)
        is_soon = decided.failed or done.failed or done.evicted
        return min(done.again_seconds, SOON_SECONDS if is_soon else NO_HURRY)

    def _carry_out(self, orders: Orders, view: View, retries: Retries) -> Done:
        """Carry orders out; after a defect their results are unknown."""
        with self._guarded("apply"):
            done = self._applier.apply(orders, view, retries)
            self._on_result(done)
            self._hooks.on_result(done)
            self._memory = self._memory.after(done, view, self._now())
            with self._guarded("update-metrics"):
                self._measurements.on_result(orders, done)
            return done
        return Done(failed=True)

    def _on_result(self, news: Orders | Done) -> None:
        """Have it reported."""
        self._memory = replace(self._memory, report=self._reporter.on_result(news, self._memory.report))

    def _after_pass(self, view: View, gangs: Sequence[PodGang], retries: Retries) -> None:
        """Give extensions the results of the pass; they act for gangs that found no place."""
        notes: Mapping[GangKey, str] = {}
        with self._guarded("extensions"):
            self._hooks.after_pass(view, retries, gangs, causes_of(self._memory.report.reasons))
            notes = self._hooks.notes
        self._memory = replace(self._memory, extensions=self._hooks.memories, retries=retries.table)
        self._memory = replace(self._memory, report=replace(self._memory.report, notes=notes))

    # --- report ---------------------------------------------------------------------------------

    def _report(self, decided: Decided, seen: Observation, retries: Retries) -> bool:
        """Report, and count; returns whether all was reported."""
        is_reported = False
        ledger, view = self._memory.placing.ledger, seen.view
        with self._guarded("report"):
            waiters = decided.queue.waiters.values() if decided.queue is not None else ()
            is_reported, memory = self._reporter.report(
                view, seen.gangs, self._memory.report, retries, self._memory.repairs.evicted,
                ledger.reported(), self._hooks.sentences, sentences(waiters, view.gang_of),
            )  # fmt: skip
            self._memory = replace(self._memory, report=memory, retries=retries.table)
        with self._guarded("update-metrics"):
            kinds = (*_KINDS, *(each.kind for each in self._hooks.sources))
            by_kind = {kind.name: ledger.nodes(kind) for kind in kinds}
            self._measurements.note(view, seen.snapshot, by_kind)
        return is_reported

    # --- helpers --------------------------------------------------------------------------------

    def _now(self) -> Moment:
        return Moment(self._pass.clock(), datetime.now(UTC))

    @contextmanager
    def _guarded(self, phase: str) -> Iterator[None]:
        """A phase whose defect must not stop the others."""
        self._pass.heartbeat()
        with self._timed(phase):
            try:
                yield
            except Exception:
                logger.exception("phase_failed phase=%s", phase)

    def _timed(self, phase: str) -> AbstractContextManager[object]:
        return self._pass.metrics.passes.labels(phase).time()
