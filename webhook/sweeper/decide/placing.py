"""Places for all complete gangs, the most urgent first, each on what the earlier ones leave.

What is remembered of a gang between passes only saves work: losing it delays.
"""

import logging
import time
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from webhook.kube.objects import Pod
from webhook.placement import Assignment, NoFit, Snapshot, Usage, place, victims
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.completion import Completion
from webhook.sweeper.decide.orders import OWN_ERROR, NewPlan, Orders, Verdict
from webhook.sweeper.decide.question import GangQuestion, question
from webhook.sweeper.decide.reservations import Reservations
from webhook.sweeper.decide.timestamps import Timestamps
from webhook.sweeper.decide.turns import Turns
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.view import View
from webhook.sweeper.settings import Settings

RETRY_SECONDS: Final = 60.0
"""A gang that found no place is asked about again after this long even if nothing has changed."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Failure:
    """A gang found no place: by what it was asked, of which state of the cluster, and when."""

    members: frozenset[str]
    avoid: frozenset[str]
    usage_version: int
    at: float

    def still_holds(self, other: "_Failure") -> bool:
        """Whether asking again would answer the same: our own releases take room, they never make any."""
        same = (self.members, self.usage_version) == (other.members, other.usage_version)
        return same and self.avoid <= other.avoid and other.at - self.at < RETRY_SECONDS


@dataclass
class _Memory:
    """What is known of a gang from earlier passes."""

    no_fit: _Failure | None = None
    victims: tuple[str, ...] = ()


@dataclass
class _Round:
    """How far a pass has come. held: nodes that gangs hold which came first. assumed: uids placed so far."""

    view: View
    snapshot: Snapshot
    turns: Turns
    usage_version: int
    due_seconds: float
    held: frozenset[str] = frozenset()
    assumed: set[str] = field(default_factory=set)
    plans: list[NewPlan] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    def later(self, seconds: float) -> None:
        """Something is due then, whatever is heard."""
        self.due_seconds = min(self.due_seconds, seconds)

    def waits(self, gang: PodGang, reason: str) -> None:
        """The gang has no place, and why."""
        self.verdicts.append(Verdict(gang, reason))


class Placer:
    """Decides of each gang whether it is placed, and where."""

    def __init__(
        self,
        settings: Settings,
        avoided: Avoided,
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """now_ns: the time of day, by which cards are handed out."""
        self._settings = settings
        self._avoided = avoided
        self._clock = clock
        self._now_ns = now_ns
        self._timestamps = Timestamps()
        self._completion = Completion(settings, clock)
        self._reservations = Reservations(settings, clock)
        self._memory: dict[GangKey, _Memory] = {}

    def remember(self, gangs: Sequence[PodGang], view: View) -> None:
        """Take in what a pass sees; what is known of gangs that are gone is forgotten."""
        self._completion.saw(gangs)
        self._memory = {gang.key: self._memory.get(gang.key) or _Memory() for gang in gangs}
        self._reservations.keep_only(self._memory.keys())
        ours = (pod.metadata.annotations for pod in view.others if view.is_ours(pod))
        planned = (each.annotations for known in view.placements.values() for each in known.spec.pods)
        now_ns = self._now_ns()
        self._timestamps.saw(ours, now_ns)
        self._timestamps.saw(planned, now_ns)

    def place(
        self, gangs: Iterable[PodGang], view: View, snapshot: Snapshot, turns: Turns, usage_version: int
    ) -> Orders:
        """New plans, and of each gang without one why that is so."""
        now = _Round(view, snapshot, turns, usage_version, self._settings.interval_seconds)
        for gang in gangs:
            waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
            if not waiting:
                self._completion.nobody_waits(gang)
            elif self._is_due(gang, waiting, now):
                self._place_gang(gang, waiting, now)
                now.held |= self._reservations.of(gang.key)
        return Orders(plans=tuple(now.plans), verdicts=tuple(now.verdicts), due_seconds=now.due_seconds)

    def _is_due(self, gang: PodGang, waiting: Sequence[Pod], now: _Round) -> bool:
        """Whether the gang is to be placed now."""
        if holders := _held_by_others(waiting, self._settings.gate_prefix):
            # A place taken now would stand empty, and be missing to those that may run.
            now.waits(gang, f"held by the gate {', '.join(holders)}; placed when that is gone")
            return False
        paused = self._avoided.paused_seconds(gang.key)
        if paused > 0:
            now.later(paused)
            return False
        remaining = self._completion.seconds(gang)
        if remaining > 0:
            now.later(remaining)
            expected = "its size is not known" if gang.size is None else f"{gang.size} are expected"
            now.verdicts.append(Verdict(gang, f"{len(gang.pods)} pods are there, {expected}", settles=True))
            return False
        return True

    def _place_gang(self, gang: PodGang, waiting: Sequence[Pod], now: _Round) -> None:
        try:
            placed = self._find(gang, waiting, now)
        except ValueError as error:  # what the user wrote cannot be meant: no level, no quantity
            now.waits(gang, str(error))
        except Exception:  # one bad gang never stops the others
            logger.exception("gang_failed gang=%s", gang.key)
            now.waits(gang, OWN_ERROR)
        else:
            if placed is not None:
                now.plans.append(placed)
                now.snapshot = now.snapshot.assume(placed.answer, placed.asked.gang)
                now.assumed |= placed.asked.pods.keys()

    def _find(self, gang: PodGang, waiting: Sequence[Pod], now: _Round) -> NewPlan | None:
        """Where the gang goes; None if it waits, which has been noted."""
        avoid = self._avoided.of(gang.key)
        if not _replaces(gang, now.view):
            avoid |= now.held
        memory = self._memory[gang.key]
        failure = _Failure(self._completion.members(gang), avoid, now.usage_version, self._clock())
        if memory.no_fit is not None and memory.no_fit.still_holds(failure):
            return None
        view = now.view
        asked = question(gang, waiting, view.placed_on(gang.pods), avoid, view.class_of, view.is_ours)
        answer = place(asked.gang, now.snapshot, self._settings.options)
        if not isinstance(answer, NoFit):
            self._reservations.drop(gang.key)
            memory.no_fit = None
            memory.victims = ()
            return self._plan(gang, asked, answer, now)
        found = self._preemption(gang, asked, now)
        if found is not None:
            if memory.victims != found.names:  # told once, also while the plan cannot be written
                memory.victims = found.names
                logger.info("preempts gang=%s victims=%s", gang.key, ",".join(found.names[:10]))
            return self._plan(gang, asked, found.assignment, now, preempts=True)
        self._reservations.hold(gang, asked, now.snapshot, view)
        now.waits(gang, answer.sentence)
        memory.no_fit = failure
        return None

    def _plan(
        self, gang: PodGang, asked: GangQuestion, answer: Assignment, now: _Round, *, preempts: bool = False
    ) -> NewPlan:
        entries = plan.planned_pods(gang, asked, answer, self._timestamps, self._now_ns())
        first = now.turns.take((asked.pods[entry.uid], entry) for entry in entries)
        return NewPlan(gang, asked, answer, tuple(entries), first, preempts, now.usage_version)

    def _preemption(self, gang: PodGang, asked: GangQuestion, now: _Round) -> victims.Victims | None:
        """Nodes where only pods of lower priority stand in the way, for kube-scheduler to preempt."""
        if not self._settings.preempt or any(pod.spec.preemption_policy == "Never" for pod in gang.gated):
            return None
        if any(member.pod_class.wants_cards for member in asked.gang.members):
            return None  # kube-scheduler counts a node's sum: it would bind beside the pod that has the card
        lowest = min((pod.spec.priority or 0 for pod in gang.gated), default=0)
        # Not these: a DaemonSet makes its pod anew at once; a pod that is not bound yet is not evicted, and
        # would stay behind, pinned to a node that is full; gangs placed earlier in this pass are at least as
        # important, but stand there without priority.
        staying: Set[str] = now.view.lasting | now.view.unbound | now.assumed

        def may_go(use: Usage) -> bool:
            return use.priority < lowest and use.name not in staying

        return victims.find(asked.gang, now.snapshot, self._settings.options, may_go)


def _held_by_others(waiting: Iterable[Pod], prefix: str) -> list[str]:
    """The gates of others on these pods: quota, another controller."""
    names = {gate.name for pod in waiting for gate in pod.spec.scheduling_gates}
    return sorted(name for name in names if not name.startswith(prefix))


def _replaces(gang: PodGang, view: View) -> bool:
    """Whether the waiting pods only fill up what the gang had: its own nodes may be held by others since."""
    placement = view.placements.get(gang.key.placement_key)
    if placement is None or not gang.released:
        return False
    return len(gang.pods) <= max(placement.spec.size, len(placement.spec.pods))
