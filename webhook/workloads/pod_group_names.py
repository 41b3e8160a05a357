"""The PodGroups that topogate gives to gangs (policy bind), to bind each as one: names and contents. Pure.

Admission knows only the pod, and the PodGroup of a pod can never change. So the name follows from the pod
alone: from the gang that its annotation or its controller's labels name. A pod without either gets no
PodGroup and is bound by itself.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from labeler.contract import keys
from webhook.kube.objects import Pod
from webhook.workloads import marks
from webhook.workloads.native_gangs import group_name
from webhook.workloads.ranks import COUNT

PREFIX: Final = "topogate-"
"""The prefix of these names. A ValidatingAdmissionPolicy allows the sweeper no other PodGroups."""

NOMINATED_PREFIX: Final = f"{PREFIX}nominated-"
"""Of pods that an earlier version nominated to their nodes (binding.mode: nominated); no new pod gets it."""

MOST_JOBS: Final = 128
"""The most exclusive Jobs of a JobSet that are placed together; of more Jobs, each is placed by itself."""

_LONGEST: Final = 256
"""Characters of a gang's name that the sweeper reads, see webhook.kube.annotation_lengths."""

_READABLE: Final = 180
"""Characters of the readable part of a PodGroup's name; a name may have 253 in all."""

Texts = Mapping[str, str]


def marked_gang(
    labels: Texts, annotations: Texts, keys_of_gangs: tuple[tuple[str, str, str], ...] = marks.GANG_LABELS
) -> tuple[str, str, str] | None:
    """Kind, name and id of the gang that the controller writes on a pod, None if it writes none."""
    if all(map(marks.GANG_KEYS.isdisjoint, (labels, annotations))):
        return None
    for kind, name_key, id_key in keys_of_gangs:
        name = labels.get(name_key) or annotations.get(name_key)
        if not name or (kind == "JobSet" and _is_on_its_own(labels, annotations)):
            continue
        return kind, name, labels.get(id_key) or annotations.get(id_key) or name
    return None


def _is_on_its_own(labels: Texts, annotations: Texts) -> bool:
    """Whether an exclusive Job is placed by itself, since its JobSet has too many Jobs."""
    if marks.JOBSET_EXCLUSIVE not in annotations:
        return False
    jobs = labels.get(marks.JOBS_OF_JOBSET) or annotations.get(marks.JOBS_OF_JOBSET) or ""
    return not COUNT.fullmatch(jobs) or int(jobs) > MOST_JOBS


def bind_group_name(
    labels: Texts, annotations: Texts, priority_class: str, scheduler: str, prefix: str = PREFIX
) -> str:
    """The name of the PodGroup of a pod's gang, "" if nothing on the pod names a gang.

    Each PriorityClass and each scheduler gets its own PodGroup: kube-scheduler 1.37 binds no group whose pods
    differ in these (validatePodGroup in schedule_one_podgroup.go).
    prefix: PREFIX, or NOMINATED_PREFIX of an earlier version.
    """
    own = annotations.get(keys.GANG_ANNOTATION)
    gang = ("Gang", own, own) if own else marked_gang(labels, annotations)
    if gang is None or max(map(len, gang)) > _LONGEST:
        return ""
    return _name(prefix, *gang, priority_class, scheduler)


def bind_group_of(pod: Pod) -> str:
    """The PodGroup that topogate's admission gave a pod, "" if it has none or another one."""
    metadata, spec = pod.metadata, pod.spec
    name = group_name(spec)
    if not name.startswith(PREFIX):
        return ""
    prefix = NOMINATED_PREFIX if name.startswith(NOMINATED_PREFIX) else PREFIX
    own = bind_group_name(
        metadata.labels, metadata.annotations, spec.priority_class_name, spec.scheduler_name, prefix
    )
    return name if name == own else ""


def was_nominated(pod: Pod) -> bool:
    """Whether a pod was created to be nominated to its node, not pinned, by an earlier version."""
    return bind_group_of(pod).startswith(NOMINATED_PREFIX)


def native_group_of(pod: Pod) -> str:
    """The PodGroup that a pod has from others, "" if it has none or one of topogate's."""
    return "" if bind_group_of(pod) else group_name(pod.spec)


def bind_group_body(
    namespace: str, name: str, owners: Sequence[Mapping[str, str]], priority_class: str, min_count: int = 0
) -> dict[str, Any]:
    """The PodGroup to create.

    owners: it is deleted with the last of them. min_count: how many pods are bound together, 0 if each is
    bound by itself.
    """
    metadata = {
        "namespace": namespace,
        "name": name,
        "labels": {keys.BIND_LABEL: keys.BIND_POD_GROUP},
        "ownerReferences": list(owners),
    }
    policy = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    spec: dict[str, Any] = {"schedulingPolicy": policy}
    if priority_class:
        # kube-scheduler uses it for preemption by and of the group.
        spec["priorityClassName"] = priority_class
    return {"metadata": metadata, "spec": spec}


@lru_cache(maxsize=4096)
def _name(prefix: str, kind: str, name: str, *others: str) -> str:
    digest = hashlib.sha256("\0".join((kind, name, *others)).encode()).hexdigest()[:16]
    readable = re.sub(r"[^a-z0-9]+", "-", f"{kind}-{name}".lower())[:_READABLE].strip("-")
    return f"{prefix}{readable}-{digest}"
