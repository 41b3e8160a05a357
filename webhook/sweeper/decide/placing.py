"""Places for all complete gangs, the most urgent first, each on what the earlier ones leave.

A pass is bounded in time, see in_time. What one gang has been told in a pass holds for those that ask the
same, as room only shrinks until the next.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import Assignment, Budget, NoFit, Snapshot
from webhook.sweeper.decide.anew import place_anew, without_part
from webhook.sweeper.decide.asking import QUESTIONS, ask
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.booked import Booking
from webhook.sweeper.decide.companions import nobody
from webhook.sweeper.decide.completion import Completion
from webhook.sweeper.decide.drafts import Drafts
from webhook.sweeper.decide.due import Due
from webhook.sweeper.decide.elastic import fewer, has_enough, needed, so_far
from webhook.sweeper.decide.exclusive import asks
from webhook.sweeper.decide.health import NodeHealth
from webhook.sweeper.decide.holders import Holders, have_room, held_off
from webhook.sweeper.decide.in_time import InTime
from webhook.sweeper.decide.kept import later_told
from webhook.sweeper.decide.memories import Memories
from webhook.sweeper.decide.orders import Cause, NewPlan, Orders, Pair
from webhook.sweeper.decide.preferring import ask_preferring
from webhook.sweeper.decide.question import GangQuestion, question
from webhook.sweeper.decide.reservations import Held, told
from webhook.sweeper.decide.rounds import Ground, Round, Said
from webhook.sweeper.decide.shunned import NONE
from webhook.sweeper.decide.spares import spares
from webhook.sweeper.decide.stages import on_nodes_to_keep, why_not_yet
from webhook.sweeper.decide.unknown_owners import owner_told
from webhook.sweeper.decide.unlabelled import unlabelled
from webhook.sweeper.decide.urgency import (
    lowest_priority,
    may_go_unpinned,
    may_preempt,
    preemption,
)
from webhook.sweeper.decide.victims import Keeps, nobody_kept, preempting
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.gathered import OWN_ERROR
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings
from webhook.text import joined

CUT: Final = "what else could make room for it was not decided within the bound of steps"

logger = logging.getLogger(__name__)


class Placer:
    """Decides of each gang whether it is placed, and where.

    reservations, kept_nodes: what is held for gangs meanwhile.
    """

    def __init__(
        self,
        settings: Settings,
        avoided: Avoided,
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
        beat: Callable[[], None] = lambda: None,
        keeps: Callable[[], Keeps] = lambda: nobody_kept,
        health: NodeHealth | None = None,
        bookings: Callable[[], Iterable[Booking]] = lambda: (),
    ) -> None:
        """now_ns: the time of day, for gas-ts. beat: told after each gang that work goes on.

        keeps: tells which gangs are rather not to go for others. bookings: live requests for nodes.
        """
        self._keeps = keeps
        self._health = health or NodeHealth(settings, clock)
        self._settings = settings
        self._avoided = avoided
        self._clock = clock
        self._beat = beat
        self._completion = Completion(settings, clock)
        self._holders = Holders(settings, clock, bookings, self._closed_to)
        self.reservations, self.kept_nodes = self._holders.reservations, self._holders.kept
        self._now_ns = now_ns
        self._drafts = Drafts(settings, avoided, self._holders, now_ns)
        self._memories = Memories(self._completion, clock)
        self._due = Due(settings, avoided, self._completion, self.reservations)
        self._in_time = InTime(clock)
        self._last: Round | None = None

    def _closed_to(self, gang: PodGang) -> frozenset[str]:
        """Where a gang is not to go, as a pod of it was refused there or nodes are bad."""
        return self._avoided.of(gang.key, gang.maker) | self._health.of(gang).hard

    def remember(self, gangs: Sequence[PodGang], view: View, snapshot: Snapshot | None = None) -> None:
        """Take in what a pass sees; what is known of gangs that are gone is forgotten."""
        self._completion.saw(gangs)
        self._memories.keep_only([gang.key for gang in gangs])
        self._holders.saw(gangs, view, snapshot)
        self._drafts.saw(view)

    def stamped(self, pairs: Iterable[Pair], view: View) -> tuple[Pair, ...]:
        """Pods of earlier plans that are let go now, their cards with the times of now."""
        return self._drafts.stamped(pairs, view)

    @property
    def held(self) -> dict[str, Held]:
        """What is held for whom, by Placement: for gangs that wait, or for pods that come later."""
        return self._holders.held

    @property
    def held_nodes(self) -> tuple[frozenset[str], ...]:
        """Nodes that are held for gangs that wait long, kept for pods yet to be made, and booked."""
        return self.reservations.nodes, self.kept_nodes.nodes, self._holders.booked.nodes

    def place(self, gangs: Sequence[PodGang], ground: Ground) -> Orders:
        """New plans, and of each gang without one why that is so."""
        rank = {gang.key: number for number, gang in enumerate(gangs)}
        self._holders.keep_only(set(rank))
        now = self._last = Round(ground, ground.snapshot, rank, self._settings.interval_seconds)
        now.promised = tuple(group for each, _ in preempting(ground.view) for group in each.spec.victims)
        self._leave_unlabelled(now)
        now.spares = self._spares(ground.snapshot)
        due = []
        for gang in gangs:
            waiting = [pod for pod in gang.gated if pod.metadata.uid not in ground.view.planned]
            if not waiting:
                self._completion.nobody_waits(gang)
            elif self._due.is_due(gang, waiting, now):
                due.append((gang, waiting))
        for gang, waiting in self._in_time.of(due, now, self._settings.pass_seconds):
            self._place_gang(gang, waiting, now)
            self._beat()
        self._unpin(now)
        return Orders(
            plans=tuple(now.plans),
            verdicts=tuple(now.verdicts),
            due_seconds=now.due_seconds,
            unasked=frozenset(now.unasked),
        )

    def _spares(self, snapshot: Snapshot) -> frozenset[str]:
        bad = frozenset(self._health.verdicts.for_all)
        return spares(snapshot, self._settings.counting, self._settings.spare_nodes.per_block, bad)

    def _leave_unlabelled(self, now: Round) -> None:
        """Nodes that have come for somebody, and do not say yet where they stand, are given to nobody."""
        choices = self._settings.scale_up
        if choices.is_on:
            found = unlabelled(
                now.view.nodes, choices.label_seconds, self._settings.topology, self._now_ns() / 1e9
            )
            now.unlabelled = frozenset(found)
            now.later(min(found.values(), default=now.due_seconds))

    def place_anew(self, gang: PodGang, part: Sequence[Pod]) -> str:
        """Where all of the gang would go if its released part went, "" if nowhere; it is held for it then.

        Asked after place(), of which the gang's rest has found no place.
        """
        now = self._last
        if now is None or gang.key not in now.rank or any(made.gang.key == gang.key for made in now.plans):
            return ""
        if all(pod.metadata.uid in now.view.planned for pod in gang.gated):
            return ""  # it has a place, and waits for its turn there
        try:
            first = next(asks(gang, now.view, now.plans, self._settings.topology))
            # Where others hold nodes its new pods could not go, and would have ended for nothing.
            holding = self._holders.before(gang, (*gang.gated, *part), now.view, now.rank)
            avoid = self._avoided.of(gang.key, gang.maker) | first.closed | held_off(holding) | now.unlabelled
            # Nor to bad or spare nodes: those of now, and those that are spare once they are gone.
            spares_then = self._spares(without_part(part, now.view, now.snapshot))
            avoid |= self._health.of(gang, now.spares | spares_then).hard
            options, budget = self._settings.options, Budget(QUESTIONS * self._settings.options.bound)
            answer = place_anew(first.gang, part, now.view, now.snapshot, avoid, options, budget)
        except ValueError:
            return ""
        if answer is None:
            return ""
        self.reservations.take(gang.key, sorted(set(answer.nodes.values())), now.view)
        return answer.spread

    def _place_gang(self, gang: PodGang, waiting: Sequence[Pod], now: Round) -> None:
        workers = [pod for pod in waiting if pod.metadata.uid not in gang.companions]
        companions = [pod for pod in waiting if pod.metadata.uid in gang.companions]
        now.shunned = NONE
        if told_of_claim := now.claimed(waiting):
            return now.waits(gang, told_of_claim, Cause.NO_ROOM)
        try:
            if workers or (gang.later and not now.view.placed_on(gang.workers)):
                placed = self._find(gang, workers, companions, now)
            else:
                placed = self._drafts.make(gang, *nobody(gang, now.snapshot), companions, now)
        except ValueError as error:  # what the user wrote cannot be meant: no level, no quantity
            if gang.fault == OWN_ERROR:  # perhaps for this pass alone: it goes on holding what it holds
                now.waits(gang, OWN_ERROR, Cause.DEFECT)
            else:
                self._due.stops(gang, str(error), Cause.WISH, now)
        except Exception:  # one bad gang never stops the others
            logger.exception("gang_failed gang=%s", gang.key)
            now.waits(gang, OWN_ERROR, Cause.DEFECT)
        else:
            if placed is not None:
                now.goes_on_from(placed)
                self._holders.promise(placed.kept)

    def _find(
        self, gang: PodGang, waiting: Sequence[Pod], companions: Sequence[Pod], now: Round
    ) -> NewPlan | None:
        """Where the gang goes; None if it waits, which has been noted."""
        holding = self._holders.before(gang, waiting, now.view, now.rank)
        is_back = self._holders.replacing.fills_up(gang, waiting, now.view)
        left_to_others = (
            held_off(self._holders.kept_from(gang, waiting, now.rank)) if is_back else frozenset()
        )
        shunned = now.shunned = self._health.of(gang, frozenset() if is_back else now.spares, left_to_others)
        refusing, kept_off = self._avoided.of(gang.key, gang.maker), held_off(holding) | shunned.hard
        questions = asks(gang, now.view, now.plans, self._settings.topology)
        first = next(questions)
        kept_off |= now.unlabelled
        gang, closed, avoid = first.gang, first.closed, refusing | kept_off | first.closed
        memory, failure = self._memories.of(gang.key), self._memories.failure(gang, avoid, now)
        if (memory.no_fit and memory.no_fit.still_holds(failure)) or now.puts_off(gang, waiting):
            return None
        view = now.view
        asked = _question(gang, waiting, avoid, now)
        shape = asked.shape, lowest_priority(gang), may_preempt(gang), gang.minimum, len(gang.pods)
        kept_out = joined(told(holding.values(), gang.key.namespace), shunned.told)
        alike = now.no_fit.get(shape)
        if alike is not None and (sentence := alike.told_of(gang.key)):
            of_owner = owner_told(gang, self._settings.owner_rules, alike.room)
            now.waits(gang, joined(sentence, of_owner, kept_out), alike.cause)
            memory.no_fit = failure if alike.lasts else None
            return None
        now.budget = Budget(QUESTIONS * self._settings.options.bound)
        on_kept = self._on_kept_nodes(gang, asked, now)
        answer = on_kept or ask_preferring(asked, now, self._settings.options)
        while isinstance(answer, NoFit) and (other := next(questions, None)):  # an exclusive gang's domains
            closed &= other.closed
            asked, answer = self._try(gang, waiting, refusing | kept_off | other.closed, now)
        if isinstance(answer, NoFit) and needed(gang, waiting) < len(waiting):
            asked, answer = fewer(gang, waiting, lambda some: self._try(gang, some, avoid, now))
        if not isinstance(answer, NoFit):
            answer = on_nodes_to_keep(gang, asked, answer, now, self._holders, self._settings.options)
            if self._waits_to_begin(gang, asked, answer, shape, now):
                return None
            self.reservations.drop(gang.key)
            memory.no_fit = None
            memory.victims = ()
            return self._drafts.make(gang, asked, answer, companions, now)
        found = (
            None if has_enough(gang, waiting) else preemption(gang, asked, now, self._settings, self._keeps())
        )
        if found is not None:
            if self._waits_to_begin(gang, asked, found.assignment, shape, now):
                return None
            if memory.victims != found.names:  # told once, also while the plan cannot be written
                memory.victims = found.names
                logger.info("preempts gang=%s victims=%s", gang.key, ",".join(found.names[:10]))
            return self._drafts.make(gang, asked, found.assignment, companions, now, victims=found.victims)
        if refusing and not companions and may_go_unpinned(gang, waiting, view):
            now.refused.append((gang, *self._try(gang, waiting, kept_off, now)))
        is_known = not asked.parts and (asked.rules is None or answer.proven)
        is_booked = gang.key.placement_key in self._holders.booked.held
        may_hold = is_known and not is_booked and not now.none_begins
        if may_hold and not has_enough(gang, waiting):  # else who knows what would help
            self.reservations.hold(gang, asked, now.snapshot, view, now.budget)
        cut = "" if not now.budget.exhausted else CUT
        sentence = joined(
            so_far(gang, waiting), answer.sentence, cut, first.told, later_told(gang), now.told_of_unlabelled
        )
        if answer.hopeless:
            cause = Cause.WISH
        elif now.budget.exhausted or not answer.proven:
            cause = Cause.UNDECIDED
        else:
            # New nodes are somebody else's: a gang that they are held against may ask for its own.
            elsewhere = refusing | shunned.hard | now.unlabelled | closed
            is_held = have_room(holding, asked, now.snapshot, now.budget, elsewhere)
            cause = Cause.HELD if is_held else Cause.NO_ROOM
        of_owner = owner_told(gang, self._settings.owner_rules, answer.room)
        now.waits(gang, joined(sentence, of_owner, kept_out), cause)
        now.no_fit[shape] = Said(gang.key, asked.gang, sentence, cause, room=answer.room)
        memory.no_fit = failure
        return None

    def _waits_to_begin(
        self, gang: PodGang, asked: GangQuestion, answer: Assignment, shape: Hashable, now: Round
    ) -> bool:
        """Whether nodes for its later pods cannot be kept yet, which has been noted, also for those alike."""
        if not_yet := why_not_yet(gang, asked, answer, now, self._holders):
            now.waits(gang, not_yet, Cause.HELD)
            now.no_fit[shape] = Said(gang.key, asked.gang, not_yet, Cause.HELD, lasts=False)
        return bool(not_yet)

    def _try(
        self, gang: PodGang, some: Sequence[Pod], avoid: frozenset[str], now: Round
    ) -> tuple[GangQuestion, Assignment | NoFit]:
        asked = _question(gang, some, avoid, now)
        return asked, ask_preferring(asked, now, self._settings.options)

    def _unpin(self, now: Round) -> None:
        """Release one gang for which all nodes with room are refused, if it then takes nobody's place.

        That is, if no node is planned, held or kept for anybody, and all that was sent to one is bound.
        """
        view = now.view
        unbound = (pod for pod in view.under_way if not pod.spec.node_name)
        under_way = {node for pod in unbound if (node := view.occupied(pod))} - now.ground.blocked
        for gang, asked, room in now.refused:
            promised = now.plans or view.planned or under_way or self.reservations.held_for_others(gang.key)
            if not promised and not isinstance(room, NoFit):
                now.plans.append(self._drafts.make(gang, asked, room, (), now, unpinned=True))

    def _on_kept_nodes(self, gang: PodGang, asked: GangQuestion, now: Round) -> Assignment | None:
        """Where the gang goes if all of it fits where its plan has kept room."""
        placement = now.view.placements.get(gang.key.placement_key)
        if placement is None or not placement.spec.kept:
            return None
        others = now.snapshot.nodes.keys() - set(placement.spec.kept)
        answer = ask(asked.without(others), now.snapshot, self._settings.options, now.budget)
        return None if isinstance(answer, NoFit) else answer


def _question(gang: PodGang, some: Sequence[Pod], avoid: frozenset[str], now: Round) -> GangQuestion:
    """What is asked for some pods of a gang in this pass. Raises PlacementError, see question."""
    view = now.view
    return question(gang, some, view.placed_on(gang.pods), avoid, view.class_of, view.is_ours, view.near)
