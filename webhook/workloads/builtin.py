"""The pods of Kubernetes' own owners: Job and StatefulSet. Pure."""

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from webhook.kube.objects import DISRUPTION, Condition, Metadata
from webhook.kube.struct import Struct
from webhook.workloads import marks
from webhook.workloads.additions import PodTemplate
from webhook.workloads.pod_sets import OwnedPods, PodSet, one_if_unset
from webhook.workloads.ranks import COUNT, Rank


class Owner(Struct, frozen=True):
    """Any owner."""

    metadata: Metadata


class FailureCondition(Struct, frozen=True):
    """A condition of failed pods that a rule of a Job matches."""

    type: str = ""
    status: str = ""


class ExitCodes(Struct, frozen=True):
    """The exit codes of failed pods that a rule of a Job matches; operator: In or NotIn."""

    operator: str = ""
    values: list[int] = msgspec.field(default_factory=list)


class FailureRule(Struct, frozen=True):
    """A Job's action for certain failed pods; on_exit_codes is set if the rule matches exit codes."""

    action: str = ""
    on_exit_codes: ExitCodes | None = None
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


def job_pods(job: Job) -> OwnedPods:
    """The pods that it runs at once; size: of those that still have to complete.

    Of an exclusive Job of a JobSet, JobSet's webhook denies the other pods until the first has a node.
    """
    size = job_size(job)
    metadata, spec, written = job.metadata, job.spec, job.spec.template.metadata
    indexed = spec.completion_mode == "Indexed"

    def pod_set(indices: range, stage: int = 0, ended: int | None = None, leads: bool = False) -> PodSet:
        return PodSet(
            metadata.name,
            spec.template,
            indices,
            prefix=prefix,
            labels=job_labels(metadata.name, metadata.uid),
            index_key=marks.JOB_INDEX_KEY if indexed else "",
            stage=stage,
            ended=ended,
            completions=None if leads else spec.completions,
        )

    number = written.labels.get(marks.JOB_GLOBAL_INDEX, "")
    prefix: Rank = (int(number),) if COUNT.fullmatch(number) else ()
    if not has_followers(written.annotations):
        return OwnedPods(size, (pod_set(range(at_once(spec))),))
    leader = pod_set(range(1), ended=min(1, job.status.succeeded or 0), leads=True)
    return OwnedPods(size, (leader, pod_set(range(1, at_once(spec)), stage=1)))


def job_labels(name: str, uid: str = "") -> dict[str, str]:
    """The labels that the Job controller adds; those with the uid if it is known."""
    ids = {key: uid for _, _, key in marks.JOB_LABELS} if uid else {}
    return {**dict.fromkeys(JOB_NAME_KEYS, name), **ids}


JOB_NAME_KEYS: Final = tuple(name_key for _, name_key, _ in marks.JOB_LABELS)
"""Labels with the name of a pod's Job."""


def has_followers(annotations: Mapping[str, str]) -> bool:
    """Whether JobSet's webhook denies the other pods of a Job with these until its first has a node.

    It does not if the nodes are labelled beforehand (the node-selector strategy).
    """
    return marks.JOBSET_EXCLUSIVE in annotations and marks.JOBSET_NODE_SELECTOR not in annotations


def job_size(job: Job) -> int:
    """The pods that run at once: at most those that still have to complete; 0 for a Job that ends."""
    if any(each.status == "True" and each.type in _DECIDED for each in job.status.conditions):
        return 0
    return at_once(job.spec, (job.status.succeeded or 0) + count_of_indexes(job.status.failed_indexes))


def job_completed(job: Job) -> int:
    """How many of the pods that it ran at once it needs no more; 0 for a Job that fails or is deleted."""
    is_failing = any(each.status == "True" and each.type in _FAILING for each in job.status.conditions)
    return 0 if is_failing or job.metadata.deletion_timestamp else at_once(job.spec) - job_size(job)


def job_creates_pods(job: Job) -> bool:
    """Whether it creates the pods that it lacks; a Job without completions creates none after a success."""
    if job.metadata.deletion_timestamp or job.spec.suspend:
        return False
    if job.spec.completions is None and job.status.succeeded:
        return False
    return job_size(job) > 0


def job_counts_only_ended(job: Job) -> bool:
    """Whether its status.failed may lack pods that it will replace, or has replaced.

    These are deleted pods that still end, and those that its podFailurePolicy ignores: the API server allows
    a Job with such a policy no other podReplacementPolicy.
    """
    return job.spec.pod_replacement_policy == "Failed"


def job_has_ended_pods(job: Job) -> bool:
    """Whether pods of it have succeeded, or failed for good: the others run without them."""
    return bool((job.status.succeeded or 0) + count_of_indexes(job.status.failed_indexes))


_FAILING: Final = ("FailureTarget", "Failed")
_DECIDED: Final = ("SuccessCriteriaMet", "Complete", *_FAILING)
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
    rules = list(_rules(job))
    first = next((number for number, rule in enumerate(rules) if _is_on_disruption(rule)), None)
    if first is None or any(rule.on_exit_codes is not None for rule in rules[:first]):
        return False
    return rules[first].action == "Ignore"


def job_fails_by(job: Job, *, evicted: bool, ran: bool) -> bool:
    """Whether its podFailurePolicy may end it, or an index of it, for one pod that is evicted or deleted.

    evicted: only the eviction API writes the condition DisruptionTarget. ran: whether the pod may have run,
    so that it ends with an exit code, usually that of a signal. Earlier rules on exit codes may not match.
    """
    for rule in _rules(job):
        if (codes := rule.on_exit_codes) is not None:
            if ran and rule.action in _ENDS and _are_of_signals(codes):
                return True
        elif evicted and _is_on_disruption(rule):
            return rule.action in _ENDS
    return False


_ENDS: Final = ("FailJob", "FailIndex")


def _rules(job: Job) -> Sequence[FailureRule]:
    return job.spec.pod_failure_policy.rules if job.spec.pod_failure_policy is not None else ()


def _is_on_disruption(rule: FailureRule) -> bool:
    return rule.on_exit_codes is None and any(
        each.type == DISRUPTION and each.status != "False" for each in rule.on_pod_conditions
    )


def _are_of_signals(codes: ExitCodes) -> bool:
    """Whether a rule matches the exit code of SIGTERM (143) or SIGKILL (137)."""
    return any((code in codes.values) == (codes.operator == "In") for code in (137, 143))


def at_once(spec: JobSpec, succeeded: int = 0) -> int:
    """The pods that a Job runs at once after so many have succeeded."""
    parallelism = one_if_unset(spec.parallelism)
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


def stateful_set_pods(owner: StatefulSet) -> OwnedPods:
    """spec.replicas pods, 1 by default; each is created when the previous one is Ready, unless Parallel."""
    size = one_if_unset(owner.spec.replicas)
    start = owner.spec.ordinals.start if owner.spec.ordinals else 0
    pods = PodSet(
        owner.metadata.name,
        owner.spec.template,
        range(start, start + size),
        index_key=marks.STATEFUL_SET_INDEX,
        one_by_one=owner.spec.pod_management_policy != "Parallel",
    )
    return OwnedPods(size, (pods,))
