"""The one guarded JSON Patch that pins a pod to its node, gives it its cards and removes our gates.

The API server decides on the old object: a request that removes the last gate may tighten the affinity as
well, and after it the pod is frozen (KEP-3521, KEP-3838). Hence one patch does all of it, guarded by the
pod's uid and the gates' names, so that a pod of the same name or a gate of another controller is never
changed.
"""

from collections.abc import Mapping
from typing import Any, Final

from labeler.contract import keys
from webhook.kube.affinity import NodeSelectorTerm
from webhook.kube.objects import Pod
from webhook.sweeper.observe.plans import matches_something, required_terms

Operation = dict[str, Any]
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class UnpinnableError(Exception):
    """This pod can be pinned to no node at all; the message says why."""


def release_patch(
    pod: Pod, node: str, annotations: dict[str, str], prefix: str = keys.GATE_PREFIX
) -> list[Operation]:
    """The patch for `pod` as it was last seen; removes the gates with `prefix`. Raises UnpinnableError.

    node: "" where kube-scheduler is to choose. annotations: those that give it cards, and those of
    extensions; they replace those that its author wrote for that purpose.
    """
    pin = _pin(pod, node) if node else []
    return [*ungate_patch(pod, prefix), *pin, *_annotate(pod, annotations)]


def forgetting_patch(pod: Pod) -> list[Operation]:
    """Further operations that empty a pod's managedFields; none for a pod that keeps them.

    The API server then no longer tracks who writes which field, in this request and in all later ones, until
    a client applies (skipNonAppliedManager in k8s.io/apimachinery); a list with one empty item empties it
    ("Clearing managedFields" in the documentation of server-side apply). Pods keep them that no controller
    created, or that a client applies to. An Apply that was not seen makes the whole patch fail.
    """
    metadata = pod.metadata
    if metadata.controller is None or not metadata.managed_fields or metadata.is_applied:
        return []
    return [
        {"op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
        {"op": "add", "path": "/metadata/managedFields", "value": [{}]},
    ]


def ungate_patch(pod: Pod, prefix: str = keys.GATE_PREFIX) -> list[Operation]:
    """The patch that only removes the gates with `prefix`: kube-scheduler chooses the node."""
    return [{"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}, *_remove_gates(pod, prefix)]


def model_labels_patch(pod: Pod, labels: Mapping[str, str]) -> list[Operation]:
    """The patch that adds labels to a gated pod's nodeSelector, and replaces none.

    The API server refuses it for a pod that is not gated any more, or that has others by now.
    """
    same = {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid}
    if not pod.spec.node_selector:
        return [same, {"op": "add", "path": "/spec/nodeSelector", "value": dict(labels)}]
    paths = {f"/spec/nodeSelector/{escape(key)}": value for key, value in labels.items()}
    return [same, *({"op": "add", "path": path, "value": value} for path, value in paths.items())]


def _remove_gates(pod: Pod, prefix: str) -> list[Operation]:
    gates = [
        (index, gate.name)
        for index, gate in enumerate(pod.spec.scheduling_gates)
        if gate.name.startswith(prefix)
    ]
    tests = [
        {"op": "test", "path": f"/spec/schedulingGates/{index}/name", "value": name} for index, name in gates
    ]
    # From the end, so that the indices of the others do not change.
    return tests + [
        {"op": "remove", "path": f"/spec/schedulingGates/{index}"} for index, _ in reversed(gates)
    ]


def _pin(pod: Pod, node: str) -> list[Operation]:
    requirement = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = required_terms(pod)
    if terms:
        # Terms are alternatives: one without the pin would be an escape. An empty one matches nothing
        # and may not be filled.
        path = f"/spec/affinity/nodeAffinity/{_REQUIRED}/nodeSelectorTerms"
        pins = [
            _append(f"{path}/{index}", term, requirement)
            for index, term in enumerate(terms)
            if matches_something(term)
        ]
        if not pins:
            raise UnpinnableError(
                f"pod {pod.metadata.namespace}/{pod.metadata.name}: its required node affinity has only "
                "empty terms, which match no node; correct the affinity in its template"
            )
        return pins
    required = {"nodeSelectorTerms": [{"matchFields": [requirement]}]}
    affinity = pod.spec.affinity
    if affinity is None:
        return [{"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": {_REQUIRED: required}}}]
    if affinity.node_affinity is None:
        return [{"op": "add", "path": "/spec/affinity/nodeAffinity", "value": {_REQUIRED: required}}]
    return [{"op": "add", "path": f"/spec/affinity/nodeAffinity/{_REQUIRED}", "value": required}]


def _append(path: str, term: NodeSelectorTerm, requirement: dict[str, Any]) -> Operation:
    if term.match_fields:
        return {"op": "add", "path": f"{path}/matchFields/-", "value": requirement}
    return {"op": "add", "path": f"{path}/matchFields", "value": [requirement]}


def _annotate(pod: Pod, annotations: dict[str, str]) -> list[Operation]:
    """Write the annotations, and remove those that the pod's author wrote in their place.

    A pod made from the YAML of a running pod has that one's cards, which would be read together with ours.
    """
    present = pod.metadata.annotations
    foreign = [key for key in keys.GAS_ANNOTATIONS if key in present and key not in annotations]
    removals = [{"op": "remove", "path": f"/metadata/annotations/{escape(key)}"} for key in foreign]
    if not present and annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": dict(annotations)}]
    return removals + [
        {"op": "add", "path": f"/metadata/annotations/{escape(key)}", "value": value}
        for key, value in annotations.items()
    ]


def escape(key: str) -> str:
    """A key as a part of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
