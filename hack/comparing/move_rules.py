"""Rules by which running gangs are moved for one that waits: topogate's own, and that of KAI Scheduler.

KAI's rule is written after its consolidation action (release of March 2026), and is not its code. Pods are
added to the asking gang one by one. Where those so far do not fit, running gangs are evicted, the youngest
first: each together with the ones before it that share a node with it. Then all of them are placed, the
oldest gang first. If all have a place, those that got another one than before are moved.
It is given more than its default: KAI draws 17 gangs that it may move in each cycle, and here it has all.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hack.comparing.gang_arrivals import ArrivingGang
from hack.comparing.gang_queue import AN_HOUR, JobCluster, Moved, MoveRule, RunningJob, assumed, without
from webhook.configuration.settings import MoveLimits
from webhook.durations import HOUR
from webhook.placement import Assignment, Budget, Gang, NoFit, Options, place
from webhook.placement.moves import MoveSearch
from webhook.placement.victims import Unit
from webhook.sweeper.decide.core_questions import QUESTIONS
from webhook.sweeper.decide.willing_gangs import most_domains

_LIMITS: Final = MoveLimits()
_A_DAY: Final = 24 * AN_HOUR
_OPTIONS: Final = Options()

# --- topogate -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _MovableJob:
    """A running job for MoveSearch."""

    job: RunningJob
    cluster: JobCluster

    @property
    def unit(self) -> Unit:
        return self.job.unit

    @property
    def lost(self) -> float:
        return self.job.lost(self.cluster.now)

    @property
    def gang(self) -> Gang:
        return self.job.gang

    @property
    def most_domains(self) -> tuple[int, ...]:
        return most_domains(set(self.job.nodes.values()), self.cluster.snapshot)


def by_topogate(asking: Gang, cluster: JobCluster, movable: Sequence[RunningJob]) -> Moved | None:
    """The gangs of MoveSearch, within the default limits of makeRoom."""
    within = [at for job in cluster.running.values() for at in job.moves if cluster.now - at < AN_HOUR]
    willing = [
        _MovableJob(job, cluster)
        for job in movable
        if sum(cluster.now - at < _A_DAY for at in job.moves) < _LIMITS.per_gang_and_day
    ]
    budget = Budget(QUESTIONS * _OPTIONS.bound // 2)
    search = MoveSearch(asking, cluster.snapshot, willing, _OPTIONS, budget)
    found = search.run(_LIMITS.per_hour - len(within))
    return None if found is None else Moved(found.assignment, [(each.job, at) for each, at in found.places])


# --- KAI ----------------------------------------------------------------------------------------------

MOST: Final = 17
"""The most gangs that KAI moves for one, by default."""


def by_kai(asking: Gang, cluster: JobCluster, movable: Sequence[RunningJob]) -> Moved | None:
    """KAI's rule."""
    youngest_first = sorted(movable, key=lambda job: -job.job.number)
    found: Moved | None = None
    for count in range(1, len(asking.members) + 1):
        part = replace(asking, members=asking.members[:count])
        moved = [job for job, _ in found.places] if found is not None else []
        found = _solved(part, moved, youngest_first, cluster)
        if found is None:
            break
    return found


def _solved(
    asking: Gang, moved: Sequence[RunningJob], candidates: Sequence[RunningJob], cluster: JobCluster
) -> Moved | None:
    """The places of the pods so far. moved: the gangs that are moved for those before."""
    if (found := _simulated(asking, moved, cluster)) is not None:
        return found
    known, before = {job.gang.name for job in moved}, list[RunningJob]()
    tried = set[frozenset[str]]()
    for job in (each for each in candidates if each.gang.name not in known):
        before.append(job)
        for node in sorted(set(job.nodes.values())):
            evicted = [*moved, *(each for each in before if node in each.nodes.values())]
            names = frozenset(each.gang.name for each in evicted)
            if names not in tried and len(names) <= MOST:
                tried.add(names)
                if (found := _simulated(asking, evicted, cluster)) is not None:
                    return found
    return None


def _simulated(asking: Gang, evicted: Sequence[RunningJob], cluster: JobCluster) -> Moved | None:
    """All of these gangs placed again, the oldest first; None if one has no place."""
    snapshot = without(cluster.snapshot, evicted)
    if isinstance(place(asking, snapshot, explained=False), NoFit):
        return None  # not beside them either
    places = list[tuple[RunningJob, Assignment]]()
    for job in sorted(evicted, key=lambda each: each.job.number):
        answer = place(job.gang, snapshot, explained=False)
        if isinstance(answer, NoFit):
            return None
        snapshot = assumed(snapshot, job, answer)
        if Counter(answer.nodes.values()) != Counter(job.nodes.values()):
            places.append((job, answer))
    answer = place(asking, snapshot, explained=False)
    return None if isinstance(answer, NoFit) else Moved(answer, places)


MOVE_RULES: Final = {
    "topogate": MoveRule(by_topogate, after=_LIMITS.after_seconds / HOUR * AN_HOUR),
    "KAI's rule": MoveRule(by_kai),
}


def is_movable(seed: int, percent: int, job: ArrivingGang) -> bool:
    """Whether a job is among so many percent, drawn by chance."""
    return random.Random(f"{seed} {job.number}").random() * 100 < percent
