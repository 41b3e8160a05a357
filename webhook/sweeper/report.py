"""Reports: a gang's state and reason in its Placement, Events on its owner and its first pod, a log line.

Nothing is reported twice: a status is written when it differs, an Event when its sentence is new.
"""

import logging
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from labeler.contract.event_reasons import EventReason
from webhook.identity_cache import IdentityCache
from webhook.kube import placements
from webhook.kube.client import ApiError
from webhook.kube.objects import Pod
from webhook.kube.placements import Placement, PlacementSpec, PlacementStatus
from webhook.sweeper.context import Pass, Retries, failing_last
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.moved_gangs import is_needed_by_moves
from webhook.sweeper.decide.orders import Cause, Done, GangOutcome, Orders, Warn
from webhook.sweeper.decide.reservations import Reservation
from webhook.sweeper.decide.retries import Key, Write
from webhook.sweeper.observe.gangs import GangKey, PodGang
from webhook.sweeper.observe.membership import cpu_pods
from webhook.sweeper.observe.plans import PodId, is_gated
from webhook.sweeper.observe.view import View
from webhook.sweeper.report_memory import GangReason, ReportMemory, causes_of, reason_of
from webhook.text import joined, printable

logger = logging.getLogger(__name__)

_SETTLING: Final = "Settling"
"""The state of a gang that is not complete, for metrics."""
_RECORD: Final = "none of its pods exists; this Placement stays for up to a day as a record of moved gangs"
"""The reason in a Placement that is only needed for `makeRoom`."""
_GONE: Final = (404, 409)
"""HTTP statuses of a Placement that is gone, or was written since."""


# --- statuses of Placements ---------------------------------------------------------------------------
# Changed statuses are written one by one at the end of a pass, for at most the time of one. A Placement that
# cannot be written stops no other; the reason is logged once.


class _StatusWrite(NamedTuple):
    """A write for one gang.

    name: of its Placement ("namespace/name"). expected: HTTP statuses that are no failures.
    """

    name: str
    send: Callable[[], None]
    expected: tuple[int, ...]

    @property
    def key(self) -> Key:
        return Write.STATUS, self.name

    def namespace_of(self) -> str:
        return self.name.partition("/")[0]


