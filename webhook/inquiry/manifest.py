"""The pods that a manifest's objects create, each named and labelled as its controller would.

Which pods these are follows from webhook.workloads. Pod templates are read from the object as its author
wrote them, since admission and lint check them so.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgspec

from webhook.inquiry.admission_outcome import AdmissionRules
from webhook.inquiry.documents import InputError, name_of
from webhook.kube.objects import OwnerReference
from webhook.tasks.desired_job import RefusedError, TaskRules, job_wanted
from webhook.tasks.task_objects import Task
from webhook.workloads.additions import PodTemplate
from webhook.workloads.kinds import CREATORS, LOOSE_OWNERS, WORKLOADS
from webhook.workloads.owners import KNOWN_RULES, Makes
from webhook.workloads.pod_sets import OwnedPods, Path, PodSet, TemplatePath

Object = Mapping[str, Any]
_POD: Final = "Pod"


class ManifestPod(NamedTuple):
    """A pod that an object creates.

    template: metadata and spec of all pods of its group. number: labels with the number of this pod.
    """

    name: str
    template: Object
    number: Mapping[str, str]


@dataclass(frozen=True)
class ManifestOwner:
    """An object that creates pods, or a pod.

    document: the object, or what its controller creates of it: the Job of a CronJob. gang_kind: the kind of
    its gang. where: "source: name", for messages.
    """

    document: Object
    gang_kind: str
    owned: OwnedPods
    where: str

    @cached_property
    def reference(self) -> OwnerReference | None:
        """The owner of its pods, None for a pod."""
        if self.gang_kind == _POD:
            return None
        kind, name = str(self.document.get("kind")), name_of(self.document)
        version, uid = str(self.document.get("apiVersion") or ""), f"{kind}/{name}"
        return OwnerReference(api_version=version, kind=kind, name=name, uid=uid, controller=True)

    @property
    def is_loose(self) -> bool:
        """Whether its pods do not wait for one another."""
        return self.reference is None or KNOWN_RULES.makes(self.reference) is Makes.LOOSE

    def templates(self) -> Iterator[tuple[Object, int]]:
        """A template of each pod set, as of the pods of its first group, and the number of pods of the set.

        Raises InputError.
        """
        for each in self.owned.sets:
            if count := each.count * max(0, self.owned.gangs):
                yield self._template(each, self._raw(each), 0, each.group_numbers[0]), count

    def pods(self) -> Iterator[ManifestPod]:
        """Its pods, without those that are created only when others have ended. Raises InputError."""
        templates = [(each, self._raw(each)) for each in self.owned.beside if each.count]
        for gang in range(self.owned.gangs if templates else 0):
            for each, raw in templates:
                yield from self._of_set(each, raw, gang)

    def _of_set(self, of: PodSet, raw: Object, gang: int) -> Iterator[ManifestPod]:
        named = of.in_gang(gang) if self.owned.gang_key else of
        for group in of.group_numbers:
            template = self._template(of, raw, gang, group)
            for index in of.indices:
                yield ManifestPod(named.pod_name(group, index), template, of.index_labels(index))

    def _template(self, of: PodSet, raw: Object, gang: int, group: int | None) -> Object:
        """The template with what the controller adds."""
        own = {self.owned.gang_key: str(gang)} if self.owned.gang_key else {}
        return _labelled(raw, {**of.group_labels(group), **own}, of.annotations)

    def _raw(self, of: PodSet) -> Object:
        """The template as the object has it. Raises InputError if it has none."""
        at = of.at or TemplatePath((), None)
        metadata = _at(self.document, at.metadata) if at.metadata else None
        if at.spec is None:
            return {"metadata": metadata or {}, "spec": _without_empty(msgspec.to_builtins(of.template.spec))}
        if not isinstance(_at(self.document, at.spec[:-1]), dict):
            raise InputError(f"{self.where} has no pod template")
        return {"metadata": metadata or {}, "spec": _at(self.document, at.spec) or {}}


def owner_of(document: Object, source: str, rules: AdmissionRules) -> ManifestOwner | None:
    """The owner of pods that a document describes; None for what creates no pods.

    rules: turn a GPUTask into a Job. Raises InputError.
    """
    where = f"{source}: {name_of(document)}"
    if document.get("kind") == _POD:
        at = TemplatePath(("metadata",), ("spec",))
        pod = PodSet(name_of(document), PodTemplate(), range(1), at, is_numbered=False)
        return ManifestOwner(document, _POD, OwnedPods(1, (pod,)), where)
    document = _created(document, where, rules)
    row = _row_of(document)
    if row is None or row.pods is None:
        spec = document.get("spec")
        if isinstance(spec, dict) and ("template" in spec or "jobTemplate" in spec):
            raise InputError(
                f"{where}: cannot count the pods of {document.get('kind')} {name_of(document)}; "
                "pass its pods instead"
            )
        return None
    try:
        owner = msgspec.convert(_outline(document), row.struct)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {error}") from None
    owned = row.pods(owner)
    if owned.not_described:
        raise InputError(f"{where}: {owned.not_described}")
    counts = [owned.gangs, *(each.indices.stop - each.indices.start for each in owned.sets)]
    counts += [each.groups.stop - each.groups.start for each in owned.sets if each.groups is not None]
    if min(counts) < 0:
        raise InputError(f"{where}: {min(counts)} is not a number of pods")
    return ManifestOwner(document, row.kind, owned, where)


def _created(document: Object, where: str, rules: AdmissionRules) -> Object:
    """The owner that the object's controller creates of it, else the object itself."""
    if document.get("kind") == "GPUTask":
        return {**_job_of(document, where, rules), "apiVersion": "batch/v1", "kind": "Job"}
    for each in CREATORS:
        if _is_of(document, each.kind, each.group):
            made = {"apiVersion": each.version, "kind": each.creates}
            return {**made, "metadata": document.get("metadata"), "spec": _at(document, each.spec) or {}}
    return document


