"""Writes one YAML document as a Helm template that becomes any of several variants of it.

What the variants share is written once; what an option changes stands between `if` and `end`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml


@dataclass(frozen=True)
class Value:
    """A template expression in the place of a value, on the line of its key."""

    expression: str


@dataclass(frozen=True)
class BelowKey:
    """A template expression that gives an object below its key."""

    expression: str


@dataclass(frozen=True)
class Optional:
    """A key that is there, with the value as JSON, if a chart's value is set. path: of the value."""

    path: str


class _Absent:
    """What a variant has where it has no such key."""


_ABSENT: Final = _Absent()
_BRACES: Final = re.compile(r"\{\{")
_WIDTH: Final = 10_000
"""So that no scalar is folded: an expression of ours must not be taken apart."""


def template(default: Any, variants: Mapping[str, Any]) -> str:
    """The template of one document. variants: the condition of an option -> the document with that option.

    Where several options change one place, the first of them holds.
    """
    return "\n".join(_lines(default, variants, 0)) + "\n"


def _lines(default: Any, variants: Mapping[str, Any], indent: int) -> Iterator[str]:
    """The lines of a value that begin on a line of their own."""
    changed = {condition: each for condition, each in variants.items() if each != default}
    every = [default, *changed.values()]
    if not changed:
        yield from _plain(default, indent)
    elif all(isinstance(each, dict) for each in every):
        for key in dict.fromkeys(key for each in every for key in each):
            found = {condition: each.get(key, _ABSENT) for condition, each in changed.items()}
            yield from _entry(f"{_scalar(key, 0)}:", default.get(key, _ABSENT), found, indent)
    elif _is_extended(every):
        yield from _items(default, changed, indent)
    else:
        raise ValueError(f"options change the kind of one value: {every}")


def _items(default: list[Any], changed: Mapping[str, list[Any]], indent: int) -> Iterator[str]:
    """The items of a list that variants change or extend."""
    for number, each in enumerate(default):
        found = {condition: other[number] for condition, other in changed.items()}
        yield from _entry("-", each, found, indent)
    for condition, other in changed.items():
        if len(other) > len(default):
            yield f"{{{{- if {condition} }}}}"
            yield from _plain(other[len(default) :], indent)
            yield "{{- end }}"


def _is_extended(every: list[Any]) -> bool:
    """Whether all are lists, and none is shorter than the first."""
    return all(isinstance(each, list) and len(each) >= len(every[0]) for each in every)


def _entry(head: str, default: Any, variants: Mapping[str, Any], indent: int) -> Iterator[str]:
    """The lines of one key, or of one item of a list."""
    changed = {condition: each for condition, each in variants.items() if each != default}
    every = [default, *changed.values()]
    if all(isinstance(each, dict) for each in every) or _is_extended(every):
        yield from _under(head, list(_lines(default, changed, indent + 2)), default, indent)
        return
    opening = "if"
    for condition, each in changed.items():
        yield f"{{{{- {opening} {condition} }}}}"
        yield from _complete(head, each, indent)
        opening = "else if"
    if changed and default is not _ABSENT:
        yield "{{- else }}"
    yield from _complete(head, default, indent)
    if changed:
        yield "{{- end }}"


def _complete(head: str, value: Any, indent: int) -> Iterator[str]:
    """A key or an item with a value that is the same in all variants."""
    pad = " " * indent
    if value is _ABSENT:
        return
    if isinstance(value, Value):
        yield f"{pad}{head} {{{{ {value.expression} }}}}"
    elif isinstance(value, BelowKey):
        yield f"{pad}{head} {{{{- {value.expression} | nindent {indent + 2} }}}}"
    elif isinstance(value, Optional):
        yield f"{{{{- with {value.path} }}}}"
        yield f"{pad}{head} {{{{ toJson . }}}}"
        yield "{{- end }}"
    elif isinstance(value, dict | list) and value:
        yield from _under(head, list(_lines(value, {}, indent + 2)), value, indent)
    else:
        first, *rest = _scalar(value, indent).splitlines()
        yield f"{pad}{head} {first}"
        yield from rest


def _under(head: str, lines: list[str], value: Any, indent: int) -> Iterator[str]:
    """A head with lines below it; an item of a list begins on the line of its dash."""
    pad = " " * indent
    if head != "-":
        yield f"{pad}{head}"
        yield from lines
    elif isinstance(value, dict) and not lines[0].startswith("{{"):
        yield f"{pad}- {lines[0].lstrip()}"
        yield from lines[1:]
    else:
        yield f"{pad}-"
        yield from lines


def _plain(value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _complete(f"{_scalar(key, 0)}:", each, indent)
    elif isinstance(value, list) and value:
        for each in value:
            yield from _complete("-", each, indent)
    else:
        yield " " * indent + _scalar(value, indent)


def _scalar(value: Any, indent: int) -> str:
    """A scalar in YAML: a text of several lines as a block, everything else on one line."""
    if isinstance(value, str) and "\n" in value and value == value.strip("\n") + "\n":
        pad = " " * (indent + 2)
        body = "\n".join(f"{pad}{line}" if line else "" for line in escaped(value).rstrip("\n").split("\n"))
        return f"|\n{body}"
    style = '"' if isinstance(value, str) and "\n" in value else None
    dumped = yaml.safe_dump(
        value, width=_WIDTH, allow_unicode=True, default_flow_style=True, default_style=style
    )
    return escaped(dumped.removesuffix("\n...\n").rstrip("\n"))


def escaped(text: str) -> str:
    """A text that Helm's templates give out as it is."""
    return _BRACES.sub('{{ "{{" }}', text)
