"""Kubernetes objects out of YAML or JSON texts, as the API server would take them."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from webhook.kube.events import shortened

MOST_VALUES: Final = 20_000_000
"""Values of one text: about those of 100,000 pods as the API server prints them."""

_MESSAGE_BYTES: Final = 500
"""Characters that are shown of what the decoder reports about a text."""

T = TypeVar("T", bound=msgspec.Struct)


class InputError(ValueError):
    """An unusable text; the message says which and why."""


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is text. budget: limits what merge keys multiply."""

    budget: "_Budget"

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace `<<` by what it names, as PyYAML does, but count it first."""
        self.budget.spend(len(node.value))
        merged: list[tuple[yaml.Node, yaml.Node]] = []
        own = []
        for key, value in node.value:
            if key.tag != _MERGE:
                if key.tag == _VALUE:
                    key.tag = "tag:yaml.org,2002:str"
                own.append((key, value))
                continue
            # The first of several counts, and later items of the list replace earlier ones.
            parts = value.value[::-1] if isinstance(value, yaml.SequenceNode) else [value]
            for part in parts:
                if not isinstance(part, yaml.MappingNode):
                    raise yaml.constructor.ConstructorError(
                        None, None, "expected a mapping, or a list of mappings, to merge", value.start_mark
                    )
                if part is not node:
                    self.flatten_mapping(part)
                self.budget.spend(len(part.value))
                merged.extend(part.value)
        if merged:
            node.value = merged + own


_MERGE: Final = "tag:yaml.org,2002:merge"
_VALUE: Final = "tag:yaml.org,2002:value"

_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def of_file(file: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file; "-" is standard input. Raises InputError."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{file} is neither YAML nor JSON: {error}") from None
    yield from of_text(text, str(file))


def of_text(text: str, source: str, most_values: int = MOST_VALUES) -> Iterator[dict[str, Any]]:
    """The objects of a YAML or JSON text; lists are expanded, nulls are dropped.

    source: what an InputError names. most_values: the most that it may have, with aliases expanded.
    """
    try:
        documents = list(_read(text, _Budget(source, most_values)))
    except InputError:
        raise
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError, TypeError) as error:
        # PyYAML raises plain errors where a tag does not fit its value: !!bool maybe, !!int "", 5,000 digits.
        raise InputError(f"{source} is neither YAML nor JSON: {_message(error)}") from None
    for document in documents:
        if document is not None:
            yield from _flat(_object(document, source), source)


def _message(error: Exception) -> str:
    """A decoder's message as one line, with the place first if it has one."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    if mark is None or not problem:
        return shortened(" ".join(str(error).split()), _MESSAGE_BYTES)
    return f"line {mark.line + 1}, column {mark.column + 1}: " + shortened(problem, _MESSAGE_BYTES)


def _read(text: str, budget: "_Budget") -> Iterator[Any]:
    """The documents of a text, as JSON would have them and without null members."""
    if text.lstrip().startswith("{"):
        yield _without_nulls(msgspec.json.decode(text), budget)
        return
    loader = _Loader(text)
    loader.budget = budget
    try:
        while loader.check_data():  # type: ignore[no-untyped-call]
            yield _without_nulls(loader.get_data(), budget)
    finally:
        loader.dispose()


class _Budget:
    """Limits the size of a text: a short YAML text can expand to any size by its aliases."""

    def __init__(self, source: str, most: int) -> None:
        self._source = source
        self._most = self._left = most

    def spend(self, values: int = 1) -> None:
        """Count values. Raises InputError beyond the limit."""
        self._left -= values
        if self._left < 0:
            raise InputError(f"{self._source} has more than {self._most} values; split it")


def _object(document: Any, source: str, kind: str = "") -> dict[str, Any]:
    """The document, if it is an object; kind: of one without a kind of its own."""
    if not isinstance(document, dict) or not isinstance(document.get("kind", kind or None), str):
        raise InputError(f"{source} has something that is not a Kubernetes object (no kind)")
    return {"kind": kind, **document}


def _flat(document: dict[str, Any], source: str) -> Iterator[dict[str, Any]]:
    if document["kind"].endswith("List") and isinstance(document.get("items"), list):
        kind = document["kind"].removesuffix("List")
        for item in document["items"]:
            yield _object(item, source, kind)
    else:
        yield document


def _without_nulls(value: Any, budget: _Budget) -> Any:
    """The value without null members, as the API server drops them.

    Keys that are not text are converted, as between YAML and JSON. Raises TypeError for values that JSON does
    not have.
    """
    budget.spend()
    if isinstance(value, dict):
        return {_key(key): _without_nulls(item, budget) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item, budget) for item in value if item is not None]
    if not isinstance(value, str | int | float):
        raise TypeError(f"a Kubernetes object cannot contain a {type(value).__name__}")
    return value


def _key(key: Any) -> str:
    if not isinstance(key, str | int | float):
        raise TypeError(f"a key must be text, not {type(key).__name__}")
    return str(key).lower() if isinstance(key, bool) else str(key)


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


def decoded(kind: type[T], document: Mapping[str, Any], source: str) -> T:
    """An object as a struct. Raises InputError that names a value of a wrong type."""
    try:
        return msgspec.convert({"metadata": {}, **document}, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {name_of(document)}: {error}") from None
