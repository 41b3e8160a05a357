"""Places for all complete gangs, the most urgent first, each on what the earlier ones leave.

Each gang goes through CHECKS and STEPS, until a step answers. A step is a function of the attempt and of the
state of the pass (see attempt): it answers GangPlaced, GangWaits or PassedOver, or returns the attempt as the
next step is to have it. A new rule is a new step.

A pass is bounded in time: the most urgent gangs are placed for half of it, then the others in turn, from
where the pass before has stopped. So nobody's many gangs keep anybody's from being asked about. What one gang
has been told in a pass holds for those that ask the same, as room only shrinks until the next.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import Assignment, Budget, Snapshot
from webhook.sweeper.decide.anew import place_anew, without_part
from webhook.sweeper.decide.asking import QUESTIONS
from webhook.sweeper.decide.attempt import (
    Attempt,
    GangMemory,
    GangPlaced,
    GangWaits,
    Outcome,
    PassedOver,
    PassInput,
    PassRules,
    PassState,
    Step,
)
from webhook.sweeper.decide.completion import grown
from webhook.sweeper.decide.drafts import new_plan, stamped
from webhook.sweeper.decide.exclusive import asks
from webhook.sweeper.decide.health import NodeHealth
from webhook.sweeper.decide.later_stages import reserve_for_later_stages
from webhook.sweeper.decide.orders import NO_HURRY, Cause, Orders, Pair, Verdict
from webhook.sweeper.decide.preemption import Keeps, nobody_kept, preempting
from webhook.sweeper.decide.release_queue import Timestamps
from webhook.sweeper.decide.reservations import STARVATION, ReservationLedger, Source, opened
from webhook.sweeper.decide.spare_nodes import spares
from webhook.sweeper.decide.steps import (
    allow_nodes,
    ask_without_refusals,
    claims_are_free,
    commit,
    companions_alone,
    complete,
    explain,
    keep_nodes_for_later_pods,
    make_question,
    not_evicted,
    not_gated_by_others,
    not_in_backoff,
    of_served_schedulers,
    place_anywhere,
    place_minimum,
    place_on_kept_nodes,
    preempt,
    reserve,
    skip_unchanged,
)
from webhook.sweeper.decide.unlabelled import unlabelled
from webhook.sweeper.observe.gangs import GangKey, PodGang, by_age
from webhook.sweeper.observe.gathered import OWN_ERROR
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

CHECKS: Final[tuple[Step, ...]] = (
    not_evicted,
    not_gated_by_others,
    of_served_schedulers,
    not_in_backoff,
    complete,
)
"""Whether a gang is to be placed now, asked of all gangs before any of them is placed."""

STEPS: Final[tuple[Step, ...]] = (
    claims_are_free,
    companions_alone,
    # Which nodes may it use?
    allow_nodes,
    skip_unchanged,
    # What is asked, and where does it fit?
    make_question,
    place_on_kept_nodes,
    place_anywhere,
    place_minimum,
    keep_nodes_for_later_pods,
    commit,
    # It does not fit.
    preempt,
    ask_without_refusals,
    reserve,
    explain,
)
"""How a gang gets its place, or is told why it has none."""

logger = logging.getLogger(__name__)


@dataclass
class _Results:
    """What a pass has come to so far: orders, what is remembered, and gangs that may go unpinned."""

    memories: dict[GangKey, GangMemory]
    verdicts: list[Verdict] = field(default_factory=list)
    due_seconds: float = NO_HURRY
    unasked: set[GangKey] = field(default_factory=set)
    refused: list[Attempt] = field(default_factory=list)


class Placer:
    """Decides of each gang whether it is placed, and where.

    ledger: what is reserved for gangs meanwhile.
    """

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float] = time.monotonic,
        beat: Callable[[], None] = lambda: None,
        keeps: Callable[[], Keeps] = lambda: nobody_kept,
        health: NodeHealth | None = None,
        sources: Iterable[Source] = (),
    ) -> None:
        """clock: bounds the pass. beat: told after each gang that work goes on.

        keeps: tells which gangs are rather not to go for others. sources: reservations of extensions.
        """
        self._settings = settings
        self._clock = clock
        self._beat = beat
        health = health or NodeHealth(settings, clock)
        self._rules = PassRules(settings, health, Timestamps(), keeps)
        self._sources = (self._keep_spares, reserve_for_later_stages, *sources)
        self.ledger = ReservationLedger(settings)
        self._memories: Mapping[GangKey, GangMemory] = {}
        self._next: GangKey | None = None
        self._last: PassState | None = None

    def remember(self, gangs: Sequence[PodGang], view: View, snapshot: Snapshot | None = None) -> None:
        """Take in what a pass sees; what is known of gangs that are gone is forgotten."""
        before, memories = self._memories, dict[GangKey, GangMemory]()
        for gang in gangs:
            known = before.get(gang.key)
            growth = grown(known.growth if known else None, gang, _waiting(gang, view), view.now.seconds)
            memories[gang.key] = replace(known, growth=growth) if known else GangMemory(growth)
        self._memories = memories
        self.ledger = opened(self.ledger, gangs, view, snapshot, self._sources)
        self._see_times(view)

    def _see_times(self, view: View) -> None:
        """Take in the times that pods carry, and that plans say they will."""
        ours = (pod.metadata.annotations for pod in view.stamped)
        planned = (each.annotations for known in view.placements.values() for each in known.spec.pods)
        self._rules.timestamps.saw(itertools.chain(ours, planned))

    def stamped(self, pairs: Iterable[Pair], view: View) -> tuple[Pair, ...]:
        """Pods of earlier plans that are released now, their cards with the times of now."""
        self._see_times(view)
        return stamped(pairs, self._rules.timestamps, view.now.ns)

    def place(self, gangs: Sequence[PodGang], given: PassInput) -> Orders:
        """New plans, and of each gang without one why that is so."""
        found = _Results(dict(self._memories), due_seconds=self._settings.interval_seconds)
        now = self._begin(gangs, given, found)
        due = []
        for gang in gangs:
            waiting = tuple(_waiting(gang, given.view))
            if waiting:
                attempt = self._attempt(gang, waiting)
                outcome = _run(CHECKS, attempt, now)
                if isinstance(outcome, Attempt):
                    due.append(outcome)
                else:
                    now = self._conclude(gang, outcome, now, found)
        for attempt in self._in_time(due, found):
            outcome = self._through_steps(attempt, now)
            now = self._conclude(attempt.gang, outcome, now, found)
            self._beat()
        now = _unpin(now, found.refused)
        self._memories, self._last, self.ledger = found.memories, now, now.ledger
        return Orders(
            plans=now.plans,
            verdicts=tuple(found.verdicts),
            due_seconds=found.due_seconds,
            unasked=frozenset(found.unasked),
        )

    def _begin(self, gangs: Sequence[PodGang], given: PassInput, found: _Results) -> PassState:
        new: dict[str, float] = {}
        choices = self._settings.scale_up
        if choices.is_on:
            # Nodes that have come for somebody, and do not say yet where they stand, are given to nobody.
            now = given.view.now.at.timestamp()
            new = unlabelled(given.view.nodes, choices.label_seconds, self._settings.topology, now)
            found.due_seconds = min([found.due_seconds, *new.values()])
        return PassState(
            given,
            self._rules,
            given.snapshot,
            self.ledger.in_order(gangs),
            given.view.volumes,
            unlabelled=frozenset(new),
            promised=tuple(group for each, _ in preempting(given.view) for group in each.spec.victims),
        )

    def _keep_spares(
        self, ledger: ReservationLedger, gangs: Sequence[PodGang], view: View, snapshot: Snapshot | None
    ) -> ReservationLedger:
        return replace(ledger, spares=self._spares(snapshot) if snapshot is not None else frozenset())

    def _spares(self, snapshot: Snapshot) -> frozenset[str]:
        bad = frozenset(self._rules.health.verdicts.for_all)
        return spares(snapshot, self._settings.counting, self._settings.spare_nodes.per_block, bad)

    def _attempt(self, gang: PodGang, waiting: tuple[Pod, ...]) -> Attempt:
        budget = Budget(QUESTIONS * self._settings.options.bound)
        return Attempt(gang, waiting, self._memories[gang.key], budget)

    def _in_time(self, due: Sequence[Attempt], found: _Results) -> Iterator[Attempt]:
        """The gangs to place in this pass; due: the most urgent first."""
        started, seconds = self._clock(), self._settings.pass_seconds
        number = 0
        while number < len(due) and (number == 0 or self._clock() - started < seconds / 2):
            yield due[number]
            number += 1
        # By age whoever's turn it is: that moves from pass to pass, and nobody must be passed over by that.
        rest = sorted(due[number:], key=lambda each: by_age(each.gang))
        first = next((i for i, each in enumerate(rest) if each.gang.key == self._next), 0)
        self._next = None
        in_turn = [*rest[first:], *rest[:first]]
        for position, attempt in enumerate(in_turn):
            if self._clock() - started >= seconds:
                self._next = attempt.gang.key
                found.unasked.update(each.gang.key for each in in_turn[position:])
                found.due_seconds = 0.0
                return
            yield attempt

    def _through_steps(self, attempt: Attempt, now: PassState) -> Outcome:
        try:
            outcome = _run(STEPS, attempt, now)
            assert not isinstance(outcome, Attempt), "the last step always answers"
            return outcome
        except ValueError as error:  # what the user wrote cannot be meant: no level, no quantity
            if attempt.gang.fault == OWN_ERROR:  # perhaps for this pass alone, so it goes on holding nodes
                return GangWaits(Cause.DEFECT, OWN_ERROR)
            return GangWaits(Cause.WISH, str(error), is_final=True)
        except Exception:  # one bad gang never stops the others
            logger.exception("gang_failed gang=%s", attempt.gang.key)
            return GangWaits(Cause.DEFECT, OWN_ERROR)

    def _conclude(self, gang: PodGang, outcome: Outcome, now: PassState, found: _Results) -> PassState:
        """Note what has become of a gang; returns the state for those after it."""
        memory = found.memories[gang.key]
        if isinstance(outcome, PassedOver):
            found.due_seconds = min(found.due_seconds, outcome.due_seconds)
            if not outcome.is_known:
                found.unasked.add(gang.key)
            return now
        if isinstance(outcome, GangPlaced):
            if outcome.victims and outcome.victims != memory.victims:  # also while it cannot be written
                logger.info("preempts gang=%s victims=%s", gang.key, ",".join(outcome.victims[:10]))
            found.memories[gang.key] = GangMemory(memory.growth, victims=outcome.victims)
            return now.with_plan(outcome.plan)
        found.memories[gang.key] = replace(memory, failure=outcome.failure)
        found.verdicts.append(Verdict(gang, outcome.sentence, outcome.cause))
        found.due_seconds = min(found.due_seconds, outcome.due_seconds)
        if outcome.unpinned is not None:
            found.refused.append(outcome.unpinned)
        ledger = outcome.ledger or now.ledger
        if outcome.is_final:
            ledger = ledger.give_up(gang.key)
        if outcome.none_begins:
            ledger, now = ledger.leave_share_to_stages(), replace(now, none_begins=outcome.none_begins)
        now = replace(now, ledger=ledger)
        return now if outcome.known is None else now.with_answer(outcome.known)

    def place_anew(self, gang: PodGang, part: Sequence[Pod]) -> str:
        """Where all of the gang would go if its released part went, "" if nowhere; it is held for it then.

        Asked after place(), of which the gang's rest has found no place.
        """
        now = self._last
        if now is None or gang.key.placement_key not in now.ledger.order:
            return ""
        if any(made.gang.key == gang.key for made in now.plans):
            return ""
        if not _waiting(gang, now.view):
            return ""  # it has a place, and waits for its turn there
        try:
            answer = self._anew(gang, part, now)
        except ValueError:
            return ""
        if answer is None:
            return ""
        self.ledger = self.ledger.reserve(gang.key, sorted(set(answer.nodes.values())))
        return answer.spread

    def _anew(self, gang: PodGang, part: Sequence[Pod], now: PassState) -> Assignment | None:
        rules, view = self._rules, now.view
        first = next(asks(gang, view, now.plans, self._settings.topology))
        # Where others hold nodes its new pods could not go, and would have ended for nothing.
        reserved = self.ledger.reserved(gang, (*gang.gated, *part), view)
        avoid = (
            now.given.backoff.nodes_of(gang.key, gang.maker) | first.closed | reserved.nodes | now.unlabelled
        )
        # Nor to bad or spare nodes: those of now, and those that are spare once they are gone.
        spares_then = self._spares(without_part(part, view, now.snapshot))
        avoid |= rules.health.of(gang, self.ledger.spares | spares_then).hard
        options, budget = self._settings.options, Budget(QUESTIONS * self._settings.options.bound)
        return place_anew(
            first.gang, part, view, now.snapshot, avoid, options, budget, now.near, now.class_of
        )


def _waiting(gang: PodGang, view: View) -> list[Pod]:
    """The pods of a gang that have no place."""
    return [pod for pod in gang.gated if pod.metadata.uid not in view.planned]


def _run(steps: Iterable[Step], attempt: Attempt, now: PassState) -> Attempt | Outcome:
    """What the first step says that answers; the attempt if none does."""
    for step in steps:
        answer = step(attempt, now)
        if not isinstance(answer, Attempt):
            return answer
        attempt = answer
    return attempt


def _unpin(now: PassState, refused: Iterable[Attempt]) -> PassState:
    """Release one gang for which all nodes with room are refused, if it then takes nobody's place.

    That is, if no node is planned, held or kept for anybody, and all that was sent to one is bound.
    """
    view = now.view
    unbound = (pod for pod in view.under_way if not pod.spec.node_name)
    under_way = {node for pod in unbound if (node := view.occupied(pod))} - now.given.blocked
    for attempt in refused:
        own = now.ledger.of(attempt.gang.key.placement_key, STARVATION)
        promised = now.plans or view.planned or under_way or now.ledger.taken - own
        if not promised and isinstance(attempt.answer, Assignment):
            plan = new_plan(attempt, now, unpinned=True)
            now = replace(now, plans=(*now.plans, plan))
    return now