class StatusWriter:
    """The writes of one pass. is_late: whether it had no time for some of them."""

    def __init__(self, surroundings: Pass, retries: Retries) -> None:
        self._pass = surroundings
        self._retries = retries
        self._writes: list[_StatusWrite] = []
        self._deadline = 0.0
        self._is_away = False
        self._missed: list[str] = []
        self.is_late = False

    def write(self, placement: Placement, status: PlacementStatus) -> None:
        """Write a status that differs."""
        if status == placement.status:
            return

        def write() -> None:
            self._pass.cache.written(placements.write_status(self._pass.api, placement, status))

        self._add(placement, write)

    def create(self, gang: PodGang, status: PlacementStatus) -> None:
        """Write a Placement without a plan, which says why the gang waits."""

        def create() -> None:
            spec = plan.plan_spec(gang, None, [])
            made = placements.write_plan(self._pass.api, None, plan.plan_metadata(gang), spec)
            self._pass.cache.written(made)
            self._pass.cache.written(placements.write_status(self._pass.api, made, status))

        self._writes.append(_StatusWrite(gang.key.placement_key, create, (409,)))

    def remove(self, placement: Placement) -> None:
        """Delete a Placement whose gang is gone."""

        def remove() -> None:
            placements.delete(self._pass.api, placement)
            self._pass.cache.forgotten(placement)

        self._add(placement, remove)

    def _add(self, placement: Placement, action: Callable[[], None]) -> None:
        def send() -> None:
            try:
                action()
            except ApiError as error:
                if error.status in _GONE:  # or written since: then the watch will show it
                    self._pass.cache.forgotten(placement)
                raise

        self._writes.append(_StatusWrite(placement.key, send, _GONE))

    def finish(self, missed: Mapping[str, float]) -> Mapping[str, float]:
        """Make the writes; returns the Placements that it does not come to, and since when that is so.

        missed: those of earlier passes; what was missed the longest comes first in its namespace. After a
        failure to reach the API server nothing more is written in this pass: each try would wait as long. The
        next one begins with other namespaces, since the failure may concern one alone.
        """
        now, position = self._pass.clock(), self._retries.position
        self._deadline = now + self._pass.settings.pass_seconds
        due = [each for each in self._writes if not self._retries.seconds_left(each.key)]
        due.sort(key=lambda each: (missed.get(each.name, now), position(each.key), each.name))
        due = self._retries.round_robin(due, _StatusWrite.namespace_of)
        failing_last(map, due, _StatusWrite.namespace_of, self._send, operator.not_)
        return {name: missed.get(name, now) for name in self._missed}

    def _send(self, write: _StatusWrite) -> bool:
        """Whether the API server took a write, or refused it in an expected way."""
        self.is_late = self.is_late or self._pass.clock() >= self._deadline
        if self.is_late or self._is_away:
            self._missed.append(write.name)
            return True
        if not self._pass.may_act():
            return True
        self._pass.heartbeat()
        try:
            write.send()
        except ApiError as error:
            if error.status not in write.expected:
                return self._failed(write, error)
        except Exception as error:  # the other gangs are still to be reported
            if self._note_failure(write, type(error).__name__):
                logger.exception("status_failed placement=%s error=%r", write.name, error)
            return False
        self._retries.over(write.key)
        return True

    def _failed(self, write: _StatusWrite, error: ApiError) -> bool:
        self._is_away = not error.status
        self._pass.metrics.errors.labels(str(error.status)).inc()
        if error.is_for_now:
            self._retries.failed((Write.NAMESPACE, write.namespace_of()))
        # Not distinguished by the message: it has ports, versions and times in it.
        if self._note_failure(write, f"{error.status} {error.reason}", error.retry_after or 0.0):
            logger.warning("status_failed placement=%s error=%r", write.name, str(error))
        return False

    def _note_failure(self, write: _StatusWrite, kind: str, asked: float = 0.0) -> bool:
        """Have it retried later; returns whether it has not failed like this before."""
        before = self._retries.error(write.key)
        self._retries.failed(write.key, asked=asked, text=kind)
        return before != kind


# --- messages for users --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _GangProgress:
    """How many pods of a gang exist, or will exist (count), and how many of its plan are released and bound.

    others: pods that ran without the plan, or have run and are gone. least: how many are enough, 0 for all.
    """

    plan: PlacementSpec
    count: int
    released: int
    bound: int
    others: int
    least: int

    @property
    def has_enough(self) -> bool:
        """Whether it runs, though not with all its pods."""
        return 0 < self.least <= self.bound + self.others

    @property
    def state(self) -> str:
        """As its status names it."""
        if self.bound == self.count or self.has_enough:
            return placements.BOUND
        return placements.RELEASED if self.released == self.count else placements.RELEASING

    def is_complete(self, members: int) -> bool:
        """Whether it has run as a whole, or with enough. members: pods of its plan that are there."""
        if self.has_enough and self.bound == members:
            return True
        return self.bound == self.count and self.bound + self.others >= max(
            self.plan.size, len(self.plan.pods)
        )


@dataclass(frozen=True)
class _Report:
    """The input of the reports of one pass.

    memory: with the pods that are bound now. reservations, positions, evicted: see Reporter.report.
    unmanaged: how many bound pods of each gang topogate did not place.
    """

    view: View
    memory: ReportMemory
    writer: StatusWriter
    reservations: Mapping[str, Reservation]
    positions: Mapping[str, str]
    evicted: Set[PodId]
    unmanaged: Mapping[GangKey, int]

    def holding(self, name: str) -> dict[str, Any]:
        """The reserved nodes of a Placement's gang, as fields of its status."""
        reservation = self.reservations.get(name)
        if reservation is None:
            return {}
        ends = f"{reservation.ends:%Y-%m-%dT%H:%M:%SZ}"
        return {"reserved_nodes": sorted(reservation.nodes), "reserved_until": ends}

    def others(self, placement: Placement, members: Sequence[Pod]) -> int:
        """How many pods of a gang ran without its plan, or have run and are gone.

        A pod that is gone may never have run: it is deleted if it is not bound, so that it is recreated.
        """
        gone = {each.uid for each in placement.spec.pods} - {pod.metadata.uid for pod in members}
        ran = gone if placement.is_complete else gone & self.memory.bound.get(placement.key, frozenset())
        finished = sum((placement.metadata.namespace, uid) not in self.evicted for uid in ran)
        return finished + self.unmanaged.get(_gang_of(placement), 0)


