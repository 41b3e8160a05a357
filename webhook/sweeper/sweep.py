"""One pass: observe, decide, apply, report; step by step, what is promised before what is new.

A pass reads levels, not events: it looks at everything that is there and moves it one step on. It may stop
anywhere; the next one, of this process or of another, goes on from what the API server holds.

    what is there                                     step       order
    ------------------------------------------------  ---------  ------------------------------------------
    a plan names a gated pod, and holds               finish     release it, when its node is free for that
    a plan names a gated pod, and does not hold       place      a new plan, as for any pod that waits
    a released pod does not come to run               repair     delete it, if its controller makes it again
    a gated pod came past the webhook                 steer      add the nodeSelector of its GPU model
    a gang is complete and fits                       place      write its plan, release its pods
    it fits only in the place of lesser gangs         place      write its plan, which names them
    a plan names gangs that are to go for it          preempt    evict them; its pods wait until they are gone
    a gang has lost pods to others, for good          broken     evict the rest: it comes again as a whole
    it does not fit                                   place      none: it waits, may keep nodes, and is told
    it is not complete                                place      none: it settles
    its released part waits too long for the rest     roll back  delete that part, if it is made again

What holds whichever step it stops in:

1. No pod is released that no Placement names: the plan is written first, in one write.
2. A pod counts on one node at most: where it is bound, else where it was sent, else where it is planned.
   The last two come from what was written, never from what this process remembers alone.
3. A step works on one frozen view of the cluster, and orders are values. A plan is checked against what is
   known by then, if that has moved, right before it is written.
4. An order that fails changes nothing here; what is remembered between passes (see decide, repair) only
   saves work or delays, so that a process without memory does the same a little later.
"""

import logging
from collections.abc import Callable, Iterator, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from webhook.placement import Snapshot
from webhook.sweeper.apply.applier import Applier
from webhook.sweeper.context import Pass
from webhook.sweeper.decide.attempt import PassInput
from webhook.sweeper.decide.health import NodeHealth
from webhook.sweeper.decide.let_go import let_go
from webhook.sweeper.decide.orders import Done, Orders
from webhook.sweeper.decide.placing import Placer
from webhook.sweeper.decide.preempting import Preempting, look_for_victims, waiting_for
from webhook.sweeper.decide.preemption import Keeps
from webhook.sweeper.decide.release_queue import ReleaseQueue, sentences
from webhook.sweeper.decide.reservations import LATER_STAGE, STARVATION
from webhook.sweeper.decide.standing import standing, unfinished, without_overbooked
from webhook.sweeper.decide.steering import Steering, steer
from webhook.sweeper.decide.ungated import UngatedPods
from webhook.sweeper.failing import Failing
from webhook.sweeper.fair import FairTurns
from webhook.sweeper.figures import Figures
from webhook.sweeper.memory import Memory
from webhook.sweeper.observe.gangs import GangKey, PodGang, gather
from webhook.sweeper.observe.gathered import Gathered
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import Moment, View
from webhook.sweeper.repair.allowance import Allowance
from webhook.sweeper.repair.broken import evict_broken
from webhook.sweeper.repair.repair import Repaired, repair_released, roll_back
from webhook.sweeper.report import Reporter
from webhook.sweeper.scaleup.asker import Asker
from webhook.sweeper.scaleup.new_nodes import SCALE_UP, NewNodes

SOON_SECONDS: Final = 1.0
"""When the next pass is due after something has failed: not at once, or an API server that is away is asked
without end."""