def _row_of(document: Object) -> Any:
    """The row of the table of its kind, None for an unknown one."""
    for each in WORKLOADS:
        if _is_of(document, each.owner or each.kind, each.group):
            return each
    return next((each for each in LOOSE_OWNERS if _is_of(document, each.kind, each.group)), None)


def _is_of(document: Object, kind: str, group: str | None) -> bool:
    """Whether an object is of this kind; one without an apiVersion is of any group."""
    version = str(document.get("apiVersion") or "")
    return document.get("kind") == kind and (not version or group in (None, version.rpartition("/")[0]))


def _outline(document: Object) -> dict[str, Any]:
    """The object without the specs of its pods, whose faults others report, and with a name."""
    found: dict[str, Any] = _without_pod_specs(document)
    metadata = found.get("metadata")
    named = {**metadata, "name": name_of(document)} if isinstance(metadata, dict) else {}
    return {**found, "metadata": named}


def _without_pod_specs(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_pod_specs(each) for key, each in value.items() if not _is_pod_spec(each)}
    return [_without_pod_specs(each) for each in value] if isinstance(value, list) else value


def _is_pod_spec(value: Any) -> bool:
    return isinstance(value, dict) and "containers" in value


def _without_empty(value: Any) -> Any:
    """The value as its author would have written it."""
    if isinstance(value, dict):
        return {key: own for key, each in value.items() if (own := _without_empty(each)) not in _EMPTY}
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


def _at(document: Any, path: Path) -> Any:
    """The value at this path, None if there is none."""
    for each in path:
        if isinstance(document, list) and isinstance(each, int):
            document = document[each]
        else:
            document = document.get(each) if isinstance(document, dict) else None
    return document


def _labelled(template: Object, labels: Mapping[str, str], annotations: Mapping[str, str]) -> Object:
    """The template with labels and annotations that a controller adds."""
    metadata = template["metadata"]
    if not isinstance(metadata, dict):
        return template
    own, written = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if not isinstance(own, dict) or not isinstance(written, dict):
        return template
    added = {"labels": {**own, **labels}, "annotations": {**written, **annotations}}
    return {**template, "metadata": {**metadata, **added}}


def _job_of(document: Object, where: str, rules: AdmissionRules) -> Mapping[str, Any]:
    """The Job for a GPUTask."""
    try:
        task = msgspec.convert(
            {**document, "metadata": {"namespace": "default", **document["metadata"]}}, Task
        )
        return job_wanted(task, TaskRules(rules.policy, rules.classes))
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise InputError(f"{where}: is not a valid GPUTask: {error}") from None
    except RefusedError as error:
        raise InputError(f"{where}: {error}") from None
