"""The fields that the API server would set on a pod of a manifest."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

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
