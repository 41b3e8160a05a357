"""Keeps equal parts of objects in memory once: the pods of a Job differ in little but their names.

Only for values that never change after decoding. The remembered parts are bounded in number and size.
Forgetting one costs memory, never correctness. Thread-safe.
"""

from typing import Any, Final, TypeVar

import msgspec

MOST: Final = 8192
"""Parts remembered at once. The API server lists objects by namespace and name, so similar ones follow each
other."""

LARGEST: Final = 2048
"""The largest part that is remembered: in bytes, or characters of a text."""

T = TypeVar("T")
_texts: Final[dict[str, str]] = {}
_parts: Final[dict[tuple[str, bytes], Any]] = {}
_encoder: Final = msgspec.msgpack.Encoder()


def text(value: str) -> str:
    """The shared object of a text."""
    known = _texts.get(value)
    if known is not None:
        return known
    if len(value) <= LARGEST:
        if len(_texts) >= MOST:
            _texts.clear()
        _texts[value] = value
    return value


def texts(values: dict[str, str]) -> dict[str, str]:
    """A new map with shared texts: maps of labels differ often, their keys and values seldom."""
    return {text(key): text(value) for key, value in values.items()}


def part(kind: str, value: T) -> T:
    """The shared object of a value; kind distinguishes values of different types with the same encoding."""
    try:
        encoded = _encoder.encode(value)
    except (OverflowError, ValueError):  # an integer of more than 64 bits: too rare to be worth sharing
        return value
    known: T | None = _parts.get((kind, encoded))
    if known is not None:
        return known
    if len(encoded) <= LARGEST:
        if len(_parts) >= MOST:
            _parts.clear()
        _parts[kind, encoded] = value
    return value
