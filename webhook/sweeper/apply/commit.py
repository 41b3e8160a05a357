"""Make a decision last, then carry it out: one write of the plan, then one guarded patch for each pod.

Everything here may be cut off at any point. What is written is finished by the next pass of any leader;
what is not written has not happened.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from labeler.contract import keys
from webhook.kube import placements
from webhook.kube.client import Api, ApiError
from webhook.kube.objects import Pod
from webhook.kube.placements import PlannedPod
from webhook.placement import Assignment, check
from webhook.sweeper.apply.release import Outcome, Release, Releaser
from webhook.sweeper.decide import plan
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.decide.question import Question
from webhook.sweeper.decide.timestamps import Timestamps
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import PodGang, key_of
from webhook.sweeper.observe.snapshotter import Snapshotter
from webhook.sweeper.observe.view import View
from webhook.sweeper.report import Reporter
from webhook.sweeper.settings import Settings

SEEN_SECONDS: Final = 300.0
"""How long a release that the watch does not show yet is believed to have happened."""
_PARALLEL_COMMITS: Final = 8

Pair = tuple[Pod, PlannedPod]
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Commit:
    """A gang that has been given its place, by which state of the cluster (ClusterCache.usage_version)."""

    gang: PodGang
    asked: Question
    answer: Assignment
    preempts: bool
    usage_version: int


class Committer:
    """Writes plans and releases pods."""

    def __init__(
        self,
        api: Api,
        cache: ClusterCache,
        settings: Settings,
        snapshotter: Snapshotter,
        avoided: Avoided,
        reporter: Reporter,
        metrics: Metrics,
        may_act: Callable[[], bool],
        stopping: threading.Event,
    ) -> None:
        """may_act is asked before each write; stopping ends waits."""
        self._api = api
        self._cache = cache
        self._snapshotter = snapshotter
        self._avoided = avoided
        self._reporter = reporter
        self._metrics = metrics
        self._may_act = may_act
        self._releaser = Releaser(api, stopping, may_act, settings.gate_prefix)
        self._timestamps = Timestamps()
        self._pool = ThreadPoolExecutor(_PARALLEL_COMMITS, thread_name_prefix="commit")
        self._fresh_lock = threading.Lock()
        self._turn_lock = threading.Lock()
        self._order_lock = threading.Lock()
        self._cards_under_way: set[str] = set()
        self._released: dict[str, tuple[float, PlannedPod]] = {}
        self._has_failed = False

    def close(self) -> None:
        """End the threads."""
        self._releaser.close()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, view: View, stuck: frozenset[str] = frozenset()) -> None:
        """Take in what a new pass sees; plans for nodes that refused the gang do not hold.

        stuck: uids of released pods that will not be bound and that nobody makes again.
        """
        for pod in view.gated:
            planned = view.planned.get(pod.metadata.uid)
            if planned is not None and planned.node in self._avoided.of(key_of(pod)):
                del view.planned[pod.metadata.uid]
        self._recall_releases(view)
        ours = [pod for pod in view.others if pod.metadata.uid in view.in_a_plan]
        now_ns = time.time_ns()
        self._timestamps.saw((pod.metadata.annotations for pod in ours), now_ns)
        self._timestamps.saw(
            (each.annotations for plan_ in view.placements.values() for each in plan_.spec.pods), now_ns
        )
        self._cards_under_way = {
            node
            for pod in ours
            if keys.GAS_TIMESTAMP_ANNOTATION in pod.metadata.annotations
            and not pod.spec.node_name
            and not pod.spec.scheduling_gates  # what others hold may stay so for long
            and pod.metadata.uid not in stuck
            and (node := view.occupied(pod)) is not None
        }
        self._cards_under_way |= {
            planned.node
            for uid, planned in view.planned.items()
            if uid in self._released and planned.annotations
        }

    def _recall_releases(self, view: View) -> None:
        """A pod that we have released, and that the watch still shows gated, is where we sent it."""
        now = time.monotonic()
        gated = {pod.metadata.uid for pod in view.gated}
        self._released = {
            uid: (at, planned)
            for uid, (at, planned) in self._released.items()
            if uid in gated and now - at < SEEN_SECONDS
        }
        for uid, (_, planned) in self._released.items():
            if planned.node in view.nodes:
                view.planned[uid] = planned

    def has_released(self, uid: str) -> bool:
        """Whether a pod that still looks gated has been let go."""
        return uid in self._released

    def finish(self, view: View) -> None:
        """Release what an earlier pass, or an earlier leader, planned and did not come to release."""
        pairs = [
            (pod, planned)
            for pod in view.gated
            if (planned := view.planned.get(pod.metadata.uid))
            and planned.uid not in self._released
            and not self._avoided.paused_seconds(key_of(pod))
        ]
        if pairs:
            self._release(view, self._in_turn(pairs))

    def commit(self, commits: Iterable[Commit], view: View) -> bool:
        """Write and carry out several plans at once; returns whether the API server took all that it got."""
        self._has_failed = False
        list(self._pool.map(lambda each: self._commit(each, view), commits))
        return not self._has_failed

    # --- one plan -------------------------------------------------------------------------------

    def _commit(self, commit: Commit, view: View) -> None:
        gang, answer = commit.gang, commit.answer
        try:
            if not self._may_act():
                return
            # Of two gangs on one node the one with the earlier gas-ts must also come first in turn.
            with self._order_lock if any(any(each.cards) for each in answer.placed) else nullcontext():
                added = self._write_if_it_holds(commit, view)
                pairs = self._in_turn([(commit.asked.pods[entry.uid], entry) for entry in added])
            if not added:
                return
            self._metrics.placed.inc()
            logger.info(
                "placed gang=%s pods=%d spread=%r proven=%s",
                gang.key, len(added), answer.spread, answer.proven,
            )  # fmt: skip
            self._reporter.placed(gang, f"{len(added)} pods placed on {answer.spread}")
            self._release(view, pairs)
        except ApiError as error:
            self._metrics.errors.labels(str(error.status)).inc()
            self._reporter.waits(gang, f"not committed in this pass: {error}")
            self._has_failed = True
            if not error.is_transient and error.status != 409:
                self._avoided.pause(gang.key)  # it would take room in each pass, and be refused in each
        except Exception:  # one bad gang never stops the others
            logger.exception("commit_failed gang=%s", gang.key)
            self._reporter.waits(gang, "an error of topogate's own; see the sweeper's log")
            self._avoided.pause(gang.key)

    def _write_if_it_holds(self, commit: Commit, view: View) -> list[PlannedPod]:
        """Check by the newest that is known, then write; empty if the plan does not hold any more."""
        if self._cache.usage_version == commit.usage_version:
            return self._write(commit, view)  # nothing has moved but what this pass assumed itself
        with self._fresh_lock:  # the next one is to see what this one writes
            faults = self._faults(commit)
            if not faults:
                return self._write(commit, view)
        self._reporter.waits(commit.gang, f"planned anew, since the cluster changed: {faults[0]}")
        self._cache.changed.set()
        return []

    def _faults(self, commit: Commit) -> list[str]:
        view = self._snapshotter.view()
        present = {pod.metadata.uid for pod in view.gated}
        gone = [pod.metadata.name for uid, pod in commit.asked.pods.items() if uid not in present]
        if gone:
            return [f"pod {gone[0]} is gone"]
        if commit.preempts:
            return []  # the pods in the way are still there, as they must be
        return check(commit.answer, commit.asked.gang, self._snapshotter.snapshot(view))

    def _write(self, commit: Commit, view: View) -> list[PlannedPod]:
        """Make the plan durable; returns its new entries."""
        gang, answer = commit.gang, commit.answer
        added = plan.planned_pods(gang, commit.asked, answer, self._timestamps, time.time_ns())
        before = view.placements.get(gang.key.placement_key)
        spec = plan.plan_spec(gang, before, added, proven=answer.proven, preempts=commit.preempts)
        self._cache.written(placements.write_plan(self._api, before, plan.plan_metadata(gang), spec))
        return added

    # --- release --------------------------------------------------------------------------------

    def _in_turn(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Leave out pods with cards whose node has another such pod released and not bound yet.

        The device plugin hands cards to the pending pod with the lowest gas-ts, whichever pod kubelet has
        admitted: so kubelet must see them one after the other, in that order. The rest has its turn when
        the one before has been bound.
        """
        chosen = []
        with self._turn_lock:
            for pod, planned in sorted(pairs, key=lambda pair: _timestamp(pair[1])):
                if planned.annotations and planned.node in self._cards_under_way:
                    continue
                if planned.annotations:
                    self._cards_under_way.add(planned.node)
                chosen.append((pod, planned))
        return chosen

    def _release(self, view: View, pairs: list[Pair]) -> None:
        pods = {planned.uid: pod for pod, planned in pairs}
        self._cache.expect({planned.uid: planned.node for _, planned in pairs})
        for release in self._releaser.release(pairs):
            self._metrics.releases.labels(release.outcome).inc()
            if release.outcome is Outcome.RELEASED:
                self._released[release.planned.uid] = (time.monotonic(), release.planned)
            elif release.outcome is not Outcome.GONE:
                self._not_released(view, pods[release.planned.uid], release)

    def _not_released(self, view: View, pod: Pod, release: Release) -> None:
        planned = release.planned
        logger.warning(
            "release_%s pod=%s/%s node=%s detail=%r",
            release.outcome, pod.metadata.namespace, planned.name, planned.node, release.detail,
        )  # fmt: skip
        if release.outcome is Outcome.REFUSED:
            key = key_of(pod)
            if release.depends_on_node:
                self._avoided.add(key, planned.node)
            self._avoided.pause(key)
            self._reporter.warn(pod, "ReleaseRefused", f"not released to {planned.node}: {release.detail}")


def _timestamp(planned: PlannedPod) -> str:
    return planned.annotations.get(keys.GAS_TIMESTAMP_ANNOTATION, "")
