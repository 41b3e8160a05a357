"""The JSON Schema of the configuration, made from the structs of `keys`, and its types in words."""

import inspect
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from webhook.configuration.keys import API_VERSION, KIND, Document, FairOrderKeys, MoveKeys
from webhook.configuration.value_kinds import Schema

_MEANING: Final = re.compile(r"^(\w+): (.*?)(?=^\w+: |\Z)", re.DOTALL | re.MULTILINE)


def _made() -> Schema:
    """The schema; each property has the meaning of its key."""
    _, definitions = msgspec.json.schema_components([Document], ref_template="#/definitions/{name}")
    for each in definitions.values():
        title, _, rest = inspect.cleandoc(each["description"]).partition("\n\n")
        each["description"] = title
        for name, meaning in _MEANING.findall(rest):
            each["properties"][name]["description"] = " ".join(meaning.split())
        for key in each["properties"].values():
            if "off" in key.get("enum", ()):
                key["enum"].append(False)  # YAML reads a bare off as false
    head = {"$schema": "http://json-schema.org/draft-07/schema#"}
    root: Schema = definitions.pop(Document.__name__)
    return head | root | {"title": f"{KIND} of topogate ({API_VERSION})", "definitions": definitions}


SCHEMA: Final = _made()
"""It cannot say everything that `file.parse` checks."""
DEFAULTS: Final[dict[str, Any]] = msgspec.to_builtins(
    Document(api_version=API_VERSION, kind=KIND, moves=MoveKeys(), fair_order=FairOrderKeys())
)
"""The document of all defaults. Without the keys makeRoom and fairOrder there is neither."""


def resolved(schema: Schema) -> Schema:
    """A part of the schema, or the definition that it refers to."""
    name: str = schema.get("$ref", "").rpartition("/")[2]
    return SCHEMA["definitions"][name] if name else schema


def words(schema: Schema) -> str:
    """What a value must be, as "a whole number from 1 to 10"."""
    if "title" in schema and schema.get("type") != "object":
        return str(schema["title"])
    if "anyOf" in schema:
        return ", or ".join(words(each) for each in schema["anyOf"])
    if "enum" in schema:
        choices = [each for each in schema["enum"] if each is not False]
        return f"one of {', '.join(choices)}" if len(choices) > 1 else str(choices[0])
    return _WORDS[schema["type"]](schema)


def _words_of_number(schema: Schema) -> str:
    whole = "whole " if schema["type"] == "integer" else ""
    return f"a {whole}number from {schema['minimum']:.12g} to {schema['maximum']:.12g}"


def _words_of_list(schema: Schema) -> str:
    return "a list" if "$ref" in schema["items"] else f"a list, each {words(schema['items'])}"


def _words_of_mapping(schema: Schema) -> str:
    item: Schema = schema.get("additionalProperties") or {"$ref": ""}
    names = schema.get("propertyNames", {}).get("title", "a name")
    return "a mapping" if "$ref" in item else f"a mapping, each key {names}, each value {words(item)}"


_WORDS: Final[dict[str, Callable[[Schema], str]]] = {
    "boolean": lambda _: "true or false",
    "string": lambda _: "text",
    "integer": _words_of_number,
    "number": _words_of_number,
    "array": _words_of_list,
    "object": _words_of_mapping,
}
