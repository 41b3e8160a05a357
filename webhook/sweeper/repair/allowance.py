"""The limits of pods' controllers: whether they recreate deleted pods, and how many failures are left.

A Job counts our deletions as failures of its pods, and fails for good at its backoffLimit. Pure.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from webhook.configuration.settings import Settings
from webhook.grouping import grouped
from webhook.kube.objects import DISRUPTION, Pod
from webhook.sweeper.observe.plans import PodId
from webhook.workloads import marks
from webhook.workloads.builtin import (
    Job,
    job_counts_only_ended,
    job_creates_pods,
    job_fails_by,
    job_failures_left,
    job_has_ended_pods,
    job_ignores_evictions,
)
from webhook.workloads.ranks import COUNT

_COUNTED_SECONDS: Final = 60.0
"""After this long a deletion of ours shows in its Job's status."""


JobOf = Callable[[str, str, str], Job | None]
"""The facts of a Job, by namespace, name and uid; None if unknown."""

Deletions = Mapping[PodId, Mapping[str, float]]
"""By controller, when pods of it were deleted, by uid; losing it lets a Job fail a minute early."""


@dataclass(frozen=True)
class Allowance:
    """Judges deletions before they are ordered.

    now: seconds of Moment. ending: deleted pods that have not ended yet, by uid.
    """

    settings: Settings
    job_of: JobOf
    deletions: Deletions = field(default_factory=dict)
    now: float = 0.0
    ending: Mapping[str, Pod] = field(default_factory=dict)

    def why_not(self, pods: Sequence[Pod], ordered: Iterable[Pod] = ()) -> str:
        """Why these pods of one gang may not be deleted, all of them together; "" if they may.

        ordered: pods whose deletion was ordered already and is not counted yet.
        """
        if not self.settings.repair:
            return "repair is switched off"
        if not all(can_come_again(pod, self.settings.repair_owners) for pod in pods):
            return "no controller is known to recreate it"
        return self._why_a_job_fails(pods, ordered)

    def why_not_evicted(self, pods: Sequence[Pod], ordered: Iterable[Pod] = ()) -> str:
        """Why these pods, the rest of a gang, may not be evicted all together; "" if they may.

        Pods of a Job of which some have succeeded do not need one another.
        """
        if not all(can_come_again(pod, self.settings.repair_owners) for pod in pods):
            return "no controller is known to recreate it"
        for own in by_owner(filter(_is_of_job, pods)).values():
            job = self._job(own[0])
            if job is not None and job_has_ended_pods(job):
                name = job.metadata.name
                return f"pods of its Job {name} have ended by themselves, so it may continue without them"
        return self.why_jobs_end(pods, ordered)

    def has_ended(self, pod: Pod) -> bool:
        """Whether the Job of a pod creates no more pods."""
        job = self._job(pod) if _is_of_job(pod) else None
        return job is not None and not job_creates_pods(job)

    def why_jobs_end(self, pods: Sequence[Pod], ordered: Iterable[Pod] = ()) -> str:
        """Which Job would fail for good if all of these pods were evicted, and why; "" if none."""
        counted = [pod for pod in pods if not self._is_ignored(pod)]
        return self._why_a_job_fails(counted, ordered, evicted=True)

    def _is_ignored(self, pod: Pod) -> bool:
        if not _is_of_job(pod):
            return True
        job = self._job(pod)
        return job is not None and job_ignores_evictions(job)

    def _job(self, pod: Pod) -> Job | None:
        """The Job of a pod of one, None if it is not known."""
        owner = pod.metadata.controller
        assert owner is not None
        return self.job_of(pod.metadata.namespace, owner.name, owner.uid)

    def _why_a_job_fails(self, pods: Sequence[Pod], ordered: Iterable[Pod], *, evicted: bool = False) -> str:
        """evicted: whether they are evicted, or deleted."""
        coming = by_owner(ordered)
        jobs = {key: own for key, own in by_owner(pods).items() if _is_of_job(own[0])}
        reasons = (self._of_job(own, coming.get(key, ()), evicted) for key, own in jobs.items())
        return next(filter(None, reasons), "")

    def _of_job(self, pods: Sequence[Pod], ordered: Sequence[Pod], evicted: bool) -> str:
        job, owner = self._job(pods[0]), pods[0].metadata.controller
        assert owner is not None
        if job is None:
            return f"its Job {owner.name} cannot be read, which may allow no more failures"
        if any(job_fails_by(job, evicted=evicted, ran=pod.status.phase == "Running") for pod in pods):
            return f"its Job {owner.name} would fail by its podFailurePolicy; ignore DisruptionTarget there"
        failing = {pod.metadata.uid for pod in (*pods, *ordered)} | self._uncounted(job, pods[0])
        if len(failing) > job_failures_left(job):
            return f"its Job {owner.name} would reach its backoffLimit and fail; raise it"
        limit = job.spec.backoff_limit_per_index
        if limit is not None and any(_index_failures(pod) >= limit for pod in pods):
            return f"its index would reach the backoffLimitPerIndex of Job {owner.name} and fail; raise it"
        return ""

    def _uncounted(self, job: Job, pod: Pod) -> set[str]:
        """The uids of deleted pods of a Job that its status.failed may lack. pod: one of its pods."""
        controller = _controller_of(pod)
        times = self.deletions.get(controller, {})
        found = {uid for uid, at in times.items() if self.now - at < _COUNTED_SECONDS}
        if job_counts_only_ended(job):  # which may take as long as their grace period
            is_ignored = job_ignores_evictions(job)
            ending = self._ending_by_owner.get(controller, ())
            found |= {each.metadata.uid for each in ending if not (is_ignored and _is_disrupted(each))}
        return found

    @cached_property
    def _ending_by_owner(self) -> Mapping[PodId, Sequence[Pod]]:
        return by_owner(self.ending.values())


