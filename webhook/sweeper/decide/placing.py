"""Places for all complete gangs, the most urgent first, each on what the earlier ones leave.

A pass is bounded in time. Half of it goes to the most urgent, the rest to the others in turn, from where the
pass before has stopped: so nobody's many gangs keep anybody's from being asked about. What one gang has been
told in a pass holds for those that ask the same, as room only shrinks until the next.
What is remembered of a gang between passes only saves work: losing it delays.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import Assignment, Budget, NoFit, Snapshot
from webhook.placement.ahead import sparing
from webhook.sweeper.decide.anew import place_anew, without_part
from webhook.sweeper.decide.asking import QUESTIONS, ask
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.companions import nobody, wait_for_nobody
from webhook.sweeper.decide.completion import Completion
from webhook.sweeper.decide.drafts import Drafts
from webhook.sweeper.decide.elastic import fewer, has_enough, needed, so_far
from webhook.sweeper.decide.exclusive import asks
from webhook.sweeper.decide.health import NodeHealth
from webhook.sweeper.decide.holders import Holders, held_off
from webhook.sweeper.decide.kept import KeptNodes, later_told
from webhook.sweeper.decide.orders import OWN_ERROR, Cause, NewPlan, Orders, Pair
from webhook.sweeper.decide.preferring import ask_preferring
from webhook.sweeper.decide.question import GangQuestion, is_plain, question
from webhook.sweeper.decide.replacing import Replacing
from webhook.sweeper.decide.reservations import Held, Reservations, told
from webhook.sweeper.decide.rest import Rest
from webhook.sweeper.decide.rounds import Failure, Ground, Memory, Round, Said, Wish, joined
from webhook.sweeper.decide.shunned import NONE
from webhook.sweeper.decide.spares import spares
from webhook.sweeper.decide.unlabelled import unlabelled
from webhook.sweeper.decide.urgency import (
    held_by_others,
    lowest_priority,
    may_go_unpinned,
    may_preempt,
    preemption,
)
from webhook.sweeper.decide.victims import Keeps, nobody_kept, preempting
from webhook.sweeper.observe.gangs import GangKey, PodGang, by_age
from webhook.sweeper.observe.pins import scheduler_of
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

CUT: Final = "what else could make room for it was not decided within the bound of steps"

SPARED: Final = 2
"""Gangs of the same pass that a gang spares, where another place is as good for it, and which of the next."""
LOOKED_AHEAD: Final = 8
SPARING: Final = 16
"""So many of the most urgent of a pass spare others: it is up to four times the work, and bursts go fast."""

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
    ) -> None:
        """now_ns: the time of day, for gas-ts. beat: told after each gang that work goes on.

        keeps: tells which gangs are rather not to go for others.
        """
        self._keeps = keeps
        self._health = health or NodeHealth(settings, clock)
        self._settings = settings
        self._avoided = avoided
        self._clock = clock
        self._beat = beat
        self._completion = Completion(settings, clock)
        rest = Rest(clock)
        self.reservations = Reservations(settings, clock, rest=rest)
        self.kept_nodes = KeptNodes(settings, clock, rest=rest)
        self._replacing = Replacing()
        self._holders = Holders(self.reservations, self.kept_nodes, self._replacing)
        self._now_ns = now_ns
        self._drafts = Drafts(settings, avoided, self._holders, now_ns)
        self._memory: dict[GangKey, Memory] = {}
        self._next: GangKey | None = None
        self._last: Round | None = None

    def remember(self, gangs: Sequence[PodGang], view: View) -> None:
        """Take in what a pass sees; what is known of gangs that are gone is forgotten."""
        self._completion.saw(gangs)
        self._memory = {gang.key: self._memory.get(gang.key) or Memory() for gang in gangs}
        self._replacing.saw(view)
        self.kept_nodes.saw(view, self.reservations.nodes)
        self.reservations.keep_only(self._memory.keys(), self.kept_nodes.nodes)
        self._drafts.saw(view)

    def stamped(self, pairs: Iterable[Pair], view: View) -> tuple[Pair, ...]:
        """Pods of earlier plans that are let go now, their cards with the times of now."""
        return self._drafts.stamped(pairs, view)

    @property
    def held(self) -> dict[str, Held]:
        """What is held for whom, by Placement: for gangs that wait, or for pods that come later."""
        waiting = {key.placement_key: held for key, held in self.reservations.held.items()}
        return {**self.kept_nodes.held, **waiting}

    def place(self, gangs: Sequence[PodGang], ground: Ground) -> Orders:
        """New plans, and of each gang without one why that is so."""
        rank = {gang.key: number for number, gang in enumerate(gangs)}
        self.reservations.keep_only(rank.keys(), self.kept_nodes.nodes)
        now = self._last = Round(ground, ground.snapshot, rank, self._settings.interval_seconds)
        now.promised = tuple(group for each, _ in preempting(ground.view) for group in each.spec.victims)
        self._leave_unlabelled(now)
        now.spares = self._spares(ground.snapshot)
        due = []
        for gang in gangs:
            waiting = [pod for pod in gang.gated if pod.metadata.uid not in ground.view.planned]
            if not waiting:
                self._completion.nobody_waits(gang)
            elif self._is_due(gang, waiting, now):
                due.append((gang, waiting))
        for gang, waiting in self._in_time(due, now):
            self._place_gang(gang, waiting, now)
            self._beat()
        self._unpin(now)
        return Orders(plans=tuple(now.plans), verdicts=tuple(now.verdicts), due_seconds=now.due_seconds)

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

    def _in_time(
        self, due: Sequence[tuple[PodGang, list[Pod]]], now: Round
    ) -> Iterator[tuple[PodGang, list[Pod]]]:
        """The gangs of this pass: the most urgent for half of its time, then the others in turn."""
        started, seconds = self._clock(), self._settings.pass_seconds
        number = 0
        while number < len(due) and (number == 0 or self._clock() - started < seconds / 2):
            now.next = due[number + 1 : number + 1 + LOOKED_AHEAD] if number < SPARING else ()
            yield due[number]
            number += 1
        now.next = ()  # what is left of the time is for those that have no place yet
        # By age whoever's turn it is: that moves from pass to pass, and nobody must be passed over by that.
        rest = sorted(due[number:], key=lambda each: by_age(each[0]))
        first = next((i for i, (gang, _) in enumerate(rest) if gang.key == self._next), 0)
        self._next = None
        for gang, waiting in (*rest[first:], *rest[:first]):
            if self._clock() - started >= seconds:
                self._next = gang.key
                now.later(0.0)
                return
            yield gang, waiting

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

    def _is_due(self, gang: PodGang, waiting: Sequence[Pod], now: Round) -> bool:
        """Whether the gang is to be placed now."""
        if holders := held_by_others(waiting, self._settings.gate_prefix):
            # A place taken now would stand empty, and be missing to those that may run.
            reason = f"held by the gate {', '.join(holders)}; placed when that is gone"
            return self._stops(gang, reason, Cause.OTHER_GATE, now)
        if strange := {scheduler_of(pod) for pod in waiting} - self._settings.schedulers:
            served = ", ".join(sorted(self._settings.schedulers))
            reason = f"its scheduler {min(strange)!r} is none to which pods are released: {served}"
            return self._stops(gang, reason, Cause.OTHER_SCHEDULER, now)
        paused = self._avoided.paused_seconds(gang.key)
        if paused > 0:
            now.later(paused)
            return False
        if gang.alone or wait_for_nobody(gang, waiting, now.view):
            return True
        if gang.hindrance and not self._settings.go_on_with_fewer:
            return self._stops(gang, "it waits for its other pods", Cause.HINDERED, now)
        remaining = self._completion.seconds(gang)
        if remaining > 0:
            now.later(remaining)
            expected = "its size is not known" if gang.size is None else f"{gang.size} are expected"
            now.waits(gang, f"{len(gang.pods)} pods are there, {expected}", Cause.INCOMPLETE)
            return False
        return True

    def _stops(self, gang: PodGang, reason: str, cause: Cause, now: Round) -> bool:
        """What becomes free would not help it, so it holds nothing."""
        self.reservations.give_up(gang.key)
        now.waits(gang, reason, cause)
        return False

    def _place_gang(self, gang: PodGang, waiting: Sequence[Pod], now: Round) -> None:
        workers = [pod for pod in waiting if pod.metadata.uid not in gang.companions]
        companions = [pod for pod in waiting if pod.metadata.uid in gang.companions]
        now.shunned = NONE
        try:
            if workers or (gang.later and not now.view.placed_on(gang.workers)):
                placed = self._find(gang, workers, companions, now)
            else:
                placed = self._drafts.make(gang, *nobody(gang, now.snapshot), companions, now)
        except ValueError as error:  # what the user wrote cannot be meant: no level, no quantity
            self._stops(gang, str(error), Cause.WISH, now)
        except Exception:  # one bad gang never stops the others
            logger.exception("gang_failed gang=%s", gang.key)
            now.waits(gang, OWN_ERROR, Cause.DEFECT)
        else:
            if placed is not None:
                now.goes_on_from(placed)

    def _find(
        self, gang: PodGang, waiting: Sequence[Pod], companions: Sequence[Pod], now: Round
    ) -> NewPlan | None:
        """Where the gang goes; None if it waits, which has been noted."""
        holding = self._holders.before(gang, waiting, now.view, now.rank)
        is_back = bool(now.spares) and self._replacing.fills_up(gang, waiting, now.view)
        shunned = now.shunned = self._health.of(gang, frozenset() if is_back else now.spares)
        refusing, kept_off = self._avoided.of(gang.key, gang.maker), held_off(holding) | shunned.hard
        questions = asks(gang, now.view, now.plans, self._settings.topology)
        first = next(questions)
        kept_off |= now.unlabelled
        gang, avoid = first.gang, refusing | kept_off | first.closed
        memory = self._memory[gang.key]
        failure = self._failure(gang, avoid, now)
        if memory.no_fit is not None and memory.no_fit.still_holds(failure):
            return None
        view = now.view
        asked = self._question(gang, waiting, avoid, now)
        shape = asked.shape, lowest_priority(gang), may_preempt(gang), gang.minimum, len(gang.pods)
        kept_out = joined(told(holding, gang.key.namespace), shunned.told)
        alike = now.no_fit.get(shape)
        if alike is not None and (sentence := alike.told_of(gang.key)):
            now.waits(gang, joined(sentence, kept_out), alike.cause)
            memory.no_fit = failure
            return None
        now.budget = Budget(QUESTIONS * self._settings.options.bound)
        on_kept = self._on_kept_nodes(gang, asked, now)
        answer = on_kept or ask_preferring(asked, now, self._settings.options)
        while isinstance(answer, NoFit) and (other := next(questions, None)):  # an exclusive gang's domains
            asked, answer = self._try(gang, waiting, refusing | kept_off | other.closed, now)
        if isinstance(answer, NoFit) and needed(gang, waiting) < len(waiting):
            asked, answer = fewer(gang, waiting, lambda some: self._try(gang, some, avoid, now))
        if not isinstance(answer, NoFit):
            self.reservations.drop(gang.key)
            memory.no_fit = None
            memory.victims = ()
            is_free = not asked.gang.anchors and asked.gang.spread is None and not shunned.steps
            if is_free and on_kept is None and is_plain(asked):
                answer = self._sparing(asked, answer, now)
            return self._drafts.make(gang, asked, answer, companions, now)
        found = (
            None if has_enough(gang, waiting) else preemption(gang, asked, now, self._settings, self._keeps())
        )
        if found is not None:
            if memory.victims != found.names:  # told once, also while the plan cannot be written
                memory.victims = found.names
                logger.info("preempts gang=%s victims=%s", gang.key, ",".join(found.names[:10]))
            return self._drafts.make(gang, asked, found.assignment, companions, now, victims=found.victims)
        if refusing and not companions and may_go_unpinned(gang, waiting, view):
            now.refused.append((gang, *self._try(gang, waiting, kept_off, now)))
        is_known = not asked.parts and (asked.rules is None or answer.proven)
        if not has_enough(gang, waiting) and is_known:  # else it is not known what would help
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
            cause = Cause.HELD if holding else Cause.NO_ROOM
        now.waits(gang, joined(sentence, kept_out), cause)
        now.no_fit[shape] = Said(gang.key, asked.gang, sentence, cause)
        memory.no_fit = failure
        return None

    def _sparing(self, asked: GangQuestion, answer: Assignment, now: Round) -> Assignment:
        """The answer, or one as good for the gang that leaves better places to the next ones of this pass."""
        options = self._settings.options
        try:
            wishes = (self._wish(other, waiting, now) for other, waiting in now.next)
            later = [wish for wish, shape in filter(None, wishes) if shape != asked.shape][:SPARED]
            return sparing(asked.gang, answer, later, now.snapshot, options, Budget(options.bound))
        except Exception:  # what is wrong with another gang stops none before it
            logger.exception("sparing_failed gang=%s", asked.gang.name)
            return answer

    def _wish(self, gang: PodGang, waiting: Sequence[Pod], now: Round) -> Wish | None:
        """What one of the next gangs asks, None if it finds no place or the core alone does not decide it.

        Read once in a pass: it only says for whom to spare a place.
        """
        if gang.key not in now.wishes:
            now.wishes[gang.key] = None
            with contextlib.suppress(ValueError):  # it will be told in its turn
                holding = self._holders.before(gang, waiting, now.view, now.rank)
                shunned = self._health.of(gang, now.spares).hard | now.unlabelled
                avoid = self._avoided.of(gang.key, gang.maker) | held_off(holding) | shunned
                known = self._memory[gang.key].no_fit
                if known is None or not known.still_holds(self._failure(gang, avoid, now)):
                    wish = self._question(gang, waiting, avoid, now)
                    now.wishes[gang.key] = (wish.gang, wish.shape) if is_plain(wish) else None
        return now.wishes[gang.key]

    def _failure(self, gang: PodGang, avoid: frozenset[str], now: Round) -> Failure:
        return Failure(self._completion.members(gang), avoid, now.ground.usage_version, self._clock())

    def _try(
        self, gang: PodGang, some: Sequence[Pod], avoid: frozenset[str], now: Round
    ) -> tuple[GangQuestion, Assignment | NoFit]:
        asked = self._question(gang, some, avoid, now)
        return asked, ask_preferring(asked, now, self._settings.options)

    @staticmethod
    def _question(gang: PodGang, some: Sequence[Pod], avoid: frozenset[str], now: Round) -> GangQuestion:
        view = now.view
        return question(gang, some, view.placed_on(gang.pods), avoid, view.class_of, view.is_ours, view.near)

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