_KINDS: Final = (STARVATION, LATER_STAGE, SCALE_UP)
"""Of reservations, for the metrics."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Seen:
    """What a pass works on.

    snapshot: in a large cluster it is most of a pass, so None if nobody waits, but now and then for metrics.
    """

    view: View
    snapshot: Snapshot | None
    queue: ReleaseQueue
    usage_version: int


@dataclass(frozen=True)
class _StepOrders:
    """What a step has ordered, and in how many seconds it is due again. failed: by a defect of ours."""

    orders: Orders
    due_seconds: float
    failed: bool = False


class Sweeper:
    """The passes of one leader."""

    def __init__(self, surroundings: Pass) -> None:
        settings, clock = surroundings.settings, surroundings.clock
        self._pass = surroundings
        self._snapshotter = Snapshotter(surroundings.cache, settings, surroundings.cache.pod_journal())
        self._gathered = Gathered()
        self._ungated = UngatedPods(clock)
        surroundings.cache.observe_pods(self._ungated.on_pod)
        self._memory = Memory()
        self._repaired = Repaired()
        self._health = NodeHealth(settings, clock)
        self._failing = Failing(surroundings, self._health)
        self._asker = Asker(surroundings)
        self._placer = Placer(
            settings, clock, beat=surroundings.beat, keeps=self._keeps, health=self._health,
            sources=(NewNodes(self._asker.bookings, self._excluded),),
        )  # fmt: skip
        self._applier = Applier(surroundings, self._snapshotter, self._asker.provided)
        self._reporter = Reporter(surroundings)
        self._figures = Figures(surroundings)
        self._fair = FairTurns(surroundings)

    def close(self) -> None:
        """End the threads."""
        self._applier.close()
        self._asker.close()

    def sweep(self) -> float:
        """One pass; returns the seconds after which another is due even if nothing is heard."""
        seen = self._observe()
        with self._guarded("failures"):
            self._failing.step(seen.view)
        preempting = self._preempting(seen)
        finished = self._step("finish", seen.view, lambda: self._finish(seen, preempting.held))
        repaired = self._step("repair", seen.view, lambda: self._repair(seen.view))
        self._pass.beat()
        gangs = None
        with self._guarded("gather"):
            gangs = self._gather(seen.view)
        if gangs is None:
            return SOON_SECONDS  # nobody knows who waits, so nobody is told or forgotten
        with self._guarded("let_go"):
            gangs = let_go(gangs, seen.view, self._pass.policy())
        with self._guarded("order"):
            stages = self._placer.ledger.by_gang(LATER_STAGE)
            gangs = self._fair.order(gangs, seen.view, self._reporter.causes, stages)
        is_remembered = False
        with self._guarded("remember"):
            self._knows(repairs=self._memory.repairs.of(gangs, seen.view.now.seconds))
            self._placer.remember(gangs, seen.view, seen.snapshot)
            is_remembered = True
        preempted = self._step("preempt", seen.view, lambda: waiting_for(preempting, gangs))
        steering = self._steering(gangs, seen.view)
        steered = self._step("steer", seen.view, lambda: steering.orders)
        steady = [gang for gang in gangs if gang.key not in steering.held]
        placed = self._step("place", seen.view, lambda: self._place(steady, seen, preempting.going))
        broken = self._step("broken", seen.view, lambda: self._look_for_broken(gangs, seen, steering, placed))
        went_back = self._step("rollback", seen.view, lambda: self._roll_back(gangs, seen))

        self._look_for_ungated()
        scaled = self._ask_for_nodes(seen.view, gangs)
        reported = False
        with self._guarded("report"):
            waiters = sentences(seen.queue.waiters.values(), seen.view.gang_of)
            reserved = self._placer.ledger.by_gang()
            reported = self._reporter.report(
                seen.view, gangs, self._memory.repairs.evicted, reserved, self._fair.told, waiters
            )
        with self._guarded("measure"):
            by_kind = {kind.name: self._placer.ledger.nodes(kind) for kind in _KINDS}
            self._figures.note(seen.view, seen.snapshot, by_kind)
        with self._guarded("order"):
            self._fair.keep()
        steps = (finished, repaired, preempted, steered, placed, broken, went_back)
        due = min(scaled, seen.queue.due_seconds, *(each.due_seconds for each in steps))
        is_whole = is_remembered and reported
        return min(due, self._pass.settings.interval_seconds if is_whole else SOON_SECONDS)

    def _knows(self, **parts: Any) -> None:
        self._memory = replace(self._memory, **parts)

    # --- observe --------------------------------------------------------------------------------

    def _observe(self) -> _Seen:
        usage_version = self._pass.cache.usage_version
        with self._timed("observe"):
            now = Moment(self._pass.clock(), datetime.now(UTC))
            view = self._snapshotter.view(now)
            memory = self._memory
            self._knows(backoff=memory.backoff.at(now.seconds), sent=memory.sent.seen(view, now.seconds))
            view = standing(view, self._memory.backoff, self._memory.sent)
        snapshot = None
        self._pass.beat()
        with self._timed("snapshot"):
            if view.gated or self._figures.is_stale:
                snapshot = self._snapshotter.snapshot(view)
                kept = without_overbooked(view, snapshot, self._memory.sent)
                if kept is not view:
                    view, snapshot = kept, self._snapshotter.snapshot(kept)
        queue = ReleaseQueue(view, self._memory.sent, now.seconds, self._repaired.unrepairable)
        return _Seen(view, snapshot, queue, usage_version)

    def _gather(self, view: View) -> list[PodGang]:
        ask = self._gathered.asking(self._pass.cache.asker())
        gangs = gather(view.gated, view.mates, ask, view.gang_of, self._gathered.gang_of)
        self._gathered.end_round()
        if self._pass.settings.go_on_with_fewer:
            gangs = [replace(each, minimum=len(each.pods)) if each.hindrance else each for each in gangs]
        return gangs

    # --- decide ---------------------------------------------------------------------------------

    def _keeps(self) -> Keeps:
        """Tells why a gang is rather not to go for others: a budget keeps it, or its Job would end."""
        budgets, allowance = self._pass.cache.budgets(), self._allowance()
        return lambda pods: budgets.why_not(pods) or allowance.why_jobs_end(pods)

    def _excluded(self, gang: PodGang) -> frozenset[str]:
        """Where a gang cannot go, as a pod of it was refused there or nodes are bad."""
        return self._memory.backoff.nodes_of(gang.key, gang.maker) | self._health.of(gang).hard

    def _preempting(self, seen: _Seen) -> Preempting:
        with self._guarded("preempt"):
            if seen.snapshot is not None:
                budgets, settings = self._pass.cache.budgets(), self._pass.settings
                found, victims = look_for_victims(
                    seen.view, seen.snapshot, budgets, self._memory.victims, settings
                )
                self._knows(victims=victims)
                return found
        return Preempting()

    def _finish(self, seen: _Seen, held: Set[str]) -> Orders:
        pairs = unfinished(seen.view, self._memory.backoff, self._memory.sent, held)
        taken = self._placer.stamped(seen.queue.take(pairs), seen.view)
        return Orders(releases=taken, reads=tuple(seen.queue.reads))

    def _steering(self, gangs: list[PodGang], view: View) -> Steering:
        policy = self._pass.policy()
        with self._guarded("steer"):
            return steer(gangs, view, policy) if policy else Steering()
        return Steering()

    def _place(self, gangs: list[PodGang], seen: _Seen, going: Set[GangKey]) -> Orders:
        if seen.snapshot is None:
            return Orders()
        given = PassInput(
            seen.view, seen.snapshot, seen.queue, self._repaired.blocked, seen.usage_version, going,
            self._memory.backoff,
        )  # fmt: skip
        return self._placer.place(gangs, given)

    def _look_for_broken(
        self, gangs: list[PodGang], seen: _Seen, steering: Steering, placed: _StepOrders
    ) -> Orders:
        # Who has a place is not broken, though it could not be written down: its cause is of the pass before.
        found = {plan.gang.key for plan in placed.orders.plans}
        without = [gang for gang in gangs if gang.key not in found]
        unasked = placed.orders.unasked | steering.held
        if placed.failed:
            unasked = frozenset(gang.key for gang in gangs)
        orders, broken = evict_broken(
            seen.view, without, self._reporter.causes, unasked, self._memory.broken,
            self._allowance().why_not_evicted, self._pass.settings,
        )  # fmt: skip
        self._knows(broken=broken)
        return orders

    def _roll_back(self, gangs: list[PodGang], seen: _Seen) -> Orders:
        orders, repairs = roll_back(
            seen.view, gangs, self._memory.repairs, self._allowance(), self._pass.settings,
            self._placer.place_anew, self._pass.clock,
        )  # fmt: skip
        self._knows(repairs=repairs)
        return orders

    def _repair(self, view: View) -> Orders:
        memory, settings = self._memory, self._pass.settings
        self._repaired, repairs = repair_released(view, memory.repairs, self._allowance(), settings)
        self._knows(repairs=repairs, backoff=self._repaired.backed_off(memory.backoff, view.now.seconds))
        return self._repaired.orders

    def _allowance(self) -> Allowance:
        owners, deletions = self._pass.cache.owners, self._memory.repairs.deletions
        return Allowance(self._pass.settings, owners, deletions, self._pass.clock())

    def _look_for_ungated(self) -> None:
        """Tell of pods that came past admission, and count them."""
        policy, labels = self._pass.policy(), self._pass.cache.namespace_labels()
        with self._guarded("ungated"):
            if policy is not None and labels is not None:
                found = self._ungated.by_namespace(policy, labels)
                self._reporter.hear(Orders(warnings=tuple(self._ungated.warnings(found))))
                self._pass.metrics.ungated.value = sum(map(len, found.values()))

    def _ask_for_nodes(self, view: View, gangs: list[PodGang]) -> float:
        """Ask an autoscaler for nodes for gangs that found no room; returns when that is due again."""
        with self._guarded("scale"):
            due = self._asker.step(view, gangs, self._reporter.causes)
            self._reporter.notes = self._asker.notes
            return due
        return SOON_SECONDS

    # --- apply ----------------------------------------------------------------------------------

    def _step(self, phase: str, view: View, decide: Callable[[], Orders]) -> _StepOrders:
        """Decide one thing for all, and have it done. A defect keeps no other step from its work."""
        with self._guarded(phase):
            orders = decide()
            self._reporter.hear(orders)
            with self._timed("apply"):
                done = self._applier.apply(orders, view)
            self._reporter.hear(done)
            self._remember(done, view)
            with self._guarded("measure"):
                self._figures.hear(orders, done)
            is_settled = not done.failed and not done.evicted
            due = min(orders.due_seconds, done.again_seconds)
            return _StepOrders(orders, due if is_settled else SOON_SECONDS)
        return _StepOrders(Orders(), SOON_SECONDS, failed=True)

    def _remember(self, done: Done, view: View) -> None:
        now = Moment(self._pass.clock(), datetime.now(UTC))
        self._fair.hear(done)
        self._memory = self._memory.after(done, view, now)

    @contextmanager
    def _guarded(self, phase: str) -> Iterator[None]:
        """A phase whose defect must not keep the others from their work."""
        self._pass.beat()
        with self._timed(phase):
            try:
                yield
            except Exception:
                logger.exception("phase_failed phase=%s", phase)

    def _timed(self, phase: str) -> AbstractContextManager[object]:
        return self._pass.metrics.passes.labels(phase).time()