class Reporter:
    """Collects the results of a pass and writes the changed ones at its end."""

    def __init__(self, surroundings: Pass) -> None:
        self._pass = surroundings
        self._settings = surroundings.settings
        self._announcer = surroundings.announcer
        self._bound = IdentityCache[str, Placement]()
        """Plans of gangs that need no further report: in a large cluster nearly all."""
        self._unchanged = IdentityCache[None, dict[str, Placement]]()
        self._still_bound: dict[str, Placement] = {}
        """Those of them that were found since any pod or label has changed."""

    # --- during a pass --------------------------------------------------------------------------

    def on_result(self, news: Orders | Done, memory: ReportMemory) -> ReportMemory:
        """Announce and record the decisions of a step, or their results; a defect here stops nothing else."""
        try:
            self._announce(news, memory)
        except Exception:  # else no plan would be written because of the report on one gang
            logger.exception("announce_failed")
        return memory.after(news, self._pass.clock())

    def _announce(self, news: Orders | Done, memory: ReportMemory) -> None:
        self._warn(news.warnings)
        for outcome in news.outcomes:
            if outcome.is_news:
                self._announce_waits(outcome, memory)
        if isinstance(news, Done):
            for plan_ in news.placed:
                note = printable(joined(plan_.description, *plan_.gang.problems))
                self._announcer.announce(plan_.gang.gated[0], EventReason.GANG_PLACED, note)
            self._warn(memory.delays.news(news))

    def _warn(self, warnings: Iterable[Warn]) -> None:
        for warn in warnings:
            self._announcer.announce(warn.pod, warn.reason, printable(warn.note))

    def _announce_waits(self, outcome: GangOutcome, memory: ReportMemory) -> None:
        """A complete gang has no place, and why."""
        gang, before = outcome.gang, memory.reasons.get(outcome.gang.key)
        reason = reason_of(gang, outcome.reason, outcome.cause)
        if before == GangReason(reason, outcome.cause):
            return
        if before is not None and before.cause is outcome.cause is Cause.MISSING_PODS:
            return  # more of its pods have come
        logger.info("gang_waits gang=%s pods=%d reason=%r", gang.key, len(gang.pods), reason)
        # The sentence changes with each new node of a group; only the first one is reported.
        if gang.key not in memory.notes or before is None:
            self._announcer.announce(gang.gated[0], EventReason.GANG_WAITS, reason)

    # --- at its end -----------------------------------------------------------------------------

    def report(
        self,
        view: View,
        gangs: Sequence[PodGang],
        memory: ReportMemory,
        retries: Retries,
        evicted: Set[PodId] = frozenset(),
        reservations: Mapping[str, Reservation] | None = None,
        positions: Mapping[str, str] | None = None,
        waiters: Mapping[GangKey, tuple[Pod, str]] | None = None,
    ) -> tuple[bool, ReportMemory]:
        """Write changed states, progress and reasons; remove Placements whose gang is gone.

        evicted: released pods that we have deleted, which therefore did not run. reservations: reserved
        nodes, by the Placements ("namespace/name") of their gangs; positions: likewise, sentences on the fair
        order. waiters: the unconfirmed releases for which gangs wait, with a pod. Writes as long as a pass
        may last; returns whether there was time for all. The next pass begins with the rest.
        """
        memory = memory.current(view, gangs, self._pass.clock(), self._settings)
        memory = self._with_waiters(memory, waiters or {})
        current = self._pass.cache.current_placements()
        by_name = {gang.key.placement_key: gang for gang in gangs}
        due = self._due(current, by_name.keys() | (reservations or {}).keys(), view)
        unmanaged = self._bound_beside_plans(view, due)
        memory = memory.with_bound(due.values(), view)
        writer = StatusWriter(self._pass, retries)
        now = _Report(view, memory, writer, reservations or {}, positions or {}, evicted, unmanaged)
        states = [placements.BOUND] * (len(current) - len(due))
        is_complete = True
        for name in sorted(by_name.keys() | due.keys()):
            try:
                states += self._report_on(by_name.get(name), due.get(name), now)
            except Exception:  # one bad gang never stops the others
                logger.exception("report_failed placement=%s", name)
                is_complete = False
        missed = writer.finish(memory.missed)
        self._bound.end_pass(len(current))
        self._count(states, memory)
        retries.forget(Write.STATUS, by_name.keys() | current.keys())
        return is_complete and not writer.is_late, replace(memory, missed=missed)

    def _count(self, states: Sequence[str], memory: ReportMemory) -> None:
        self._pass.metrics.count_gangs(states)
        self._pass.metrics.count_causes(causes_of(memory.reasons).values(), Cause)

    def _due(
        self, current: Mapping[str, Placement], concerned: Set[str], view: View
    ) -> Mapping[str, Placement]:
        """Those of these Placements that are concerned, or not known as bound since the last change."""
        bound = self._still_bound = self._unchanged.get(None, _none, view.index, view.domains_of(view.nodes))
        return {
            name: each for name, each in current.items() if name in concerned or bound.get(name) is not each
        }

    def _report_on(self, gang: PodGang | None, placement: Placement | None, now: _Report) -> list[str]:
        """Write the changes of one gang; returns its state, if it counts."""
        if placement is None:
            return [self._report_gang(gang, None, now)] if gang is not None else []
        if (
            gang is None
            and placement.key not in now.reservations
            and self._is_known_as_bound(placement, now.view)
        ):
            return [placements.BOUND]
        if placement.metadata.namespace in self._settings.excluded_namespaces:
            return []
        members = now.view.pods_of(placement)
        if not members:
            return self._report_without_members(gang, placement, now)
        status = self._progress(placement, members, gang, now)
        now.writer.write(placement, status)
        if gang is None:
            self._note_bound(placement, status, members, now.view)
        return [status.state]

    def _report_without_members(self, gang: PodGang | None, placement: Placement, now: _Report) -> list[str]:
        """None of the plan's pods is there: it is removed, unless the gang has others, or moves need it."""
        if gang is not None:
            return [self._report_gang(gang, placement, now)]
        if is_needed_by_moves(placement, now.view):
            known, nodes = placement.status, now.holding(placement.key)
            status = PlacementStatus(complete=known.complete, attempt=known.attempt, reason=_RECORD, **nodes)
            now.writer.write(placement, status)
        else:
            now.writer.remove(placement)
        return []

    def _is_known_as_bound(self, placement: Placement, view: View) -> bool:
        """Whether the plan is the same object as when it was complete, and its gang is unchanged."""
        if self._bound.find(placement.key, *_status_inputs(placement, view)) is None:
            return False
        self._still_bound[placement.key] = placement
        return True

    def _note_bound(
        self, placement: Placement, status: PlacementStatus, members: Sequence[Pod], view: View
    ) -> None:
        """Update the status of a gang without waiting pods.

        Once all are bound and the plan says so, it depends on nothing but these pods and the labels of nodes;
        while nodes are reserved for it, also on the time.
        """
        is_written = status == placement.status and not status.reserved_nodes
        if is_written and status.state == placements.BOUND and status.complete:
            gangs = {view.gang_of(pod) for pod in members}
            if gangs == {_gang_of(placement)}:  # else not all of their changes are known here
                self._bound.keep(placement.key, placement, *_status_inputs(placement, view))

    def _with_waiters(self, memory: ReportMemory, waiters: Mapping[GangKey, tuple[Pod, str]]) -> ReportMemory:
        """One Event for each cause of waiting; the current pods are in its status."""
        for key, (pod, sentence) in waiters.items():
            if key not in memory.waiters:
                self._announcer.announce(pod, EventReason.WAITING_FOR_RELEASE, sentence)
        return replace(memory, waiters={key: sentence for key, (_, sentence) in waiters.items()})

    def _bound_beside_plans(self, view: View, plans: Mapping[str, Placement]) -> Counter[GangKey]:
        """How many bound pods of each unfinished gang topogate did not place, such as launchers."""
        found: Counter[GangKey] = Counter()
        for gang in {_gang_of(each) for each in plans.values() if not each.is_complete}:
            for pod in view.index.mates.get(gang, ()):
                found[gang] += bool(pod.spec.node_name) and not view.is_ours(pod)
        return found

    def _report_gang(self, gang: PodGang, placement: Placement | None, now: _Report) -> str:
        """The state of a gang none of whose pods has a plan; a gang with a plan has that of its progress."""
        known = now.memory.reasons.get(gang.key)
        settles = known is not None and known.cause is Cause.INCOMPLETE
        is_delayed = bool(now.memory.delays.notes_of(gang.key))
        # The reason from before it settled is no longer valid.
        is_known = settles and placement is not None
        if not is_delayed and not is_known and (settles or known is None):
            return _SETTLING
        status = PlacementStatus(
            placements.WAITING,
            len(gang.pods),
            reason=now.memory.sentence(gang.key),
            fair_order=now.positions.get(gang.key.placement_key, ""),
            **now.holding(gang.key.placement_key),
        )
        if placement is not None:
            now.writer.write(placement, status)
        else:
            now.writer.create(gang, status)
        return _SETTLING if settles and not is_delayed else placements.WAITING

    def _progress(
        self, placement: Placement, members: list[Pod], gang: PodGang | None, now: _Report
    ) -> PlacementStatus:
        """How far a gang is. members: pods of its plan that are there."""
        released = [pod for pod in members if not is_gated(pod, self._settings.gate_prefix)]
        there = max(len(members), len(gang.pods) if gang else 0)
        progress = _GangProgress(
            placement.spec,
            # Between its stages a gang has fewer pods than its plan keeps nodes for.
            max(there, placement.spec.size) if placement.spec.later_pod_nodes else there,
            len(released),
            sum(bool(pod.spec.node_name) for pod in released),
            now.others(placement, members),
            (gang.minimum if gang else None) or placement.spec.minimum,
        )
        where = _nodes_of(placement, members)
        return PlacementStatus(
            progress.state,
            progress.count,
            progress.released,
            progress.bound,
            plan.spread(where, now.view.labels_of(where), self._settings.topology),
            placement.is_complete or progress.is_complete(len(members)),
            placement.spec.attempt,
            now.memory.sentence(gang.key) if gang else _lacking(placement, there),
            **now.holding(placement.key),
        )


