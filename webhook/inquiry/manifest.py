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
            rank = 0
            for part in _parts(spec, "replicatedJobs", f"{source}: {name}"):
                job = _part(_part(part, "template", f"{source}: {name}"), "spec", f"{source}: {name}")
                # Of a part without pods any number of replicas is none.
                for replica in range(_number(part.get("replicas"), 1) if _job_size(job) else 0):
                    prefix = f"{name}-{part.get('name', '')}-{replica}"
                    labels = defaults.jobset_labels(name, str(part.get("name", "")))
                    labelled = defaults.labelled(
                        _template(job, name, source), labels | defaults.job_labels(prefix)
                    )
                    for pod, _, template in _copies(prefix, _job_size(job), labelled):
                        yield pod, rank, template
                        rank += 1
        case "StatefulSet" | "Deployment" | "ReplicaSet":
            yield from _copies(name, _number(spec.get("replicas"), 1), _template(spec, name, source))
        case _:
            if "template" in spec or "jobTemplate" in spec:
                raise InputError(f"{source}: cannot count the pods of {kind} {name}; give its pods instead")


_KINDS: Final = frozenset({"Job", "JobSet", "StatefulSet", "Deployment", "ReplicaSet"})


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
