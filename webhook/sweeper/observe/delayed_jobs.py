"""The Jobs of each gang whose missing pods the Job controller may delay.

It delays the pods of each Job by that Job's own failures (see decide.missing_pods.job_delay_seconds). So the
pods of one Job of a gang may be back minutes before another one has any.
"""

import math
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

from webhook.kube.objects import OwnerReference, Pod
from webhook.kube.times import since_1970
from webhook.sweeper.observe.membership import GangKey, key_of
from webhook.workloads.builtin import Job, job_counts_only_ended, job_creates_pods, job_pods, job_size

_CREATED_SECONDS: Final = 10.0
"""A pod that is created so long after the one before replaces another one: the shortest delay."""


class DelayedJobs:
    """Jobs whose missing pods may be delayed, by gang. Safe for use by many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[GangKey, dict[str, Job]] = {}
        self._by_uid: dict[tuple[str, str], Job] = {}

    def on_change(self, before: Job | None, after: Job | None) -> None:
        """Note that a Job was added (before is None), changed, or deleted (after is None)."""
        with self._lock:
            if before is not None and _may_be_delayed(before):
                gang = _gang_of(before)
                jobs = self._jobs.get(gang, {})
                jobs.pop(before.metadata.uid, None)
                self._by_uid.pop(_identity(before), None)
                if not jobs:
                    self._jobs.pop(gang, None)
            if after is not None and _may_be_delayed(after):
                self._jobs.setdefault(_gang_of(after), {})[after.metadata.uid] = after
                self._by_uid[_identity(after)] = after

    def most_failures(self, gang: GangKey, pods: Sequence[Pod]) -> int:
        """The most failed pods of one Job of a gang that lacks pods. pods: those of the gang that exist."""
        if not self._by_uid:
            return 0
        present = Counter(owner.uid for pod in pods if (owner := pod.metadata.controller))
        with self._lock:
            # A policy may give pods another gang than their template has.
            owners = ((uid, self._by_uid.get((gang.namespace, uid))) for uid in present)
            own = {uid: job for uid, job in owners if job is not None}
            jobs = {**self._jobs.get(gang, {}), **own}
        if not jobs:
            return 0
        created = _Creations(pods)
        return max(_failures(job, present[uid], created) for uid, job in jobs.items())


def _may_be_delayed(job: Job) -> bool:
    return job_creates_pods(job) and (bool(job.status.failed) or job_counts_only_ended(job))


def _identity(job: Job) -> tuple[str, str]:
    """A Job's namespace and uid: authors of pods write their owner themselves, and see no Jobs of others."""
    return job.metadata.namespace, job.metadata.uid


def _gang_of(job: Job) -> GangKey:
    """The gang of the pods that a Job creates."""
    metadata, first = job.metadata, job_pods(job).sets[0]
    owner = OwnerReference(
        api_version="batch/v1", kind="Job", name=metadata.name, uid=metadata.uid, controller=True
    )
    made = first.metadata_of(None, 0, namespace=metadata.namespace, owner_references=[owner])
    return key_of(Pod(metadata=made, spec=first.template.spec))


def _failures(job: Job, present: int, created: "_Creations") -> int:
    """How many pods of a Job have failed, 0 where it lacks none.

    created: when the pods of the gang were created. The Job controller delays pods also for failures that a
    podFailurePolicy ignores, which status.failed does not count.
    """
    missing = (job_size(job) or 0) - present
    if missing <= 0:
        return 0
    has_replaced = job_counts_only_ended(job) and created.has_pause_since(job.status.start_time)
    return max(job.status.failed or 0, missing if has_replaced else 0)


class _Creations:
    """When the pods of a gang were created; the first ones of a large Job come one by one, for minutes."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        written = {pod.metadata.creation_timestamp for pod in pods}
        self._times = sorted(filter(None, map(since_1970, written)))
        pauses = (before for before, after in pairwise(self._times) if after - before >= _CREATED_SECONDS)
        self._last_pause = max(pauses, default=-math.inf)

    def has_pause_since(self, start: str | None) -> bool:
        """Whether pods came late after the start of a Job, or after others that came after it."""
        began = since_1970(start)
        if began is None:
            return False
        first = bisect_right(self._times, began)
        is_late = first < len(self._times) and self._times[first] - began >= _CREATED_SECONDS
        return is_late or self._last_pause >= began
