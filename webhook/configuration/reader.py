"""Every fault of a document against the JSON Schema, each with its path, in one walk.

Unknown keys are faults, because a misspelt key would silently mean its default.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Final

from msgspec import UNSET

from webhook.configuration.document import kind_of, shown
from webhook.configuration.schema import resolved, words
from webhook.configuration.value_kinds import LETTER_OR_DIGIT, Schema
from webhook.text import one_line

_LONGEST_PATH: Final = 200
ABSENT: Final = UNSET
"""In the place of a value with a fault; it counts as false."""
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "integer": (int,),
    "number": (int, float),
}  # fmt: skip


class FaultList:
    """Collects what is wrong."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def add(self, path: str, message: str) -> None:
        """Add a fault of the value at this path."""
        self.faults.append(f"{one_line(path)[:_LONGEST_PATH] or 'document'}: {message}")

    def once(self, names: Iterable[Any], path: str, key: str = "") -> None:
        """Report names that occur twice in the list at this path. key: of the name in its item, if any."""
        there = set[Any]()
        for number, name in enumerate(names):
            if name and name in there:
                self.add(f"{path}[{number}]{key}", f"{shown(name)} occurs twice")
            there.add(name)

    def checked(self, value: Any, schema: Schema, path: str = "") -> Any:
        """A value without its faulty parts, ABSENT if it is itself faulty; all of them are reported."""
        schema = _alternative(value, resolved(schema))
        if value is False and "off" in schema.get("enum", ()):
            return "off"  # YAML reads a bare off as false
        if _is_of_type(value, schema):
            if isinstance(value, dict):
                return self._mapping(value, schema, path)
            if isinstance(value, list):
                return self._list(value, schema, path)
            if _is_allowed(value, schema):
                return value
        self._wrong(value, schema, path)
        return ABSENT

    def _wrong(self, value: Any, schema: Schema, path: str) -> None:
        hint = "; leave the key out, or give it a value" if value is None else ""
        is_text = schema.get("type") == "string"
        if is_text and type(value) in (int, float) and _is_allowed(shown(value), schema):
            hint = "; quote it"
        given = kind_of(value) if schema.get("type") in ("object", "array") else shown(value)
        self.add(path, f"must be {words(schema)}, not {given}{hint}")

    def _mapping(self, value: dict[Any, Any], schema: Schema, path: str) -> Any:
        found: dict[str, Any] = {}
        self._check_size(value, schema, "Properties", path)
        for key, item in value.items():
            where = f"{path}.{key}" if path else str(key)
            if not isinstance(key, str):
                self.add(path, f"key {shown(key)} must be text; quote it")
            elif below := self._schema_of(key, schema, where):
                found[key] = self.checked(item, below, where)
        found = {key: checked for key, checked in found.items() if checked is not ABSENT}
        self._fill_required(found, value, schema, path)
        return found

    def _fill_required(self, found: dict[str, Any], value: Any, schema: Schema, path: str) -> None:
        """Report what is missing, and fill it in: the rest is checked against other keys all the same."""
        for key in schema.get("required", ()):
            below = resolved(schema["properties"][key])
            if key not in value:
                only = f"; write {words(below)}" if "enum" in below else ""
                self.add(f"{path}.{key}" if path else key, f"is missing{only}")
            found.setdefault(key, below["enum"][0] if "enum" in below else _TYPES[below["type"]][0]())

    def _schema_of(self, key: str, schema: Schema, path: str) -> Any:
        """What a key's value must be; None for an unknown or a faulty key, which is reported."""
        known = schema.get("properties")
        if known is None:
            names = schema["propertyNames"] | {"type": "string"}
            return None if self.checked(key, names, path) is ABSENT else schema["additionalProperties"]
        if key not in known:
            near = get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
            self.add(path, f"unknown key; {hint}")
        return known.get(key)

    def _list(self, value: list[Any], schema: Schema, path: str) -> list[Any]:
        self._check_size(value, schema, "Items", path)
        found = [self.checked(item, schema["items"], f"{path}[{at}]") for at, item in enumerate(value)]
        if schema.get("uniqueItems"):
            self.once(found, path)
        return [checked for checked in found if checked is not ABSENT]

    def _check_size(self, value: Any, schema: Schema, what: str, path: str) -> None:
        least, most = schema.get(f"min{what}", 0), schema.get(f"max{what}", len(value))
        if not least <= len(value) <= most:
            bound = "exactly" if most == least else "at least"
            self.add(path, f"must have {bound} one entry, not {len(value)}")


def _alternative(value: Any, schema: Schema) -> Schema:
    """The alternative of a schema for values of this type; the schema itself if it has none."""
    return next((each for each in schema.get("anyOf", ()) if _is_of_type(value, each)), schema)


def _is_of_type(value: Any, schema: Schema) -> bool:
    return type(value) in (_TYPES["string"] if "enum" in schema else _TYPES.get(schema.get("type", ""), ()))


def _is_allowed(value: Any, schema: Schema) -> bool:
    """Whether a scalar of the right type is one that the schema takes."""
    if "enum" in schema:
        return value in schema["enum"]
    if isinstance(value, str):
        unless = schema.get("not", {}).get("pattern", "(?!)")  # without one nothing matches
        matches = _expression(schema["pattern"]).fullmatch(value)
        return matches is not None and not _expression(unless).search(value)
    return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))


def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace(LETTER_OR_DIGIT, r"[^\W_]"))
