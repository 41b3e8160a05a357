"""Kubernetes' own owners: Job and StatefulSet, with the fields that tell how many pods they make. Pure."""

import re
import sys
from typing import Any, Final

import msgspec

from webhook.kube.objects import Condition, Metadata
from webhook.kube.struct import Struct
from webhook.workloads import marks
from webhook.workloads.additions import PodTemplate
from webhook.workloads.ranks import COUNT, Rank
from webhook.workloads.shape import MOST_PODS, Part, Shape, any_asks_for_devices


class Owner(Struct, frozen=True):
    """Any owner."""

    metadata: Metadata


class FailureCondition(Struct, frozen=True):
    """A condition of a failed pod by which a rule of its Job knows it."""

    type: str = ""
    status: str = ""


class FailureRule(Struct, frozen=True):
    """What a Job makes of pods that fail so; on_exit_codes is there where the rule goes by those."""

    action: str = ""
    on_exit_codes: dict[str, Any] | None = None
    on_pod_conditions: list[FailureCondition] = msgspec.field(default_factory=list)


class PodFailurePolicy(Struct, frozen=True):
    """The rules of a Job, of which the first that holds counts."""

    rules: list[FailureRule] = msgspec.field(default_factory=list)


class JobSpec(Struct, frozen=True):
    """What a Job says of its pods."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(Struct, frozen=True):
    """How many of them are done, well or badly; failed_indexes as "1,3-5": those that are given up."""

    succeeded: int | None = None
    failed: int | None = None
    failed_indexes: str = ""
    conditions: list[Condition] = msgspec.field(default_factory=list)


class Job(Owner, frozen=True):
    """batch/v1."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


def job_is_staged(job: Job) -> bool:
    """JobSet's webhook lets the pods of an exclusive Job be made only when the first of them has a node.

    Not so where its nodes are labelled beforehand (the node-selector strategy).
    """
    written = job.spec.template.metadata.annotations
    return marks.JOBSET_EXCLUSIVE in written and marks.JOBSET_NODE_SELECTOR not in written


def job_shape(job: Job) -> Shape:
    """Of an exclusive Job of a JobSet: first its leader, then the others."""
    if not job_is_staged(job):
        return ()
    template = job.spec.template
    number = template.metadata.labels.get(marks.JOB_GLOBAL_INDEX, "")
    groups: tuple[Rank, ...] = ((int(number),),) if COUNT.fullmatch(number) else ((),)
    ended = min(1, job.status.succeeded or 0)
    return (
        Part(job.metadata.name, 0, template, range(1), groups, ended=ended),
        Part(job.metadata.name, 1, template, range(1, at_once(job.spec)), groups),
    )


def job_devices(job: Job) -> bool:
    """By its one template."""
    return any_asks_for_devices([job.spec.template])


def job_size(job: Job) -> int | None:
    """Pods that run at once: no more than are still to be completed; none more once the Job is decided."""
    if any(each.status == "True" and each.type in _DECIDED for each in job.status.conditions):
        return 0
    return at_once(job.spec, (job.status.succeeded or 0) + count_of_indexes(job.status.failed_indexes))


def job_has_ended_pods(job: Job) -> bool:
    """Whether pods of it have succeeded, or were given up: the others go on without them."""
    return bool((job.status.succeeded or 0) + count_of_indexes(job.status.failed_indexes))


_DECIDED: Final = ("SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")
"""Conditions of a Job that makes no more pods and ends those that run; the first is its success policy's."""


def count_of_indexes(text: str) -> int:
    """How many indexes a Job's status names: 4 of "1,3-5". What is none counts as nothing."""
    return sum(map(_length, text.split(","))) if text else 0


def _length(interval: str) -> int:
    first, _, last = interval.partition("-")
    last = last or first
    if not (_INDEX.fullmatch(first) and _INDEX.fullmatch(last)):
        return 0
    return max(0, int(last) - int(first) + 1)


_INDEX: Final = re.compile(r"[0-9]{1,9}")


_DEFAULT_BACKOFF_LIMIT: Final = 6


def job_failures_left(job: Job) -> int:
    """How many more of its pods may fail (a deleted pod does) before the Job itself fails for good."""
    limit = job.spec.backoff_limit
    if limit is None:
        # Where each index has a limit of its own there is none for the Job unless it is written down.
        limit = sys.maxsize if job.spec.backoff_limit_per_index is not None else _DEFAULT_BACKOFF_LIMIT
    return limit - (job.status.failed or 0)


def job_ignores_evictions(job: Job) -> bool:
    """Whether a pod that was evicted or preempted (its condition DisruptionTarget says so) is no failure.

    A rule on exit codes that stands before counts as one that holds: what a pod ends with nobody knows.
    """
    policy = job.spec.pod_failure_policy
    for rule in policy.rules if policy is not None else ():
        if rule.on_exit_codes is not None:
            return False
        if any(each.type == "DisruptionTarget" and each.status != "False" for each in rule.on_pod_conditions):
            return rule.action == "Ignore"
    return False


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
    if not stateful_set_is_staged(owner) or (stateful_set_size(owner) or 0) > MOST_PODS:
        return ()
    start = owner.spec.ordinals.start if owner.spec.ordinals else 0
    name, template = owner.metadata.name, owner.spec.template
    count = stateful_set_size(owner) or 0
    return tuple(Part(name, at, template, range(at, at + 1)) for at in range(start, start + count))
