"""One pass: finish what is planned, repair what is lost, place what is complete, say why the rest waits.

A pass reads levels, not events: it looks at everything that is there and moves it one step on. It may
stop anywhere; the next one, of this process or of another, goes on from what the API server holds.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from webhook.kube.client import Api
from webhook.kube.objects import OwnerReference, Pod
from webhook.kube.placements import PlannedPod
from webhook.placement import Assignment, NoFit, Snapshot, Usage, place, victims
from webhook.placement.cards.state import overbooked_cards
from webhook.sweeper.apply.commit import Commit, Committer
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.completion import Completion
from webhook.sweeper.decide.question import Question, question
from webhook.sweeper.decide.reservations import Reservations
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import GangKey, PodGang, gather
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.repair.evict import Rescuer
from webhook.sweeper.report import Reporter
from webhook.sweeper.settings import Settings

RETRY_SECONDS: Final = 60.0
"""A gang that found no place is asked about again after this long even if nothing has changed."""

logger = logging.getLogger(__name__)


@dataclass
class _Record:
    """What this process remembers of a gang between passes; losing it only delays."""

    no_fit: "_Failure | None" = None
    preempting: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Failure:
    """A gang found no place: by what it was asked, of which state of the cluster, and when."""

    members: frozenset[str]
    avoid: frozenset[str]
    usage_version: int
    sentence: str
    at: float

    def still_holds(self, other: "_Failure") -> bool:
        """Whether asking again would answer the same: our own releases take room, they never make any."""
        same = (self.members, self.usage_version) == (other.members, other.usage_version)
        return same and self.avoid <= other.avoid and other.at - self.at < RETRY_SECONDS


class Sweeper:
    """The passes of one process."""

    def __init__(
        self,
        api: Api,
        cache: ClusterCache,
        settings: Settings,
        stopping: threading.Event,
        reporter: Reporter,
        metrics: Metrics,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """cache must be started; stopping ends waits inside a pass; may_act is asked before each write."""
        self._cache = cache
        self._settings = settings
        self._reporter = reporter
        self._metrics = metrics
        self._snapshotter = Snapshotter(cache, settings)
        self._avoided = Avoided()
        self._committer = Committer(
            api, cache, settings, self._snapshotter, self._avoided, reporter, metrics, may_act, stopping
        )
        self._rescuer = Rescuer(api, cache, settings, self._avoided, reporter, metrics, may_act)
        self._reservations = Reservations(settings)
        self._completion = Completion(settings)
        self._records: dict[GangKey, _Record] = {}
        self._assumed: set[str] = set()

    def close(self) -> None:
        """End the threads."""
        self._committer.close()

    def sweep(self) -> float:
        """One pass; returns the seconds after which another is due even if nothing is heard."""
        version = self._cache.usage_version
        with self._timed("look"):
            view = self._snapshotter.view()
        self._committer.begin(view, self._rescuer.stuck)
        with self._timed("snapshot"):
            snapshot = self._snapshot(view)
        with self._guarded("finish"):
            self._committer.finish(view)
        repaired = 0
        with self._guarded("repair"):
            repaired = self._rescuer.repair(view)
        gangs = gather(view.gated, view.others, self._cache.size_of)
        self._remember(gangs)
        with self._timed("place"):
            due, commits = self._settings.interval_seconds, list[Commit]()
            if snapshot is not None:
                due, commits = self._place_all(gangs, view, snapshot, version)
        with self._timed("commit"):
            # Tried again after a moment, not at once: an API server that is away would be asked without end.
            all_taken = self._committer.commit(commits, view)
        with self._guarded("undo"):
            self._rescuer.undo_halves(view, gangs, self._reporter.reason_of)
        with self._guarded("report"):
            self._reporter.report(view, gangs, self._rescuer.taken)
        return min(due, 1.0) if repaired or not all_taken else due

    # --- what is planned already ----------------------------------------------------------------

    def _snapshot(self, view: View) -> Snapshot | None:
        """What gangs are placed on; None if nobody waits: in a large cluster it is most of a pass."""
        if not view.gated:
            return None
        snapshot = self._snapshotter.snapshot(view)
        return self._snapshotter.snapshot(view) if self._drop_overbooked(view, snapshot) else snapshot

    def _drop_overbooked(self, view: View, snapshot: Snapshot) -> bool:
        """Unreleased parts of plans on nodes that others have filled meanwhile do not hold any more."""
        preempting = {
            planned.uid
            for placement in view.placements.values()
            if placement.spec.preempts
            for planned in placement.spec.pods
        }
        wanted = {
            pod.metadata.uid: _wanted(pod, view) for pod in view.gated if pod.metadata.uid in view.planned
        }
        dropped = [
            uid
            for uid, planned in view.planned.items()
            if uid not in preempting
            and not self._committer.has_released(uid)
            and _is_overbooked(snapshot, planned, wanted[uid])
        ]
        for uid in dropped:
            logger.warning("plan_dropped pod=%s node=%s", view.planned[uid].name, view.planned[uid].node)
            del view.planned[uid]
        return bool(dropped)

    def _remember(self, gangs: Sequence[PodGang]) -> None:
        self._completion.look(gangs)
        self._records = {gang.key: self._records.get(gang.key) or _Record() for gang in gangs}
        self._reservations.keep_only(self._records.keys())
        self._rescuer.forget({owner.uid for gang in gangs for owner in _controllers(gang)})

    # --- place ----------------------------------------------------------------------------------

    def _place_all(
        self, gangs: Iterable[PodGang], view: View, snapshot: Snapshot, version: int
    ) -> tuple[float, list[Commit]]:
        """Places for all complete gangs, the most urgent first, each on what the earlier ones leave."""
        due = self._settings.interval_seconds
        commits: list[Commit] = []
        held: frozenset[str] = frozenset()  # reserved by gangs that come first
        self._assumed.clear()
        for gang in gangs:
            waiting = [pod for pod in gang.gated if pod.metadata.uid not in view.planned]
            if not waiting:
                self._completion.nobody_waits(gang)
                continue
            if holders := _held_by_others(waiting, self._settings.gate_prefix):
                # A place taken now would stand empty, and be missing to those that may run.
                self._reporter.waits(gang, f"held by the gate {', '.join(holders)}; placed when that is gone")
                continue
            paused = self._avoided.paused_seconds(gang.key)
            if paused > 0:
                due = min(due, paused)
                continue
            remaining = self._completion.seconds(gang)
            if remaining > 0:
                due = min(due, remaining)
                expected = "its size is not known" if gang.size is None else f"{gang.size} are expected"
                self._reporter.settling(gang, f"{len(gang.pods)} pods are there, {expected}")
                continue
            try:
                placed = self._place(gang, waiting, view, snapshot, held, version)
            except ValueError as error:  # what the user wrote cannot be meant: no level, no quantity
                self._reporter.waits(gang, str(error))
            except Exception:  # one bad gang never stops the others
                logger.exception("gang_failed gang=%s", gang.key)
                self._reporter.waits(gang, "an error of topogate's own; see the sweeper's log")
            else:
                if placed is not None:
                    asked, answer, preempts = placed
                    snapshot = snapshot.assume(answer, asked.gang)
                    self._assumed |= asked.pods.keys()
                    commits.append(Commit(gang, asked, answer, preempts, version))
            held |= self._reservations.of(gang.key)
        return due, commits

    def _place(
        self,
        gang: PodGang,
        waiting: list[Pod],
        view: View,
        snapshot: Snapshot,
        held: frozenset[str],
        version: int,
    ) -> tuple[Question, Assignment, bool] | None:
        avoid = self._avoided.of(gang.key)
        if not _replaces(gang, view):
            avoid |= held
        record = self._records[gang.key]
        failure = _Failure(self._completion.members(gang), avoid, version, "", time.monotonic())
        if record.no_fit is not None and record.no_fit.still_holds(failure):
            return None
        places = view.placed_on(gang.pods)
        asked = question(gang, waiting, places, avoid, view.class_of, view.in_a_plan)
        answer = place(asked.gang, snapshot, self._settings.options)
        if not isinstance(answer, NoFit):
            self._reservations.drop(gang.key)
            record.no_fit = None
            record.preempting = ()
            return asked, answer, False
        found = self._preemption(gang, asked, snapshot, view)
        if found is not None:
            if record.preempting != found.names:  # told once, also while the plan cannot be written
                record.preempting = found.names
                logger.info("preempts gang=%s victims=%s", gang.key, ",".join(found.names[:10]))
            return asked, found.assignment, True
        self._reservations.hold(gang, asked, snapshot, view)
        self._reporter.waits(gang, answer.sentence)
        record.no_fit = replace(failure, sentence=answer.sentence)
        return None

    def _preemption(
        self, gang: PodGang, asked: Question, snapshot: Snapshot, view: View
    ) -> victims.Victims | None:
        """Nodes where only pods of lower priority stand in the way, for kube-scheduler to preempt."""
        if not self._settings.preempt or any(pod.spec.preemption_policy == "Never" for pod in gang.gated):
            return None
        if any(member.pod_class.wants_cards for member in asked.gang.members):
            return None  # kube-scheduler counts a node's sum: it would bind beside the pod that has the card
        lowest = min((pod.spec.priority or 0 for pod in gang.gated), default=0)
        # Not these: a DaemonSet makes its pod anew at once; a pod that is not bound yet is not evicted, and
        # would stay behind, pinned to a node that is full; gangs placed earlier in this pass are at least as
        # important, but stand there without priority.
        staying = view.lasting | view.unbound | self._assumed

        def may_go(use: Usage) -> bool:
            return use.priority < lowest and use.name not in staying

        return victims.find(asked.gang, snapshot, self._settings.options, may_go)

    @contextmanager
    def _guarded(self, phase: str) -> Iterator[None]:
        """A phase whose defect must not keep the others from their work."""
        with self._timed(phase):
            try:
                yield
            except Exception:
                logger.exception("phase_failed phase=%s", phase)

    def _timed(self, phase: str) -> AbstractContextManager[object]:
        return self._metrics.passes.labels(phase).time()


def _controllers(gang: PodGang) -> Iterator[OwnerReference]:
    return (owner for pod in gang.pods if (owner := pod.metadata.controller) is not None)


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


def _wanted(pod: Pod, view: View) -> frozenset[str]:
    try:
        return frozenset(name for name, _ in view.class_of(pod).requests)
    except ValueError:
        return frozenset()


def _is_overbooked(snapshot: Snapshot, planned: PlannedPod, wanted: frozenset[str]) -> bool:
    """Whether a node has less than nothing left of what the pod planned for it wants, cards included."""
    state = snapshot.nodes.get(planned.node)
    if state is None:
        return True
    if any(amount < 0 for name, amount in state.free.items() if name in wanted):
        return True
    return bool(planned.annotations) and bool(overbooked_cards(state.node, state.usages))
