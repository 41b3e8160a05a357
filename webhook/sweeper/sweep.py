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
from datetime import UTC, datetime
from typing import Final

from webhook.kube.client import Api
from webhook.kube.objects import Pod
from webhook.placement import Assignment, NoFit, Snapshot, Usage, place
from webhook.sweeper import claims, plan, repair
from webhook.sweeper.cache import ClusterCache
from webhook.sweeper.commit import Avoided, Commit, Committer
from webhook.sweeper.gangs import GangKey, PodGang, gather, key_of
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.report import Reporter
from webhook.sweeper.settings import Settings
from webhook.sweeper.view import Looker, View

RETRY_SECONDS: Final = 60.0
"""A gang that found no place is asked about again after this long even if nothing has changed."""

RESERVATION_SECONDS: Final = 1800.0
"""A reservation that has not helped for so long is made anew, perhaps elsewhere."""
_COUNTED_SECONDS: Final = 60.0
"""After this long a deletion of ours stands in its Job's status."""

logger = logging.getLogger(__name__)


@dataclass
class _Record:
    """What this process remembers of a gang between passes; losing it only delays."""

    members: frozenset[str] = frozenset()
    grown_at: float = 0.0
    unfinishable_since: float | None = None
    no_fit: "_Failure | None" = None
    reserved_at: float = 0.0
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
        self._api = api
        self._cache = cache
        self._settings = settings
        self._reporter = reporter
        self._metrics = metrics
        self._may_act = may_act
        self._looker = Looker(cache, settings)
        self._avoided = Avoided()
        self._committer = Committer(
            api, cache, settings, self._looker, self._avoided, reporter, metrics, may_act, stopping
        )
        self._watchman = repair.Watchman(settings)
        self._records: dict[GangKey, _Record] = {}
        self._reservations: dict[GangKey, frozenset[str]] = {}
        self._assumed: set[str] = set()
        self._stuck: frozenset[str] = frozenset()
        self._deletions: dict[str, list[float]] = {}
        self._taken: set[str] = set()

    def close(self) -> None:
        """End the threads."""
        self._committer.close()

    def sweep(self) -> float:
        """One pass; returns the seconds after which another is due even if nothing is heard."""
        version = self._cache.usage_version
        with self._timed("look"):
            view = self._looker.look()
        self._committer.begin(view, self._stuck)
        with self._timed("snapshot"):
            snapshot = self._snapshot(view)
        with self._guarded("finish"):
            self._committer.finish(view)
        repaired = 0
        with self._guarded("repair"):
            repaired = self._repair(view)
        gangs = gather(view.gated, view.others, self._cache.size_of)
        self._remember(gangs)
        with self._timed("place"):
            due, commits = self._settings.interval_seconds, list[Commit]()
            if snapshot is not None:
                due, commits = self._place_all(gangs, view, snapshot, version)
        with self._timed("commit"):
            # Tried again after a moment, not at once: an API server that is away would be asked without end.
            all_taken = self._committer.commit(commits, view)
        with self._guarded("report"):
            self._taken &= view.in_a_plan
            self._reporter.report(view, gangs, self._taken)
        return min(due, 1.0) if repaired or not all_taken else due

    # --- what is planned already ----------------------------------------------------------------

    def _snapshot(self, view: View) -> Snapshot | None:
        """What gangs are placed on; None if nobody waits: in a large cluster it is most of a pass."""
        if not view.gated:
            return None
        snapshot = self._looker.snapshot(view)
        return self._looker.snapshot(view) if self._drop_overbooked(view, snapshot) else snapshot

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
            and _is_overbooked(snapshot, planned.node, wanted[uid])
        ]
        for uid in dropped:
            logger.warning("plan_dropped pod=%s node=%s", view.planned[uid].name, view.planned[uid].node)
            del view.planned[uid]
        return bool(dropped)

    # --- released pods that will not run --------------------------------------------------------

    def _repair(self, view: View) -> int:
        released = [pod for pod in view.others if pod.metadata.uid in view.in_a_plan]
        count, stuck = 0, set()
        for lost in self._watchman.lost(released, view.nodes):
            if lost.cause == repair.UNTRIED:
                self._reporter.warn(lost.pod, "NotScheduled", lost.reason)
                continue
            if lost.cause == "not-bound":
                self._avoided.add(key_of(lost.pod), lost.node)
            if self._take_back(lost.pod, lost.cause, lost.reason):
                count += 1
            else:
                stuck.add(lost.pod.metadata.uid)
        self._stuck = frozenset(stuck)
        return count

    def _why_not(self, pods: Sequence[Pod]) -> str:
        """Why these pods of one gang are not to be deleted, "" if they may be."""
        if not self._settings.repair:
            return "repair is switched off"
        if not all(repair.can_come_again(pod) for pod in pods):
            return "no controller would make it again"
        # A Job counts our deletions as failures of its pods, and fails for good at its backoffLimit.
        by_job: dict[str, list[Pod]] = {}
        for pod in pods:
            owner = pod.metadata.controller
            if owner is not None and owner.kind == "Job":
                by_job.setdefault(owner.uid, []).append(pod)
        for uid, own in by_job.items():
            name = own[0].metadata.controller.name if own[0].metadata.controller else ""
            left = self._cache.owners.failures_left(own[0].metadata.namespace, name, uid)
            recent = [at for at in self._deletions.get(uid, ()) if time.monotonic() - at < _COUNTED_SECONDS]
            if left is not None and len(own) + len(recent) > left:
                return f"its Job {name} would reach its backoffLimit and fail; raise it"
        return ""

    def _take_back(self, pod: Pod, cause: str, reason: str) -> bool:
        """Delete a released pod whose controller will make it again; returns whether it went."""
        why = self._why_not([pod])
        if why:
            self._reporter.warn(pod, "NotRepaired", f"{reason}; {why}: delete it and create it anew")
            return False
        if not self._may_act() or not repair.delete(self._api, pod):
            return False
        self._taken.add(pod.metadata.uid)
        self._metrics.repairs.labels(cause).inc()
        owner = pod.metadata.controller
        if owner is not None:
            self._deletions.setdefault(owner.uid, []).append(time.monotonic())
        logger.info(
            "taken_back pod=%s/%s cause=%s reason=%r",
            pod.metadata.namespace,
            pod.metadata.name,
            cause,
            reason,
        )
        self._reporter.warn(pod, "TakenBack", f"deleted to be placed anew: {reason}")
        return True

    # --- when a gang is complete ----------------------------------------------------------------

    def _remember(self, gangs: Iterable[PodGang]) -> None:
        records: dict[GangKey, _Record] = {}
        for gang in gangs:
            record = records[gang.key] = self._records.get(gang.key) or _Record()
            members = frozenset(pod.metadata.uid for pod in gang.pods)
            if members != record.members:
                record.members, record.grown_at = members, time.monotonic()
        self._records = records
        self._reservations = {key: nodes for key, nodes in self._reservations.items() if key in records}

    def _seconds_to_completion(self, gang: PodGang) -> float:
        """0 for a gang that is complete, else how long its present pods must stay the only ones."""
        if gang.size is not None and len(gang.pods) >= gang.size:
            return 0.0
        settings = self._settings
        is_open = gang.size is None or gang.staged  # waiting for all would be waiting for ever
        wanted = settings.settle_seconds if is_open else settings.patience_seconds
        return max(0.0, self._records[gang.key].grown_at + wanted - time.monotonic())

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
                continue
            paused = self._avoided.paused_seconds(gang.key)
            if paused > 0:
                due = min(due, paused)
                continue
            remaining = self._seconds_to_completion(gang)
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
            held |= self._reservations.get(gang.key, frozenset())
        return due, commits

    def _place(
        self,
        gang: PodGang,
        waiting: list[Pod],
        view: View,
        snapshot: Snapshot,
        held: frozenset[str],
        version: int,
    ) -> tuple[plan.Question, Assignment, bool] | None:
        avoid = self._avoided.of(gang.key) | held
        record = self._records[gang.key]
        failure = _Failure(record.members, avoid, version, "", time.monotonic())
        if record.no_fit is not None and record.no_fit.still_holds(failure):
            self._undo_if_unfinishable(gang, view, record.no_fit.sentence)
            return None
        asked = plan.question(gang, waiting, view.placed_on(gang.pods), avoid, view.class_of)
        answer = place(asked.gang, snapshot, self._settings.options)
        if not isinstance(answer, NoFit):
            self._reservations.pop(gang.key, None)
            record.unfinishable_since = None
            record.no_fit = None
            record.preempting = ()
            return asked, answer, False
        claimed = self._preemption(gang, asked, snapshot, view)
        if claimed is not None:
            if record.preempting != claimed.victims:  # told once, also while the plan cannot be written
                record.preempting = claimed.victims
                logger.info("preempts gang=%s victims=%s", gang.key, ",".join(claimed.victims[:10]))
            return asked, claimed.assignment, True
        self._reserve(gang, asked, snapshot, view)
        self._undo_if_unfinishable(gang, view, answer.sentence)
        self._reporter.waits(gang, answer.sentence)
        record.no_fit = replace(failure, sentence=answer.sentence)
        return None

    def _preemption(
        self, gang: PodGang, asked: plan.Question, snapshot: Snapshot, view: View
    ) -> claims.Claim | None:
        """Nodes where only pods of lower priority stand in the way, for kube-scheduler to preempt."""
        if not self._settings.preempt or any(pod.spec.preemption_policy == "Never" for pod in gang.gated):
            return None
        if any(member.pod_class.wants_cards for member in asked.gang.members):
            return None  # kube-scheduler counts a node's sum: it would bind beside the pod that has the card
        lowest = min((pod.spec.priority or 0 for pod in gang.gated), default=0)
        # Not these: a DaemonSet makes its pod anew at once; a pod that is not bound yet is not evicted, and
        # would stay behind, pinned to a node that is full; gangs placed earlier in this pass are at least as
        # important, but stand there without priority.
        staying = _lasting(view) | _unbound(view) | self._assumed

        def may_go(use: Usage) -> bool:
            return use.priority < lowest and use.name not in staying

        return claims.claim(asked.gang, snapshot, self._settings.options, may_go)

    def _reserve(self, gang: PodGang, asked: plan.Question, snapshot: Snapshot, view: View) -> None:
        """A gang that has waited long holds the nodes that are easiest to become free for it."""
        record = self._records[gang.key]
        kept = self._reservations.get(gang.key)
        is_fresh = time.monotonic() - record.reserved_at < RESERVATION_SECONDS
        if kept is not None and is_fresh and all(name in snapshot.nodes for name in kept):
            return
        if _age_seconds(gang) < self._settings.reserve_seconds:
            return
        lasting = _lasting(view)
        claimed = claims.claim(
            asked.gang, snapshot, self._settings.options, lambda use: use.name not in lasting
        )
        self._reservations.pop(gang.key, None)
        if claimed is not None:
            self._reservations[gang.key] = claimed.nodes
            record.reserved_at = time.monotonic()
            logger.info("reserves gang=%s nodes=%d", gang.key, len(claimed.nodes))

    def _undo_if_unfinishable(self, gang: PodGang, view: View, sentence: str) -> None:
        """Take a gang back that is partly released and whose rest has found no place for too long."""
        placement = view.placements.get(gang.key.placement_key)
        record = self._records[gang.key]
        ours = {planned.uid for planned in placement.spec.pods} if placement else set()
        # A member that never went through us (a launcher without GPU, say) is not ours to take back.
        released = [pod for pod in gang.released if pod.metadata.uid in ours]
        if not released or placement is None or placement.status.complete:
            record.unfinishable_since = None
            return
        if record.unfinishable_since is None:
            record.unfinishable_since = time.monotonic()
        elif time.monotonic() - record.unfinishable_since >= self._settings.undo_seconds:
            record.unfinishable_since = None
            why = self._why_not(released)
            if why:
                self._reporter.warn(released[0], "NotTakenBack", f"half of the gang is released; {why}")
                return
            for pod in released:
                self._take_back(pod, "undone", f"the rest of its gang found no place: {sentence}")

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


