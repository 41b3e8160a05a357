"""The Jobs of each gang whose missing pods the Job controller may delay.

It delays the pods of each Job by that Job's own failures (see decide.attempt.job_delay_seconds). So the pods
of one Job of a gang may be back minutes before another one has any.
"""

import threading
from collections import Counter
from collections.abc import Sequence

from webhook.kube.objects import OwnerReference, Pod, PodMetadata
from webhook.sweeper.observe.membership import GangKey, key_of
from webhook.workloads.builtin import Job, job_creates_pods, job_size


class DelayedJobs:
    """Jobs with failed pods, by gang. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[GangKey, dict[str, Job]] = {}

    def on_change(self, before: Job | None, after: Job | None) -> None:
        """Note that a Job was added (before is None), changed, or deleted (after is None)."""
        with self._lock:
            if before is not None and _may_be_delayed(before):
                gang = _gang_of(before)
                jobs = self._jobs.get(gang, {})
                jobs.pop(before.metadata.uid, None)
                if not jobs:
                    self._jobs.pop(gang, None)
            if after is not None and _may_be_delayed(after):
                self._jobs.setdefault(_gang_of(after), {})[after.metadata.uid] = after

    def most_failures(self, gang: GangKey, pods: Sequence[Pod]) -> int:
        """The most failed pods of one Job of a gang that lacks pods. pods: those of the gang that exist."""
        with self._lock:
            jobs = list(self._jobs.get(gang, {}).values())
        if not jobs:
            return 0
        present = Counter(owner.uid for pod in pods if (owner := pod.metadata.controller))
        failures = (
            job.status.failed or 0 for job in jobs if present[job.metadata.uid] < (job_size(job) or 0)
        )
        return max(failures, default=0)


def _may_be_delayed(job: Job) -> bool:
    return bool(job.status.failed) and job_creates_pods(job)


def _gang_of(job: Job) -> GangKey:
    """The gang of the pods that a Job creates."""
    owner = OwnerReference("batch/v1", "Job", job.metadata.name, job.metadata.uid, controller=True)
    template = job.spec.template
    metadata = PodMetadata(
        namespace=job.metadata.namespace,
        labels=template.metadata.labels,
        annotations=template.metadata.annotations,
        owner_references=[owner],
    )
    return key_of(Pod(metadata, template.spec))
