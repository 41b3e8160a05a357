"""What a manifest asks for, as a gang that waits, and a dumped cluster, as a view and a snapshot of it."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from labeler.contract import keys
from labeler.contract.quantities import QuantityError
from webhook.inquiry import defaults, documents
from webhook.inquiry.admitted import AdmissionRules, Admitted, admit
from webhook.inquiry.lint import amount_faults
from webhook.inquiry.manifest import InputError, minimum_of, name_of, pods_of
from webhook.kube import objects
from webhook.placement import PlacementError, Snapshot, Usage
from webhook.policy.document import PolicyError
from webhook.policy.file import parse_policy
from webhook.policy.shipped import shipped_classes, shipped_policy
from webhook.policy.values import Policy
from webhook.scheduling import antiaffinity, conflicts, convert, unmodelled
from webhook.scheduling.nodes import node_of
from webhook.sweeper.observe import gangs
from webhook.sweeper.observe.gangs import PodGang
from webhook.sweeper.observe.view import View


@dataclass(frozen=True)
class Rehearsed:
    """A gang that waits, and the cluster that it is to be placed on. notes: what is not modelled, and what
    admission says. admitted: its decision on each template, by the name of the first pod of it.
    """

    gang: PodGang
    view: View
    snapshot: Snapshot
    notes: list[str]
    admitted: dict[str, Admitted]


def shipped_rules() -> AdmissionRules:
    """What admission decides by as the manifests ship it."""
    return AdmissionRules(shipped_policy(), shipped_classes())


class NotPlacedError(Exception):
    """Topogate places none of the pods: they are refused, or left to others; the message says why."""


@dataclass(frozen=True)
class Dump:
    """A cluster as files tell it. there: pods that take room on nodes, with the file of each.

    policy: of its ConfigMap, None where the files have none; classes: PriorityClasses by name.
    """

    nodes: list[objects.Node]
    there: list[tuple[objects.Pod, Path]]
    policy: Policy | None
    classes: dict[str, objects.PriorityClass]

    def rules(self, policy: Policy | None) -> AdmissionRules:
        """By what admission decides; what the files do not tell is as the manifests ship it."""
        return AdmissionRules(policy or self.policy or shipped_policy(), self.classes or shipped_classes())


def read(files: list[Path], manifest: Path, policy: Policy | None = None) -> Rehearsed:
    """The pods of a manifest as one gang, the cluster of these files, and what is not modelled.

    policy: of admission, None for that of the files, else the shipped one. Raises InputError, NotPlacedError
    where admission refuses the pods or topogate leaves them alone, PlacementError for a wish that is none.
    """
    dump = read_cluster(files)
    nodes, there = dump.nodes, dump.there
    found = read_pods(documents.of_file(manifest), str(manifest), rules=dump.rules(policy))
    if not found.pods:
        raise InputError(f"{manifest} describes no pods")
    carried = [(pod.metadata.namespace, antiaffinity.terms_of(pod)) for pod, _ in there]
    gang = gang_of(found.name, found.pods)
    if gang.minimum is None and found.minimum is not None:
        gang = replace(gang, minimum=min(found.minimum, len(found.pods)))
    rules = conflicts.between(gang.gated, carried)
    usage = [(pod.spec.node_name, rules.usage(pod, _usage(pod, file))) for pod, file in there]
    try:
        snapshot = Snapshot.build([rules.node(node, node_of(node)) for node in nodes], usage)
    except PlacementError as error:
        raise InputError(str(error)) from None
    by_name = {node.metadata.name: node for node in nodes}
    view = View(gang.gated, [pod for pod, _ in there], by_name, {}, conflicts=rules)
    notes = [*found.notes, *unmodelled.claim_notes(gang.gated), *unmodelled.taken_widely(gang.gated)]
    return Rehearsed(gang, view, snapshot, notes, found.admitted)


def read_cluster(files: list[Path]) -> Dump:
    """What the files tell of a cluster. Raises InputError."""
    dump = Dump([], [], None, {})
    for file in files:
        for document in documents.of_file(file):
            dump = _with(dump, document, file)
    if not dump.nodes:
        raise InputError(
            f"no nodes in {', '.join(map(str, files))}; save them with kubectl get nodes,pods -A -o json"
        )
    return dump


def _with(dump: Dump, document: dict[str, Any], file: Path) -> Dump:
    kind = document.get("kind")
    if kind == "Node":
        dump.nodes.append(documents.decoded(objects.Node, document, str(file)))
    elif kind == "Pod":
        pod = documents.decoded(objects.Pod, defaults.defaulted(document), str(file))
        if convert.occupies(pod):
            dump.there.append((pod, file))
    elif kind == "PriorityClass":
        dump.classes[name_of(document)] = documents.decoded(objects.PriorityClass, document, str(file))
    elif kind == "ConfigMap" and name_of(document) == "topogate-policy":
        try:
            return replace(dump, policy=parse_policy(document["data"]["policy.yaml"], str(file)))
        except (KeyError, TypeError, PolicyError) as error:
            raise InputError(f"{file}: ConfigMap topogate-policy: {error}") from None
    return dump


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


@dataclass
class ManifestPods:
    """What a manifest makes. name: of what it begins with. minimum: pods that are enough, None where all are
    needed. notes, admitted: see Rehearsed.
    """

    name: str = ""
    pods: list[Waiting] = field(default_factory=list)
    minimum: int | None = None
    notes: list[str] = field(default_factory=list)
    admitted: dict[str, Admitted] = field(default_factory=dict)


def read_pods(
    found: Iterable[dict[str, Any]], source: str, most: int = MOST_PODS, rules: AdmissionRules | None = None
) -> ManifestPods:
    """The pods that a manifest makes, at most `most`.

    rules: by which admission decides on each template first; None where it is not asked. Raises InputError,
    NotPlacedError.
    """
    made = ManifestPods()
    reader = _PodReader(source, most, rules)
    minima = []
    for document in found:
        pods = list(_waiting(document, source, rules or shipped_rules(), reader))
        if pods:
            minima.append(minimum_of(document))
        made.pods += pods
        made.name = made.name or name_of(document)
    if not made.pods and reader.left_alone:
        raise NotPlacedError(next(iter(reader.left_alone)))
    made.minimum = minima[0] if len(minima) == 1 else None
    made.notes += [*reader.warnings, *reader.left_alone]
    made.admitted = reader.admitted
    return made


def _waiting(
    document: Mapping[str, Any], source: str, rules: AdmissionRules, reader: "_PodReader"
) -> Iterator[Waiting]:
    """The pods of one object that topogate places."""
    metadata = document.get("metadata")
    namespace = str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""
    for name, rank, template in pods_of(document, source, rules):
        pod = reader.pod(name, template, namespace)
        if pod is not None:
            yield name, rank, pod


class _PodReader:
    """Reads the pods of a manifest, each template once."""

    def __init__(self, source: str, most: int, rules: AdmissionRules | None) -> None:
        self._source = source
        self._most = most
        self._rules = rules
        self._template: object = None
        self._body: dict[str, Any] | None = None
        self._size = self._values = self._pods = 0
        self.admitted: dict[str, Admitted] = {}
        self.warnings: dict[str, None] = {}
        self.left_alone: dict[str, None] = {}

    def pod(self, name: str, template: Mapping[str, Any], namespace: str) -> objects.Pod | None:
        """A pod, None if topogate leaves it to others. Raises InputError, NotPlacedError."""
        if template is not self._template:
            self._template, self._size = template, _values(template)
            self._body = self._admitted(name, template, namespace)
        self._pods += 1
        self._values += self._size
        most = VALUES_A_POD * self._most
        if self._values > most:
            raise InputError(f"{self._source} makes pods with more than {most} values together")
        if self._pods > self._most:
            raise InputError(f"{self._source} makes more than {self._most} pods")
        return None if self._body is None else documents.decoded(objects.Pod, self._body, self._source)

    def _admitted(self, name: str, template: Mapping[str, Any], namespace: str) -> dict[str, Any] | None:
        body = defaults.defaulted(template, namespace)
        spec = body["spec"]
        if fault := next(amount_faults(spec), "") if isinstance(spec, dict) else "":
            raise InputError(f"{self._source}: {name}: {fault}")
        if self._rules is None:
            return body
        try:
            found = admit(body, namespace or defaults.DEFAULT_NAMESPACE, self._rules)
        except msgspec.ValidationError:
            return body  # the decoder of pods names what has another type than it must
        if found.is_denied:
            raise NotPlacedError(f"Pod {name} would be refused: {found.decision.denial}")
        self.warnings.update(dict.fromkeys(found.decision.warnings))
        self.admitted[name] = found
        if found.is_placed_by_others:
            self.left_alone[f"Pod {name} is not placed by topogate: {found.decision.reason}"] = None
            return None
        return found.pod


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
