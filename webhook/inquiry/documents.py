"""Kubernetes objects out of YAML or JSON texts, as the API server would take them."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from webhook.inquiry.manifest import InputError, name_of

MOST_VALUES: Final = 20_000_000
"""Of one text: about those of 100,000 pods as the API server prints them."""

T = TypeVar("T", bound=msgspec.Struct)


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is text."""


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
    """The objects of a YAML or JSON text; lists are taken apart, nulls are left out.

    source: what an InputError names. most_values: that it may hold, those behind aliases counted.
    """
    try:
        documents = (
            [msgspec.json.decode(text)]
            if text.lstrip().startswith("{")
            else list(yaml.load_all(text, _Loader))
        )
    except (msgspec.DecodeError, yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{source} is neither YAML nor JSON: {error}") from None
    budget = _Budget(source, most_values)
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or "kind" not in document:
            raise InputError(f"{source} holds something that is no Kubernetes object (it has no kind)")
        yield from _flat(_without_nulls(document, budget))


class _Budget:
    """How much a text may hold: a short YAML text can stand for a document of any size by its aliases."""

    def __init__(self, source: str, most: int) -> None:
        self._source = source
        self._most = self._left = most

    def spend(self) -> None:
        """Count one value. Raises InputError beyond the most."""
        self._left -= 1
        if self._left < 0:
            raise InputError(f"{self._source} holds more than {self._most} values; give it in parts")


def _flat(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if str(document["kind"]).endswith("List") and isinstance(document.get("items"), list):
        kind = str(document["kind"]).removesuffix("List")
        for item in document["items"]:
            yield {"kind": kind, **item} if kind else item
    else:
        yield document


def _without_nulls(value: Any, budget: _Budget) -> Any:
    """The same without null members: what the API server would have left out."""
    budget.spend()
    if isinstance(value, dict):
        return {key: _without_nulls(item, budget) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item, budget) for item in value if item is not None]
    return value


def decoded(kind: type[T], document: Mapping[str, Any], source: str) -> T:
    """An object as a struct. Raises InputError that names what has another type than it must."""
    try:
        return msgspec.convert({"metadata": {}, **document}, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{source}: {name_of(document)}: {error}") from None
