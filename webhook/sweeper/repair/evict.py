"""Take back what was released and will not run: single pods that are lost, and gangs that stay half released.

A pod is deleted only if its controller makes it again and the deletion breaks nothing else; all pods of one
Job are judged together, since a Job that has spent its failures on half of them is worse off than before.
"""

import logging
import time
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Final

from webhook.kube.client import Api
from webhook.kube.objects import OwnerReference, Pod
from webhook.sweeper.decide.avoided import Avoided
from webhook.sweeper.metrics import Metrics
from webhook.sweeper.observe.cache import ClusterCache
from webhook.sweeper.observe.gangs import GangKey, PodGang, key_of
from webhook.sweeper.observe.view import View
from webhook.sweeper.repair.lost import UNTRIED, Lost, Watchman, can_come_again, delete
from webhook.sweeper.report import Reporter
from webhook.sweeper.settings import Settings
from webhook.workloads import marks

_COUNTED_SECONDS: Final = 60.0
"""After this long a deletion of ours stands in its Job's status."""

logger = logging.getLogger(__name__)


@dataclass
class _Half:
    """A gang of which a part is released: how much was not when that last shrank, and since when."""

    unreleased: int
    since: float


class Rescuer:
    """Finds released pods that are lost and takes them back; losing what it remembers only delays."""

    def __init__(
        self,
        api: Api,
        cache: ClusterCache,
        settings: Settings,
        avoided: Avoided,
        reporter: Reporter,
        metrics: Metrics,
        may_act: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """may_act is asked before each deletion."""
        self._clock = clock
        self._api = api
        self._owners = cache.owners
        self._settings = settings
        self._avoided = avoided
        self._reporter = reporter
        self._metrics = metrics
        self._may_act = may_act
        self._watchman = Watchman(settings, clock)
        self._deletions: dict[str, list[float]] = {}
        self._halves: dict[GangKey, _Half] = {}
        self.taken: set[str] = set()
        """uids of released pods that we have deleted."""
        self.stuck: frozenset[str] = frozenset()
        """uids of released pods that will not run and that nobody makes again."""

    def repair(self, view: View) -> int:
        """Take back the released pods that are lost; returns how many went."""
        self.taken &= view.in_a_plan
        released = [pod for pod in view.others if pod.metadata.uid in view.in_a_plan]
        emptying = {pod.spec.node_name for pod in view.others if pod.metadata.deletion_timestamp}
        by_owner: dict[str, list[Lost]] = {}
        for lost in self._watchman.lost(released, view.nodes, emptying):
            if lost.cause == UNTRIED:
                self._reporter.warn(lost.pod, "NotScheduled", lost.reason)
                continue
            if lost.cause == "not-bound":
                self._avoided.add(key_of(lost.pod), lost.node)
            owner = lost.pod.metadata.controller
            by_owner.setdefault(owner.uid if owner else lost.pod.metadata.uid, []).append(lost)
        count, stuck = 0, set[str]()
        for together in by_owner.values():
            gone = self._repair(together)
            count += len(gone)
            stuck |= {lost.pod.metadata.uid for lost in together} - gone
        self.stuck = frozenset(stuck)
        return count

    def _repair(self, together: Sequence[Lost]) -> set[str]:
        why = self._why_not([lost.pod for lost in together])
        if not why:
            return {
                lost.pod.metadata.uid
                for lost in together
                if self._take_back(lost.pod, lost.cause, lost.reason)
            }
        for lost in together:
            note = f"{lost.reason}; {why}: delete it and create it anew"
            self._reporter.warn(lost.pod, "NotRepaired", note)
        return set()

    # --- gangs ----------------------------------------------------------------------------------

    def undo_halves(self, view: View, gangs: Sequence[PodGang], reason: Callable[[PodGang], str]) -> None:
        """Take back gangs whose released part has waited too long for the rest, however that came."""
        now = self._clock()
        halves: dict[GangKey, _Half] = {}
        for gang in gangs:
            released = self._half_of(gang, view)
            if not released:
                continue
            half = self._halves.get(gang.key)
            if half is None or len(gang.gated) < half.unreleased:
                half = _Half(len(gang.gated), now)
            half.unreleased = len(gang.gated)
            if now - half.since >= self._settings.undo_seconds:
                half.since = now
                self._undo(released, reason(gang))
            halves[gang.key] = half
        self._halves = halves

    def _half_of(self, gang: PodGang, view: View) -> list[Pod]:
        """The part of a gang that waits, released, for a rest that has never run; [] for other gangs."""
        placement = view.placements.get(gang.key.placement_key)
        if placement is None or placement.is_complete:
            return []
        ours = {planned.uid for planned in placement.spec.pods}
        # A member that never went through us (a launcher without GPU, say) is not ours to take back.
        return [pod for pod in gang.released if pod.metadata.uid in ours]

    def _undo(self, released: Sequence[Pod], reason: str) -> None:
        why = self._why_not(released)
        if why:
            self._reporter.warn(released[0], "NotTakenBack", f"half of the gang is released; {why}")
            return
        for pod in released:
            self._take_back(pod, "undone", f"the rest of its gang found no place: {reason}")

    # --- one pod --------------------------------------------------------------------------------

    def _why_not(self, pods: Sequence[Pod]) -> str:
        """Why these pods of one gang are not to be deleted, "" if they may be."""
        if not self._settings.repair:
            return "repair is switched off"
        if not all(can_come_again(pod, self._settings.repair_owners) for pod in pods):
            return "no controller is known to make it again"
        by_job: dict[str, list[Pod]] = {}
        for pod in pods:
            owner = pod.metadata.controller
            if owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/"):
                by_job.setdefault(owner.uid, []).append(pod)
        return next(filter(None, map(self._why_not_of_job, by_job.values())), "")

    def _why_not_of_job(self, pods: Sequence[Pod]) -> str:
        """A Job counts our deletions as failures of its pods, and fails for good at its backoffLimit."""
        owner = pods[0].metadata.controller
        assert isinstance(owner, OwnerReference)
        job = (pods[0].metadata.namespace, owner.name, owner.uid)
        left = self._owners.failures_left(*job)
        if left is None:
            return f"its Job {owner.name} cannot be read, which may allow no more failures"
        now = self._clock()
        recent = [at for at in self._deletions.get(owner.uid, ()) if now - at < _COUNTED_SECONDS]
        if len(pods) + len(recent) > left:
            return f"its Job {owner.name} would reach its backoffLimit and fail; raise it"
        limit = self._owners.index_limit(*job)
        if limit is not None and any(_index_failures(pod) >= limit for pod in pods):
            return f"its index would reach the backoffLimitPerIndex of Job {owner.name} and fail; raise it"
        return ""

    def _take_back(self, pod: Pod, cause: str, reason: str) -> bool:
        if not self._may_act() or not delete(self._api, pod):
            return False
        metadata = pod.metadata
        self.taken.add(metadata.uid)
        self._metrics.repairs.labels(cause).inc()
        if metadata.controller is not None:
            self._deletions.setdefault(metadata.controller.uid, []).append(self._clock())
        logger.info(
            "taken_back pod=%s/%s cause=%s reason=%r", metadata.namespace, metadata.name, cause, reason
        )
        self._reporter.warn(pod, "TakenBack", f"deleted to be placed anew: {reason}")
        return True

    def forget(self, living: Set[str]) -> None:
        """Forget deletions of controllers of which nothing is left; living: uids of those that are there."""
        now = self._clock()
        self._deletions = {
            uid: times
            for uid, times in self._deletions.items()
            if uid in living or now - times[-1] < _COUNTED_SECONDS
        }


def _index_failures(pod: Pod) -> int:
    text = pod.metadata.annotations.get(marks.JOB_INDEX_FAILURES_ANNOTATION, "0")
    return int(text) if text.isdecimal() else 0