def _nodes_of(placement: Placement, members: Sequence[Pod]) -> list[str]:
    """Where the pods of a plan are, or are to be, CPU-only pods left out."""
    nodes = {planned.uid: planned.node for planned in placement.spec.pods}
    nodes |= {pod.metadata.uid: pod.spec.node_name for pod in members if pod.spec.node_name}
    beside = cpu_pods(members, others_come=bool(placement.spec.later_pod_nodes))
    there = (nodes[pod.metadata.uid] for pod in members if pod.metadata.uid not in beside)
    return list(filter(None, there))


def _lacking(placement: Placement, count: int) -> str:
    """The sentence for a gang without waiting pods that has fewer pods than announced.

    Its others are not created yet, or it continues without them.
    """
    spec = placement.spec
    if spec.later_pod_nodes and count < spec.size:
        return (
            f"{spec.size - count} of its {spec.size} pods are created once the first ones run, and are "
            "planned with them"
        )
    continues = spec.minimum and count < spec.size
    return f"{count} of {spec.size} pods exist, and continue without the others" if continues else ""


def _gang_of(placement: Placement) -> GangKey:
    kind, _, name = placement.spec.gang.partition("/")
    return GangKey(placement.metadata.namespace, kind, name, placement.spec.gang_id)


def _none(*_: object) -> dict[str, Placement]:
    return {}


def _status_inputs(placement: Placement, view: View) -> tuple[object, ...]:
    """The inputs of the status of a gang without waiting pods: the same objects until they change."""
    gang = _gang_of(placement)
    pods = view.by_uid.get(gang.id) if gang.kind == "Pod" else view.index.mates.get(gang)
    return placement, view.domains_of(view.nodes), pods
