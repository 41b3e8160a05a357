"""Settings of an operator's file: each with a name, a default, its type and its meaning.

A dataclass declares them by `setting` and `section`; `read` takes them out of a document, and `rows` lists
them for a table of docs.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from enum import StrEnum
from typing import Any, Final, TypeVar

from webhook.policy.document import DocumentReader, shown

T = TypeVar("T")

_NAME: Final = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DNS: Final = r"(?=[^/]{1,253}(?:/|\Z))[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
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

LONGEST_SECONDS: Final = 1e9
"""The maximum of any time, 31 years: a date so far from now can be written."""


@dataclass(frozen=True)
class ValueKind:
    """The type of a setting.

    what: in words, as "true or false". read: converts a document's value; it also gets the path, and the
    reader that collects faults.
    """

    what: str
    read: Callable[[Any, str, DocumentReader], Any]


@dataclass(frozen=True)
class Setting:
    """One setting of a file. kind: its type, or the dataclass whose settings its mapping has."""

    name: str
    default: Any
    kind: ValueKind | type
    meaning: str


def setting(default: T, kind: ValueKind, meaning: str) -> T:
    """A dataclass's field that is a setting of the same name. default: an immutable value."""
    made: T = field(default=default, metadata={"kind": kind, "meaning": meaning})
    return made


def section(kind: Callable[[], T], meaning: str) -> T:
    """A dataclass's field that is a mapping with the settings of another dataclass, `kind`."""
    made: T = field(default_factory=kind, metadata={"kind": kind, "meaning": meaning})
    return made


def settings_of(kind: type) -> tuple[Setting, ...]:
    """The settings that a dataclass declares, in its order."""
    return tuple(
        Setting(
            each.name,
            each.default_factory() if each.default_factory is not MISSING else each.default,
            each.metadata["kind"],
            each.metadata["meaning"],
        )
        for each in fields(kind)
        if "kind" in each.metadata
    )


def read(settings: Sequence[Setting], value: Any, path: str, reader: DocumentReader) -> dict[str, Any]:
    """The values of these settings in a mapping, by name; missing settings are left out."""
    given = reader.mapping(value, path, tuple(each.name for each in settings))
    found = {}
    for each in settings:
        if each.name not in given:
            continue
        where = f"{path}.{each.name}" if path else each.name
        if isinstance(each.kind, ValueKind):
            found[each.name] = each.kind.read(given[each.name], where, reader)
        else:
            found[each.name] = each.kind(**read(settings_of(each.kind), given[each.name], where, reader))
    return found


def rows(settings: Sequence[Setting], path: str = "") -> Iterator[tuple[str, str, Any, str]]:
    """For a table: each setting's path, type, default and meaning, mappings first."""
    for each in settings:
        name = f"{path}{each.name}"
        if isinstance(each.kind, ValueKind):
            yield name, each.kind.what, each.default, each.meaning
        else:
            yield name, "a mapping", {}, each.meaning
            yield from rows(settings_of(each.kind), f"{name}.")


def checked(what: str, take: Callable[[Any], Any]) -> ValueKind:
    """A type of single values. take: converts a document's value; raises ValueError for an invalid one."""

    def read_one(value: Any, path: str, reader: DocumentReader) -> Any:
        try:
            return take(value)
        except ValueError as error:
            reader.fault(path, str(error) or f"must be {what}, not {shown(value)}")
            return None

    return ValueKind(what, read_one)


def number(least: float, most: float = LONGEST_SECONDS, *, whole: bool = False, of: str = "") -> ValueKind:
    """Numbers within bounds. of: the unit, as " of seconds"."""

    def take(value: Any) -> Any:
        if not (type(value) is int or (type(value) is float and not whole)) or not least <= value <= most:
            raise ValueError
        return value if whole else float(value)

    return checked(f"a {'whole ' if whole else ''}number{of} from {least:.12g} to {most:.12g}", take)


def seconds(least: float = 0, most: float = LONGEST_SECONDS) -> ValueKind:
    """Times in seconds."""
    return number(least, most, of=" of seconds")


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


TRUTH: Final = checked("true or false", _truth)


def one_of(words: type[StrEnum]) -> ValueKind:
    """One of these words; YAML reads a bare off as false."""

    def take(value: Any) -> StrEnum:
        word = "off" if value is False else value
        if word not in list(words):
            raise ValueError
        return words(word)

    return checked(f"one of {', '.join(words)}", take)


def text(pattern: re.Pattern[str], what: str) -> ValueKind:
    """A text that a pattern matches as a whole; what: the name of such texts, as "label key"."""
    return ValueKind(f"a {what}", lambda value, path, reader: reader.text(value, path, pattern, what))


def texts(pattern: re.Pattern[str], what: str, *, some: bool = False) -> ValueKind:
    """A set of such texts, written as a list without repetition. some: whether it needs at least one."""

    def read_all(value: Any, path: str, reader: DocumentReader) -> frozenset[str]:
        if some and value == []:
            reader.fault(path, f"must name at least one {what}")
        return frozenset(reader.texts(value, path, pattern, what))

    return ValueKind(f"a list, each a {what}", read_all)


def mapping(item: ValueKind, of: str) -> ValueKind:
    """A mapping of any names. item: the type of each value; of: the kind of names, as "resource names"."""

    def read_all(value: Any, path: str, reader: DocumentReader) -> Mapping[str, Any]:
        found = {}
        for name, each in reader.mapping(value, path, None).items():
            if not name:
                reader.fault(path, "has a key without a name")
            found[name] = item.read(each, f"{path}.{name}", reader)
        return found

    return ValueKind(f"a mapping of {of}, each to {item.what}", read_all)
