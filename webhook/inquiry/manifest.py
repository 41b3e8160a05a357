"""The pods that a manifest's workloads make at once, each as its controller would name and label it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from webhook.inquiry import defaults


class InputError(ValueError):
    """A text that cannot be used; the text says which and why."""


Described = tuple[str, int | None, Mapping[str, Any]]
"""A pod's name, its rank and its template (metadata and spec)."""


def pods_of(document: Mapping[str, Any], source: str) -> Iterator[Described]:
    """The pods that a workload makes at once: itself, or its template times its parallelism or replicas."""
    kind, name = document.get("kind"), name_of(document)
    if kind == "Pod":
        yield name, None, document
        return
    if kind not in _KINDS and not isinstance(document.get("spec"), dict):
        return
    spec = _part(document, "spec", f"{source}: {name}")
    match kind:
        case "Job":
            template = _template(spec, name, source)
            yield from _copies(name, _job_size(spec), defaults.labelled(template, defaults.job_labels(name)))
        case "JobSet":
            yield from _of_jobset(spec, document, name, source)
        case "LeaderWorkerSet":
            yield from _of_group(spec, document, name, source)
        case "StatefulSet" | "Deployment" | "ReplicaSet":
            yield from _copies(name, _number(spec.get("replicas"), 1), _template(spec, name, source))
        case _ if roles := next((key for key in spec if key.endswith("ReplicaSpecs")), ""):
            for role, of_role in _part(spec, roles, f"{source}: {name}").items():
                prefix = f"{name}-{role.lower()}"
                labelled = defaults.labelled(
                    _template(_part({role: of_role}, role, f"{source}: {name}"), prefix, source),
                    defaults.training_labels(name, role.lower()),
                )
                count = _number(of_role.get("replicas"), 1)
                for pod, _, template in _copies(prefix, count, labelled):
                    yield pod, None, template
        case _:
            if "template" in spec or "jobTemplate" in spec:
                raise InputError(f"{source}: cannot count the pods of {kind} {name}; give its pods instead")


_KINDS: Final = frozenset({"Job", "JobSet", "StatefulSet", "Deployment", "ReplicaSet", "LeaderWorkerSet"})


def _of_jobset(
    spec: Mapping[str, Any], document: Mapping[str, Any], name: str, source: str
) -> Iterator[Described]:
    where = f"{source}: {name}"
    parts = _parts(spec, "replicatedJobs", where)
    jobs = sum(_number(part.get("replicas"), 1) for part in parts)
    rank = number = 0
    for part in parts:
        job_template = _part(part, "template", where)
        job = _part(job_template, "spec", where)
        written = defaults.exclusive_annotations(document) | defaults.exclusive_annotations(job_template)
        # Of a part without pods any number of replicas is none.
        for replica in range(_number(part.get("replicas"), 1) if _job_size(job) else 0):
            prefix = f"{name}-{part.get('name', '')}-{replica}"
            labels = defaults.jobset_labels(name, str(part.get("name", "")), number + replica, jobs)
            labelled = defaults.labelled(
                _template(job, name, source), labels | defaults.job_labels(prefix), written
            )
            for pod, _, template in _copies(prefix, _job_size(job), labelled):
                yield pod, rank, template
                rank += 1
        number += _number(part.get("replicas"), 1)


def _of_group(
    spec: Mapping[str, Any], document: Mapping[str, Any], name: str, source: str
) -> Iterator[Described]:
    where = f"{source}: {name}"
    groups = _number(spec.get("replicas"), 1)
    if groups > 1:
        raise InputError(
            f"{where} makes {groups} groups, which are gangs of their own; give it with replicas: 1"
        )
    both = _part(spec, "leaderWorkerTemplate", where)
    size = _number(both.get("size"), 1) if groups else 0
    written = defaults.exclusive_annotations(document)
    for index in range(size):
        leads = index == 0 and both.get("leaderTemplate") is not None
        template = _part(both, "leaderTemplate" if leads else "workerTemplate", where)
        labels = defaults.group_labels(name, _part(both, "subGroupPolicy", where), size, index)
        yield (
            f"{name}-0" + (f"-{index}" if index else ""),
            index,
            defaults.labelled(template, labels, written),
        )


def _part(of: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """A member that is an object, empty if it is not there. Raises InputError for anything else."""
    value = of.get(name)
    if value is not None and not isinstance(value, dict):
        raise InputError(f"{where}: its {name} is no object")
    return value or {}


def _parts(of: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    """A member that is a list of objects. Raises InputError for anything else."""
    value = of.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InputError(f"{where}: its {name} is no list of objects")
    return value


def _job_size(spec: Mapping[str, Any]) -> int:
    parallelism = _number(spec.get("parallelism"), 1)
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, _number(completions, 1))


def _number(value: object, default: int) -> int:
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{value!r} is no number of pods")
    return value


def _copies(name: str, count: int, template: Mapping[str, Any]) -> Iterator[Described]:
    for number in range(count):
        yield f"{name}-{number}", number, template


def _template(spec: Mapping[str, Any], name: str, source: str) -> Mapping[str, Any]:
    template = spec.get("template")
    if not isinstance(template, dict):
        raise InputError(f"{source}: {name} has no pod template")
    return template


def name_of(document: Mapping[str, Any]) -> str:
    """An object's name, or what its name will begin with."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return "pod"
    return str(metadata.get("name") or metadata.get("generateName") or "pod")
