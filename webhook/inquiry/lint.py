"""Faults of manifests, each with its object and field, also those that nothing else reports.

Pure: checks by a policy and PriorityClasses, without a cluster. `of_nodes` checks what cannot be known from
the manifests alone, such as whether a node has the model.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from labeler.contract import keys
from labeler.contract.quantities import QuantityError, parse
from webhook.admission.decide import LeftAlone
from webhook.configuration.settings import Settings
from webhook.inquiry import defaults
from webhook.inquiry.admission_outcome import NOT_GATED, AdmissionRules, admit
from webhook.inquiry.documents import InputError, name_of
from webhook.inquiry.fewest_domains import EmptyCluster, can_run
from webhook.inquiry.manifest import ManifestOwner, owner_of
from webhook.inquiry.named_gangs import NamedGangs
from webhook.placement import NodeInfo, PodClass, Snapshot
from webhook.policy.annotations import size_faults, slice_faults
from webhook.scheduling.convert import pod_class_of
from webhook.scheduling.impossible_requests import no_topology, unmet
from webhook.sweeper.observe.gangs import PodGang
from webhook.workloads.pod_group_names import marked_gang
from webhook.workloads.ranks import COUNT
from webhook.workloads.shared_gangs import why_alone

_OWN_RESOURCES: Final = "kubernetes.io/"


@dataclass(frozen=True)
class ManifestFault:
    """What is wrong with an object. where: the file and the object."""

    where: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.where}: {self.sentence}"


def lint(
    documents: Iterable[Mapping[str, Any]],
    source: str,
    rules: AdmissionRules,
    named: NamedGangs | None = None,
) -> list[ManifestFault]:
    """The faults of the objects of a text, each once, in their order. named: gangs of the texts before."""
    found: list[ManifestFault] = []
    named = named or NamedGangs(rules)
    for document in documents:
        where = f"{source}: {document.get('kind')}/{name_of(document)}"
        sentences = dict.fromkeys((*_of_object(document, rules), *named.faults(document)))
        found += [ManifestFault(where, sentence) for sentence in sentences]
    return found


def _of_object(document: Mapping[str, Any], rules: AdmissionRules) -> Iterator[str]:
    metadata = document.get("metadata")
    namespace = str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""
    try:
        owner = owner_of(document, "", rules)
        pods = [template for template, _ in owner.templates()] if owner is not None else []
    except InputError as error:
        yield str(error).removeprefix(": ")
        return
    if owner is None or not pods:
        return
    yield from misplaced_annotations(document)
    for pod in pods:
        yield from _of_pod(defaults.defaulted(pod, namespace), namespace or defaults.DEFAULT_NAMESPACE, rules)
        yield from _of_size(owner, pod)


def misplaced_annotations(document: Mapping[str, Any]) -> Iterator[str]:
    """Annotations of ours on a workload instead of its pod template, where nothing reads them."""
    metadata = document.get("metadata")
    if document.get("kind") in ("Pod", "GPUTask") or not isinstance(metadata, dict):
        return
    annotations = metadata.get("annotations")
    for key in sorted(annotations) if isinstance(annotations, dict) else ():
        if str(key).startswith(keys.TOPOGATE_PREFIX):
            yield f"metadata.annotations: {key} has no effect here: write it into the pod template"


def amount_faults(spec: Mapping[str, Any]) -> Iterator[str]:
    """Amounts of extended resources that are not whole numbers from 0 on."""
    for where, resources in _resources(spec):
        for kind in ("limits", "requests"):
            amounts = resources.get(kind)
            for name, amount in amounts.items() if isinstance(amounts, dict) else ():
                if is_extended(name) and (fault := quantity_fault(amount)):
                    yield f"{where}: {kind} {name}: {amount!r} {fault}"


def _of_pod(pod: Mapping[str, Any], namespace: str, rules: AdmissionRules) -> Iterator[str]:
    spec = pod["spec"]
    faults = list(_quantities(spec)) if isinstance(spec, dict) else []
    yield from faults
    try:
        admitted = admit(pod, namespace, rules)
    except msgspec.ValidationError as error:
        if not faults:
            yield f"is not a valid pod: {error}"
        return
    if admitted.decision.denial:
        yield admitted.decision.denial
    yield from admitted.decision.warnings
    if admitted.decision.reason == NOT_GATED:
        yield not_gated(namespace)
    if not admitted.is_placed_by_others and admitted.decision.reason == LeftAlone.NO_GPU:
        yield from _topology_without_gpus(pod)


def not_gated(namespace: str) -> str:
    """The fault of a GPU pod that a cluster stores without a gate."""
    label = f"{keys.INJECTION_LABEL}={keys.INJECTION_ENABLED}"
    command = f"kubectl label namespace {namespace} {label}"
    return f"namespace {namespace} is not opted in: choose another one with -n, or run {command}"


def _topology_without_gpus(pod: Mapping[str, Any]) -> Iterator[str]:
    annotations = pod["metadata"].get("annotations") or {}
    if requested := sorted(keys.REQUEST_ANNOTATIONS.intersection(annotations)):
        yield f"{', '.join(requested)}: the pod asks for no GPU"


def _quantities(spec: Mapping[str, Any]) -> Iterator[str]:
    """Amounts that the API server refuses: extended resources need whole numbers as limits."""
    yield from amount_faults(spec)
    for where, resources in _resources(spec):
        yield from _of_both(where, resources)


def _resources(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The resources of each container, with the container's place."""
    for kind in ("initContainers", "containers"):
        containers = spec.get(kind)
        for container in containers if isinstance(containers, list) else ():
            resources = container.get("resources") if isinstance(container, dict) else None
            if isinstance(resources, dict):
                yield f"spec.{kind} {container.get('name', '')}", resources


