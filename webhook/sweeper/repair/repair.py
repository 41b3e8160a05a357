"""Which released pods are deleted so that their controllers make them again: those that need another place,
and the released part of a gang whose rest finds no place.

A pod is deleted only if its controller makes it again and the deletion breaks nothing else; all pods of one
Job are judged together, since a Job that has spent its failures on half of them is worse off than before.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Final

from webhook.kube.objects import Pod
from webhook.scheduling import unmodelled
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.orders import Done, Eviction, Orders, Warn
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.pins import scheduler_of
from webhook.sweeper.observe.plans import PodId
from webhook.sweeper.observe.pods import Sort
from webhook.sweeper.observe.view import View, identity
from webhook.sweeper.repair.allowance import Allowance, JobBudgets, by_owner
from webhook.sweeper.repair.needed import NOT_BOUND, UNTRIED, NeededRepair, NeededRepairs, away_schedulers
from webhook.sweeper.repair.rollback import HalfReleased
from webhook.sweeper.settings import Settings

STAYS_SECONDS: Final = 30.0
"""A pod that is there for so long after its deletion was ordered keeps nobody else from anything. One that is
there for so long after that was answered is one that we cannot delete."""

_BACK: Final = "rolled-back"

logger = logging.getLogger(__name__)


class Repair:
    """Finds what is to be deleted; losing what it remembers only delays."""

    def __init__(
        self,
        settings: Settings,
        owners: JobBudgets,
        avoided: Avoided,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """owners: what is known of Jobs. avoided: is told of nodes that did not take a pod."""
        self._avoided = avoided
        self._clock = clock
        self._needed = NeededRepairs(settings, clock)
        self._halves = HalfReleased(settings, clock)
        self.allowance = Allowance(settings, owners, clock)
        self._settings = settings
        self._evicted: set[PodId] = set()
        self._clock = clock
        self._ordered: dict[str, float] = {}
        self._answered: dict[str, float] = {}
        self._going_back: dict[str, GangKey] = {}
        self._half_gone: set[GangKey] = set()
        self.unrepairable: frozenset[str] = frozenset()
        """uids of released pods that will not be bound, and that nobody makes again or we cannot delete."""
        self.blocked: frozenset[str] = frozenset()
        """Their nodes, and those of pods whose scheduler is away: elsewhere cards come sooner, in order."""

    @property
    def evicted(self) -> Set[PodId]:
        """The released pods that we have deleted, for as long as a plan names them."""
        return self._evicted

    def of_released(self, view: View) -> Orders:
        """Delete the released pods that do not come to run where they were sent."""
        self._evicted &= view.named
        released = view.under_way
        emptying = {pod.spec.node_name for pod in view.index.of[Sort.ENDING].values()}
        away = away_schedulers(released) & self._settings.schedulers
        warnings: list[Warn] = []
        unrepairable: list[NeededRepair] = []
        untried: list[NeededRepair] = []
        found: dict[str, NeededRepair] = {}
        for repair in self._needed.find(released, view.nodes, emptying):
            if repair.cause == UNTRIED:
                warnings.append(Warn(repair.pod, "NotScheduled", repair.reason))
                # While its scheduler is away nobody's turn comes: else all are bound at once when it is back.
                (untried if scheduler_of(repair.pod) in away else unrepairable).append(repair)
                continue
            if repair.cause == NOT_BOUND:
                self._avoided.add(view.maker_of(repair.pod), *_refusing(repair, view))
            found[repair.pod.metadata.uid] = repair
        evictions: list[Eviction] = []
        for pods in by_owner(repair.pod for repair in found.values()).values():
            together = [found[pod.metadata.uid] for pod in pods]
            if not (why := self.allowance.why_not(pods)):
                evictions += [Eviction(repair.pod, repair.cause, repair.reason) for repair in together]
            elif self._are_abandoned(together, view):
                evictions += [_abandoned(repair) for repair in together]
            else:
                warnings += [_not_repaired(repair, why) for repair in together]
                unrepairable += together
        uids = [order.pod.metadata.uid for order in evictions]
        unrepairable += [found[uid] for uid in self._that_stay(uids)]
        warnings += [
            _not_repaired(found[uid], "topogate cannot delete it") for uid in self._undeletable(uids)
        ]
        self.unrepairable = frozenset(repair.pod.metadata.uid for repair in unrepairable)
        self.blocked = frozenset(repair.node for repair in (*unrepairable, *untried))
        return Orders(evictions=tuple(evictions), warnings=tuple(warnings))

    def _that_stay(self, ordered: Sequence[str]) -> list[str]:
        """The uids of those whose deletion was ordered some time ago, and that are there still.

        Its author may write a pod all the time, or have it look like one that we may not delete: that is to
        cost nobody else the turn on its node.
        """
        now = self._clock()
        self._ordered = {uid: self._ordered.get(uid, now) for uid in ordered}
        return [uid for uid in ordered if now - self._ordered[uid] >= STAYS_SECONDS]

    def _undeletable(self, ordered: Sequence[str]) -> list[str]:
        """Likewise, but of what an overloaded API server puts off nobody knows whether we can delete it."""
        now = self._clock()
        self._answered = {uid: self._answered[uid] for uid in ordered if uid in self._answered}
        return [uid for uid, at in self._answered.items() if now - at >= STAYS_SECONDS]

    def _are_abandoned(self, together: Sequence[NeededRepair], view: View) -> bool:
        """Whether these have kept their places for too long, and no pod that runs would go with them."""
        limit = self._settings.abandon_seconds
        if not self._settings.repair or not all(
            repair.cause == NOT_BOUND and repair.seconds >= limit for repair in together
        ):
            return False
        gangs = {view.gang_of(repair.pod) for repair in together}
        return not any(
            pod.status.phase == "Running" for gang in gangs for pod in view.index.mates.get(gang, ())
        )

    def roll_back(
        self, view: View, gangs: Sequence[PodGang], anew: Callable[[PodGang, list[Pod]], str]
    ) -> Orders:
        """Delete the released part of gangs that have waited too long for the rest, if that helps them.

        anew: given a gang and its released part, says where the gang finds room as a whole once that part is
        gone, "" if nowhere: then deleting what may run would cost the gang its pods, and lead to nothing.
        Asked for as long as a pass may last; those that are left come in the next.
        """
        evictions: list[Eviction] = []
        warnings: list[Warn] = []
        # Asked also while the pods that went are not there again, say: the rest goes once there is room.
        due, started = self._halves.due(view, gangs, self._half_gone), self._clock()
        self._half_gone &= self._halves.known
        self._going_back = {}
        for number, (gang, part) in enumerate(due):
            if number and self._clock() - started >= self._settings.pass_seconds:
                self._halves.still_due(gang.key for gang, _ in due[number:])
                break
            released = [pod for pod in part if identity(pod) not in self._evicted]
            if not released:
                continue
            try:
                orders = self._go_back(gang, released, evictions, anew)
            except Exception:  # one bad gang never stops the others
                logger.exception("rollback_failed gang=%s", gang.key)
                orders = Orders()
            evictions += orders.evictions
            warnings += orders.warnings
            if orders.evictions:
                self._half_gone.add(gang.key)  # until it is heard what became of it
                self._going_back |= {order.pod.metadata.uid: gang.key for order in orders.evictions}
        return Orders(evictions=tuple(evictions), warnings=tuple(warnings))

    def _go_back(
        self,
        gang: PodGang,
        released: list[Pod],
        ordered: Iterable[Eviction],
        anew: Callable[[PodGang, list[Pod]], str],
    ) -> Orders:
        if why := self.allowance.why_not(released, (each.pod for each in ordered)):
            return Orders(
                warnings=(Warn(released[0], "NotRolledBack", f"half of the gang is released; {why}"),)
            )
        if place := anew(gang, released):
            said = f"the rest of its gang finds no place beside it; all of the gang does, on {place}"
            return Orders(evictions=tuple(Eviction(pod, _BACK, said, may_run=True) for pod in released))
        return Orders()

    def hear(self, done: Done) -> None:
        """What became of deletions.

        What goes back as a whole and could not be deleted yet stays due: else half of it would go.
        """
        self._evicted |= {identity(each.pod) for each in done.evicted}
        self.allowance.note(each.pod for each in done.evicted)
        for order in (*done.evicted, *done.denied):
            self._answered.setdefault(order.pod.metadata.uid, self._clock())
        put_off = self._that_go_back(done.put_off)
        self._half_gone -= self._that_go_back((*done.evicted, *done.denied)) - put_off
        self._half_gone |= put_off

    def _that_go_back(self, orders: Iterable[Eviction]) -> set[GangKey]:
        uids = [each.pod.metadata.uid for each in orders if each.cause == _BACK]
        return {self._going_back[uid] for uid in uids if uid in self._going_back}

    def forget(self, gangs: Iterable[PodGang]) -> None:
        """Only the controllers of these gangs are there still."""
        self.allowance.forget({maker for gang in gangs for maker in by_owner(gang.pods)})


def _refusing(repair: NeededRepair, view: View) -> Iterator[str]:
    """The node that did not take a pod, and all of the domain for which its rule was broken there."""
    yield repair.node
    node = view.nodes.get(repair.node)
    for key in unmodelled.broken_over(repair.pod, repair.said) if node else ():
        value = node.metadata.labels.get(key) if node else None
        if value is not None:
            yield from (name for name, each in view.nodes.items() if each.metadata.labels.get(key) == value)


def _abandoned(repair: NeededRepair) -> Eviction:
    reason = f"{repair.reason}; nobody makes it again, but its place is kept from others"
    return Eviction(repair.pod, "abandoned", reason)


def _not_repaired(repair: NeededRepair, why: str) -> Warn:
    return Warn(repair.pod, "NotRepaired", f"{repair.reason}; {why}: delete it and create it anew")
