"""Members of a manifest, read with a message about values of a wrong shape."""

from collections.abc import Iterator, Mapping
from typing import Any


class InputError(ValueError):
    """An unusable text; the message says which and why."""


Described = tuple[str, int | None, Mapping[str, Any]]
"""A pod's name, its rank and its template (metadata and spec)."""


def part(of: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """A member that is an object, empty if it is missing. Raises InputError for anything else."""
    value = of.get(name)
    if value is not None and not isinstance(value, dict):
        raise InputError(f"{where}: its {name} is not an object")
    return value or {}


def parts(of: Mapping[str, Any], name: str, where: str) -> list[Mapping[str, Any]]:
    """A member that is a list of objects. Raises InputError for anything else."""
    value = of.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise InputError(f"{where}: its {name} is not a list of objects")
    return value


def job_size(spec: Mapping[str, Any]) -> int:
    """How many pods a Job runs at once."""
    parallelism = number(spec.get("parallelism"), 1)
    completions = spec.get("completions")
    return parallelism if completions is None else min(parallelism, number(completions, 1))


def number(value: object, default: int) -> int:
    """A number of pods. Raises InputError for anything else."""
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{value!r} is not a number of pods")
    return value


def copies(name: str, count: int, body: Mapping[str, Any]) -> Iterator[Described]:
    """This many pods of one template, numbered."""
    for index in range(count):
        yield f"{name}-{index}", index, body


def template(spec: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """A pod template. Raises InputError if there is none."""
    found = spec.get("template")
    if not isinstance(found, dict):
        raise InputError(f"{where} has no pod template")
    return found


def in_namespace(document: dict[str, Any], namespace: str) -> dict[str, Any]:
    """The object in this namespace, if it has none itself; "": unchanged."""
    metadata = document.get("metadata")
    if not namespace or not isinstance(metadata, dict) or metadata.get("namespace"):
        return document
    return {**document, "metadata": {**metadata, "namespace": namespace}}


def name_of(document: Mapping[str, Any]) -> str:
    """An object's name, or its generateName."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return "pod"
    return str(metadata.get("name") or metadata.get("generateName") or "pod")
