"""The JSON Schema of the configuration, made from the structs of `keys`, and its types in words."""

import inspect
import re
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
    match schema:
        case {"type": "object", "properties": _} | {"additionalProperties": {"$ref": _}}:
            return "a mapping"
        case {"type": "object", "propertyNames": names, "additionalProperties": values}:
            return f"a mapping, each key {names['title']}, each value {words(values)}"
        case {"title": title}:
            return str(title)
        case {"anyOf": alternatives}:
            return ", or ".join(map(words, alternatives))
        case {"enum": [choice]}:
            return str(choice)
        case {"enum": choices}:
            return f"one of {', '.join(filter(None, choices))}"
        case {"items": items}:
            return "a list" if "$ref" in items else f"a list, each {words(items)}"
        case {"minimum": least, "maximum": most}:
            whole = {"integer": "whole "}.get(schema["type"], "")
            return f"a {whole}number from {least:.12g} to {most:.12g}"
    return "true or false"
