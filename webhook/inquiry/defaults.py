"""The fields that the API server and a workload's controller would set on a pod of a manifest."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.workloads import marks
from webhook.workloads.sets import subgroup_of

DEFAULT_NAMESPACE: Final = "default"


def defaulted(pod: Mapping[str, Any], namespace: str = "") -> dict[str, Any]:
    """The pod with its required fields, and those that its rules on other pods depend on.

    namespace: its workload's. A value of another shape than a pod's is left as it is, for the decoder to
    report. Requests default from limits where they are counted.
    """
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    if isinstance(metadata, dict) and not metadata.get("namespace"):
        metadata = {**metadata, "namespace": namespace or DEFAULT_NAMESPACE}
    if isinstance(spec, dict):
        spec = _spec(spec, metadata.get("labels") if isinstance(metadata, dict) else None)
    return {"metadata": metadata, "spec": spec, "status": pod.get("status") or {}}


def _spec(spec: dict[str, Any], labels: Any) -> dict[str, Any]:
    made = dict(spec)
    for kind in ("containers", "initContainers"):
        if spec.get("hostNetwork") is True and isinstance(spec.get(kind), list):
            made[kind] = [_on_the_host(container) for container in spec[kind]]
    if isinstance(spec.get("affinity"), dict) and isinstance(labels, dict):
        made["affinity"] = _with_label_keys(spec["affinity"], labels)
    return made


def labelled(
    template: Mapping[str, Any], labels: Mapping[str, str], annotations: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The template with labels and annotations that a controller adds."""
    metadata = template.get("metadata") or {}
    if not isinstance(metadata, dict):
        return dict(template)
    own, written = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if not isinstance(own, dict) or not isinstance(written, dict):
        return dict(template)
    added = {
        "labels": {**own, **labels},
        **({"annotations": {**written, **annotations}} if annotations else {}),
    }
    return {**template, "metadata": {**metadata, **added}}


def job_labels(name: str) -> dict[str, str]:
    """What the Job controller adds and can be known before."""
    return {marks.JOB_NAME_LABEL: name, marks.LEGACY_JOB_NAME_LABEL: name}


def jobset_labels(name: str, part: str, number: int, jobs: int) -> dict[str, str]:
    """What the JobSet controller adds and can be known before; part: the replicated job.

    number: of the Job among the jobs of its JobSet.
    """
    return {
        marks.JOBSET_NAME_LABEL: name,
        marks.REPLICATED_JOB_LABEL: part,
        marks.JOB_GLOBAL_INDEX: str(number),
        marks.JOBS_OF_JOBSET: str(jobs),
    }


def training_labels(name: str, role: str) -> dict[str, str]:
    """What Kubeflow's training operator adds; role: of a pod."""
    return {marks.TRAINING_JOB_NAME_LABEL: name, marks.JOB_ROLE: role}


def group_labels(
    name: str, subgroups: Mapping[str, Any], size: int, index: int, group: int = 0
) -> dict[str, str]:
    """What LeaderWorkerSet and its webhook add to a pod of a group of this size.

    index: the pod's number in the group; group: that of the group.
    """
    labels = {
        marks.LEADER_WORKER_SET_NAME_LABEL: name,
        marks.LEADER_WORKER_SET_GROUP_LABEL: str(group),
        marks.WORKER_INDEX: str(index),
    }
    each = subgroups.get("subGroupSize")
    if not isinstance(each, int) or isinstance(each, bool) or each < 1:
        return labels
    if index == 0 and subgroups.get("type") == "LeaderExcluded":
        return labels
    return {**labels, marks.SUBGROUP_INDEX: str(subgroup_of(index, size, each))}


def exclusive_annotations(owner: Mapping[str, Any]) -> dict[str, str]:
    """The annotations for exclusive topology that an owner's controller writes on its pods."""
    metadata = owner.get("metadata")
    written = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(written, dict):
        return {}
    own = (
        marks.JOBSET_EXCLUSIVE,
        marks.JOBSET_NODE_SELECTOR,
        marks.LWS_EXCLUSIVE,
        marks.LWS_SUBGROUP_EXCLUSIVE,
    )
    return {key: value for key in own if isinstance(value := written.get(key), str)}


def _on_the_host(container: Any) -> Any:
    """With host networking, every port of a container is a port of the node."""
    if not isinstance(container, dict) or not isinstance(container.get("ports"), list):
        return container
    ports = [
        {**port, "hostPort": port.get("hostPort") or port.get("containerPort", 0)}
        if isinstance(port, dict)
        else port
        for port in container["ports"]
    ]
    return {**container, "ports": ports}


def _with_label_keys(affinity: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """matchLabelKeys and mismatchLabelKeys as requirements of the selector, where the pod has the label."""
    anti = affinity.get("podAntiAffinity")
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if not isinstance(anti, dict) or not isinstance(anti.get(required), list):
        return affinity
    terms = [_merged(term, labels) if isinstance(term, dict) else term for term in anti[required]]
    return {**affinity, "podAntiAffinity": {**anti, required: terms}}


def _merged(term: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    selector = term.get("labelSelector")
    added = list(_requirements(term, labels))
    if not isinstance(selector, dict) or not added:
        return term
    written = selector.get("matchExpressions", [])
    if not isinstance(written, list):
        return term
    expressions = [*written, *added]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}}


def _requirements(term: dict[str, Any], labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        asked = term.get(field)
        for key in asked if isinstance(asked, list) else ():
            if isinstance(key, str) and key in labels:
                yield {"key": key, "operator": operator, "values": [labels[key]]}
