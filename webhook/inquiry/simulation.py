"""What a manifest asks for, as a gang that waits, and a dumped cluster, as a view and a snapshot of it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from msgspec import structs

from labeler.contract import keys
from labeler.contract.quantities import QuantityError
from webhook.inquiry import defaults, documents
from webhook.inquiry.manifest import InputError, name_of, pods_of
from webhook.kube import objects
from webhook.placement import PlacementError, Snapshot, Usage
from webhook.scheduling import antiaffinity, conflicts, convert, unmodelled
from webhook.scheduling.nodes import node_of
from webhook.sweeper.observe import gangs
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View


@dataclass(frozen=True)
class Rehearsed:
    """A gang that waits, and the cluster that it is to be placed on. notes: what is not modelled."""

    gang: PodGang
    view: View
    snapshot: Snapshot
    notes: list[str]


def read(files: list[Path], manifest: Path) -> Rehearsed:
    """The pods of a manifest as one gang, the cluster of these files, and what is not modelled.

    Raises InputError, and PlacementError for a wish that is none.
    """
    nodes, there = read_cluster(files)
    name, pods = read_pods(documents.of_file(manifest), str(manifest))
    if not pods:
        raise InputError(f"{manifest} describes no pods")
    carried = [(pod.metadata.namespace, antiaffinity.terms_of(pod)) for pod, _ in there]
    gang = gang_of(name, pods)
    rules = conflicts.between(gang.gated, carried)
    usage = [(pod.spec.node_name, rules.usage(pod, _usage(pod, file))) for pod, file in there]
    try:
        snapshot = Snapshot.build([rules.node(node, node_of(node)) for node in nodes], usage)
    except PlacementError as error:
        raise InputError(str(error)) from None
    by_name = {node.metadata.name: node for node in nodes}
    view = View(gang.gated, [pod for pod, _ in there], by_name, {}, conflicts=rules)
    return Rehearsed(
        gang, view, snapshot, [*unmodelled.claim_notes(gang.gated), *unmodelled.taken_widely(gang.gated)]
    )


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


def gang_of(name: str, pods: list[Waiting]) -> PodGang:
    """All pods of a manifest as one gang, with the wishes that they carry, as the sweeper would see it.

    Raises PlacementError for a wish that cannot be read.
    """
    own = (pod.metadata.annotations.get(keys.GANG_ANNOTATION) for _, _, pod in pods)
    name = next(filter(None, own), name)
    made: list[objects.Pod] = []
    ranks: dict[str, int] = {}
    for number, (pod_name, rank, pod) in enumerate(pods):
        uid = f"waits/{number}"
        metadata = structs.replace(pod.metadata, name=pod_name, uid=uid)
        made.append(structs.replace(pod, metadata=metadata))
        if rank is not None:
            ranks[uid] = rank
    # Its own word for how many it will be says nothing: all of the manifest is there.
    key = gangs.GangKey(made[0].metadata.namespace, "manifest", name, name)
    gang = gangs.gang_of(key, made, (), gangs.OwnerSays(len(made)))
    if gang.fault:
        raise PlacementError(gang.fault)
    if len(ranks) < len(made) or len(set(ranks.values())) < len(ranks):
        return replace(gang, ranks={})
    in_order = tuple(sorted(gang.gated, key=lambda pod: ranks[pod.metadata.uid]))
    return replace(gang, ranks=ranks, gated=in_order)