def after_deletion(deletions: Deletions, deleted: Iterable[Pod], now: float) -> Deletions:
    """With pods that were just deleted; for their controllers, entries that count no longer are dropped."""
    found = dict(deletions)
    for controller, pods in by_owner(pod for pod in deleted if pod.metadata.controller is not None).items():
        before = found.get(controller, {})
        recent = {uid: at for uid, at in before.items() if now - at < _COUNTED_SECONDS}
        found[controller] = {**recent, **{pod.metadata.uid: now for pod in pods}}
    return found


def deletions_of(deletions: Deletions, living: Set[PodId], now: float) -> Deletions:
    """Without controllers that have no entries left. living: existing controllers."""
    return {
        key: times
        for key, times in deletions.items()
        if key in living or now - max(times.values()) < _COUNTED_SECONDS
    }


def can_come_again(pod: Pod, owners: frozenset[str]) -> bool:
    """Whether the pod's controller is of one of those kinds ("Job.batch") that recreate a deleted pod."""
    owner = pod.metadata.controller
    return owner is not None and owner.kind_and_group in owners


def by_owner(pods: Iterable[Pod]) -> dict[PodId, list[Pod]]:
    """Pods by namespace and uid of their controller; a pod without a controller is alone.

    The uid alone is not enough: an author may write the uid of any controller on a pod.
    """
    return grouped((_controller_of(pod), pod) for pod in pods)


def _controller_of(pod: Pod) -> PodId:
    owner = pod.metadata.controller
    return pod.metadata.namespace, owner.uid if owner else pod.metadata.uid


def _is_of_job(pod: Pod) -> bool:
    owner = pod.metadata.controller
    return owner is not None and owner.kind == "Job" and owner.api_version.startswith("batch/")


def _is_disrupted(pod: Pod) -> bool:
    """Whether it was evicted or preempted."""
    return any(each.type == DISRUPTION and each.status == "True" for each in pod.status.conditions)


def _index_failures(pod: Pod) -> int:
    text = pod.metadata.annotations.get(marks.JOB_INDEX_FAILURES_ANNOTATION, "0")
    return int(text) if COUNT.fullmatch(text) else 0
