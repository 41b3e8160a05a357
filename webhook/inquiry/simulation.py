"""What a manifest asks for, as a gang, and a dumped cluster, as a snapshot: the placement core's question."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from labeler.contract import keys
from labeler.contract.quantities import QuantityError
from webhook.inquiry import defaults, documents
from webhook.inquiry.manifest import InputError, name_of, pods_of
from webhook.kube import objects
from webhook.placement import Gang, Member, PlacementError, PodClass, Snapshot, Usage
from webhook.scheduling import antiaffinity, conflicts, convert, unmodelled
from webhook.scheduling.acceptance import Acceptance
from webhook.scheduling.neighbourhood import Neighbourhood
from webhook.scheduling.nodes import node_of
from webhook.sweeper.observe.topology_wishes import slices_of, spread_of


def read(files: list[Path], manifest: Path) -> tuple[Gang, Acceptance | None, Snapshot, list[str]]:
    """The pods of a manifest as one gang, their rules on other pods, the cluster of these files, and notes.

    Raises InputError, and PlacementError for a wish that is none.
    """
    nodes, there = read_cluster(files)
    name, pods = read_pods(documents.of_file(manifest), str(manifest))
    if not pods:
        raise InputError(f"{manifest} describes no pods")
    carried = [(pod.metadata.namespace, antiaffinity.terms_of(pod)) for pod, _ in there]
    rules = conflicts.between([pod for _, _, pod in pods], carried)
    usage = [(pod.spec.node_name, rules.usage(pod, _usage(pod, file))) for pod, file in there]
    try:
        snapshot = Snapshot.build([rules.node(node, node_of(node)) for node in nodes], usage)
    except PlacementError as error:
        raise InputError(str(error)) from None
    waiting = [pod for _, _, pod in pods]
    by_name = {node.metadata.name: node for node in nodes}
    near = Neighbourhood(by_name, ((pod, pod.spec.node_name) for pod, _ in there), None, waiting)
    gang = gang_of(
        name, pods, lambda pod: rules.pod_class(pod, near.pod_class(pod, convert.pod_class_of(pod)))
    )
    members = {own: pod for own, _, pod in pods}
    kept = Acceptance(near, members) if any(map(near.rules_of, waiting)) else None
    return gang, kept or None, snapshot, [*unmodelled.notes(waiting), *unmodelled.taken_widely(waiting)]


def read_cluster(files: list[Path]) -> tuple[list[objects.Node], list[tuple[objects.Pod, Path]]]:
    """The nodes, and the pods that take room on them with the file of each. Raises InputError."""
    nodes, there = [], []
    for file in files:
        for document in documents.of_file(file):
            if document.get("kind") == "Node":
                nodes.append(documents.decoded(objects.Node, document, str(file)))
            elif document.get("kind") == "Pod":
                pod = documents.decoded(objects.Pod, defaults.defaulted(document), str(file))
                if convert.occupies(pod):
                    there.append((pod, file))
    if not nodes:
        raise InputError(
            f"no nodes in {', '.join(map(str, files))}; save them with kubectl get nodes,pods -A -o json"
        )
    return nodes, there


def _usage(pod: objects.Pod, file: Path) -> Usage:
    try:
        return convert.usage_of(pod)
    except QuantityError as error:
        raise InputError(f"{file}: pod {pod.metadata.namespace}/{pod.metadata.name}: {error}") from None


MOST_PODS: Final = 1_000_000
"""Of one manifest: a number with a zero too many is a mistake, not a wish."""

VALUES_A_POD: Final = 50
"""Times the most pods: what all pods may hold together, as a short text can ask for many large ones."""

Waiting = tuple[str, int | None, objects.Pod]
"""Name, rank and body of a pod."""


def read_pods(
    found: Iterable[dict[str, Any]], source: str, most: int = MOST_PODS
) -> tuple[str, list[Waiting]]:
    """The name of what a manifest begins with, and the pods that it makes, at most `most`.

    Raises InputError.
    """
    names: list[str] = []
    pods: list[Waiting] = []
    counted: object = None
    size = values = 0
    for document in found:
        metadata = document.get("metadata")
        namespace = str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""
        for name, rank, template in pods_of(document, source):
            if template is not counted:
                counted, size = template, _values(template)
            values += size
            if values > VALUES_A_POD * most:
                raise InputError(f"{source} makes pods with more than {VALUES_A_POD * most} values together")
            pod = documents.decoded(objects.Pod, defaults.defaulted(template, namespace), source)
            pods.append((name, rank, pod))
            if len(pods) > most:
                raise InputError(f"{source} makes more than {most} pods")
        names.append(name_of(document))
    return next(iter(names), ""), pods


def _values(document: object) -> int:
    """How many values a document holds."""
    if isinstance(document, dict):
        return 1 + sum(map(_values, document.values()))
    return 1 + sum(map(_values, document)) if isinstance(document, list) else 1


def gang_of(name: str, pods: list[Waiting], class_of: Callable[[objects.Pod], PodClass]) -> Gang:
    """All pods of a manifest as one gang, with the wishes that they carry."""
    annotations: dict[str, str] = {}
    for _, _, pod in pods:
        annotations |= pod.metadata.annotations
    return Gang(
        annotations.get(keys.GANG_ANNOTATION) or name,
        tuple(Member(own, rank, class_of(pod)) for own, rank, pod in pods),
        required_level=annotations.get(keys.REQUIRED_TOPOLOGY_ANNOTATION),
        preferred_level=annotations.get(keys.PREFERRED_TOPOLOGY_ANNOTATION),
        slices=slices_of(
            annotations.get(keys.SLICE_TOPOLOGY_ANNOTATION), annotations.get(keys.SLICE_SIZE_ANNOTATION)
        ),
        spread=spread_of(annotations.get(keys.SPREAD_TOPOLOGY_ANNOTATION)),
    )
