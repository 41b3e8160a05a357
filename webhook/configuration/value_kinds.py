"""The types of a configuration's values: how each is read, shown in a table, and described by JSON Schema."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from webhook.configuration.document import DocumentReader, shown

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS_LENGTH: Final = r"(?=[^/]{1,253}(?:/|\Z))"
_DNS: Final = _DNS_LENGTH + r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
LABEL_VALUE: Final = re.compile(rf"({_NAME})?")
QUALIFIED_NAME: Final = re.compile(rf"({_DNS}/)?{_NAME}")
GATE_PREFIX: Final = re.compile(rf"({_DNS}/)?[A-Za-z0-9][-A-Za-z0-9_.]{{0,50}}")
RESOURCE_PATTERN: Final = re.compile(r"[-A-Za-z0-9_.*?\[\]!]+/[-A-Za-z0-9_.*?\[\]!]+")
RESOURCE_WORDS: Final = "resource name or pattern"
CLASS_PATTERN: Final = re.compile(r"[-a-z0-9.*?\[\]!]+")
CLASS_WORDS: Final = "DeviceClass name or pattern"
DNS_NAME: Final = re.compile(_DNS)
NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
SHORT_NAME: Final = re.compile(_NAME)

Schema = dict[str, Any]
"""JSON Schema, draft 7, which Helm and editors read."""


@dataclass(frozen=True)
class ValueKind:
    """The type of a key's value.

    what: in words, as "true or false". read: converts a document's value; it also gets the path, and the
    reader that collects faults. schema: of such values. document: a value as a document writes it.
    seconds: the bounds of a duration, which a schema cannot say.
    """

    what: str
    read: Callable[[Any, str, DocumentReader], Any]
    schema: Schema
    document: Callable[[Any], Any] = lambda value: value
    seconds: tuple[float, float] | None = None


def checked(what: str, take: Callable[[Any], Any], schema: Schema) -> ValueKind:
    """A type of single values. take: converts a document's value; raises ValueError for an invalid one."""

    def read_one(value: Any, path: str, reader: DocumentReader) -> Any:
        try:
            return take(value)
        except ValueError as error:
            reader.fault(path, str(error) or f"must be {what}, not {shown(value)}")
            return None

    return ValueKind(what, read_one, schema)


def number(least: float, most: float, *, whole: bool = False) -> ValueKind:
    """Numbers within bounds."""

    def take(value: Any) -> Any:
        if not (type(value) is int or (type(value) is float and not whole)) or not least <= value <= most:
            raise ValueError
        return value if whole else float(value)

    schema: Schema = {"type": "integer" if whole else "number", "minimum": least, "maximum": most}
    return checked(f"a {'whole ' if whole else ''}number from {least:.12g} to {most:.12g}", take, schema)


# --- durations ----------------------------------------------------------------------------------------

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
LONGEST: Final = 365 * DAY
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": HOUR}
_PART: Final = r"([0-9]{1,9}(?:\.[0-9]{1,6})?)(ms|s|m|h)"
_DURATION: Final = re.compile(rf"(?:{_PART})+")


def duration_text(seconds: float) -> str:
    """A number of seconds as a Kubernetes duration: "90s" is 1m30s."""
    left = round(seconds * 1000)
    text = ""
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        count, left = divmod(left, size)
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def seconds_of(text: str) -> float:
    """The seconds of a Kubernetes duration, as 90s, 1h30m or 500ms. Raises ValueError for other texts."""
    if not _DURATION.fullmatch(text):
        raise ValueError
    return sum(float(count) * _SECONDS[unit] for count, unit in re.findall(_PART, text))


def duration(least: float = 0, most: float = LONGEST) -> ValueKind:
    """Durations, in seconds once they are read."""

    def take(value: Any) -> float:
        seconds = seconds_of(value) if isinstance(value, str) else -1.0
        if not least <= seconds <= most:
            raise ValueError
        return seconds

    what = f"a duration from {duration_text(least)} to {duration_text(most)}, as 30s, 5m or 1h30m"
    schema = {"type": "string", "pattern": rf"^({_PART.replace('(?:', '(')})+$"}
    return ValueKind(what, checked(what, take, schema).read, schema, duration_text, (least, most))


# --- words and texts ----------------------------------------------------------------------------------


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


TRUTH: Final = checked("true or false", _truth, {"type": "boolean"})


def one_of(words: type[StrEnum]) -> ValueKind:
    """One of these words; YAML reads a bare off as false."""

    def take(value: Any) -> StrEnum:
        word = "off" if value is False else value
        if word not in list(words):
            raise ValueError
        return words(word)

    listed = [*map(str, words), *([False] if "off" in list(words) else [])]
    what = f"one of {', '.join(words)}"
    return ValueKind(what, checked(what, take, {}).read, {"enum": listed}, str)


def text_schema(pattern: re.Pattern[str]) -> Schema:
    """The schema of texts that a pattern matches as a whole; Helm's expressions know no look-ahead."""
    schema: Schema = {"type": "string", "pattern": f"^({pattern.pattern.replace(_DNS_LENGTH, '')})$"}
    return schema | ({"not": {"pattern": "^[^/]{254}"}} if _DNS_LENGTH in pattern.pattern else {})


def text(pattern: re.Pattern[str], what: str, schema: Schema | None = None) -> ValueKind:
    """A text that a pattern matches as a whole; what: the name of such texts, as "label key".

    schema: of such texts, if the pattern looks ahead.
    """
    article = "an" if what.startswith(tuple("aeio")) else "a"
    return ValueKind(
        f"{article} {what}",
        lambda value, path, reader: reader.text(value, path, pattern, what),
        schema or text_schema(pattern),
    )


def texts(
    pattern: re.Pattern[str], what: str, schema: Schema | None = None, *, some: bool = False
) -> ValueKind:
    """Such texts in a list without repetition. some: whether it needs at least one."""

    def read_all(value: Any, path: str, reader: DocumentReader) -> tuple[str, ...]:
        if some and value == []:
            reader.fault(path, f"must name at least one {what}")
        return reader.texts(value, path, pattern, what)

    found: Schema = {"type": "array", "items": schema or text_schema(pattern), "uniqueItems": True}
    found |= {"minItems": 1} if some else {}
    return ValueKind(f"a list, each a {what}", read_all, found, sorted_list)


def sorted_list(values: Any) -> list[str]:
    """Texts in a document's list: a set has no order of its own."""
    return sorted(values) if isinstance(values, frozenset) else list(values)


def mapping(item: ValueKind, of: str, name: ValueKind | None = None, *, some: bool = False) -> ValueKind:
    """A mapping of names. item: the type of each value; of: the kind of names, as "resource names".

    name: the type of a name, None for any text; some: whether there must be at least one.
    """

    def read_all(value: Any, path: str, reader: DocumentReader) -> Mapping[str, Any]:
        given = reader.mapping(value, path, None)
        if some and given == {}:
            reader.fault(path, f"must name at least one of {of}")
        for each in given:
            if name is not None:
                name.read(each, f"{path}.{each}", reader)
            elif not each:
                reader.fault(path, "has a key without a name")
        return {each: item.read(value, f"{path}.{each}", reader) for each, value in given.items()}

    schema: Schema = {"type": "object", "additionalProperties": item.schema}
    schema |= {"minProperties": 1} if some else {}
    schema |= {"propertyNames": name.schema} if name else {}
    return ValueKind(f"a mapping of {of}, each to {item.what}", read_all, schema, dict)
