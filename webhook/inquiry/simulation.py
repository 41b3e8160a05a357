"""A manifest as waiting gangs, and a dumped cluster as a view and a snapshot."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import structs

from labeler.contract import keys
from labeler.contract.quantities import QuantityError
from webhook.configuration.cluster import is_configuration, of_config_map
from webhook.configuration.document import ConfigurationError
from webhook.configuration.file import Configuration
from webhook.configuration.settings import Settings
from webhook.configuration.shipped_configuration import shipped_classes, shipped_configuration
from webhook.inquiry import defaults, documents
from webhook.inquiry.admission_outcome import NOT_GATED, AdmissionRules, Admitted, admit
from webhook.inquiry.documents import InputError, in_namespace, name_of
from webhook.inquiry.gang_answer import GangAnswer, ask_gang
from webhook.inquiry.lint import amount_faults, misplaced_annotations, not_gated
from webhook.inquiry.manifest import ManifestOwner, ManifestPod, owner_of
from webhook.inquiry.next_pass import VIEW_ALONE, PassFacts, moment, state_for
from webhook.kube import objects
from webhook.placement import PlacementError, Snapshot, Usage
from webhook.scheduling import antiaffinity, conflicts, convert, pod_mix, unmodelled_rules
from webhook.scheduling.gpu_requests import whole_number
from webhook.scheduling.nodes import node_of
from webhook.sweeper.decide.attempt import PassState
from webhook.sweeper.observe import gangs
from webhook.sweeper.observe.gangs import GangKey, PodGang, key_of
from webhook.sweeper.observe.plans import is_gated
from webhook.sweeper.observe.view import View
from webhook.text import few


@dataclass(frozen=True)
class Rehearsed:
    """Waiting gangs, the most urgent first, and the cluster in which to place them.

    notes: what is not modelled, and what admission reports. admitted: its decision on each template, by the
    name of its first pod. settings: the sweeper's. facts: what is known beside the view.
    """

    gangs: list[PodGang]
    view: View
    snapshot: Snapshot
    notes: list[str]
    admitted: dict[str, Admitted]
    settings: Settings = field(default_factory=Settings)
    facts: PassFacts = VIEW_ALONE


def shipped_rules() -> AdmissionRules:
    """What admission decides from, as the manifests ship it."""
    return AdmissionRules(shipped_configuration().policy, shipped_classes())


class NotPlacedError(Exception):
    """Topogate places none of the pods: they are refused, or left to others; the message says why."""


@dataclass(frozen=True)
class Dump:
    """A cluster as files describe it.

    there: pods that use capacity of nodes, with the file of each. configuration: of its ConfigMap, None if
    the files have none; classes: PriorityClasses by name. not_opted_in: Namespaces without our label.
    """

    nodes: list[objects.Node]
    there: list[tuple[objects.Pod, Path]]
    configuration: Configuration | None
    classes: dict[str, objects.PriorityClass]
    not_opted_in: set[str] = field(default_factory=set)

    def rules(self, configuration: Configuration) -> AdmissionRules:
        """What admission decides from; what the files lack is as the manifests ship it."""
        return AdmissionRules(
            configuration.policy,
            self.classes or shipped_classes(),
            not_opted_in=frozenset(self.not_opted_in),
        )


def read(
    files: list[Path], manifest: Path, given: Configuration | None = None, namespace: str = ""
) -> Rehearsed:
    """The gangs of a manifest, the cluster of these files, and what is not modelled.

    given: the configuration, None for that of the files, else the shipped one. namespace: of objects that
    name none. Raises InputError, NotPlacedError where admission refuses the pods or topogate leaves them
    alone, PlacementError for an invalid topology request.
    """
    dump = read_cluster(files)
    nodes, there = dump.nodes, dump.there
    configuration = given or dump.configuration or shipped_configuration()
    found = read_manifest(manifest, dump.rules(configuration), namespace)
    carried = [(pod.metadata.namespace, antiaffinity.terms_of(pod)) for pod, _ in there]
    made = found.gangs()
    gated = [pod for gang in made for pod in gang.gated]
    free = [pod for gang in made for pod in gang.released]
    keys_of = {pod.metadata.uid: gang.key for gang in made for pod in gang.pods}
    rules = conflicts.between(gated, carried)
    usage = [(pod.spec.node_name, rules.usage(pod, _usage(pod, file))) for pod, file in there]
    try:
        snapshot = Snapshot.build([rules.node(node, node_of(node)) for node in nodes], usage)
        counting = Settings().counting
        asked = pod_mix.counts_of(map(convert.pod_class_of, gated), counting)
        snapshot = snapshot.with_mix(pod_mix.mix_of(snapshot, asked, counting))
    except PlacementError as error:
        raise InputError(str(error)) from None
    by_name = {node.metadata.name: node for node in nodes}
    view = View(
        gated, [*(pod for pod, _ in there), *free], by_name, {}, conflicts=rules,
        gang_of=lambda pod: keys_of.get(pod.metadata.uid) or key_of(pod), now=moment(),
    )  # fmt: skip
    notes = [*found.notes, *unmodelled_rules.claim_notes(gated), *unmodelled_rules.taken_widely(gated)]
    return Rehearsed(made, view, snapshot, notes, found.admitted, configuration.settings)


def read_manifest(manifest: Path, rules: AdmissionRules, namespace: str) -> "ManifestPods":
    """The pods of a file. Raises InputError, NotPlacedError."""
    objects_ = (in_namespace(each, namespace) for each in documents.of_file(manifest))
    found = read_pods(objects_, str(manifest), rules=rules)
    if not found.pods:
        raise InputError(f"{manifest} describes no pods")
    return found


@dataclass(frozen=True)
class PlacedGang:
    """A gang, its answer, and the cluster after it is placed.

    state: the one in which it was asked about, but with the settings by which the sweeper evicts and moves.
    """

    gang: PodGang
    answer: GangAnswer
    state: PassState
    after: Snapshot


def place_each(scene: Rehearsed) -> Iterator[PlacedGang]:
    """Place one gang after the other, each among those placed before. Raises PlacementError."""
    state = state_for(scene.gangs, scene.view, scene.snapshot, scene.settings, scene.facts)
    state = replace(state, answers={})
    for gang in scene.gangs:
        answer = ask_gang(gang, state, gang.key.name)
        as_configured = replace(state, given=replace(state.given, settings=scene.settings))
        if answer.plan is not None:
            state = state.with_plan(answer.plan)
        yield PlacedGang(gang, answer, as_configured, state.snapshot)


def read_cluster(files: list[Path]) -> Dump:
    """The cluster that the files describe. Raises InputError."""
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
            dump.there.append((_with_uid(pod), file))
    elif kind == "Namespace":
        labels = documents.decoded(objects.Namespace, document, str(file)).metadata.labels
        if labels.get(keys.INJECTION_LABEL) != keys.INJECTION_ENABLED:
            dump.not_opted_in.add(name_of(document))
    elif kind == "PriorityClass":
        dump.classes[name_of(document)] = documents.decoded(objects.PriorityClass, document, str(file))
    elif is_configuration(document):
        return replace(dump, configuration=_configuration_of(document, file))
    return dump


def _configuration_of(document: Mapping[str, Any], file: Path) -> Configuration:
    try:
        return of_config_map(document)
    except ConfigurationError as error:
        raise InputError(f"{file}: {error}") from None


def _with_uid(pod: objects.Pod) -> objects.Pod:
    """A pod that a file describes by hand has no uid; two such pods are two all the same."""
    if pod.metadata.uid:
        return pod
    return _with_own_uid(pod, f"{pod.metadata.namespace}/{pod.metadata.name}")


def _usage(pod: objects.Pod, file: Path) -> Usage:
    try:
        return convert.usage_of(pod)
    except QuantityError as error:
        raise InputError(f"{file}: pod {pod.metadata.namespace}/{pod.metadata.name}: {error}") from None


MOST_PODS: Final = 1_000_000
"""Pods of one manifest: a number with a zero too many is a mistake."""

VALUES_A_POD: Final = 50
"""Times the most pods: the values of all pods together, since a short text can ask for many large ones."""


@dataclass
class ManifestPods:
    """The pods of a manifest.

    name: of what it begins with. pods: each with its name. owners: the creator of each pod, None for a pod of
    its own. minima: how many
    pods are enough, by kind and name of the gang. notes, admitted: see Rehearsed.
    """

    name: str = ""
    pods: list[objects.Pod] = field(default_factory=list)
    owners: list[objects.OwnerReference | None] = field(default_factory=list)
    minima: dict[tuple[str, str], int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    admitted: dict[str, Admitted] = field(default_factory=dict)

    def gangs(self) -> list[PodGang]:
        """The gangs that the sweeper would see, in its order. Raises PlacementError."""
        by_key: dict[GangKey, tuple[list[objects.Pod], list[objects.Pod]]] = {}
        pods = list(self._made())
        ungated = [pod for pod in pods if not is_gated(pod, keys.GATE_PREFIX)]
        is_any_gated = len(ungated) < len(pods)
        for pod in pods:
            is_free = is_any_gated and not is_gated(pod, keys.GATE_PREFIX)
            by_key.setdefault(key_of(pod), ([], []))[is_free].append(pod)
        if ungated and (self.admitted or is_any_gated):
            self.notes.append(_why_not_gated(ungated, is_any_gated))
        made = [self._gang(key, waiting, free) for key, (waiting, free) in by_key.items() if waiting]
        return sorted(made, key=gangs.by_age)

    def _gang(self, key: GangKey, waiting: list[objects.Pod], free: list[objects.Pod]) -> PodGang:
        gang = gang_of(self.name, waiting, key, free)
        enough = self.minima.get((key.kind, key.name))
        if gang.minimum is None and enough is not None:
            gang = replace(gang, minimum=min(enough, len(gang.pods)))
        self.notes += [f"gang {key.name}: {note}" for note in _notes_of(gang)]
        return gang

    def _made(self) -> Iterator[objects.Pod]:
        """The pods as their controllers create them."""
        for number, (pod, owner) in enumerate(zip(self.pods, self.owners, strict=True)):
            owners = [] if owner is None else [owner]
            uid = f"{number}/{pod.metadata.name}"
            metadata = structs.replace(pod.metadata, uid=uid, owner_references=owners)
            yield structs.replace(pod, metadata=metadata)


def read_pods(
    found: Iterable[dict[str, Any]], source: str, most: int = MOST_PODS, rules: AdmissionRules | None = None
) -> ManifestPods:
    """The pods of a manifest, at most `most`.

    rules: those by which admission decides on each template first; None if it is not asked. Raises
    InputError, NotPlacedError.
    """
    made = ManifestPods()
    reader = _PodReader(source, most, rules)
    for document in found:
        owner = owner_of(document, source, rules or shipped_rules())
        if owner is not None:
            pods = list(_waiting(owner, reader))
            made.pods += pods
            made.owners += [owner.reference] * len(pods)
            if owner.owned.minimum is not None:
                made.minima[owner.gang_kind, name_of(document)] = owner.owned.minimum
            made.notes += _notes_on_later_pods(owner)
        made.name = made.name or name_of(document)
        where = f"{document.get('kind')}/{name_of(document)}"
        made.notes += [f"{where}: {sentence}" for sentence in misplaced_annotations(document)]
    if not made.pods and reader.left_alone:
        raise NotPlacedError(next(iter(reader.left_alone)))
    made.notes += [*reader.warnings, *reader.left_alone]
    made.admitted = reader.admitted
    return made


def _notes_on_later_pods(owner: ManifestOwner) -> Iterator[str]:
    for each in owner.owned.sets:
        if each.stage is None:
            yield f"pods {each.name} are created once others have completed: they are not placed here"


def _waiting(owner: ManifestOwner, reader: "_PodReader") -> Iterator[objects.Pod]:
    """The pods of one object that topogate places."""
    metadata = owner.document.get("metadata")
    namespace = str(metadata.get("namespace") or "") if isinstance(metadata, dict) else ""
    for each in owner.pods():
        pod = reader.pod(each, namespace)
        if pod is not None:
            yield pod


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

    def pod(self, made: ManifestPod, namespace: str) -> objects.Pod | None:
        """A pod, None if topogate leaves it to others. Raises InputError, NotPlacedError."""
        if made.template is not self._template:
            self._template, self._size = made.template, _values(made.template)
            self._body = self._admitted(made.name, made.template, namespace)
        self._pods += 1
        self._values += self._size
        most = VALUES_A_POD * self._most
        if self._values > most:
            raise InputError(f"{self._source} makes pods with more than {most} values in total")
        if self._pods > self._most:
            raise InputError(f"{self._source} makes more than {self._most} pods")
        if self._body is None:
            return None
        pod = documents.decoded(objects.Pod, self._body, self._source)
        labels = {**pod.metadata.labels, **made.number}
        return structs.replace(pod, metadata=structs.replace(pod.metadata, name=made.name, labels=labels))

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
            return body  # the decoder of pods names the value of a wrong type
        if found.is_denied:
            raise NotPlacedError(f"Pod {name} would be refused: {found.decision.denial}")
        self.warnings.update(dict.fromkeys(found.decision.warnings))
        self.admitted[name] = found
        if found.decision.reason == NOT_GATED:
            self.left_alone[f"Pod {name}: {not_gated(namespace or defaults.DEFAULT_NAMESPACE)}"] = None
            return None
        if found.is_placed_by_others:
            self.left_alone[f"Pod {name} is not placed by topogate: {found.decision.reason}"] = None
            return None
        return found.pod


def _values(document: object) -> int:
    """How many values a document has."""
    if isinstance(document, dict):
        return 1 + sum(map(_values, document.values()))
    return 1 + sum(map(_values, document)) if isinstance(document, list) else 1


def _notes_of(gang: PodGang) -> Iterator[str]:
    """What an author should know of a gang that is placed."""
    yield from gang.problems
    if gang.size is not None and len(gang.pods) < gang.size:
        yield f"the manifest has {len(gang.pods)} of its {gang.size} pods; the others are not placed"


def _devices_of(pod: objects.Pod) -> Iterator[str]:
    """Names of the extended resources of which any container asks for some."""
    for each in (*pod.spec.containers, *pod.spec.init_containers):
        amounts = {**each.resources.limits, **each.resources.requests}
        yield from (name for name, amount in amounts.items() if "/" in name and whole_number(amount))


def _why_not_gated(pods: Sequence[objects.Pod], is_any_gated: bool) -> str:
    """That admission gates none of these pods, and what makes it do so. is_any_gated: others are."""
    asked = sorted({name for pod in pods for name in _devices_of(pod)})
    if any(pod.spec.resource_claims for pod in pods):
        remedy = "set gpus.deviceClasses in the configuration"
    elif asked:
        remedy = f"add {', '.join(asked)} to gpus.resources of the configuration"
    else:
        remedy = f"annotate their pod template, for example with {keys.PREFERRED_TOPOLOGY_ANNOTATION}"
    names = f"pods {few([pod.metadata.name for pod in pods])}" if is_any_gated else "these pods"
    return (
        f"admission gates none of {names}, as they ask for no GPU that it knows: kube-scheduler "
        f"places them, perhaps elsewhere. To have topogate place them, {remedy}"
    )


def gang_of(
    name: str, pods: list[objects.Pod], key: GangKey | None = None, free: Sequence[objects.Pod] = ()
) -> PodGang:
    """Pods as one gang, with the topology requests that they carry, as the sweeper would see it.

    key: of the gang, None for all pods of a manifest. free: pods of it without a gate. Raises PlacementError
    for a topology request that cannot be read.
    """
    if key is None:
        own = (pod.metadata.annotations.get(keys.GANG_ANNOTATION) for pod in pods)
        name = next(filter(None, own), name)
        key = GangKey(pods[0].metadata.namespace, "manifest", name, name)
        pods = [_with_own_uid(pod, f"waits/{number}") for number, pod in enumerate(pods)]
    # Its own size annotation does not count: all of the manifest exists.
    gang = gangs.gang_of(key, pods, free, gangs.OwnerFacts(len(pods) + len(free)))
    if gang.fault:
        raise PlacementError(gang.fault)
    return gang


def _with_own_uid(pod: objects.Pod, uid: str) -> objects.Pod:
    return structs.replace(pod, metadata=structs.replace(pod.metadata, uid=uid))
