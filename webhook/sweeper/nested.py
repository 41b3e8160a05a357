"""Mappings in the sweeper's file: how each becomes choices, and what is said of what is wrong with it."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from typing import Any, Final, TypeVar

Check = Callable[[Any], Any]
"""What is kept of a value. Raises ValueError with what it should be, as "a number"."""

T = TypeVar("T")

UNBOUNDED: Final = float("inf")


def read(kind: Callable[..., T], value: Any, checks: Mapping[str, Check]) -> T:
    """The choices of a mapping. checks: by field. Raises ValueError with a sentence that names the field."""
    names = ", ".join(checks)
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is not a mapping of {names}")
    for name in value:
        if name not in checks:
            raise ValueError(f"{name!r} is no setting; there are {names}")
    return kind(**{name: checked(name, given, checks) for name, given in value.items()})


def checked(name: str, value: Any, checks: Mapping[str, Check]) -> Any:
    """What is kept of the value of a field. Raises ValueError with a sentence."""
    try:
        return checks[name](value)
    except ValueError as error:
        raise ValueError(f"{name}: {value!r} is {error}") from None


def check_all(choices: Any, checks: Mapping[str, Check]) -> None:
    """Check choices that were made elsewhere, as by flags. Raises ValueError with a sentence."""
    for each in fields(choices):
        checked(each.name, getattr(choices, each.name), checks)


def number(least: float, most: float = UNBOUNDED, *, whole: bool = False) -> Check:
    """A number within bounds."""
    kind = "a whole number" if whole else "a number"
    bounds = f"from {least:g} on" if most == UNBOUNDED else f"from {least:g} to {most:g}"

    def check(value: Any) -> Any:
        fits = type(value) is int or (type(value) is float and not whole)
        if not fits or not least <= value <= most or value == UNBOUNDED:
            raise ValueError(f"not {kind} {bounds}")
        return value

    return check


def truth(value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise ValueError("not true or false")
    return value


def one_of(kind: type[StrEnum]) -> Check:
    """One of these words; YAML reads a bare off as false."""

    def check(value: Any) -> StrEnum:
        word = "off" if value is False else value
        if word not in list(kind):
            raise ValueError(f"none of {', '.join(kind)}")
        return kind(word)

    return check
