"""The gangs of gang_arrivals, of which those that do not fit wait, and others are moved for them by a rule.

The cluster is asked about every gang in the order of arrival, so later ones may pass. All rules place with
topogate's core, and differ in which gangs they move. A moved gang continues from its last checkpoint.
"""

import heapq
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from hack.comparing.gang_arrivals import ArrivingGang
from hack.comparing.gang_placers import empty_cluster, gang_of
from hack.comparing.trace_placer import with_mix
from webhook.placement import Assignment, Gang, Snapshot, place
from webhook.placement.snapshot import usage_of_member
from webhook.placement.victims import Unit
from webhook.sweeper.decide.gang_question import is_enough_free

AN_HOUR: Final = 30.0
"""Arrivals within an hour: one in two minutes. With it, a job runs for some four hours."""
LARGE: Final = 64
"""GPUs above which a gang is large."""


@dataclass
class RunningJob:
    """A job on nodes, with its times in arrivals. moves: when it was moved."""

    job: ArrivingGang
    gang: Gang
    nodes: dict[str, str]
    began: float
    until: float
    moves: list[float] = field(default_factory=list)

    @property
    def unit(self) -> Unit:
        """Its pods, as MoveSearch knows them."""
        return Unit(self.gang.name, 0, frozenset(map(self.uid, self.nodes)))

    def uid(self, member: str) -> str:
        """The identity of a pod."""
        return f"{self.gang.name}/{member}"

    def lost(self, now: float) -> float:
        """GPU hours since its start."""
        return self.job.gpus * (now - self.began) / AN_HOUR


class Moved(NamedTuple):
    """The place of a gang, and those of the gangs that are moved for it."""

    answer: Assignment
    places: Sequence[tuple[RunningJob, Assignment]]


@dataclass
class JobCluster:
    """Nodes, running jobs by the names of their gangs, and the time in arrivals."""

    snapshot: Snapshot = field(default_factory=empty_cluster)
    running: dict[str, RunningJob] = field(default_factory=dict)
    now: float = 0.0

    def start(self, job: ArrivingGang, gang: Gang, answer: Assignment, until: float) -> RunningJob:
        """Let a job run."""
        made = RunningJob(job, gang, dict(answer.nodes), self.now, until)
        self.running[gang.name] = made
        self.snapshot = assumed(self.snapshot, made, answer)
        return made

    def end(self, name: str) -> None:
        """End a job."""
        self.snapshot = without(self.snapshot, [self.running.pop(name)])


def assumed(snapshot: Snapshot, job: RunningJob, answer: Assignment) -> Snapshot:
    """The cluster with a job there."""
    classes = {member.name: member.pod_class for member in job.gang.members}
    usages = {name: snapshot.nodes[name].usages for name in set(answer.nodes.values())}
    for each in answer.placed:
        use = usage_of_member(each, classes[each.member], job.gang.identity)
        usages[each.node] = (*usages[each.node], replace(use, uid=job.uid(each.member)))
    return snapshot.with_usages(usages)


def without(snapshot: Snapshot, jobs: Iterable[RunningJob]) -> Snapshot:
    """The cluster without these jobs."""
    gone = {each.gang.identity for each in jobs}
    nodes = {name for each in jobs for name in each.nodes.values()}
    return snapshot.without(nodes, lambda use: use.gang in gone)


@dataclass(frozen=True)
class MoveRule:
    """Which gangs are moved for one that has waited for `after` arrivals."""

    find: Callable[[Gang, JobCluster, Sequence[RunningJob]], Moved | None]
    after: float = 0.0


@dataclass
class WaitTotals:
    """What gangs waited, in hours, and what that cost."""

    large: list[float] = field(default_factory=list)
    small: list[float] = field(default_factory=list)
    scattered: float = 0.0
    """Of these, the hours of large gangs during which enough GPUs were free for them."""
    unplaced: int = 0
    """Large gangs that wait at the end: they count with their time until then."""
    moves: int = 0
    pods: int = 0
    lost: float = 0.0
    """Gangs that were moved, their pods, and GPU hours."""
    seconds: list[float] = field(default_factory=list)
    """CPU time of each search for gangs to move."""

    def add(self, job: ArrivingGang, waited: float) -> None:
        """Count the time that a gang waited, in arrivals."""
        (self.large if job.gpus > LARGE else self.small).append(waited / AN_HOUR)

    def line(self, runs: int) -> str:
        """The row in words; moves are means of the runs."""
        in_order, spent = sorted(self.large), self.seconds or [0.0]
        return (
            f"{len(in_order) / runs:.0f} large gangs wait {statistics.mean(in_order):.2f} h, median "
            f"{statistics.median(in_order):.2f}, 90 % {in_order[len(in_order) * 9 // 10]:.2f}, "
            f"{self.scattered / len(in_order):.3f} with enough GPUs free, "
            f"{self.unplaced / runs:.1f} to the end; others {statistics.mean(self.small):.2f} h; "
            f"{self.moves / runs:.1f} gangs of {self.pods / runs:.0f} pods moved, "
            f"{self.lost / runs:.0f} GPU hours lost; {len(self.seconds) / runs:.0f} searches, "
            f"{statistics.mean(spent) * 1e3:.0f} ms each, at most {max(spent):.2f} s"
        )


