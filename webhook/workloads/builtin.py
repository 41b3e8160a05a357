"""Kubernetes' own owners: Job and StatefulSet, with the fields that give the number of their pods. Pure."""

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
    """A condition of failed pods that a rule of a Job matches."""

    type: str = ""
    status: str = ""


class FailureRule(Struct, frozen=True):
    """A Job's action for certain failed pods; on_exit_codes is set if the rule matches exit codes."""

    action: str = ""
    on_exit_codes: dict[str, Any] | None = None
    on_pod_conditions: list[FailureCondition] = msgspec.field(default_factory=list)


class PodFailurePolicy(Struct, frozen=True):
    """The rules of a Job; the first that matches applies."""

    rules: list[FailureRule] = msgspec.field(default_factory=list)


class JobSpec(Struct, frozen=True):
    """The spec of a Job."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    pod_replacement_policy: str = ""
    suspend: bool | None = None
    template: PodTemplate = PodTemplate()


class JobStatus(Struct, frozen=True):
    """How many pods succeeded or failed; failed_indexes, such as "1,3-5", are not retried.

    start_time: when it was created or last resumed.
    """

    succeeded: int | None = None
    failed: int | None = None
    failed_indexes: str = ""
    start_time: str | None = None
    conditions: list[Condition] = msgspec.field(default_factory=list)


class Job(Owner, frozen=True):
    """batch/v1."""

    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


def job_is_staged(job: Job) -> bool:
    """Whether JobSet's webhook denies the other pods of an exclusive Job until the first has a node.

    It does not if the nodes are labelled beforehand (the node-selector strategy).
    """
    written = job.spec.template.metadata.annotations
    return marks.JOBSET_EXCLUSIVE in written and marks.JOBSET_NODE_SELECTOR not in written


def job_shape(job: Job) -> Shape:
    """The stages of an exclusive Job of a JobSet: first its leader, then the others."""
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
    """Whether pods of its template ask for devices."""
    return any_asks_for_devices([job.spec.template])


def job_size(job: Job) -> int | None:
    """The pods that run at once: at most those that still have to complete; 0 for a Job that ends."""
    if any(each.status == "True" and each.type in _DECIDED for each in job.status.conditions):
        return 0
    return at_once(job.spec, (job.status.succeeded or 0) + count_of_indexes(job.status.failed_indexes))


def job_creates_pods(job: Job) -> bool:
    """Whether it creates the pods that it lacks; a Job without completions creates none after a success."""
    if job.metadata.deletion_timestamp or job.spec.suspend:
        return False
    if job.spec.completions is None and job.status.succeeded:
        return False
    return bool(job_size(job))


def job_counts_only_ended(job: Job) -> bool:
    """Whether its status.failed may lack pods that it will replace, or has replaced.

    These are deleted pods that still end, and those that its podFailurePolicy ignores: the API server allows
    a Job with such a policy no other podReplacementPolicy.
    """
    return job.spec.pod_replacement_policy == "Failed"


def job_has_ended_pods(job: Job) -> bool:
    """Whether pods of it have succeeded, or failed for good: the others run without them."""
    return bool((job.status.succeeded or 0) + count_of_indexes(job.status.failed_indexes))


_DECIDED: Final = ("SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")
"""Conditions of a Job that creates no more pods and ends those that run. SuccessCriteriaMet is set by its
success policy."""


def count_of_indexes(text: str) -> int:
    """How many indexes a Job's status names: 4 for "1,3-5". Text that is not an index counts as 0."""
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
    """How many more of its pods may fail before the Job itself fails; a deleted pod counts as failed."""
    limit = job.spec.backoff_limit
    if limit is None:
        # A Job with a limit for each index has no limit of its own unless backoffLimit is set.
        limit = sys.maxsize if job.spec.backoff_limit_per_index is not None else _DEFAULT_BACKOFF_LIMIT
    return limit - (job.status.failed or 0)


def job_ignores_evictions(job: Job) -> bool:
    """Whether an evicted or preempted pod (condition DisruptionTarget) does not count as failed.

    An earlier rule on exit codes counts as a match, since the exit code is not known in advance.
    """
    policy = job.spec.pod_failure_policy
    for rule in policy.rules if policy is not None else ():
        if rule.on_exit_codes is not None:
            return False
        if any(each.type == "DisruptionTarget" and each.status != "False" for each in rule.on_pod_conditions):
            return rule.action == "Ignore"
    return False


def at_once(spec: JobSpec, succeeded: int = 0) -> int:
    """The pods that a Job runs at once after so many have succeeded."""
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        return parallelism
    return max(0, min(parallelism, spec.completions - succeeded))


class _Ordinals(Struct, frozen=True):
    start: int = 0


class StatefulSetSpec(Struct, frozen=True):
    """The number of pods, and whether each waits for the previous one."""

    replicas: int | None = None
    pod_management_policy: str = "OrderedReady"
    ordinals: _Ordinals | None = None
    template: PodTemplate = PodTemplate()


class StatefulSet(Owner, frozen=True):
    """apps/v1."""

    spec: StatefulSetSpec = StatefulSetSpec()


def stateful_set_size(owner: StatefulSet) -> int | None:
    """spec.replicas, 1 by default."""
    return 1 if owner.spec.replicas is None else owner.spec.replicas


def stateful_set_is_staged(owner: StatefulSet) -> bool:
    """Whether each pod is created when the previous one is Ready (OrderedReady)."""
    return owner.spec.pod_management_policy != "Parallel"


def stateful_set_shape(owner: StatefulSet) -> Shape:
    """One stage for each pod, if each waits for the previous one."""
    if not stateful_set_is_staged(owner) or (stateful_set_size(owner) or 0) > MOST_PODS:
        return ()
    start = owner.spec.ordinals.start if owner.spec.ordinals else 0
    name, template = owner.metadata.name, owner.spec.template
    count = stateful_set_size(owner) or 0
    return tuple(Part(name, at, template, range(at, at + 1)) for at in range(start, start + count))
