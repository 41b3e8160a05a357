"""Kubernetes' own owners: Job and StatefulSet, with the fields that tell how many pods they make. Pure."""

import sys
from typing import Final

from webhook.kube.objects import Metadata
from webhook.kube.struct import Struct
from webhook.workloads.shape import Part, PodTemplate, Shape


class Owner(Struct, frozen=True):
    """Any owner."""

    metadata: Metadata


class JobSpec(Struct, frozen=True):
    """What a Job says of the number of its pods."""

    parallelism: int | None = None
    completions: int | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None


class JobStatus(Struct, frozen=True):
    """How many of them are done, well or badly."""

    succeeded: int | None = None
    failed: int | None = None


class Job(Owner, frozen=True):
    """batch/v1."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


def job_size(job: Job) -> int | None:
    """Pods that run at once: no more than are still to be completed."""
    return at_once(job.spec, job.status.succeeded or 0)


_DEFAULT_BACKOFF_LIMIT: Final = 6


def job_failures_left(job: Job) -> int:
    """How many more of its pods may fail (a deleted pod does) before the Job itself fails for good."""
    limit = job.spec.backoff_limit
    if limit is None:
        # Where each index has a limit of its own there is none for the Job unless it is written down.
        limit = sys.maxsize if job.spec.backoff_limit_per_index is not None else _DEFAULT_BACKOFF_LIMIT
    return limit - (job.status.failed or 0)


def at_once(spec: JobSpec, succeeded: int = 0) -> int:
    """Pods that a Job runs at once when so many have succeeded."""
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        return parallelism
    return max(0, min(parallelism, spec.completions - succeeded))


class _Ordinals(Struct, frozen=True):
    start: int = 0


class StatefulSetSpec(Struct, frozen=True):
    """Its number of pods, and whether each waits for the one before it."""

    replicas: int | None = None
    pod_management_policy: str = "OrderedReady"
    ordinals: _Ordinals | None = None
    template: PodTemplate = PodTemplate()


class StatefulSet(Owner, frozen=True):
    """apps/v1."""

    spec: StatefulSetSpec = StatefulSetSpec()


def stateful_set_size(owner: StatefulSet) -> int | None:
    """spec.replicas, 1 unless said."""
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def stateful_set_is_staged(owner: StatefulSet) -> bool:
    """OrderedReady makes each pod when the one before it is Ready."""
    return owner.spec.pod_management_policy != "Parallel"


def stateful_set_shape(owner: StatefulSet) -> Shape:
    """Where each pod waits for the one before it, each is a stage."""
    if not stateful_set_is_staged(owner):
        return ()
    start = owner.spec.ordinals.start if owner.spec.ordinals else 0
    name, template = owner.metadata.name, owner.spec.template
    count = stateful_set_size(owner) or 0
    return tuple(Part(name, at, template, range(at, at + 1)) for at in range(start, start + count))