def _lasting(view: View) -> frozenset[str]:
    """Names of pods that do not end: those of DaemonSets and of nodes themselves, and the system's."""
    return frozenset(
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in view.others
        if pod.metadata.namespace == "kube-system"
        or ((owner := pod.metadata.controller) is not None and owner.kind in ("DaemonSet", "Node"))
    )


def _unbound(view: View) -> frozenset[str]:
    """Names of pods that have been sent to a node, or are planned for one, and are not there yet."""
    return frozenset(
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in (*view.gated, *view.others)
        if not pod.spec.node_name
    )


def _wanted(pod: Pod, view: View) -> frozenset[str]:
    try:
        return frozenset(name for name, _ in view.class_of(pod).requests)
    except ValueError:
        return frozenset()


def _is_overbooked(snapshot: Snapshot, node: str, wanted: frozenset[str]) -> bool:
    """Whether a node has less than nothing left of a resource that the pod planned for it wants."""
    state = snapshot.nodes.get(node)
    if state is None:
        return True
    short = any(amount < 0 for name, amount in state.free.items() if name in wanted)
    return short or any(amount < 0 for card in state.cards for _, amount in card.free)


def _age_seconds(gang: PodGang) -> float:
    try:
        created = datetime.fromisoformat(gang.created)
    except ValueError:
        return 0.0
    return (datetime.now(UTC) - created).total_seconds()