@dataclass
class _WaitingGang:
    job: ArrivingGang
    gang: Gang
    is_asked: bool = False
    """Since the last end of a job."""


class GangQueue:
    """The queue of one run. is_movable: whether a job may be moved. counted: the arrivals that count."""

    def __init__(
        self,
        rule: MoveRule | None,
        is_movable: Callable[[ArrivingGang], bool],
        counted: range,
        waits: WaitTotals,
    ) -> None:
        self.cluster, self.waits = JobCluster(), waits
        self._rule, self._is_movable, self._counted = rule, is_movable, counted
        self._waiting: list[_WaitingGang] = []
        self._ends: list[tuple[float, str]] = []

    def run(self, jobs: Iterable[ArrivingGang]) -> None:
        """Let all jobs arrive."""
        for now, job in enumerate(jobs):
            self.cluster.now = now
            self._end_jobs()
            gang = gang_of(job)
            self.cluster.snapshot = with_mix(self.cluster.snapshot, [m.pod_class for m in gang.members])
            self._waiting.append(_WaitingGang(job, gang))
            self._waiting = [each for each in self._waiting if not self._place_if_possible(each)]
            self._count_scattered()
        for each in self._waiting:
            if each.job.number in self._counted:
                self.waits.unplaced += each.job.gpus > LARGE
                self.waits.add(each.job, self.cluster.now - each.job.number)

    def _count_scattered(self) -> None:
        for each in self._waiting:
            if each.job.number in self._counted and each.job.gpus > LARGE and self._has_enough_free(each):
                self.waits.scattered += 1 / AN_HOUR

    def _has_enough_free(self, each: _WaitingGang) -> bool:
        classes = (member.pod_class for member in each.gang.members)
        return is_enough_free(classes, self.cluster.snapshot.nodes.values())

    def _end_jobs(self) -> None:
        while self._ends and self._ends[0][0] <= self.cluster.now:
            until, name = heapq.heappop(self._ends)
            if name in self.cluster.running and self.cluster.running[name].until == until:
                self.cluster.end(name)
                for each in self._waiting:
                    each.is_asked = False

    def _place_if_possible(self, each: _WaitingGang) -> bool:
        """Let a gang run, perhaps by moving others; returns whether it does."""
        answer = None if each.is_asked else self._placed(each)
        each.is_asked = True
        if answer is None:
            return False
        self._begin(each.job, each.gang, answer, self.cluster.now + each.job.lasts)
        if each.job.number in self._counted:
            self.waits.add(each.job, self.cluster.now - each.job.number)
        return True

    def _begin(self, job: ArrivingGang, gang: Gang, answer: Assignment, until: float) -> RunningJob:
        made = self.cluster.start(job, gang, answer, until)
        heapq.heappush(self._ends, (until, gang.name))
        return made

    def _placed(self, each: _WaitingGang) -> Assignment | None:
        found = place(each.gang, self.cluster.snapshot, explained=False)
        if isinstance(found, Assignment):
            return found
        waited = self.cluster.now - each.job.number
        if self._rule is None or self.cluster.now < self._counted.start or waited < self._rule.after:
            return None
        if not self._has_enough_free(each):
            return None
        movable = [job for job in self.cluster.running.values() if self._is_movable(job.job)]
        began = time.process_time()
        moved = self._rule.find(each.gang, self.cluster, movable)
        self.waits.seconds.append(time.process_time() - began)
        return self._moved(moved) if moved is not None else None

    def _moved(self, moved: Moved) -> Assignment:
        """Move gangs; returns the place of the one that waits."""
        for job, _ in moved.places:
            self.waits.moves += 1
            self.waits.pods += len(job.nodes)
            self.waits.lost += job.lost(self.cluster.now)
            self.cluster.end(job.gang.name)
        for job, answer in moved.places:
            again = self._begin(job.job, job.gang, answer, job.until)
            again.moves = [*job.moves, self.cluster.now]
        return moved.answer
