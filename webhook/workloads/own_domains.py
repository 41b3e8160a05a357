"""Exclusive topology: which pods want a domain to themselves, as their controllers write on them. Pure."""

from dataclasses import dataclass

from webhook.kube.objects import Pod
from webhook.text import printable
from webhook.workloads import marks
from webhook.workloads.ranks import mark


@dataclass(frozen=True, order=True)
class DomainRequest:
    """A request for a domain of its own. rule: its annotation; over: the node label that it names.

    group: which pods of a gang want a domain together, "" for all of them.
    """

    rule: str
    over: str
    group: str = ""

    @property
    def name(self) -> str:
        """The name of this request in sentences."""
        return f"an exclusive domain of {self.over} as {self.group}"


def domain_requests_of(pod: Pod) -> tuple[DomainRequest, ...]:
    """Which domains of their own a pod's Job, group and subgroup want."""
    there = pod.metadata.annotations
    if over := there.get(marks.JOBSET_EXCLUSIVE):
        job = mark(pod, marks.JOB_GLOBAL_INDEX) or mark(pod, marks.JOB_NAME_LABEL)
        return (DomainRequest(marks.JOBSET_EXCLUSIVE, over, f"Job {printable(job)}" if job else ""),)
    group, subgroup = there.get(marks.LWS_EXCLUSIVE), there.get(marks.LWS_SUBGROUP_EXCLUSIVE)
    if not group and not subgroup:
        return ()
    requests = [DomainRequest(marks.LWS_EXCLUSIVE, group)] if group else []
    number = mark(pod, marks.SUBGROUP_INDEX)
    if subgroup and number:
        requests.append(
            DomainRequest(marks.LWS_SUBGROUP_EXCLUSIVE, subgroup, f"subgroup {printable(number)}")
        )
    return tuple(requests)


def own_domain_labels(pod: Pod) -> frozenset[str]:
    """The node labels over which a pod's Job, group or subgroup wants a domain of its own.

    Rules on other pods over these labels, which the controller writes, are met by its domain.
    """
    return frozenset(request.over for request in domain_requests_of(pod))


def is_of_a_set(pod: Pod) -> bool:
    """Whether Jobs and groups with domains of their own may keep it out of these, or it is of one."""
    return bool(domain_requests_of(pod)) or any(
        label in pod.metadata.labels for label in marks.EXCLUSIVE_LABELS
    )