def _of_both(where: str, resources: Mapping[str, Any]) -> Iterator[str]:
    """Extended resources need limits, and requests that are equal to them."""
    limits, requests = (
        value if isinstance(value := resources.get(each), dict) else {} for each in ("limits", "requests")
    )
    for name in requests:
        if is_extended(name) and name not in limits:
            yield f"{where}: requests {name} without limits: the API server requires both, with equal values"
        elif is_extended(name) and str(requests[name]) != str(limits[name]):
            yield f"{where}: requests {name} {requests[name]!r} differ from limits {limits[name]!r}"


def is_extended(resource: str) -> bool:
    """Whether the API server accepts only whole numbers of a resource."""
    return "/" in resource and not resource.partition("/")[0].endswith(_OWN_RESOURCES.rstrip("/"))


def quantity_fault(amount: object) -> str:
    """Why the API server refuses an amount of an extended resource, "" if it does not."""
    try:
        milli = parse(str(amount))
    except QuantityError:
        return "is not a quantity"
    if milli < 0:
        return "is negative"
    return "is not a whole number" if milli % 1000 else ""


def _of_size(owner: ManifestOwner, pod: Mapping[str, Any]) -> Iterator[str]:
    """A size annotation that contradicts the controller."""
    metadata, makes = pod.get("metadata"), owner.owned.size
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(metadata, dict) or not isinstance(annotations, dict):
        return
    written = {key: str(value) for key, value in annotations.items()}
    if owner.is_loose:
        yield from _of_lone_pod(metadata, written)
    if owner.is_loose or not makes:
        return
    yield from size_faults(written, makes)
    if len(owner.owned.sets) == 1:
        yield from slice_faults(written, makes)


def _of_lone_pod(metadata: Mapping[str, Any], annotations: Mapping[str, str]) -> Iterator[str]:
    """A size on a pod that is in no gang."""
    labels, size = metadata.get("labels"), annotations.get(keys.GANG_SIZE_ANNOTATION, "")
    is_named = bool(annotations.get(keys.GANG_ANNOTATION))
    is_marked = marked_gang(labels if isinstance(labels, dict) else {}, annotations) is not None
    if not is_named and not is_marked and COUNT.fullmatch(size) and (fault := why_alone(int(size))):
        yield fault


def of_nodes(gang: PodGang, snapshot: Snapshot) -> Iterator[str]:
    """Requests of a gang that no node can meet even when empty, in the sweeper's words.

    Raises QuantityError, and PlacementError for an unknown level.
    """
    classes = Counter(map(pod_class_of, gang.pods))
    nodes = [state.node for state in snapshot.nodes.values()]
    found = [sentence for asked in classes for sentence in _of_class(asked, nodes)]
    yield from found
    if not found and (unmet_by_all := _of_all(gang, classes, snapshot)):
        yield unmet_by_all


def _of_all(gang: PodGang, classes: Counter[PodClass], snapshot: Snapshot) -> str:
    """What the gang as a whole cannot get: domains, or enough capacity if all of its pods are needed."""
    levels = [gang.required_level, gang.spread.level if gang.spread else None]
    if unplaced := no_topology(filter(None, levels), classes, snapshot):
        return unplaced
    if gang.minimum is not None and gang.minimum < len(gang.pods):
        return ""
    return EmptyCluster(snapshot).too_large(classes, gang.required_level)


def _of_class(asked: PodClass, nodes: list[NodeInfo]) -> list[str]:
    """Requests of such a pod that no node can meet."""
    found = list(unmet(asked, nodes, Settings().counting))
    if not found and not any(can_run(asked, node) for node in nodes):
        return ["no node meets its nodeSelector, affinity and tolerations"]
    return found
